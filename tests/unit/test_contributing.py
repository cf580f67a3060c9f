"""CONTRIBUTING.md says which files an addition takes; here an addition that was made is held to that list."""

from __future__ import annotations

import re

import pytest

from tests.footprint import ROOT, SOURCES, modules_that_know

TEXT = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
LIST = re.compile(r"^Files, as for (?P<names>`[^:]+): (?P<files>.*?)\n\n", re.MULTILINE | re.DOTALL)
QUOTED = re.compile(r"`([^`\n]+)`")
MOST = {
    "AnyOf": 3,
    "hermes": 2,
    "xtc_threshold": 7,
    "awrs": 3,
    "ess_threshold": 3,
    "schema_order": 9,
    "TransformersOpener": 1,
    "gpu_layers": 4,
    "SAFETY_CHECK": 2,
}
"""How many modules an addition may take, by its example."""


def listed() -> dict[str, tuple[list[str], set[str]]]:
    """By the first example of a list: its examples, and the paths below `src/espalier`."""
    found = {}
    for match in LIST.finditer(TEXT):
        names = QUOTED.findall(match["names"])
        paths = {text for text in QUOTED.findall(match["files"]) if text.endswith(".py") and (SOURCES / text).exists()}
        found[names[0]] = (names, paths)
    return found


def test_every_kind_of_addition_has_its_list() -> None:
    assert {name: len(paths) for name, (_, paths) in listed().items()} == MOST


@pytest.mark.slow
@pytest.mark.parametrize("example", MOST)
def test_an_addition_that_was_made_took_the_files_of_its_list(example: str) -> None:
    names, paths = listed()[example]
    assert {path for name in names for path in modules_that_know(name)} == paths


def test_every_path_that_is_named_exists() -> None:
    paths = {text for text in QUOTED.findall(TEXT) if re.fullmatch(r"[\w./-]+/[\w.-]*\.(py|md|toml|txt)", text)}
    assert len(paths) > 20
    missing = {path for path in paths if not (ROOT / path).exists() and not (SOURCES / path).exists()}
    assert missing == set()


@pytest.mark.parametrize(("title", "least", "most"), [("One chat request", 10, 12), ("One constraint", 5, 10)])
def test_a_walk_names_functions_that_exist_in_few_stops(title: str, least: int, most: int) -> None:
    text = (ROOT / "docs" / "structures.md").read_text(encoding="utf-8")
    [section] = [part for part in text.split("\n## ") if part.startswith(title)]
    stops = re.findall(r"^\d+\. `([\w/]+\.py)` `([\w.]+)`:", section, flags=re.MULTILINE)
    assert least <= len(stops) <= most
    for path, name in stops:
        source = (SOURCES / path).read_text(encoding="utf-8")
        for part in name.split("."):
            assert re.search(rf"^\s*(async def|def|class) {part}\b", source, flags=re.MULTILINE), (path, part)
