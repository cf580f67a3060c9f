"""Expressions of which a text stands at one place: judged by Glushkov's automaton of the expression, written out."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from espalier.grammar.ambiguity import is_narrow, is_one_unambiguous
from espalier.grammar.ast import EMPTY, CharClass, Literal, Node, Repeat, RuleRef, Sequence, TokenRef, alt, seq
from espalier.grammar.regex.parse import parse_regex
from tests.examples import examples

Place = int


class Glushkov:
    """The automaton whose states are the characters of an expression, each copy of a repetition for itself."""

    def __init__(self, node: Node) -> None:
        self.reads: list[frozenset[str]] = []
        self.follow: dict[Place, set[Place]] = {}
        _, self.first, _ = self._add(node)

    def _add(self, node: Node) -> tuple[bool, set[Place], set[Place]]:
        """Whether it may be empty, and the places that it may begin and end with."""
        if isinstance(node, Literal):
            return self._in_order([self._leaf(frozenset(char)) for char in node.text])
        if isinstance(node, CharClass):
            return self._leaf(frozenset(char for char in "abc" if any(lo <= ord(char) <= hi for lo, hi in node.ranges)))
        if isinstance(node, Repeat):
            parts = [self._add(node.item) for _ in range(node.min)]
            if node.max is None:
                _, first, last = looped = self._add(node.item)
                for place in last:
                    self.follow[place] |= first
                parts.append((True, *looped[1:]))
            else:  # (x (x (x)?)?)?: a later copy only after an earlier one
                tail: list[tuple[bool, set[Place], set[Place]]] = []
                for _ in range(node.max - node.min):
                    _, first, last = self._in_order([self._add(node.item), *tail])
                    tail = [(True, first, last)]
                parts += tail
            return self._in_order(parts)
        if isinstance(node, Sequence):
            return self._in_order([self._add(item) for item in node.items])
        options = [self._add(option) for option in node.children()]
        return (
            any(nullable for nullable, _, _ in options),
            {place for _, first, _ in options for place in first},
            {place for _, _, last in options for place in last},
        )

    def _leaf(self, chars: frozenset[str]) -> tuple[bool, set[Place], set[Place]]:
        place = len(self.reads)
        self.reads.append(chars)
        self.follow[place] = set()
        return False, {place}, {place}

    def _in_order(self, parts: list[tuple[bool, set[Place], set[Place]]]) -> tuple[bool, set[Place], set[Place]]:
        nullable, first, last = True, set[Place](), set[Place]()
        for may_skip, begins, ends in parts:
            for place in last:
                self.follow[place] |= begins
            first |= begins if nullable else set()
            last = (last if may_skip else set()) | ends
            nullable = nullable and may_skip
        return nullable, first, last

    def most_places(self) -> int:
        """At how many places a text stands at most."""
        start = frozenset([-1])
        met, todo, most = {start}, [start], 1
        while todo:
            places = todo.pop()
            for char in "abc":
                after = frozenset(
                    target
                    for place in places
                    for target in (self.first if place < 0 else self.follow[place])
                    if char in self.reads[target]
                )
                most = max(most, len(after))
                if after not in met:
                    met.add(after)
                    todo.append(after)
        return most


leaves = st.sampled_from(
    [Literal("a"), Literal("b"), Literal("ab"), Literal("c"), CharClass(((97, 98),)), CharClass(((98, 99),)), EMPTY]
)
counts = st.sampled_from([(0, 1), (0, None), (1, None), (2, 2), (1, 2), (0, 3), (2, None), (3, 3)])
expressions = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.lists(inner, min_size=2, max_size=3).map(lambda items: seq(*items)),
        st.lists(inner, min_size=2, max_size=3).map(lambda options: alt(*options)),
        st.builds(lambda item, bounds: Repeat(item, *bounds), inner, counts),
    ),
    max_leaves=6,
)


@given(expressions)
@example(Repeat(seq(Literal("a"), Repeat(Literal("b"), 0, 1)), 2, 2))
@settings(max_examples=examples(600), deadline=None)
def test_of_what_is_one_unambiguous_a_text_stands_at_one_place(node: Node) -> None:
    if is_one_unambiguous(node):
        assert Glushkov(node).most_places() == 1


NARROW = [
    r"\d{4}-\d{2}-\d{2}",
    r"[a-z]{1,30}( [a-z]{1,30}){0,100}",
    r"\p{L}{1,40}( \p{L}{1,40}){0,100}",
    r"(\w+\s)+",
    r".{1,400}",
    r"(.{1,50}\n){1,100}",
    r'"([^"\\]|\\.)*"',
    r"(a|bc?){9}",
    r"a{5}a{5}",
    r"(ab){5,}c",
    # Not one-unambiguous, but small, and nothing is counted.
    r"(.*)(.*)(.*)z",
    r"(a+)+b",
    r"(?:25[0-5]|2[0-4]\d|1?\d?\d)(?:\.(?:25[0-5]|2[0-4]\d|1?\d?\d)){3}",
]
WIDE = [
    r".*a.{300}",
    r"(a|b)*a(a|b){12}",
    r"(?:.*a){20}",
    r"(x?){1000}",
    r"((a{1,100}){1,100}){1,100}",
    r"(.{0,1000}x){0,1000}",
    r"(a?){50}a{50}",
    r".*(.{100}|.{200}).*",
    r"(ab){5,}a",
    "|".join(f"word{number}" for number in range(500)),
]


@pytest.mark.parametrize("pattern", NARROW)
def test_these_are_narrow(pattern: str) -> None:
    assert is_narrow(parse_regex(pattern))


@pytest.mark.parametrize("pattern", WIDE, ids=lambda pattern: pattern[:30])
def test_these_are_not_shown_to_be_narrow(pattern: str) -> None:
    assert not is_narrow(parse_regex(pattern))


@pytest.mark.parametrize("node", [RuleRef("a"), seq(Literal("a"), TokenRef("<a>"))])
def test_rules_and_tokens_are_not_shown_to_be_narrow(node: Node) -> None:
    assert not is_narrow(node)
