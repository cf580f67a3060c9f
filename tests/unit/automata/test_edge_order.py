"""What can be read at a position is listed in one order, wherever its items lie in memory: ties between completions are
broken alike in every process."""

from __future__ import annotations

import pytest

from espalier.automata.lazy.explored import LazyState, LazyStates
from espalier.automata.lazy.network import LazyNetwork
from espalier.automata.lazy.rules import NoRules
from espalier.automata.masks.stacks import StackAutomaton
from espalier.grammar.regex.parse import parse_regex

PATTERNS = ["(x|a|m|b)(y|c|n|d)*", "z{2}|a[b-y]|[0-9]{1,3}|é|ä", '"[^"]*"|\\[\\]|\\{\\}|-?[0-9]+|null|true']


def positions(start: LazyState) -> list[LazyState]:
    met = [start]
    for place in met:  # grows as positions are met
        met += [after for _, after in place.met().edges if after not in met]
        if len(met) > 60:
            break
    return met


@pytest.mark.parametrize("pattern", PATTERNS)
def test_edges_and_states_come_in_the_order_of_their_lowest_byte(pattern: str) -> None:
    for _ in range(5):  # items lie elsewhere each time
        explored = LazyStates(NoRules())
        start = explored.begin([parse_regex(pattern)])
        for place in positions(start):
            if len(place.core) > 1:
                firsts = [members & -members for members, _ in place.edges]
                assert firsts == sorted(firsts)
        automaton = StackAutomaton(LazyNetwork(start))
        firsts = [letters & -letters for letters, _ in automaton.spread(automaton.start)]
        assert firsts == sorted(firsts)
