"""Builds a network out of whole automata and grammars: each is split into fragments, renumbered, and called as a rule.

It does not know what the parts are for.
"""

from __future__ import annotations

from collections.abc import Collection

from espalier.automata.languages.dfa import Dfa, fragment_of_dfa
from espalier.automata.languages.fragment import Fragment, Targets, TooManyStates, determinise, minimise
from espalier.automata.languages.network import Network, assemble, build_fragments
from espalier.automata.languages.nfa import ByteSet, Nfa, Symbol, class_masks
from espalier.errors import LimitExceeded
from espalier.grammar.ast import Grammar, TokenRef

MAX_IN_PLACE = 50_000
"""The most states of a DFA with all rules inlined."""
MAX_DEPTH = 50
"""The deepest nesting of inlined rules."""


class Assembly:
    """A network under construction, as a list of named fragments. Fragment 0 is the start rule: add it first."""

    def __init__(self) -> None:
        self.fragments: list[Fragment] = []
        self.names: list[str] = []
        self._refs: dict[TokenRef, int] = {}

    def rule(self, fragment: Fragment, name: str) -> Symbol:
        """Add one fragment; returns the symbol that calls it."""
        self.fragments.append(fragment)
        self.names.append(name)
        return "rule", len(self.fragments) - 1

    def token(self, ref: TokenRef) -> Symbol:
        """The symbol of a token reference."""
        return "token", self._refs.setdefault(ref, len(self._refs))

    def embed(self, automaton: Dfa | Network, name: str) -> Symbol:
        """Add a whole automaton, all its rules under one name; returns the symbol that calls it."""
        fragments = [fragment_of_dfa(automaton)] if isinstance(automaton, Dfa) else fragments_of_network(automaton)
        return self._adopt(fragments, [name] * len(fragments), () if isinstance(automaton, Dfa) else automaton.refs)

    def grammar(self, grammar: Grammar, *, plain: bool = False, called: Collection[str] = ()) -> Symbol:
        """Add a grammar, its rules under their own names; returns the symbol that calls its root. Raises as
        `build_network` does."""
        return self._adopt(*build_fragments(grammar, plain=plain, called=called))

    def _adopt(self, fragments: list[Fragment], names: list[str], refs: tuple[TokenRef, ...]) -> Symbol:
        base = len(self.fragments)
        for fragment, name in zip(fragments, names, strict=True):
            for row in fragment.symbols:
                for i, ((kind, number), targets) in enumerate(row):
                    row[i] = (("rule", base + number) if kind == "rule" else self.token(refs[number]), targets)
            self.rule(fragment, name)
        return "rule", base

    def network(self) -> Network:
        return assemble(self.fragments, self.names, tuple(self._refs))

    def dfa(self, *, max_states: int = MAX_IN_PLACE) -> Dfa | None:
        """The same language as one DFA with every rule inlined; None if rules are recursive, tokens are referenced, or
        it would have more than `max_states` states."""
        nfa = Nfa(limit=max_states)
        start, end = nfa.new(), nfa.new()
        try:
            if not self._put(nfa, 0, start, end, ()):
                return None
            fragment = minimise(determinise(nfa, start, end, max_states=max_states))
        except (TooManyStates, LimitExceeded):
            return None
        return Dfa.of_network(assemble([fragment], [""], ()))

    def _put(self, nfa: Nfa, rule: int, start: int, end: int, within: tuple[int, ...]) -> bool:
        """Inline one rule, and the rules that it calls, between two states. within: the rules being inlined around it.
        Returns False if that is not possible."""
        fragment = self.fragments[rule]
        places = [nfa.new() for _ in range(len(fragment))]
        nfa.epsilon[start].append(places[0])
        for place, edges, symbols, final in zip(places, fragment.edges, fragment.symbols, fragment.final, strict=True):
            nfa.edges[place].extend((members, places[target]) for members, targets in edges for target in targets)
            if final:
                nfa.epsilon[place].append(end)
            for (kind, number), targets in symbols:
                if kind != "rule" or number == rule or number in within or len(within) > MAX_DEPTH:
                    return False
                for target in targets:
                    if not self._put(nfa, number, place, places[target], (*within, rule)):
                        return False
        return True


def fragments_of_network(network: Network) -> list[Fragment]:
    """One fragment for each rule, the start rule first; `assemble` makes the same network of them."""
    masks = class_masks(network.classes.tolist(), network.which.shape[1])
    starts = sorted({network.start, *(callee for calls in network.calls for callee, _ in calls)})
    if starts[0] != network.start:
        raise AssertionError("the start of a network is its first position")
    number = {start: i for i, start in enumerate(starts)}
    return [
        _fragment(network, masks, number, start, past)
        for start, past in zip(starts, [*starts[1:], len(network.final)], strict=True)
    ]


def _fragment(network: Network, masks: list[ByteSet], number: dict[int, int], start: int, past: int) -> Fragment:
    fragment = Fragment(edges=[], symbols=[], final=network.final[start:past], leaf=network.leaf[start:past])

    def local(targets: Targets) -> Targets:
        return tuple(target - start for target in targets)

    for position in range(start, past):
        members: list[ByteSet] = [0] * len(network.moves[position])
        for mask, index in zip(masks, network.which[position].tolist(), strict=True):
            if index >= 0:
                members[index] |= mask
        moves = zip(members, network.moves[position], strict=True)
        fragment.edges.append([(mask, local(targets)) for mask, targets in moves if mask])
        returns: dict[int, list[int]] = {}
        for callee, after in network.calls[position]:
            returns.setdefault(callee, []).append(after)
        row: list[tuple[Symbol, Targets]] = [
            (("rule", number[callee]), local(tuple(after))) for callee, after in returns.items()
        ]
        row += [(("token", ref), local(targets)) for ref, targets in network.tokens[position]]
        fragment.symbols.append(row)
    return fragment
