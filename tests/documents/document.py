"""The parts of a document: headings and links, text in backticks, blocks of code and their commands."""

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDERS = (".ci", "benchmarks", "docs", "model_cards", "recipes", "tests", "tfm_zoo")
#: the files and folders of a clone
PARTS = [path for path in ROOT.iterdir() if path.is_file() or path.name in FOLDERS]
BLOCK = re.compile(r"^(`{3,})(\w*)\n(.*?)^\1$", re.MULTILINE | re.DOTALL)
SPAN = re.compile(r"(?<!`)(`+)(?!`)(.+?)(?<!`)\1(?!`)", re.DOTALL)
LINK = re.compile(r"\[[^\]]*\]\(([^)]*)\)")
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)


@dataclass(frozen=True)
class Document:
    path: Path
    text: str

    def __str__(self) -> str:
        return self.path.relative_to(ROOT).as_posix()

    @property
    def languages(self) -> set[str]:
        return {block[2] for block in BLOCK.finditer(self.text)}

    @property
    def prose(self) -> str:
        return BLOCK.sub("", self.text)

    @property
    def spans(self) -> list[str]:
        """The texts in backticks, each on one line."""
        return [" ".join(span[2].split()) for span in SPAN.finditer(self.prose)]

    @property
    def links(self) -> list[str]:
        return LINK.findall(SPAN.sub("", self.prose))

    @property
    def anchors(self) -> set[str]:
        """The anchors of the headings: what stands behind `#` in a link to one."""
        return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in HEADING.findall(self.prose)}

    def code(self, *languages: str) -> str:
        """The blocks in these languages. Lines keep their numbers in the document, so that tracebacks name them."""
        code, end = "", 0
        for block in BLOCK.finditer(self.text):
            if block[2] in languages:
                code += "\n" * self.text.count("\n", end, block.start(3)) + block[3]
                end = block.end(3)
        return code

    @property
    def commands(self) -> list[list[str]]:
        """The commands of the shell blocks, in order, each as a list of words."""
        return [words for words in map(split, self.code("bash", "sh").replace("\\\n", " ").splitlines()) if words]


def split(line: str) -> list[str]:
    """The words of a command, without its comment; `|`, `;`, `>` and the like are words even between letters."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    return list(lexer)


def read(path: Path) -> Document:
    return Document(path, path.read_text(encoding="utf-8"))


CARDS = [read(path) for path in sorted(ROOT.glob("model_cards/*.md"))]
RESULTS = [read(path) for path in sorted(ROOT.glob("recipes/results/*.md"))]
REFERENCE = [read(path) for path in sorted(ROOT.glob("docs/reference/*.md"))]
PAGES = [read(path) for pages in ("*.md", "docs/*.md", "recipes/*.md") for path in sorted(ROOT.glob(pages))]
DOCUMENTS = PAGES + REFERENCE + CARDS + RESULTS
