"""Hypothesis strategies: random grammar trees, wild ones for printing and small ones for comparing languages."""

from __future__ import annotations

from itertools import product

from hypothesis import strategies as st

from espalier.grammar.ast import (
    EMPTY,
    AnyChar,
    CharClass,
    Grammar,
    Literal,
    Node,
    Repeat,
    Rule,
    RuleRef,
    TokenRef,
    alt,
    seq,
)

NAMES = ("root", "a", "A", "b-1", "0", "-", "long_name")

code_points = st.one_of(
    st.sampled_from([ord(c) for c in "\0\t\n\r\x1f \"'-[]^\\{}|<>!#.\x7f\x85\xa0é\u2028\ufeff😀"]),
    st.integers(0, 0x10FFFF),
)
texts = st.text(st.characters(exclude_categories=["Cs"]) | st.sampled_from('\0\n\r\t"\\[]-^#'), min_size=1, max_size=6)
ranges = st.tuples(code_points, code_points).map(lambda pair: (min(pair), max(pair)))
classes = st.lists(ranges.filter(lambda r: not any(0xD800 <= end <= 0xDFFF for end in r)), min_size=1, max_size=4)


def _expressions(leaves: st.SearchStrategy[Node], counts: st.SearchStrategy[tuple[int, int | None]], size: int):
    def grow(inner: st.SearchStrategy[Node]) -> st.SearchStrategy[Node]:
        return st.one_of(
            st.lists(inner, max_size=3).map(lambda items: seq(*items)),
            st.lists(inner, min_size=1, max_size=3).map(lambda options: alt(*options)),
            st.builds(lambda item, bounds: Repeat(item, *bounds), inner, counts),
        )

    return st.recursive(leaves, grow, max_leaves=size)


def _grammars(bodies: st.SearchStrategy[Node], names: tuple[str, ...], least: int = 0) -> st.SearchStrategy[Grammar]:
    others = st.lists(st.sampled_from(names[1:]), unique=True, min_size=least)
    return others.flatmap(
        lambda rest: st.tuples(*[st.builds(Rule, st.just(name), bodies) for name in ("root", *rest)])
    ).map(Grammar.of)


wild_nodes = _expressions(
    st.one_of(
        st.builds(Literal, texts),
        st.builds(CharClass, classes.map(tuple), st.booleans()),
        st.just(AnyChar()),
        st.just(EMPTY),
        st.builds(RuleRef, st.sampled_from(NAMES)),
        st.builds(TokenRef, st.sampled_from(["<think>", "</s>", "<|x y|>", "<>", "<>"]), st.none(), st.booleans()),
        st.builds(TokenRef, st.none(), st.integers(0, 2**31 - 1), st.booleans()),
    ),
    st.tuples(st.integers(0, 3), st.none() | st.integers(0, 4)).map(
        lambda b: (b[0], None if b[1] is None else b[0] + b[1])
    ),
    size=12,
)
wild_grammars = _grammars(wild_nodes, NAMES)
"""Every kind of node, any code point; names may be undefined."""

SMALL_NAMES = ("root", "x", "y", "z")
small_nodes = _expressions(
    st.one_of(
        st.sampled_from([Literal("a"), Literal("b"), Literal("ab"), CharClass(((97, 98),)), EMPTY]),
        st.sampled_from([RuleRef(name) for name in SMALL_NAMES]),
    ),
    st.sampled_from([(0, None), (1, None), (0, 1), (2, 2), (1, 3), (2, None), (0, 0)]),
    size=6,
)
small_grammars = _grammars(small_nodes, SMALL_NAMES, least=3)
"""Over a and b only; left recursion, nullable loops and dead rules are common; every name is defined."""

SHORT_TEXTS = ["".join(letters) for length in range(6) for letters in product("ab", repeat=length)]
"""All texts of up to five letters a and b."""
