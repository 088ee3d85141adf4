"""Model cards, written from what a run knows, and never over a card that a person wrote."""

from pathlib import Path

from huggingface_hub import ModelCard, ModelCardData, constants

MARK = "<!-- Written by tfm_zoo. Remove this line to keep the card from being replaced. -->"


def write_model_card(folder: str | Path, data: ModelCardData, text: str) -> bool:
    """Write `folder/README.md`; False if the README there was not written by this function, and was left alone."""
    path = Path(folder) / "README.md"
    if path.exists() and not is_ours(path.read_text(encoding="utf-8")):
        return False
    card = ModelCard(f"---\n{data.to_yaml()}\n---\n\n{MARK}\n\n{text.strip()}\n")
    card.save(path)
    return True


def is_ours(card: str) -> bool:
    """Whether a card was written by [`write_model_card`], and may be replaced."""
    return MARK in card


def licence_of(model_name_or_path: str) -> str | None:
    """The licence that a checkpoint's own card states, if it has one that can be read."""
    folder = Path(model_name_or_path)
    if not folder.is_dir() and constants.HF_HUB_OFFLINE:
        return None
    try:
        return ModelCard.load(folder / "README.md" if folder.is_dir() else model_name_or_path).data.get("license")
    except Exception:  # a licence that cannot be read must not cost anybody a trained model
        return None


def table(rows: dict[str, object], head: tuple[str, str]) -> str:
    """A Markdown table of two columns."""
    lines = [f"| {head[0]} | {head[1]} |", "|---|---|", *(f"| {key} | {value} |" for key, value in rows.items())]
    return "\n".join(lines)
