"""Whole automata as parts of a larger network: taken apart into fragments, renumbered, and called as rules.

An assembly is a list of fragments with names; its first fragment is the start. It knows nothing of what the parts say.
"""

from __future__ import annotations

from collections.abc import Collection

from espalier.automata.languages.dfa import Dfa, fragment_of_dfa
from espalier.automata.languages.fragment import Fragment, Targets, TooManyStates, determinise, minimise
from espalier.automata.languages.network import Network, assemble, build_fragments
from espalier.automata.languages.nfa import ByteSet, Nfa, Symbol
from espalier.errors import LimitExceeded
from espalier.grammar.ast import Grammar, TokenRef

MAX_IN_PLACE = 50_000
"""States of an automaton made of all rules in one place; past that they are called."""

MAX_DEPTH = 50
"""Rules put in one another's place."""


class Assembly:
    """A network in the making. Rule 0 is the start: whoever makes one adds its fragment first."""

    def __init__(self) -> None:
        self.fragments: list[Fragment] = []
        self.names: list[str] = []
        self._refs: dict[TokenRef, int] = {}

    def rule(self, fragment: Fragment, name: str) -> Symbol:
        """Adds one fragment; the symbol that calls it."""
        self.fragments.append(fragment)
        self.names.append(name)
        return "rule", len(self.fragments) - 1

    def token(self, ref: TokenRef) -> Symbol:
        """The symbol of a token reference."""
        return "token", self._refs.setdefault(ref, len(self._refs))

    def embed(self, automaton: Dfa | Network, name: str) -> Symbol:
        """Adds a whole automaton, all its rules under one name; the symbol that calls it."""
        found = [fragment_of_dfa(automaton)] if isinstance(automaton, Dfa) else fragments_of_network(automaton)
        return self._adopt(found, [name] * len(found), () if isinstance(automaton, Dfa) else automaton.refs)

    def grammar(self, grammar: Grammar, *, plain: bool = False, called: Collection[str] = ()) -> Symbol:
        """Adds a grammar, its rules under their own names; the symbol that calls its root. Raises as
        `build_network`."""
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
        """The same as one deterministic automaton, every rule in its callers' place; None where rules are recursive,
        tokens are named, or it would have more states than that."""
        nfa = Nfa(limit=max_states)
        start, end = nfa.new(), nfa.new()
        try:
            if not self._put(nfa, 0, start, end, ()):
                return None
            found = minimise(determinise(nfa, start, end, max_states=max_states))
        except (TooManyStates, LimitExceeded):
            return None
        return Dfa.of_network(assemble([found], [""], ()))

    def _put(self, nfa: Nfa, rule: int, start: int, end: int, within: tuple[int, ...]) -> bool:
        """One rule between two states, what it calls included. within: the rules that it is being put in place for."""
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
    """One fragment for each rule that is called, the start's first: `assemble` makes the same network of them."""
    masks = _masks(network.classes.tolist(), network.which.shape[1])
    starts = sorted({network.start, *(callee for calls in network.calls for callee, _ in calls)})
    if starts[0] != network.start:
        raise AssertionError("the start of a network is its first position")
    number = {start: i for i, start in enumerate(starts)}
    return [
        _fragment(network, masks, number, start, past)
        for start, past in zip(starts, [*starts[1:], len(network.final)], strict=True)
    ]


def _fragment(network: Network, masks: list[ByteSet], number: dict[int, int], start: int, past: int) -> Fragment:
    found = Fragment(edges=[], symbols=[], final=network.final[start:past], leaf=network.leaf[start:past])

    def local(targets: Targets) -> Targets:
        return tuple(target - start for target in targets)

    for position in range(start, past):
        members: list[ByteSet] = [0] * len(network.moves[position])
        for mask, index in zip(masks, network.which[position].tolist(), strict=True):
            if index >= 0:
                members[index] |= mask
        moves = zip(members, network.moves[position], strict=True)
        found.edges.append([(mask, local(targets)) for mask, targets in moves if mask])
        returns: dict[int, list[int]] = {}
        for callee, after in network.calls[position]:
            returns.setdefault(callee, []).append(after)
        row: list[tuple[Symbol, Targets]] = [
            (("rule", number[callee]), local(tuple(after))) for callee, after in returns.items()
        ]
        row += [(("token", ref), local(targets)) for ref, targets in network.tokens[position]]
        found.symbols.append(row)
    return found


def _masks(classes: list[int], count: int) -> list[ByteSet]:
    """The bytes of each class."""
    masks: list[ByteSet] = [0] * count
    for byte, letter in enumerate(classes):
        masks[letter] |= 1 << byte
    return masks
