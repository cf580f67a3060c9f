"""The matcher of `Thinking`: thought and answer in parallel, until the text has opened the thought or cannot any more.

The bytes that open the thought belong to the thought alone, so the answer never takes a token that completes the
opening. It knows no kind of constraint: the answer is used through the contract of `base.py` alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Self

import numpy as np

from espalier.automata.reasons.blame import Blame
from espalier.constraints.after.border import within as nested
from espalier.constraints.after.matcher import CompiledAfter
from espalier.constraints.base import Matcher
from espalier.constraints.matching.parallel import CompiledParallel, ParallelMatcher
from espalier.constraints.spec import Spec
from espalier.errors import NotAvailable
from espalier.time_limit import WorkLock
from espalier.tokens import mask as masks
from espalier.tokens.mask import Mask

THOUGHT, ANSWER = 0, 1
"""The members, by place."""
OPENED = -1
"""A token completes the opening."""


class CompiledThinking(CompiledParallel):
    """A thought and an answer for one vocabulary. Safe across threads."""

    def __init__(self, spec: Spec, thought: CompiledAfter, *, is_begun: Callable[[str], bool]) -> None:
        """is_begun: whether a prompt has opened the thought already, closed or not."""
        super().__init__(spec, (spec.kind, spec.kind), (thought, thought.inner))
        self.thought = thought
        self.answer = thought.inner
        self._is_begun = is_begun
        self._openers: dict[int, tuple[int, ...]] = {}
        self._lock = WorkLock()

    def matcher(self, *, before: str = "") -> ThinkingMatcher:
        """See `Compiled.matcher`. Raises InputError as the thought's matcher."""
        begun = self._is_begun(before)
        return ThinkingMatcher(
            self,
            (self.thought.matcher(before=before), None if begun else self.answer.matcher(before=before)),
            guard=None if begun else self.thought.waiting.start,
        )

    def accepts(self, text: str | bytes) -> bool:
        data = text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass")
        if self.thought.waiting.opens_with(data):
            return self.thought.accepts(text)
        return self.answer.accepts(text)

    def follow(self, guard: int, token: int) -> int | None:
        """The state in the opening after a token; OPENED where the token completes the opening, None where the text can
        no longer open a thought."""
        waiting = self.thought.waiting
        after = waiting.machine.advance(guard, token)
        if after is None:
            return None if waiting.walk(waiting.machine, guard, token) is None else OPENED
        return OPENED if after >= waiting.opening_states else after

    def openers(self, guard: int) -> tuple[int, ...]:
        """The tokens that complete the opening from a state in it."""
        with self._lock:
            openers = self._openers.get(guard)
            if openers is None:
                waiting = self.thought.waiting
                near = np.flatnonzero(masks.unpack(waiting.machine.mask(guard), self.vocab.width))  # (n,)
                ids = (*(int(token) for token in near), *waiting.spanning)
                openers = tuple(dict.fromkeys(token for token in ids if self.follow(guard, token) == OPENED))
                self._openers[guard] = openers
            return openers


class ThinkingMatcher(ParallelMatcher[CompiledThinking]):
    """The state of one sequence. Laws: tests/laws.py."""

    __slots__ = ("_guard", "_guards")

    def __init__(
        self, compiled: CompiledThinking, members: tuple[Matcher, Matcher | None], *, guard: int | None
    ) -> None:
        """guard: the state in the opening while it may still come, else None."""
        super().__init__(compiled, members)
        self._guard = guard
        self._guards: list[int | None] = []  # the guard before each token, EOS too

    def advance(self, token: int) -> None:
        super().advance(token)
        self._guards.append(self._guard)
        after = None if self._guard is None or not self._is_text(token) else self._compiled.follow(self._guard, token)
        self._guard = None if after == OPENED else after

    def rollback(self, count: int) -> None:
        super().rollback(count)
        if count:
            left = len(self._guards) - count
            self._guard = self._guards[left]
            del self._guards[left:]

    def fork(self) -> Self:
        other = super().fork()
        other._guard = self._guard
        other._guards = self._guards.copy()
        return other

    def _takers(self, token: int) -> tuple[int, ...]:
        takers = super()._takers(token)
        if ANSWER in takers and self._guard is not None and self._is_text(token):
            opens = self._compiled.follow(self._guard, token) == OPENED
            return tuple(place for place in takers if place != ANSWER) if opens else takers
        return takers

    def _mask_of(self, place: int) -> Mask:
        mask = super()._mask_of(place)
        if place == ANSWER and self._guard is not None:
            masks.set_bits_inplace(mask, self._compiled.openers(self._guard), False)
        return mask

    def _blame(self, token: int) -> Blame:
        if all(
            member.allows(token) for member in self._living()
        ):  # the thought has dropped out, and the answer may not take it
            return Blame(member=self._kind, reason="it would open a thought that can no longer come")
        return super()._blame(token)

    def _blame_of(self, place: int, token: int) -> Blame:
        try:
            return nested(self._member(place).explain(token), self._kind)
        except NotAvailable:
            return super()._blame_of(place, token)

    def _completion_of(self, place: int) -> tuple[int, ...]:
        completion = super()._completion_of(place)
        if place == ANSWER and self._opens(completion):
            raise NotAvailable("the shortest way on would open a thought, which can no longer come")
        return completion

    def is_loose(self, most: int) -> bool:
        """See `closing.Closing`."""
        if self._guard is not None and ANSWER in self._alive:
            return False  # the answer's completion might be read as a thought
        return super().is_loose(most)

    def _closing_of(self, place: int, most: int) -> Mask:
        mask = super()._closing_of(place, most)
        if place == ANSWER and self._guard is not None:
            waiting, width = self._compiled.thought.waiting, self._vocab.width
            near = masks.allowed_ids(mask & waiting.machine.mask(self._guard), width)
            ids = (*self._compiled.openers(self._guard), *(int(token) for token in near))
            out = tuple(token for token in ids if not self._answers_within(token, most))
            masks.set_bits_inplace(mask, out, False)
        return mask

    def _answers_within(self, token: int, most: int) -> bool:
        """Whether the answer takes a token and knows a completion after it that does not open a thought."""
        if ANSWER not in self._takers(token):
            return False
        ahead = self.fork()
        ahead.advance(token)
        return ahead.is_finished or ahead._within_of(ANSWER, most) is not None

    def _within_of(self, place: int, most: int) -> tuple[int, ...] | None:
        completion = super()._within_of(place, most)
        return None if completion is None or (place == ANSWER and self._opens(completion)) else completion

    def _opens(self, tokens: tuple[int, ...]) -> bool:
        """Whether an answer that continues with these tokens would open a thought."""
        guard = self._guard
        for token in tokens:
            if guard is None or not self._is_text(token):
                break
            guard = self._compiled.follow(guard, token)
            if guard == OPENED:
                return True
        return False

    def _is_text(self, token: int) -> bool:
        return token not in self._vocab.eos_ids
