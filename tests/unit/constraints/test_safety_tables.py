"""What each category catches and lets pass of its table, by `re` and by the automata; the tables are of
`tests/safety_rates/`, written before the patterns and not from them."""

import re
from pathlib import Path

import pytest

from espalier.constraints.compiler import Compiler
from espalier.constraints.safety.catalogue import CATEGORIES, PATTERNS
from espalier.constraints.safety.judge import find
from espalier.constraints.safety.spec import Safety
from espalier.tokens.vocab import Vocab
from tests.safety_rates.corpus import corpus
from tests.safety_rates.rates import filter_for, rates, table

DOCS = Path(__file__).parents[3] / "docs" / "safety.md"


@pytest.mark.parametrize("category", CATEGORIES)
def test_every_category_has_a_hundred_of_each_with_a_source(category):
    rows = table(category)
    assert sum(row.is_caught for row in rows) >= 100
    assert sum(not row.is_caught for row in rows) >= 100
    assert len({row.text for row in rows}) == len(rows)
    assert all(row.source for row in rows)


@pytest.mark.parametrize("category", CATEGORIES)
def test_the_goal_is_met_and_each_miss_is_in_the_docs(category):
    found = rates(category)
    assert found.caught >= 0.95
    assert found.false_alarms <= 0.01
    docs = DOCS.read_text(encoding="utf-8")
    for text in (*found.missed, *(text for text, _ in found.banned)):
        assert f"`` {text} ``" in docs, f"docs/safety.md does not list {text!r}"


@pytest.mark.parametrize("category", CATEGORIES)
def test_the_automata_catch_what_re_finds(category):
    spec = filter_for(category)
    compiled = Compiler(Vocab.bytes()).compile(spec)
    for row in table(category):
        found = find(spec, row.text)
        assert compiled.accepts(row.text) == (not found), row.text
        assert {one.category for one in found} <= {category}
        assert all(one.decoded or one.text == row.text[one.start : one.end] for one in found)


def test_every_pattern_catches_something_of_its_table():
    found = {
        one.pattern
        for name in CATEGORIES
        for row in table(name)
        if row.is_caught
        for one in find(filter_for(name), row.text)
    }
    optional = {one.name for one in PATTERNS if one.is_option}  # the tables are of what is on by itself
    assert found >= {one.name for one in PATTERNS} - optional


def test_what_a_pattern_itself_says_holds_no_anchor():
    # The three parts are read one by one: an anchor in the middle one would hold at its own ends.
    assert not [one.name for one in PATTERNS if r"\Z" in one.itself or r"\A" in one.itself or "(?:^" in one.itself]


def test_patterns_are_in_lower_case_because_case_is_ignored():
    assert not [
        one.name for one in PATTERNS if re.search("[A-Z]", re.sub(r"\\.", "", one.before + one.itself + one.after))
    ]


def test_every_pattern_of_a_key_has_its_source():
    assert not [one.name for one in PATTERNS if one.category == "credentials" and one.part == "keys" and not one.source]


@pytest.mark.slow
def test_ordinary_text_and_code_by_templates_sets_off_nothing():
    texts = corpus(240_000, seed=7)
    spec = Safety("maximum", include=[one.name for one in PATTERNS if one.is_option])
    assert sum(len(text.encode()) for text in texts.values()) >= 240_000
    assert not {(name, one.pattern) for name, text in texts.items() for one in find(spec, text)}
    compiled = Compiler(Vocab.bytes()).compile(Safety("standard"))
    assert all(compiled.accepts(text) for text in texts.values())
