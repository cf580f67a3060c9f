"""Hooks of mkdocs: puts the generated pages and the linked files of the clone into the site.

Pages in docs/ are plain Markdown that links to files as they lie in the clone, so that they read as well without the
site. Here `../README.md` or `../examples/plugin` becomes a page or a file of the site; a target that is not there stays
as it is, and `mkdocs build --strict` refuses it.
"""

from __future__ import annotations

import posixpath
import re
from functools import cache
from pathlib import Path
from typing import Any

import commands
import places
import python_names
import routes
from markdown import Markdown
from markdown.extensions import Extension
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[2]
LINK = re.compile(r"(\]\()([^)\s#:]+)(#[^)\s]*)?(\))")
FENCE = re.compile(r"^(```|~~~).*?^\1$", re.MULTILINE | re.DOTALL)


class ListsAsOnGitHub(Extension):
    """What stands in a list is indented by two spaces, as CommonMark and every plain viewer read it, not by four."""

    def extendMarkdown(self, md: Markdown) -> None:  # noqa: N802  # the library's name
        md.tab_length = 2


@cache
def generated() -> dict[str, str]:
    """Path in the site -> text of every page that is made here."""
    return {**commands.pages(), **routes.pages(), **python_names.pages()}


def on_config(config: Any) -> Any:
    """Lists where the navigation names a folder of generated pages: its index first, then the pages."""
    config.markdown_extensions.append(ListsAsOnGitHub())
    config.nav = [expanded(one) for one in config.nav]
    return config


def expanded(entry: Any) -> Any:
    if isinstance(entry, dict):
        return {title: [expanded(x) for x in of] if isinstance(of, list) else below(of) for title, of in entry.items()}
    return entry


def below(target: str) -> Any:
    """The pages of a folder, or the page itself."""
    if not target.endswith("/"):
        return target
    names = sorted(name for name in generated() if name.startswith(target) and name.endswith(".md"))
    return sorted(names, key=lambda name: not name.endswith("/index.md"))


def on_files(files: Files, config: Any) -> Files:
    """Adds what no folder holds: the reference pages, and the files of the clone that pages link to."""
    for path, text in generated().items():
        files.append(File.generated(config, path, content=text))
    for name in places.linked(ROOT):
        source = ROOT / name
        if source.is_dir():
            files.append(File.generated(config, places.in_site(name + "/README.md"), content=listing(source, name)))
        elif source.suffix == ".md":
            files.append(File.generated(config, places.in_site(name), content=source.read_text(encoding="utf-8")))
        else:
            files.append(File.generated(config, places.in_site(name), abs_src_path=str(source)))
    return files


def listing(folder: Path, name: str) -> str:
    """A page with the text files of a folder."""
    parts = [f"# {name}\n"]
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.suffix in (".py", ".toml", ".md", ".json"):
            kind = path.suffix.lstrip(".").replace("py", "python").replace("md", "text")
            parts.append(f"## {path.relative_to(folder)}\n\n~~~~{kind}\n{path.read_text(encoding='utf-8')}~~~~\n")
    return "\n".join(parts)


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """The page with its links to files of the clone turned into links within the site."""
    here = page.file.src_uri
    folder = posixpath.dirname(places.in_clone(here))
    fenced = [(match.start(), match.end()) for match in FENCE.finditer(markdown)]

    def moved(match: re.Match[str]) -> str:
        if any(start <= match.start() < end for start, end in fenced):
            return match[0]
        name = posixpath.normpath(posixpath.join(folder, match[2]))
        if not (ROOT / name).exists():
            return match[0]
        target = places.in_site(name + "/README.md" if (ROOT / name).is_dir() else name)
        return match[1] + posixpath.relpath(target, posixpath.dirname(here) or ".") + (match[3] or "") + match[4]

    return LINK.sub(moved, markdown)
