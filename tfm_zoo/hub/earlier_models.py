"""What a run leaves in a folder is deleted where `--overwrite_output_dir` replaces its model."""

from contextlib import suppress
from pathlib import Path

from .. import models
from ..proof.contents import INDEX, SETTINGS, SINGLE_FILE, read_json
from ..utils.folder_kinds import MANIFEST

#: files that say which model a folder holds: without them, what a killed deletion leaves passes for none
DESCRIBING = (MANIFEST, "trainer_state.json")
#: by exact names, unlike `utils.tokenizer_files`: a pattern such as `*.model` would delete a user's file
TOKENIZER_NAMES = (
    *("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "chat_template.jinja"),
    *("vocab.txt", "vocab.json", "target_vocab.json", "merges.txt", "tokenizer.model", "source.spm", "target.spm"),
    *("spiece.model", "sentencepiece.model", "sentencepiece.bpe.model", "spm.model", "bpe.codes", "byte_maps.json"),
    *("dict.txt", "vocab-src.json", "vocab-tgt.json"),
)
#: what recipes save beside the code of a model. (A user's own file has another name.)
SAVED = (
    *(*SETTINGS, SINGLE_FILE, "model-[0-9]*-of-[0-9]*.safetensors", INDEX),
    *(f"{folder}{name}" for folder in ("", "target_tokenizer/") for name in TOKENIZER_NAMES),
    *("adapter/adapter_config.json", "adapter/adapter_model.safetensors"),
    *("modules.json", "sentence_bert_config.json", "config_sentence_transformers.json", "[0-9]_Pooling/config.json"),
    *("[0-9]_Dense/config.json", "[0-9]_Dense/model.safetensors"),
)


def delete_earlier_model(folder: Path, but_for: Path | None = None) -> None:
    """Deletes the model that a recipe saved in a folder. A file stays if `but_for` holds one that will replace it.

    The code of somebody's own class stays, too: it may be the very file from which that class is imported.
    """
    named: set[str] = set()
    with suppress(ValueError, TypeError):  # no manifest, or somebody else's
        named = {*read_json(folder / MANIFEST).get("code", ())}
    code = [path.name for path in Path(models.__file__).parent.glob("*.py") if path.name in named]
    for path in [path for name in (*DESCRIBING, *SAVED, *code) for path in folder.glob(name) if not path.is_dir()]:
        if but_for is None or not (but_for / path.relative_to(folder)).exists():
            path.unlink()
            with suppress(OSError):  # it holds something else
                path.parent.rmdir()
