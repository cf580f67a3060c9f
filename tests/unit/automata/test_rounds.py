"""States merged in rounds over whole arrays are those that are merged edge by edge."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from espalier.automata.languages import fragment as fragments
from espalier.automata.languages.algebra import language
from espalier.automata.languages.fragment import Fragment, minimise
from espalier.automata.languages.nfa import byte_range
from espalier.automata.languages.rounds import equal_states
from espalier.grammar.regex.parse import parse_regex


def drawn(random: Random, states: int) -> Fragment:
    """A deterministic fragment whose states all reach its end."""
    edges = []
    for _ in range(states):
        cuts = sorted(random.sample(range(1, 256), 3))
        bounds = list(zip([0, *cuts], [cut - 1 for cut in cuts] + [255], strict=True))
        edges.append([(byte_range(low, high), (random.randrange(states),)) for low, high in bounds])
    symbols = [[(("rule", 1), (random.randrange(states),))] if random.random() < 0.2 else [] for _ in range(states)]
    final = [random.random() < 0.3 for _ in range(states)]
    return fragments.pruned(Fragment(edges=edges, symbols=symbols, final=final, leaf=[None] * states))


@pytest.mark.parametrize("seed", range(20))
def test_both_ways_make_the_same_fragment(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    random = Random(seed)
    fragment = drawn(random, random.choice((1, 2, 9, 40)))
    monkeypatch.setattr(fragments, "FEW_EDGES", 10**9)
    by_edges = minimise(fragment)
    monkeypatch.setattr(fragments, "FEW_EDGES", 0)
    monkeypatch.setattr(fragments, "MAX_ROUNDS", 100)
    in_rounds = minimise(fragment)
    assert in_rounds == by_edges


@pytest.mark.parametrize("pattern", [r"(?s:.*)\p{L}", r"\p{L}+x", r"(?:\w|\p{S}){1,3}"])
def test_classes_of_characters_take_few_rounds(pattern: str) -> None:
    dfa = language(parse_regex(pattern))
    assert dfa is not None
    blocks = equal_states(dfa.table, dfa.accepting, most=fragments.MAX_ROUNDS)
    assert blocks is not None
    assert blocks.tolist() == list(range(len(dfa)))


def test_a_count_takes_more_rounds_than_are_tried() -> None:
    chain = np.arange(1, 102)[:, None] % 101  # (S, 1)
    assert equal_states(chain, np.arange(101) == 100, most=fragments.MAX_ROUNDS) is None
    assert equal_states(chain, np.arange(101) == 100) is not None
