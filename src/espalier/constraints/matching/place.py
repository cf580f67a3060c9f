"""`AutomatonPlace`: where a matcher of an automaton stood, for explanations that are asked for later, or never.

The explainer's machine is walked only as far as somebody asks. It knows no masks.
"""

from __future__ import annotations

from espalier.automata.masks.machine import State
from espalier.automata.reasons.blame import Blame
from espalier.automata.reasons.explain import Explainer, blame, rule_at
from espalier.tokens.vocab import Vocab


class Trail:
    """The text of one matcher. tokens: without EOS; more may follow, and after a rollback there is another trail. kind:
    of the constraint, as blames name it. states: of the explainer's machine, before and after each token, as far as
    somebody asked; two threads may both work them out."""

    __slots__ = ("explainer", "kind", "states", "tokens", "vocab")

    def __init__(self, explainer: Explainer, vocab: Vocab, kind: str, tokens: list[int]) -> None:
        self.explainer, self.vocab, self.kind, self.tokens = explainer, vocab, kind, tokens
        self.states: list[State] = [explainer.machine.start]

    def on(self, tokens: list[int]) -> Trail:
        """The trail of a text that begins as this one, and is no longer."""
        other = Trail(self.explainer, self.vocab, self.kind, tokens)
        other.states = self.states[: len(tokens) + 1]
        return other


class AutomatonPlace:
    """A place in a text, after so many tokens. See `Place` of `constraints/base.py`."""

    __slots__ = ("_length", "_trail")

    def __init__(self, trail: Trail, length: int) -> None:
        self._trail, self._length = trail, length

    def explain(self, token: int) -> Blame:
        trail = self._trail
        if not 0 <= token < trail.vocab.width:
            return Blame(member=trail.kind, reason="there is no such token")
        return blame(trail.explainer, trail.vocab, self.state(), token, trail.kind)

    def rule_of(self, token: int) -> str | None:
        return rule_at(self._trail.explainer, self._trail.vocab, self.state(), token)

    def state(self) -> State:
        """The state of the explainer's machine here."""
        trail, states, length = self._trail, self._trail.states, self._length
        known = min(length, len(states) - 1)
        found = [states[known]]
        for token in trail.tokens[known:length]:
            after = trail.explainer.machine.advance(found[-1], token)
            if after is None:
                raise AssertionError(f"token {token} was taken, and the plain automaton refuses it")
            found.append(after)
        states[known : length + 1] = found  # at once: another thread may do the same
        return found[-1]
