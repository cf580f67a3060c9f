"""Base classes for matchers: the checks that all of them make, and the methods of `closing.py` where none is cheaper.

`MatcherBase` is for a matcher with a state of its own, `WrappingMatcher` for one that adds to another matcher. They
know no kind of constraint.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from typing import Generic, Self, TypeVar

from espalier.automata.reasons.blame import Blame
from espalier.constraints.base import Compiled, Matcher
from espalier.constraints.matching import closing
from espalier.constraints.spec import Spec
from espalier.errors import NotAvailable, TokenRefused
from espalier.tokens.mask import Mask
from espalier.tokens.vocab import Vocab

AnyCompiled = TypeVar("AnyCompiled", bound=Compiled)
Inner = TypeVar("Inner", bound=Matcher)


class MatcherBase(ABC, Generic[AnyCompiled]):
    """The state of one sequence under the constraint `_compiled`. Laws: tests/laws.py."""

    __slots__ = ("_compiled",)

    def __init__(self, compiled: AnyCompiled) -> None:
        self._compiled = compiled

    @property
    @abstractmethod
    def is_accepting(self) -> bool: ...

    @property
    @abstractmethod
    def is_finished(self) -> bool: ...

    @abstractmethod
    def mask(self) -> Mask: ...

    @abstractmethod
    def allows(self, token: int) -> bool: ...

    @abstractmethod
    def advance(self, token: int) -> None: ...

    @abstractmethod
    def rollback(self, count: int) -> None: ...

    @abstractmethod
    def fork(self) -> Self: ...

    @abstractmethod
    def forced(self) -> tuple[int, ...]: ...

    @abstractmethod
    def shortest_completion(self) -> tuple[int, ...]: ...

    @property
    def _kind(self) -> str:
        """The kind of the constraint, as blames and errors name it."""
        return self._compiled.spec.kind

    @property
    def _vocab(self) -> Vocab:
        return self._compiled.vocab

    def explain(self, token: int) -> Blame:
        """See `Matcher.explain`."""
        if self.allows(token):
            raise ValueError(f"token {token} is allowed")
        if self.is_finished:
            return Blame(member=self._kind, reason="the text has ended")
        if not 0 <= token < self._vocab.width:
            return Blame(member=self._kind, reason="there is no such token")
        return self._blame(token)

    @abstractmethod
    def _blame(self, token: int) -> Blame:
        """Why a token of the vocabulary is refused, while the text has not ended. Raises NotAvailable."""

    def is_loose(self, most: int) -> bool:
        """See `closing.Closing`."""
        return False

    def closing(self, most: int) -> Mask:
        """See `closing.Closing`; every allowed token is tried, which is slow."""
        return closing.by_trying(self, most, self._vocab.width)

    def within(self, most: int) -> tuple[int, ...] | None:
        """See `closing.Closing`."""
        return closing.known_within(self, most)

    def _refusal(self, token: int) -> TokenRefused:
        """The error of `advance` for a token that is not allowed, which may be outside the vocabulary."""
        shown = self._vocab.text_of(token) if 0 <= token < self._vocab.width else "?"
        reason = "the text has ended" if self.is_finished else f"{self._kind} forbids it here"
        return TokenRefused(f"token {token} ({shown!r}) is refused: {reason}")


def check_undo(count: int, done: int) -> None:
    """Raises ValueError where `rollback(count)` cannot be done after `done` tokens."""
    if not 0 <= count <= done:
        raise ValueError(f"cannot undo {count} of {done} tokens")


def blame_of(member: Matcher, name: str, token: int) -> Blame:
    """Why one member of a composition refuses a token. name: the member's."""
    try:
        return replace(member.explain(token), member=name)
    except NotAvailable:
        return Blame(member=name, reason="it refuses this token and cannot say why")


class CompiledWrapper:
    """A compiled constraint with the spec, vocabulary and spellings of another. Base class."""

    def __init__(self, inner: Compiled) -> None:
        self._inner = inner

    @property
    def spec(self) -> Spec:
        return self._inner.spec

    @property
    def vocab(self) -> Vocab:
        return self._inner.vocab

    @property
    def spelled(self) -> Mapping[int, bytes]:
        return self._inner.spelled

    def accepts(self, text: str | bytes) -> bool:
        return self._inner.accepts(text)


class WrappingMatcher(MatcherBase[AnyCompiled], Generic[AnyCompiled, Inner]):
    """A matcher that answers as `_inner` does, but for what a subclass overrides."""

    __slots__ = ("_inner",)

    def __init__(self, compiled: AnyCompiled, inner: Inner) -> None:
        super().__init__(compiled)
        self._inner = inner

    @property
    def is_accepting(self) -> bool:
        return self._inner.is_accepting

    @property
    def is_finished(self) -> bool:
        return self._inner.is_finished

    def mask(self) -> Mask:
        return self._inner.mask()

    def allows(self, token: int) -> bool:
        return self._inner.allows(token)

    def advance(self, token: int) -> None:
        self._inner.advance(token)

    def rollback(self, count: int) -> None:
        self._inner.rollback(count)

    def fork(self) -> Self:
        """An independent copy with a fork of the inner matcher. Subclasses copy the fields they add."""
        other = object.__new__(type(self))
        other._compiled = self._compiled
        other._inner = self._inner.fork()  # type: ignore[assignment]  # of the same class
        return other

    def forced(self) -> tuple[int, ...]:
        return self._inner.forced()

    def shortest_completion(self) -> tuple[int, ...]:
        return self._inner.shortest_completion()

    def _blame(self, token: int) -> Blame:
        return self._inner.explain(token)

    def is_loose(self, most: int) -> bool:
        return closing.is_loose(self._inner, most)

    def closing(self, most: int) -> Mask:
        return closing.closing(self._inner, most, self._vocab.width)

    def within(self, most: int) -> tuple[int, ...] | None:
        return closing.within(self._inner, most)
