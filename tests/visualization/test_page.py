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


@pytest.fixture
def opened(browser, tmp_path):
    """Opens a page; at the end it must have requested nothing but itself and met no error."""
    asked, errors, path = set(), [], tmp_path / "attention.html"
    with browser.new_page(viewport={"width": 1300, "height": 900}, offline=True) as page:
        page.on("request", lambda request: asked.add(request.url))
        page.on("pageerror", lambda error: errors.append(error))
        page.on("console", lambda message: message.type == "error" and errors.append(message.text))

        def open_page(maps: dict[str, AttentionMap], **start) -> Page:
            attention_page(maps, path, **start)
            page.goto(path.as_uri())
            return page

        yield open_page
    assert not errors and asked == {path.as_uri()}


def drawn(page: Page) -> torch.Tensor:
    """The weights of the large map, read off its colours by the legend, from 0 at its left to 1 at its right."""
    colours = {name: torch.tensor(values).float() for name, values in page.evaluate(DRAWN).items()}
    return (torch.cdist(colours["cells"], colours["legend"]).argmin(dim=1) / (len(colours["legend"]) - 1)) ** 2


def test_any_layer_head_and_kind(opened, tokenizer):
    page = opened(maps := attention_maps(model_of("translator"), tokenizer, TEXT, TARGET))
    for kind, layer, head in (("cross", 0, 0), ("cross", 0, 2), ("encoder", 1, 2), ("decoder", 1, 3)):
        page.select_option("#head", str(head))
        page.select_option("#layer", str(layer))
        if kind != "cross":
            page.get_by_role("button", name=f"self-attention of the {kind}").click()
        torch.testing.assert_close(drawn(page), maps[kind].weights[layer, head].flatten(), atol=0.02, rtol=0)


def test_large_maps_and_any_text(opened):
    """Tokens that would be markup are text, and layers keep their numbers."""
    tokens = ["</script>", "<b>", '"', "\u2028", *("token" for _ in range(36))]
    weights = torch.randn(2, 12, 40, 40, generator=torch.Generator().manual_seed(0)).mul(3).softmax(-1)
    page = opened({"encoder": AttentionMap("encoder", weights, tokens, tokens, "<i>model</i>", [1, 4])}, layer=4)
    assert page.locator("h1").inner_text() == "Attention of <i>model</i>"
    assert page.locator("#layer option").all_inner_texts() == ["1", "4"]
    torch.testing.assert_close(drawn(page), weights[1, 0].flatten(), atol=0.02, rtol=0)
