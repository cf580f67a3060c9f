"""Writes the language of a byte automaton as grammar rules over characters; the caller spells each set of characters.

It does not know JSON.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import numpy as np

from espalier.automata.languages.dfa import Dfa
from espalier.automata.lazy.table import Table
from espalier.errors import LimitExceeded
from espalier.grammar.ast import Node, Rule
from espalier.grammar.ranges import Ranges, merge
from espalier.schema.lowering.linear import write
from espalier.time_limit import check as check_time

MAX_STATES = 20_000
"""States of the automaton over characters."""
_LEADS = ((0x00, 0x7F, 0), (0xC0, 0xDF, 1), (0xE0, 0xEF, 2), (0xF0, 0xF7, 3))
"""First bytes of a UTF-8 character (low, high), and how many bytes follow."""

Run = tuple[int, int, int]
"""Low and high value of the bits still to come, and the state after them."""


def dfa_rules(dfa: Dfa, spell: Callable[[Ranges], Node], fresh: Callable[[], str]) -> tuple[Node, list[Rule]]:
    """The language of the automaton: an expression and the rules that it needs.

    Raises LimitExceeded for more than MAX_STATES.
    """
    return write(dfa_table(dfa, spell), fresh)


def dfa_table(dfa: Dfa, spell: Callable[[Ranges], Node]) -> Table:
    """The same language as an automaton whose edges are expressions. Raises LimitExceeded for more than MAX_STATES."""
    edges, final, _ = characters(dfa)
    spelled: dict[Ranges, Node] = {}
    rows: list[list[tuple[Node, int]]] = []
    for row in edges:
        for ranges in row.values():
            if ranges not in spelled:
                spelled[ranges] = spell(ranges)
        rows.append([(spelled[ranges], target) for target, ranges in row.items()])
    return Table(rows=rows, ends=final)


def characters(dfa: Dfa) -> tuple[list[dict[int, Ranges]], list[bool], list[int]]:
    """The automaton over characters: for each state, the ranges that lead to each target; whether a text may end there;
    and its state in `dfa`."""
    tails: dict[tuple[int, int], list[Run]] = {}
    runs: dict[int, list[Run]] = {}
    number = {dfa.start: 0}
    order = [dfa.start]
    edges: list[dict[int, Ranges]] = []

    def runs_of(state: int, low: int, high: int) -> list[Run]:
        """Bytes with the same target, from `low` to `high`."""
        row_runs = runs.get(state)
        if row_runs is None:
            row = dfa.table[state][dfa.classes]  # (256,); of all states at once it would be gigabytes
            cuts = [0, *(np.flatnonzero(row[1:] != row[:-1]) + 1).tolist(), 256]
            row_runs = [(a, b - 1, int(row[a])) for a, b in pairwise(cuts) if row[a] >= 0]
            runs[state] = row_runs
        return [(max(a, low), min(b, high), after) for a, b, after in row_runs if a <= high and b >= low]

    def tail(state: int, more: int) -> list[Run]:
        """The values of `more` continuation bytes after `state`; at most three deep."""
        if more == 0:
            return [(0, 0, state)]
        tail_runs = tails.get((state, more))
        if tail_runs is None:
            tail_runs = []
            for low, high, after in runs_of(state, 0x80, 0xBF):
                tail_runs += spread(low - 0x80, high - 0x80, tail(after, more - 1), 6 * (more - 1))
            tails[state, more] = tail_runs
        return tail_runs

    for state in order:  # grows as states are met
        check_time()
        joined: dict[int, list[tuple[int, int]]] = {}
        for first, last, more in _LEADS:
            for low, high, after in runs_of(state, first, last):
                for a, b, target in spread(low - first, high - first, tail(after, more), 6 * more):
                    joined.setdefault(target, []).append((a, b))
        for target in joined:
            if target not in number:
                number[target] = len(order)
                order.append(target)
        if len(order) > MAX_STATES:
            raise LimitExceeded(f"this needs more than {MAX_STATES} rules", hint="lower the counts")
        edges.append({number[target]: merge(pairs) for target, pairs in joined.items()})
    return edges, [bool(dfa.accepting[state]) for state in order], order


def spread(low: int, high: int, inner: list[Run], bits: int) -> list[Run]:
    """The runs of `inner`, repeated for each value of the bits before them."""
    if len(inner) == 1 and inner[0][:2] == (0, (1 << bits) - 1):
        return [(low << bits, (high << bits) | inner[0][1], inner[0][2])]
    return [((v << bits) | a, (v << bits) | b, target) for v in range(low, high + 1) for a, b, target in inner]
