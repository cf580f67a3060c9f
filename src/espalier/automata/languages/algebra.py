"""Set operations on regular languages of whole UTF-8 texts.

A language is a `Dfa`, or None for the empty one. It knows nothing of JSON, of rules and of vocabularies.
"""

from __future__ import annotations

from functools import cache

import numpy as np

from espalier.automata.languages.dfa import Dfa, intersect
from espalier.automata.languages.fragment import TooManyStates, determinise, minimise, refine
from espalier.automata.languages.network import assemble
from espalier.automata.languages.nfa import DONE, Nfa, Symbol, bytes_in, utf8_edges
from espalier.errors import GrammarError, LimitExceeded
from espalier.grammar.ast import AnyChar, Node, Repeat, RuleRef, TokenRef

MAX_STATES = 100_000
"""The most states of one DFA, before and after it is minimised."""
MAX_WORK = 2_000_000
"""The most steps of the subset construction: a few seconds."""


def language(node: Node, *, max_states: int = MAX_STATES) -> Dfa | None:
    """The DFA of an expression without rule and token references; None if it matches nothing. Raises LimitExceeded."""
    nfa = Nfa(limit=max_states * 4)
    start, end = nfa.new(), nfa.new()
    nfa.add(node, start, end, symbol=_refuse, inline={})
    try:
        fragment = minimise(determinise(nfa, start, end, max_states=max_states, max_work=MAX_WORK))
    except TooManyStates:
        raise LimitExceeded(
            f"the expression needs an automaton of more than {max_states} states", hint="lower the counts in {m,n}"
        ) from None
    if not any(fragment.final):
        return None
    return Dfa.of_network(assemble([fragment], ["root"], ()))


def both(dfa: Dfa | None, other: Dfa | None, *, max_states: int = MAX_STATES) -> Dfa | None:
    """The intersection. Raises LimitExceeded."""
    if dfa is None or other is None:
        return None
    try:
        return intersect(dfa, other, max_states=max_states)
    except GrammarError:  # raised for an empty result
        return None


def without(dfa: Dfa | None, other: Dfa | None, *, max_states: int = MAX_STATES) -> Dfa | None:
    """The difference: texts of `one` that are not texts of `other`. Raises LimitExceeded."""
    return dfa if other is None else both(dfa, completed(other), max_states=max_states)


def either(dfa: Dfa | None, other: Dfa | None, *, max_states: int = MAX_STATES) -> Dfa | None:
    """The union. Raises LimitExceeded."""
    if dfa is None or other is None:
        return other if dfa is None else dfa
    neither = without(without(every_text(), dfa, max_states=max_states), other, max_states=max_states)
    return without(every_text(), neither, max_states=max_states)


def completed(dfa: Dfa) -> Dfa:
    """The complement: all byte strings that `dfa` refuses. Use it in an intersection only: it accepts invalid UTF-8."""
    count, width = dfa.table.shape
    table = np.vstack([dfa.table, np.full((1, width), -1, dtype=np.int32)])  # (S + 1, C)
    table[table < 0] = count
    return Dfa(classes=dfa.classes, table=table, accepting=np.append(~dfa.accepting, True), start=dfa.start)


@cache
def every_text() -> Dfa:
    """Every UTF-8 text."""
    dfa = language(Repeat(AnyChar()))
    assert dfa is not None
    return dfa


def of_length(low: int, high: int | None) -> Dfa:
    """Texts of `low` to `high` code points; None is no upper limit."""
    nodes = utf8_edges(AnyChar().scalars())
    size, last = len(nodes), low if high is None else high
    parts = refine(members for edges in nodes for members, _ in edges)
    letter = np.zeros(256, dtype=np.uint8)
    for number, part in enumerate(parts):
        letter[bytes_in(part)] = number
    width = len(parts)
    table_of_one = np.full((size, width), -1, dtype=np.int64)  # the automaton of one character; DONE leads to `size`
    for node, edges in enumerate(nodes):
        for members, child in edges:
            table_of_one[node, [int(letter[byte]) for byte in bytes_in(members)]] = size if child == DONE else child
    shift = np.arange(last + 1)[:, None, None] * size  # (L + 1, 1, 1)
    table = np.where(table_of_one[None] < 0, -1, table_of_one[None] + shift).astype(np.int32)  # (L + 1, size, C)
    if high is None:
        table[last][table_of_one == size] = last * size
    else:
        table[last] = -1
    accepting = np.zeros((last + 1, size), dtype=np.bool_)
    accepting[low:, 0] = True
    return Dfa(classes=letter, table=table.reshape(-1, width), accepting=accepting.reshape(-1))


def _refuse(node: RuleRef | TokenRef) -> Symbol:
    raise GrammarError(f"a standalone expression cannot refer to {node!r}")
