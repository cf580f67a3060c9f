"""The tree: values that compare by structure, hash alike in every process, and survive any depth."""

from __future__ import annotations

import pickle
import subprocess
import sys
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from espalier.errors import GrammarError
from espalier.grammar.ast import (
    EMPTY,
    NEVER,
    Alternative,
    AnyChar,
    CharClass,
    Grammar,
    Literal,
    Position,
    Repeat,
    Rule,
    RuleRef,
    Sequence,
    TokenRef,
    alt,
    fold,
    postorder,
    seq,
)
from espalier.grammar.ranges import MAX_CODE_POINT, complement, contains, merge, subtract
from tests.unit.grammar.trees import wild_grammars, wild_nodes

A, B = Literal("a"), Literal("b")
SMALL = 12
small_ranges = st.lists(st.tuples(st.integers(0, SMALL), st.integers(0, SMALL)).map(sorted).map(tuple), max_size=4)


def members(ranges) -> set[int]:
    """Those at the low end; the rest of the code points behave as the last of them does."""
    return {point for point in range(SMALL + 2) if contains(ranges, point)}


def test_positions_do_not_count() -> None:
    here = Position(4, 1, 5)
    assert Literal("a", here) == A
    assert hash(Literal("a", here)) == hash(A)
    assert Repeat(A, 1, 2, here) == Repeat(A, 1, 2)
    assert str(here) == "line 1, column 5"


@given(wild_nodes, wild_nodes)
def test_equal_means_the_same_shape(one, other) -> None:
    assert (one == other) == (repr(one) == repr(other))
    if one == other:
        assert hash(one) == hash(other)


@given(wild_grammars)
def test_pickle_keeps_equality(grammar) -> None:
    assert pickle.loads(pickle.dumps(grammar)) == grammar


def test_hashes_are_alike_in_another_process() -> None:
    code = "from espalier.grammar.ast import *; print(hash(seq(Literal('a'), Repeat(RuleRef('b'), 1, None))))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(done.stdout) == hash(seq(A, Repeat(RuleRef("b"), 1, None)))


@pytest.mark.slow
def test_deep_trees_work() -> None:
    def tower(letter: str):
        node = Literal(letter)
        for _ in range(10_000):
            node = Repeat(seq(A, node), 0, 1)
        return node

    assert tower("a") == tower("a")
    assert tower("a") != tower("b")
    assert len({tower("a"), tower("a")}) == 1
    assert repr(tower("b")).count("Repeat") == 10_000
    assert sum(1 for _ in postorder(tower("a"))) == 30_001
    assert fold(tower("a"), lambda _, parts: 1 + max(parts, default=0)) == 20_001


def test_postorder_is_left_to_right_and_children_first() -> None:
    node = seq(A, alt(B, EMPTY), Repeat(A))
    assert list(postorder(node)) == [A, B, EMPTY, alt(B, EMPTY), A, Repeat(A), node]


def test_builders_fold_what_is_single() -> None:
    assert seq() == EMPTY
    assert seq(A) is A
    assert alt(A) is A
    assert alt() == NEVER
    assert seq(A, B) == Sequence((A, B))
    assert alt(A, B) == Alternative((A, B))


@pytest.mark.parametrize(
    "build",
    [
        lambda: Literal(""),
        lambda: Literal("\ud800"),
        lambda: CharClass(()),
        lambda: CharClass(((5, 4),)),
        lambda: CharClass(((0, MAX_CODE_POINT + 1),)),
        lambda: RuleRef("a b"),
        lambda: Rule("", A),
        TokenRef,
        lambda: TokenRef("<a>", 5),
        lambda: TokenRef("a"),
        lambda: TokenRef("<[5]>"),
        lambda: TokenRef(id=2**31),
        lambda: Sequence((A,)),
        lambda: Alternative((A,)),
        lambda: Repeat(A, 2, 1),
        lambda: Repeat(A, -1),
        lambda: Grammar({"a": Rule("b", A)}),
    ],
)
def test_what_cannot_be_written_cannot_be_built(build) -> None:
    with pytest.raises(GrammarError):
        build()


def test_values_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        A.text = "b"
    with pytest.raises(TypeError):
        Grammar.of([Rule("root", A)]).rules["root"] = Rule("root", B)


def test_of_two_rules_with_one_name_the_later_counts() -> None:
    grammar = Grammar.of([Rule("root", A), Rule("x", A), Rule("root", B)])
    assert list(grammar.rules) == ["root", "x"]
    assert grammar.rules["root"].body == B
    assert grammar.replaced == (Rule("root", A),)
    assert grammar == Grammar.of([Rule("x", A), Rule("root", B)])


def test_scalars_leave_surrogates_out() -> None:
    assert AnyChar().scalars() == ((0, 0xD7FF), (0xE000, MAX_CODE_POINT))
    assert CharClass(((97, 122),), negated=True).scalars()[0] == (0, 96)
    assert CharClass(((0xD000, 0xE000),)).scalars() == ((0xD000, 0xD7FF), (0xE000, 0xE000))
    assert CharClass(((0xD800, 0xDFFF),)).scalars() == NEVER.scalars() == ()


@given(small_ranges, small_ranges)
def test_ranges_are_sets(one, other) -> None:
    a, b = merge(one), merge(other)
    plain = {point for lo, hi in one for point in range(lo, hi + 1)}
    assert members(a) == plain
    assert all(low[1] + 1 < high[0] for low, high in pairwise(a))
    assert members(complement(a)) == set(range(SMALL + 2)) - plain
    assert complement(complement(a)) == a
    assert members(subtract(a, b)) == plain - members(b)
    assert contains(complement(a), MAX_CODE_POINT)
