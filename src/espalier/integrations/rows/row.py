"""One request in the batch of another engine: a matcher that follows the tokens that the engine takes.

It never raises for what is wrong with one request, since that would end the engine for all: such a row may only end,
and `failure` says why. It knows neither logits nor devices.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from espalier.constraints.base import Compiled, Matcher
from espalier.errors import DeadEnd, EspalierError, TokenRefused
from espalier.tokens import mask as masks

UNKNOWN = -1
"""Stands in an engine's list for a token that is not known on the host yet."""


class EngineRow:
    """output: the engine's own list of the tokens generated so far, which grows while this row lives; a request that
    comes back after a preemption brings the tokens that it had."""

    def __init__(
        self, compiled: Compiled | None, output: Sequence[int], *, failure: EspalierError | None = None
    ) -> None:
        """failure: why the constraint could not be compiled; then there is no `compiled`, and the row may only end."""
        self._matcher: Matcher | None = None if compiled is None else compiled.matcher()
        self._output, self._taken = output, list[int]()
        self._drafted = 0
        self.failure = failure

    @property
    def is_over(self) -> bool:
        """Whether the row may only end: its text is finished, or something went wrong."""
        return self.failure is not None or self._matcher is None or self._matcher.is_finished

    @property
    def is_finished(self) -> bool:
        """Whether the text has ended as its constraint says."""
        return self.failure is None and self._matcher is not None and self._matcher.is_finished

    @property
    def length(self) -> int:
        """Tokens generated so far."""
        return len(self._output)

    def follow(self) -> None:
        """Take the tokens that the engine has added; undo those that it has dropped. Sets `failure` where the engine
        took a token that was not allowed, or does not tell it."""
        if self.failure is not None or self._matcher is None:
            return
        try:
            self._follow(self._matcher)
        except EspalierError as error:
            self.fail(error)

    def fill(self, out: NDArray[np.int32], width: int, *, is_drafted: bool = False) -> bool:
        """Write the mask of the next token to `out`, `(W,) int32`, ids from `width` on forbidden. Returns False for a
        row that may only end. is_drafted: after drafted tokens, which may not be kept, so nothing has failed then."""
        if self.is_over or self._matcher is None:
            return False
        try:
            out[:] = masks.resized(self._matcher.mask(), width)
            if not out.any():
                raise DeadEnd(f"no token is allowed after {self.length} tokens")
        except EspalierError as error:
            if not is_drafted:
                self.fail(error)
            return False
        return True

    def take_draft(self, token: int) -> bool:
        """Take a token that is only proposed, until `undo_drafts`; False where it is not allowed."""
        if self.is_over or self._matcher is None or token == UNKNOWN:
            return False
        try:
            self._matcher.advance(token)
        except EspalierError:
            return False
        self._drafted += 1
        return True

    def undo_drafts(self) -> None:
        """Return to the tokens that the engine has kept."""
        if self._drafted and self._matcher is not None:
            self._matcher.rollback(self._drafted)
        self._drafted = 0

    def fail(self, error: EspalierError) -> None:
        """From now on the row may only end. The first failure counts."""
        if self.failure is None:
            self.failure = error

    def _follow(self, matcher: Matcher) -> None:
        taken, output = self._taken, self._output
        if len(output) < len(taken) or (taken and output[len(taken) - 1] != taken[-1]):
            common = next(
                (i for i, (a, b) in enumerate(zip(taken, output, strict=False)) if a != b), min(len(taken), len(output))
            )
            matcher.rollback(len(taken) - common)
            del taken[common:]
        for place in range(len(taken), len(output)):
            token = output[place]
            if matcher.is_finished:
                return
            if token == UNKNOWN:
                raise TokenRefused(
                    f"the engine does not tell token {place}",
                    hint="it schedules ahead of its tokens: turn async scheduling off",
                )
            try:
                matcher.advance(token)
            except TokenRefused as error:
                raise TokenRefused(
                    f"token {place} was taken against the mask: {error.message}",
                    hint="let this processor be the last one",
                ) from error
            taken.append(token)
