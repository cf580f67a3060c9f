"""README is short, and its pictures and texts are what the model answers; `test_docs.py` runs what it says to type."""

from __future__ import annotations

import importlib.util
import itertools
import json
import re
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

pytest.importorskip("transformers", reason="transformers is not installed")

from benchmarks.page import badges
from benchmarks.page.document import document
from benchmarks.page.quoted import measured, quotations
from benchmarks.page.ratios import number
from tests.doc_blocks import blocks_of, commands_of

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
IMAGES = ROOT / "docs" / "images"
LONGEST = 7_500
"""Bytes: a screen and a half."""


def script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "scripts" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_readme_is_short_and_begins_with_a_moving_picture() -> None:
    assert len(README.encode()) <= LONGEST
    pictures = re.findall(r"!\[[^\]]+\]\(([^)]+)\)", README)
    assert pictures == ["docs/images/tokens.svg", "docs/images/trace.png"]
    assert README.index(pictures[0]) < README.index("## ")
    assert all(0 < (ROOT / path).stat().st_size < 300_000 for path in pictures)


def test_nothing_leads_nowhere() -> None:
    """A line of prose that ends with a colon is followed by what it announces."""
    outside = re.sub(r"^(```|~~~)(\w+)\n.*?^\1$", r"\1\2", README, flags=re.MULTILINE | re.DOTALL)
    lines = [line for line in outside.splitlines() if line.strip()]
    for line, following in itertools.pairwise(lines):
        if line.endswith(":"):
            assert following.startswith(("```", "~~~", "<!--", "<picture>", "- ", "|")), line


def test_the_pictures_show_what_the_model_answers(demo_engine: Any) -> None:
    for name, drawn in script("readme_pictures").drawn(demo_engine).items():
        assert (IMAGES / name).read_text(encoding="utf-8") == drawn, name


def test_the_moving_picture_strikes_what_was_refused_and_ends_with_the_whole_text(demo_engine: Any) -> None:
    pictures = script("readme_pictures")
    _, bound = pictures.run(demo_engine)
    struck = [text for text, probability in pictures.pieces_of(bound) if probability is not None]
    assert struck == ["Sure"]
    assert "".join(text for text, probability in pictures.pieces_of(bound) if probability is None) == bound.text
    assert "prefers-reduced-motion" in (IMAGES / "tokens.svg").read_text(encoding="utf-8")


def bench() -> dict[str, Any]:
    return json.loads((IMAGES / "bench.json").read_text(encoding="utf-8"))


def test_the_page_of_benchmarks_is_written_from_its_data() -> None:
    data = bench()
    drawn = [name for name in ("exactness", "speed", "tax") if (IMAGES / f"bench-{name}-dark.svg").exists()]
    assert (ROOT / "docs/benchmarks.md").read_text(encoding="utf-8") == document(data, drawn)
    assert drawn == ["exactness", "speed", "tax"]


def test_the_badges_say_what_the_project_says() -> None:
    said = badges.facts(bench(), ROOT)
    assert (IMAGES / "badges.svg").read_text(encoding="utf-8") == badges.svg(said), "python -m benchmarks.page --write"
    assert list(said)[:4] == ["version", "python", "licence", "types"]


def test_each_ratio_that_is_quoted_stands_in_the_data() -> None:
    known = measured(bench())
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    quoted = [(page.name, *one) for page in pages for one in quotations(page.read_text(encoding="utf-8"))]
    assert len(quoted) >= 7
    for page, value, place in quoted:
        assert value == number(known[place].middle), f"{page}: {place}"


RATIO = re.compile(
    r"\d[\d.,]*(?P<mark><!-- ratio: [^>]+-->)?\s+times\s+"
    r"(?:as\s+(?:long|fast|slow|much|many)|faster|slower|longer|the\s+(?:time|speed|tokens|requests)|a\s+(?:step|pass)|that\s+of)"
)
OTHERWISE = {
    "dependencies.md": (1, "two builds of llama.cpp on one machine"),
    "explanation/masks.md": (1, "grammars built as a whole and explored on demand, when that was decided"),
    "scale.md": (1, "python -m benchmarks.scale.ray"),
    "security.md": (1, "a limit: texts may become so long, nothing is measured"),
    "server.md": (1, "python -m benchmarks.server.report --only transformers"),
    "strategies.md": (3, "python -m benchmarks drafts, budget; the ban's two modes"),
    "llamacpp.md": (1, "python -m benchmarks.server.report, --kv-unified"),
}
"""Ratios that are not of the page, by the page that says them: how many, and what measures them. None is of Espalier
beside another engine: those are quoted, so that `make bench` writes them anew."""


def test_each_number_that_names_a_ratio_is_quoted_from_the_data() -> None:
    pages = {"README.md": ROOT / "README.md"}
    pages |= {str(page.relative_to(ROOT / "docs")): page for page in sorted((ROOT / "docs").rglob("*.md"))}
    del pages["benchmarks.md"]  # it is the data
    found = {}
    for name, page in pages.items():
        bare = [ratio[0] for ratio in RATIO.finditer(page.read_text(encoding="utf-8")) if not ratio["mark"]]
        if len(bare) != OTHERWISE.get(name, (0, ""))[0]:
            found[name] = bare
    assert not found, "quote them: `1.2<!-- ratio: TABLE / ROW / PEER -->`, or say in OTHERWISE what measures them"


def test_a_bare_ratio_is_seen_and_a_quoted_one_is_known() -> None:
    assert [
        bool(ratio["mark"]) for ratio in RATIO.finditer("2.5 times as long, 3<!-- ratio: a / b / c --> times slower")
    ] == [False, True]
    assert not RATIO.search("ask 3 times, then end")


def test_what_the_first_example_shows_is_what_is_printed(demo_engine: Any) -> None:
    import espalier

    (console,) = [block for block in blocks_of(ROOT / "README.md") if block.language == "console"]
    (free_line, free), (bound_line, bound) = commands_of(console)
    schema = espalier.JsonSchema(json.loads((ROOT / "examples/user.schema.json").read_text(encoding="utf-8")))
    assert "--seed 2" in free_line
    assert "--seed 2" in bound_line
    assert demo_engine.generate("Generate user info", seed=2).text == free.rstrip("\n")
    result = demo_engine.generate("Generate user info", constraint=schema, seed=2)
    assert bound == f"{result.text}\ntrace: out/trace.html\n"
    assert f"{100 * result.trace.steps[0].removed_mass:.0f} % of" in README


def test_the_demo_lines_have_seeds_with_which_the_small_model_is_sensible(demo_engine: Any) -> None:
    """Lines of the README once gave `no` to "Is Paris in France?" for most seeds, and `7 + 50` for 7 + 5."""
    import espalier

    choice = espalier.Choice(["Paris", "London"])
    answers = {
        demo_engine.generate("What is the capital of France?", constraint=choice, seed=seed).text for seed in range(20)
    }
    assert answers == {"Paris"}
    grammar = espalier.Gbnf((ROOT / "examples/arithmetic.gbnf").read_text(encoding="utf-8"))
    sums = {
        demo_engine.generate("Say exactly: 7 + 5", constraint=grammar, max_tokens=6, on_budget="close", seed=seed).text
        for seed in range(20)
    }
    assert sums == {"7 + 5"}
    text = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "README.md", *(ROOT / "docs").rglob("*.md")))
    assert not re.search(r"Is Paris in France\?.{0,60}(choice|yes)|What is 7 \+ 5", text, re.DOTALL)
