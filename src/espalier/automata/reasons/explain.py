"""Explains why an automaton refuses a token: how many of its bytes fit, what was expected instead, in which rule.

Explanations of a grammar need its plain network, whose positions know their rules and source positions. The matcher
walks that network separately, only as far as explanations are asked for. It knows nothing of masks.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Protocol, cast
from weakref import WeakKeyDictionary

from espalier.automata.languages.network import Network, build_network
from espalier.automata.masks.machine import Machine, State
from espalier.automata.masks.pushdown import PushdownMachine
from espalier.automata.masks.states import Stacks
from espalier.automata.reasons.blame import Blame
from espalier.automata.reasons.describe import expected, quoted
from espalier.grammar.ast import Grammar, Position
from espalier.tokens.trie import TokenTrie
from espalier.tokens.vocab import Vocab

RulePosition = tuple[str | None, Position | None]
"""The name of a rule, and a position in the grammar's source; None where unknown."""


class Explainer(Protocol):
    """Names the rules of a machine's states. Its machine accepts the same texts as the matcher's."""

    @property
    def machine(self) -> Machine: ...

    def rule_position(self, state: State) -> RulePosition:
        """The rule that can continue from a state, and the position in the source of what it expects next."""
        ...


class Reasoner(Explainer, Protocol):
    """An explainer with its own wording for some refusals."""

    def reason(self, state: State, read: bytes, refused: bytes) -> str | None:
        """Why the first byte of `refused` is refused in a state that was reached by reading `read`; the two together
        are the token. None for the usual wording."""
        ...


class PlainExplainer:
    """For an automaton without a grammar: no rules, no positions."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine

    def rule_position(self, state: State) -> RulePosition:
        return None, None


class NetworkExplainer:
    """For a network whose positions know their rules, and perhaps their source positions."""

    def __init__(self, network: Network, machine: PushdownMachine) -> None:
        self._network = network
        self.machine: Machine = machine

    def rule_position(self, state: Stacks) -> RulePosition:
        """If several rules can continue, one that cannot end here is preferred, then the first in the source."""
        net = self._network

        def order(position: int) -> tuple[bool, int]:
            leaf = net.leaf[position]
            return net.final[position], leaf.offset if leaf else 0

        if not state.items:
            return None, None
        position = min((p for p, _ in state.items), key=order)
        return net.rule[position] or None, net.leaf[position]

    def rule_reading(self, state: Stacks, byte: int) -> RulePosition:
        """The rule of the stacks that can read a byte, of all of them if none can."""
        if len(state.items) == 1:  # most of the time: nothing to tell apart
            return self.rule_position(state)
        items = tuple(item for item in state.items if self._network.reads(item[0]) >> byte & 1)
        alike = len(items) in (0, len(state.items))
        return self.rule_position(state if alike else Stacks(items, False, state.least))


class GrammarExplainer(NetworkExplainer):
    """For a grammar: builds its plain network."""

    def __init__(self, grammar: Grammar, vocab: Vocab, trie: TokenTrie) -> None:
        network = build_network(grammar, plain=True)
        super().__init__(network, PushdownMachine(network, vocab, trie, needs_bytes=False))


def rule_at(explainer: Explainer, vocab: Vocab, state: State, token: int) -> str | None:
    """The rule that reads the first byte of an allowed token in `state` (a state of the explainer's machine); None for
    EOS, and if the explainer knows no rules."""
    data = vocab.bytes_of(token)
    if isinstance(state, Stacks) and data and (reading := getattr(explainer, "rule_reading", None)) is not None:
        rule_position: RulePosition = reading(state, data[0])
        return rule_position[0]
    if token in vocab.eos_ids:
        return None
    return explainer.rule_position(state)[0]


MOST_BLAMES = 4_096
"""Reasons of one explainer that are remembered: answers of one constraint refuse the same tokens at the same places."""
_BLAMES: WeakKeyDictionary[Explainer, dict[tuple[State, int, str], Blame]] = WeakKeyDictionary()


def blame(explainer: Explainer, vocab: Vocab, state: State, token: int, member: str) -> Blame:
    """The reason why `token` is refused in `state` (a state of the explainer's machine). member: see `Blame`."""
    known = _BLAMES.get(explainer)
    if known is None:
        known = _BLAMES[explainer] = {}
    reason = known.get((state, token, member))
    if reason is None:
        if len(known) >= MOST_BLAMES:
            known.clear()
        reason = known[state, token, member] = _find_blame(explainer, vocab, state, token, member)
    return reason


def _find_blame(explainer: Explainer, vocab: Vocab, state: State, token: int, member: str) -> Blame:
    machine = explainer.machine
    data = vocab.bytes_of(token)
    at, offset = state, 0
    for byte in data:
        after = machine.step(at, byte)
        if after is None:
            break
        at, offset = after, offset + 1
    members, refs = machine.options(at)
    names = [] if offset else [machine.reference(ref)[0] for ref in refs]
    rule, position = explainer.rule_position(at)
    wanted = expected(members, names, can_end=machine.accepts(at))
    own = None
    if offset < len(data) and _is_reasoner(type(explainer)):
        own = cast("Reasoner", explainer).reason(at, data[:offset], data[offset:])
    if own is not None:
        reason = own
    elif token in vocab.eos_ids:
        reason = "the text is not complete, so it cannot end here"
    elif not data:
        reason = "a special token or padding, which stands outside the text"
    elif offset == len(data):
        reason = "no sequence of tokens completes the text after it"
    else:
        shown = data[:offset].decode("utf-8", "replace")
        where = f"after {quoted(shown)}" if offset else "here"
        reason = f"{where} the constraint requires {wanted}, not {_show_bytes(data[offset:])}"
    return Blame(
        member=member,
        reason=reason,
        rule=rule,
        offset=offset if data else None,
        position=str(position) if position else None,
        expected=wanted,
    )


@lru_cache(maxsize=64)
def _is_reasoner(kind: type[Explainer]) -> bool:
    """Cached for each class, because an isinstance check against a protocol takes longer than all the rest."""
    return callable(getattr(kind, "reason", None))


def _show_bytes(rest: bytes) -> str:
    text = rest.decode("utf-8", "replace")
    return quoted(text) if text.isprintable() and "\ufffd" not in text else f"the bytes {rest.hex(' ')}"
