"""The matcher of `Thinking`: thought and answer side by side, until the text has opened the thought or cannot any more.

What opens the thought belongs to the thought alone, so the answer never takes a token that completes the opening. It
knows no kind of constraint: the answer is used through the contract of `base.py` alone.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from espalier.automata.reasons.blame import Blame
from espalier.constraints.after.matcher import AfterCompiled, AfterMatcher
from espalier.constraints.base import Composite, Matcher
from espalier.constraints.closing import closing, is_loose, within
from espalier.constraints.refusal import refusal
from espalier.constraints.spec import Spec
from espalier.errors import NotAvailable
from espalier.tokens import mask as masks
from espalier.tokens.mask import Mask
from espalier.tokens.vocab import Vocab

OPENED = -1
"""A token completes the opening."""


class ThinkingCompiled:
    """A thought and an answer for one vocabulary. Safe across threads."""

    def __init__(self, spec: Spec, thought: AfterCompiled, *, is_begun: Callable[[str], bool]) -> None:
        """is_begun: whether a prompt has opened the thought, or closed it."""
        self.spec = spec
        self.thought = thought
        self.answer = thought.inner
        self.vocab: Vocab = thought.vocab
        self.spelled: Mapping[int, bytes] = thought.spelled
        self._is_begun = is_begun
        self._openers: dict[int, tuple[int, ...]] = {}
        self._lock = threading.Lock()

    def matcher(self, *, before: str = "") -> ThinkingMatcher:
        """As in `Compiled`. Raises InputError as the thought's."""
        thought = self.thought.matcher(before=before)
        if self._is_begun(before):
            return ThinkingMatcher(self, thought, None, None)
        return ThinkingMatcher(self, thought, self.answer.matcher(before=before), self.thought.waiting.start)

    def accepts(self, text: str | bytes) -> bool:
        data = text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass")
        if self.thought.waiting.opens_with(data):
            return self.thought.accepts(text)
        return self.answer.accepts(text)

    def follow(self, guard: int, token: int) -> int | None:
        """Where in the opening a token leads; OPENED where it completes it, None where the text opens otherwise."""
        waiting = self.thought.waiting
        after = waiting.machine.advance(guard, token)
        if after is None:
            return None if waiting.walk(waiting.machine, guard, token) is None else OPENED
        return OPENED if after >= waiting.opening_states else after

    def openers(self, guard: int) -> tuple[int, ...]:
        """The tokens that complete the opening from a place in it."""
        with self._lock:
            found = self._openers.get(guard)
            if found is None:
                waiting = self.thought.waiting
                near = np.flatnonzero(masks.unpack(waiting.machine.mask(guard), self.vocab.width))  # (n,)
                ids = (*(int(token) for token in near), *waiting.spanning)
                found = tuple(dict.fromkeys(token for token in ids if self.follow(guard, token) == OPENED))
                self._openers[guard] = found
            return found


class _Place(NamedTuple):
    """guard: the place in the opening while it may still come, None later. thinks, answers: who goes along. took:
    whether the last token was one of the thought's, and of the answer's."""

    guard: int | None
    thinks: bool
    answers: bool
    took: tuple[bool, bool] = (False, False)


class ThinkingMatcher:
    """One sequence's state. Laws: tests/laws.py."""

    __slots__ = ("_answer", "_compiled", "_history", "_place", "_thought")

    def __init__(
        self, compiled: ThinkingCompiled, thought: AfterMatcher, answer: Matcher | None, guard: int | None
    ) -> None:
        self._compiled = compiled
        self._thought = thought
        self._answer = answer  # None where the prompt has begun the thought
        self._place = _Place(guard, True, answer is not None)
        self._history: list[_Place] = []  # the place before each token, EOS too

    @property
    def is_accepting(self) -> bool:
        return any(one.is_accepting for one in self._living())

    @property
    def is_finished(self) -> bool:
        return any(one.is_finished for one in self._living())

    def mask(self) -> Mask:
        place = self._place
        found = masks.empty(self._compiled.vocab.width)
        if place.answers and self._answer is not None:
            found = self._answer.mask()
            if place.guard is not None:
                masks.set_bits_inplace(found, self._compiled.openers(place.guard), False)
        return np.bitwise_or(found, self._thought.mask(), out=found) if place.thinks else found

    def allows(self, token: int) -> bool:
        return any(self._takers(token))

    def advance(self, token: int) -> None:
        thinks, answers = self._takers(token)
        if not (thinks or answers):
            raise refusal(self._compiled.vocab, token, self._compiled.spec.kind, is_finished=self.is_finished)
        guard = self._place.guard
        if thinks:
            self._thought.advance(token)
        if answers and self._answer is not None:
            self._answer.advance(token)
        after = None if guard is None or not self._is_text(token) else self._compiled.follow(guard, token)
        self._history.append(self._place)
        self._place = _Place(None if after == OPENED else after, thinks, answers, (thinks, answers))

    def rollback(self, count: int) -> None:
        if not 0 <= count <= len(self._history):
            raise ValueError(f"cannot undo {count} of {len(self._history)} tokens")
        for _ in range(count):
            thought, answer = self._place.took
            if thought:
                self._thought.rollback(1)
            if answer and self._answer is not None:
                self._answer.rollback(1)
            self._place = self._history.pop()

    def fork(self) -> ThinkingMatcher:
        answer = None if self._answer is None else self._answer.fork()
        other = ThinkingMatcher(self._compiled, self._thought.fork(), answer, None)
        other._place = self._place
        other._history = self._history.copy()
        return other

    def forced(self) -> tuple[int, ...]:
        """Nothing is forced while both may go on."""
        first, *rest = self._living()
        return () if rest else first.forced()

    def explain(self, token: int) -> Blame:
        """By the one that the token's bytes fit longest, with what the other expected."""
        if self.allows(token):
            raise ValueError(f"token {token} is allowed")
        kind = self._compiled.spec.kind
        if self.is_finished:
            return Blame(member=kind, reason="the text has ended")
        if not 0 <= token < self._compiled.vocab.width:
            return Blame(member=kind, reason="there is no such token")
        found = [self._blame(one, token) for one in self._living() if not one.allows(token)]
        if not found:  # the answer would take it, and the thought is out
            return Blame(member=kind, reason="it would open a thought that can no longer come")
        chief = max(found, key=lambda blame: -1 if blame.offset is None else blame.offset)  # the first of equal ones
        wanted = [one.expected for one in (chief, *found) if one.expected]
        return replace(chief, expected="; or ".join(dict.fromkeys(wanted)) or None)

    def _blame(self, member: Matcher, token: int) -> Blame:
        kind = self._compiled.spec.kind
        try:
            blame = member.explain(token)
        except NotAvailable:
            return Blame(member=kind, reason="it refuses this token and cannot say why")
        return replace(blame, member=f"{kind}.{blame.member}")

    def shortest_completion(self) -> tuple[int, ...]:
        found: list[tuple[int, ...]] = []
        fault: NotAvailable | None = None
        for one in self._living():
            try:
                way = one.shortest_completion()
            except NotAvailable as error:
                fault = fault or error
                continue
            if one is self._thought or not self._opens(way):
                found.append(way)
        if not found:
            raise fault or NotAvailable("the shortest way on would open a thought, which can no longer come")
        return min(found, key=len)

    def is_loose(self, most: int) -> bool:
        """See `closing.Closing`, as for the next two."""
        place = self._place
        if place.guard is not None and place.answers:
            return False  # the answer's completion might be read as a thought
        return all(is_loose(one, most) for one in self._living())

    def closing(self, most: int) -> Mask:
        compiled, place = self._compiled, self._place
        width = compiled.vocab.width
        found = masks.empty(width)
        if place.answers and self._answer is not None:
            found = closing(self._answer, most, width)
            if place.guard is not None:
                waiting = compiled.thought.waiting
                near = masks.allowed_ids(found & waiting.machine.mask(place.guard), width)
                ids = (*compiled.openers(place.guard), *(int(token) for token in near))
                out = tuple(token for token in ids if not self._answers_within(token, most))
                masks.set_bits_inplace(found, out, False)
        if place.thinks:
            np.bitwise_or(found, closing(self._thought, most, width), out=found)
        return found

    def _answers_within(self, token: int, most: int) -> bool:
        """Whether the answer takes a token and knows a completion after it that no thought is read into."""
        if self._answer is None or not self._takers(token)[1]:
            return False
        ahead = self.fork()
        ahead.advance(token)
        return ahead.is_finished or ahead._answer_within(most) is not None

    def within(self, most: int) -> tuple[int, ...] | None:
        place = self._place
        found = within(self._thought, most) if place.thinks else None
        return self._answer_within(most) if found is None and place.answers else found

    def _answer_within(self, most: int) -> tuple[int, ...] | None:
        found = None if self._answer is None else within(self._answer, most)
        return None if found is None or self._opens(found) else found

    def _opens(self, tokens: tuple[int, ...]) -> bool:
        """Whether an answer that goes on like this would be read as a thought."""
        guard = self._place.guard
        for token in tokens:
            if guard is None or not self._is_text(token):
                break
            guard = self._compiled.follow(guard, token)
            if guard == OPENED:
                return True
        return False

    def member_masks(self) -> list[tuple[str, Mask]]:
        """As in `Composite`: of the only one that goes along, if it has members; else this alone."""
        first, *rest = self._living()
        kind = self._compiled.spec.kind
        if rest or not isinstance(first, Composite) or first.is_finished:
            return [(kind, self.mask())]
        return [(f"{kind}.{name}", mask) for name, mask in first.member_masks()]

    def _takers(self, token: int) -> tuple[bool, bool]:
        place = self._place
        thinks = place.thinks and self._thought.allows(token)
        answers = place.answers and self._answer is not None and self._answer.allows(token)
        if answers and place.guard is not None and self._is_text(token):
            answers = self._compiled.follow(place.guard, token) != OPENED
        return thinks, answers

    def _is_text(self, token: int) -> bool:
        return token not in self._compiled.vocab.eos_ids

    def _living(self) -> list[Matcher]:
        place = self._place
        found: list[Matcher] = [self._thought] if place.thinks else []
        return [*found, self._answer] if place.answers and self._answer is not None else found
