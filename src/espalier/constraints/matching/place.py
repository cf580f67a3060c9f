"""`AutomatonPlace`: where a matcher of an automaton stood, for explanations that are asked for later, or never.

The explainer's machine is walked only as far as somebody asks. It knows no masks.
"""

from __future__ import annotations

from espalier.automata.masks.machine import State
from espalier.automata.reasons.blame import Blame
from espalier.automata.reasons.explain import Explainer, blame, rule_at
from espalier.tokens.vocab import Vocab


class AutomatonPlace:
    """A place in a text: the start, or one token after another place. See `Place` of `constraints/base.py`.

    kind: of the constraint, as blames name it. Immutable but for the state, which two threads may both work out.
    """

    __slots__ = ("_before", "_explainer", "_kind", "_state", "_token", "_vocab")

    def __init__(self, explainer: Explainer, vocab: Vocab, kind: str) -> None:
        self._explainer, self._vocab, self._kind = explainer, vocab, kind
        self._before: AutomatonPlace | None = None
        self._token = 0
        self._state: State | None = explainer.machine.start

    def after(self, token: int) -> AutomatonPlace:
        """The place after one more token, which the constraint allows here."""
        following = object.__new__(AutomatonPlace)
        following._explainer, following._vocab, following._kind = self._explainer, self._vocab, self._kind
        following._before, following._token, following._state = self, token, None
        return following

    def explain(self, token: int) -> Blame:
        if not 0 <= token < self._vocab.width:
            return Blame(member=self._kind, reason="there is no such token")
        return blame(self._explainer, self._vocab, self.state(), token, self._kind)

    def rule_of(self, token: int) -> str | None:
        return rule_at(self._explainer, self._vocab, self.state(), token)

    def state(self) -> State:
        """The state of the explainer's machine here."""
        if self._state is not None:
            return self._state
        ahead, place = [], self
        while place._state is None and place._before is not None:
            ahead.append(place)
            place = place._before
        state = place._state
        for one in reversed(ahead):
            after = None if state is None else self._explainer.machine.advance(state, one._token)
            if after is None:
                raise AssertionError(f"token {one._token} was taken, and the plain automaton refuses it")
            state = one._state = after
        return state
