"""What each category catches and leaves alone, by the automaton and, apart from it, by `re`."""

import pytest

from benchmarks.safety_corpus import corpus
from espalier.constraints.safety.catalogue import CATEGORIES, PATTERNS
from espalier.constraints.safety.compile import filter_of
from espalier.constraints.safety.judge import find
from espalier.constraints.safety.spec import Safety
from tests.safety_tables import CAUGHT, LEFT, LISTS


def filter_for(category):
    return Safety(
        categories=[category],
        include=[one.name for one in PATTERNS if one.is_option and one.category == category],
        lists={category: LISTS[category]} if category in LISTS else {},
    )


@pytest.mark.parametrize("category", CATEGORIES)
def test_every_category_has_thirty_of_each(category):
    assert len(CAUGHT[category]) >= 30
    assert len(LEFT[category]) >= 30
    assert not set(CAUGHT[category]) & set(LEFT[category])


@pytest.mark.parametrize("category", CATEGORIES)
def test_what_is_caught(category):
    spec = filter_for(category)
    dfa = filter_of(spec).dfa
    for text in CAUGHT[category]:
        assert not dfa.accepts(text.encode()), f"not caught: {text!r}"
        found = find(spec, text)
        assert found, f"re does not find it: {text!r}"
        assert {one.category for one in found} == {category}
        assert all(one.text == text[one.start : one.end] for one in found)


@pytest.mark.parametrize("category", CATEGORIES)
def test_what_is_left_alone(category):
    spec = filter_for(category)
    dfa = filter_of(spec).dfa
    for text in LEFT[category]:
        assert dfa.accepts(text.encode()), f"caught: {text!r}"
        assert find(spec, text) == []


def test_every_pattern_catches_something_of_its_table():
    found = {one.pattern for name in CATEGORIES for text in CAUGHT[name] for one in find(filter_for(name), text)}
    assert found >= {one.name for one in PATTERNS}


def test_what_a_pattern_itself_says_holds_no_anchor():
    # The three parts are read one by one: an anchor in the middle one would hold at its own ends.
    assert not [one.name for one in PATTERNS if r"\Z" in one.itself or r"\A" in one.itself or "(?:^" in one.itself]


def test_ordinary_text_and_code_by_templates_sets_off_next_to_nothing():
    """What it does set off is in docs/safety.md: keyword arguments such as `password=None`, numbers of 13 digits."""
    texts = corpus(240_000, seed=7)
    spec = Safety("maximum", include=[one.name for one in PATTERNS if one.is_option])
    assert sum(len(text.encode()) for text in texts.values()) >= 240_000
    found = {name: {f"{one.category}/{one.pattern}" for one in find(spec, text)} for name, text in texts.items()}
    assert {name: rules for name, rules in found.items() if rules} == {
        "Python": {"credentials/assignment"},
        "logs": {"pii/card"},
    }
    dfa = filter_of(Safety("standard")).dfa
    for name, text in texts.items():
        assert dfa.accepts(text.encode()) == (name != "Python"), name
