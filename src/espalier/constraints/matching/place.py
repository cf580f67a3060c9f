"""`AutomatonPlace`: where a matcher of an automaton stood, for explanations that are asked for later, or never.

The explainer's machine is walked only as far as somebody asks, and once over what texts share. It knows no masks.
"""

from __future__ import annotations

from espalier.automata.masks.machine import State
from espalier.automata.reasons.blame import Blame
from espalier.automata.reasons.explain import Explainer, blame, rule_at
from espalier.tokens.vocab import Vocab


class Trail:
    """The text of one matcher, or its end: what follows `before`, a place of another trail. kind: of the constraint, as
    blames name it. tokens: without EOS; more may follow, and after a rollback there is another trail. states: of the
    explainer's machine, before and after each token, as far as somebody asked; two threads may both work them out."""

    __slots__ = ("before", "explainer", "kind", "states", "tokens", "vocab")

    def __init__(
        self, explainer: Explainer, vocab: Vocab, kind: str, tokens: list[int], before: AutomatonPlace | None = None
    ) -> None:
        self.explainer, self.vocab, self.kind, self.tokens, self.before = explainer, vocab, kind, tokens, before
        self.states: list[State] = [explainer.machine.start] if before is None else []

    def without(self, count: int) -> Trail:
        """A new trail, of this text without its last `count` tokens; both may go on."""
        trail, length = self, len(self.tokens)
        while count > length and (before := trail.before) is not None:
            count -= length
            trail, length = before.trail, before.length
        left = length - count
        before = AutomatonPlace(trail, left) if left else trail.before  # no trail without tokens stays in between
        return Trail(self.explainer, self.vocab, self.kind, [], before)

    def walk(self, length: int) -> State:
        """The state after so many of the tokens, where the first is known. What was walked stays where a limit cuts it
        off."""
        states = self.states
        for at in range(len(states) - 1, length):
            after = self.explainer.machine.advance(states[at], self.tokens[at])
            if after is None:
                raise AssertionError(f"token {self.tokens[at]} was taken, and the plain automaton refuses it")
            states[at + 1 : at + 2] = [after]  # another thread may have put the same there
        return states[length]


class AutomatonPlace:
    """A place in a trail, after so many of its tokens. See `Place` of `constraints/base.py`."""

    __slots__ = ("length", "trail")

    def __init__(self, trail: Trail, length: int) -> None:
        self.trail, self.length = trail, length

    def explain(self, token: int) -> Blame:
        trail = self.trail
        if not 0 <= token < trail.vocab.width:
            return Blame(member=trail.kind, reason="there is no such token")
        return blame(trail.explainer, trail.vocab, self.state(), token, trail.kind)

    def rule_of(self, token: int) -> str | None:
        return rule_at(self.trail.explainer, self.trail.vocab, self.state(), token)

    def state(self) -> State:
        """The state of the explainer's machine here."""
        place, ahead = self, []
        while not place.trail.states and place.trail.before is not None:
            ahead.append(place)
            place = place.trail.before
        state = place.trail.walk(place.length)
        for following in reversed(ahead):
            following.trail.states[:1] = [state]
            state = following.trail.walk(following.length)
        return state
