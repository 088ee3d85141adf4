"""The pages of the site: the repository's documents and what they show, at their own paths, so that links hold here and
there. What `docs` holds is at its path in the repository, too."""

import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files, InclusionLevel

ROOT = Path(__file__).parents[1]
PARTS = ("*.md", "benchmarks/*.md", ".github/actions/*/*.yml", "docs/*.md", "docs/*/*", "model_cards/*")
PARTS += ("recipes/*", "recipes/*/*")
TEMPLATES = ROOT / "recipes" / "comparison"


def on_files(files: Files, config: MkDocsConfig) -> Files:
    from_docs = [file for file in files if file.src_dir == config.docs_dir]
    for file in from_docs:
        files.remove(file)
    for path in sorted({path for part in PARTS for path in ROOT.glob(part)}):
        if path.is_file() and path.suffix != ".pyc" and path.parent != TEMPLATES:
            place = path.relative_to(ROOT).as_posix()
            files.append(File.generated(config, place, abs_src_path=str(path), inclusion=InclusionLevel.INCLUDED))
    return files


def on_page_content(html: str, **_) -> str:
    """Docstrings name other parts as [`name`]."""
    return re.sub(r"\[(<code>[^<]*</code>)\]", r"\1", html)
