"""`SafetyFilter`: a safety filter built step by step, for a request's `safety` or for a FilterChain.

It does not know how patterns are matched.
"""

from __future__ import annotations

from collections.abc import Iterable
from copy import copy
from pathlib import Path
from typing import Any, Self

from espalier.constraints.compiler import Compiler
from espalier.constraints.filters.matcher import MatcherFilter, compiler_of
from espalier.constraints.safety.spec import Safety, SafetyBuilder, SafetyMode
from espalier.errors import InputError
from espalier.sampling.filters import FilterContext, Priority
from espalier.tokens.mask import Logits

DEFAULT = "standard"
"""The preset of a filter over a vocabulary for which nothing was chosen."""


class SafetyFilter(SafetyBuilder):
    """Builds a `Safety` step by step; with a vocabulary it is a LogitFilter too.

    first: a preset's name, or what a filter wants to run: a Vocab, a Compiler or a tokenizer. Each method that changes
    it returns it; `spec()` returns the `Safety`. Over a vocabulary, and with nothing chosen, it is `standard`. Settings
    may change until the first token of a text, and after `reset`.

    As a filter it only masks: `mode="rewind"` needs an engine. Raises UnknownName, InputError, and, when it is first
    used, what `Safety` and its compiler raise.
    """

    priority = Priority.HIGH

    def __init__(
        self, first: Any = None, *, preset: str | None = None, mode: SafetyMode = "mask", name: str = "safety"
    ) -> None:
        is_preset = first is None or isinstance(first, str)
        if is_preset and first is not None and preset is not None:
            raise InputError("give the preset once", field="preset")
        self.name = name
        self._compiler: Compiler | None = None if is_preset else compiler_of(first)
        self._inner: MatcherFilter | None = None
        self._taken = 0
        self._is_chosen = False
        super().__init__(first if is_preset and first is not None else preset, mode=mode)

    def spec(self) -> Safety:
        """The `Safety` of the settings so far. Raises SpecError if nothing would be enforced."""
        if self._compiler is not None and not self._is_chosen:
            return Safety(DEFAULT, mode=self._mode)
        return super().spec()

    @property
    def is_fresh(self) -> bool:
        """Whether no token was taken since the start of the text."""
        return not self._taken

    def apply(self, logits: Logits, context: FilterContext) -> Logits:
        """`(V,) float32` in, `(V,) float32` out: tokens that would complete a match are -inf. Raises as
        `MatcherFilter.apply`."""
        return self._filter().apply(logits, context)

    def on_token(self, token: int) -> None:
        """Advance by the sampled token. Raises TokenRefused, and changes nothing, for a token that is not allowed."""
        self._filter().on_token(token)
        self._taken += 1

    def rollback(self, count: int) -> None:
        """Undo the last tokens. Raises ValueError for more tokens than were taken."""
        self._filter().rollback(count)
        self._taken -= count

    def reset(self) -> None:
        """Back to the start of a text; the settings stay."""
        self._taken = 0
        if self._inner is not None:
            self._inner.reset()

    def fork(self) -> Self:
        other = copy(self)
        other._enabled, other._include = self._enabled.copy(), self._include.copy()
        other._lists, other._customs = self._lists.copy(), self._customs.copy()
        other._inner = None if self._inner is None else self._inner.fork()
        return other

    def _filter(self) -> MatcherFilter:
        if self._inner is None:
            if self._compiler is None:
                raise InputError(
                    "a SafetyFilter needs a vocabulary to filter logits",
                    hint='SafetyFilter(vocab).apply_preset("minimal"), or spec() for a request',
                    field="vocab",
                )
            self._inner = MatcherFilter(self._compiler.compile(self.spec()), self.name)
        return self._inner

    def _reset_compiled(self) -> None:
        if self._taken:
            raise InputError(
                f"{self.name}: its settings cannot change within a text", hint="reset() first", field="safety"
            )
        self._is_chosen = True
        self._inner = None

    def enable_category(self, category: str) -> Self:
        """See SafetyBuilder. Raises InputError within a text, as the other changes do."""
        self._reset_compiled()
        return super().enable_category(category)

    def disable_category(self, category: str) -> Self:
        """See SafetyBuilder."""
        self._reset_compiled()
        return super().disable_category(category)

    def apply_preset(self, preset: str) -> Self:
        """See SafetyBuilder."""
        self._reset_compiled()
        return super().apply_preset(preset)

    def add_custom_banned_pattern(self, pattern: str, *, regex: bool = False) -> Self:
        """See SafetyBuilder."""
        self._reset_compiled()
        return super().add_custom_banned_pattern(pattern, regex=regex)

    def include(self, pattern: str) -> Self:
        """See SafetyBuilder."""
        self._reset_compiled()
        return super().include(pattern)

    def load_list(self, category: str, source: str | Path | Iterable[str]) -> Self:
        """See SafetyBuilder."""
        self._reset_compiled()
        return super().load_list(category, source)
