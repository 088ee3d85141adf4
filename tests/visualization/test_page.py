"""The page in a browser without a network: by its legend, it draws the model's weights."""

import shutil

import pytest
import torch
from playwright.sync_api import Page, sync_playwright

from tfm_zoo.visualization import AttentionMap, attention_maps, attention_page

from .conftest import TARGET, TEXT, model_of

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
#: it runs as root in a container, and must not look for anything on the network
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]
#: colours, as (red, green, blue), of the middle of each cell of the large map and of each column of the legend
DRAWN = """() => {
  const colour = (canvas, x, y) => [...canvas.getContext("2d").getImageData(x, y, 1, 1).data].slice(0, 3);
  const { queries, keys } = current(), { left, top, cell } = geometry, legend = find("legend");
  const cells = queries.flatMap((_, row) => keys.map((_, column) =>
    colour(find("map"), left + cell * (column + 0.5), top + cell * (row + 0.5))));
  return { cells, legend: Array.from({ length: legend.width }, (_, x) => colour(legend, x, 6)) };
}"""


@pytest.fixture(scope="module")
def browser():
    if CHROMIUM is None:
        pytest.skip("there is no Chromium on this machine to open a page with")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def maps(tokenizer) -> dict[str, AttentionMap]:
    return attention_maps(model_of("translator"), tokenizer, TEXT, TARGET)


@pytest.fixture
def opened(browser, maps, tmp_path):
    """Opens a page; at the end it must have requested nothing but itself and met no error."""
    asked, errors, contexts = [], [], []

    def open_page(maps: dict[str, AttentionMap] = maps, **start) -> Page:
        path = tmp_path / "attention.html"
        attention_page(maps, path, **start)
        contexts.append(browser.new_context(viewport={"width": 1300, "height": 900}, offline=True))
        page = contexts[-1].new_page()
        page.on("request", lambda request: asked.append(request.url))
        page.on("pageerror", lambda error: errors.append(error))
        page.on("console", lambda message: message.type == "error" and errors.append(message.text))
        page.goto(path.as_uri())
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert not errors
    assert set(asked) == {(tmp_path / "attention.html").as_uri()}


def drawn(page: Page) -> torch.Tensor:
    """The weights of the large map, read off its colours by the legend, from 0 at its left to 1 at its right."""
    colours = {name: torch.tensor(values).float() for name, values in page.evaluate(DRAWN).items()}
    nearest = torch.cdist(colours["cells"], colours["legend"]).argmin(dim=1)
    return (nearest / (len(colours["legend"]) - 1)) ** 2


def test_any_layer_head_kind_and_cell(opened, maps):
    page = opened()
    assert page.title() == "Attention of TfmEncoderDecoderForConditionalGeneration"
    for kind, layer, head in (("cross", 0, 0), ("cross", 0, 2), ("encoder", 1, 2), ("decoder", 1, 3)):
        page.select_option("#head", str(head))
        page.select_option("#layer", str(layer))
        if kind != "cross":
            page.get_by_role("button", name=f"self-attention of the {kind}").click()
        torch.testing.assert_close(drawn(page), maps[kind].weights[layer, head].flatten(), atol=0.02, rtol=0)
    attention, (query, key), place = maps["decoder"], (4, 2), page.evaluate("geometry")
    x, y = (place[edge] + place["cell"] * (at + 0.5) for edge, at in (("left", key), ("top", query)))
    page.locator("#map").hover(position={"x": x, "y": y})
    said, _, number = page.locator("#readout").inner_text().rpartition(" ")
    assert said == f"“{attention.queries[query]}” attends to “{attention.keys[key]}”: ≈"
    assert float(number) == pytest.approx(float(attention.weights[1, 3, query, key]), rel=0.03)


def test_large_maps_and_any_text(opened):
    """On a narrow screen too; tokens that would be markup are text, and layers keep their numbers."""
    tokens = ["</script>", "<b>", '"', "\u2028", *("token" for _ in range(36))]
    weights = torch.randn(2, 12, 40, 40, generator=torch.Generator().manual_seed(0)).mul(3).softmax(-1)
    page = opened(maps={"encoder": AttentionMap("encoder", weights, tokens, tokens, "<i>model</i>", [1, 4])}, layer=4)
    assert page.locator("h1").inner_text() == "Attention of <i>model</i>"
    assert page.locator("#layer option").all_inner_texts() == ["1", "4"]
    page.set_viewport_size({"width": 400, "height": 800})
    torch.testing.assert_close(drawn(page), weights[1, 0].flatten(), atol=0.02, rtol=0)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
