"""`LogitFilter`: changes logits and follows the sequence. `FilterChain`: several filters, by priority.

Filters run on the model's logits, before the samplers. A finite change is a bias; -inf is a ban, which shrinks the
allowed set and is blamed on the filter. Filters know nothing about grammars.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from espalier.errors import BadLogits, DeadEnd, InputError, SamplingError, TokenRefused, UnknownName, VocabError
from espalier.tokens.mask import LARGEST, Logits
from espalier.tokens.vocab import Vocab

ID_LIMIT = 2**31
"""Token ids are smaller in every vocabulary."""


class Priority(IntEnum):
    """HIGH runs first; filters of equal priority keep the order in which they were added."""

    HIGH = 3
    NORMAL = 2
    LOW = 1


class FilterContext(NamedTuple):
    """What a filter may read. step: tokens generated so far. prompt, generated: token ids."""

    step: int
    prompt: tuple[int, ...]
    generated: tuple[int, ...]


class LogitFilter(Protocol):
    """One filter of one sequence: a stateful logits processor that can fork and roll back. A filter that also has
    `reset()`, back to the start of a text, can be used for another text: every filter of Espalier's own has."""

    @property
    def name(self) -> str: ...

    @property
    def priority(self) -> Priority: ...

    def apply(self, logits: Logits, context: FilterContext) -> Logits:
        """`(V,) float32` in, `(V,) float32` out; must change neither its argument nor its own state."""
        ...

    def on_token(self, token: int) -> None:
        """Record a taken token. Only this and `rollback` change the filter."""
        ...

    def rollback(self, count: int) -> None:
        """Undo the last `count` tokens."""
        ...

    def fork(self) -> LogitFilter:
        """An independent copy."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FilterResult:
    """logits: `(V,) float32`. banned_count: tokens whose logits were finite and are -inf now. active_filters: names of
    the filters that ran."""

    logits: Logits
    banned_count: int
    active_filters: tuple[str, ...]


class FilterChain:
    """Filters by priority, each under its own name. They fork and roll back together. members: in running order; read
    only.

    Add filters before the first token. A disabled filter changes no logits but still follows the sequence, so that it
    can be enabled later.
    """

    def __init__(self, filters: Iterable[LogitFilter] = ()) -> None:
        self.members: list[LogitFilter] = []  # a step looks at it several times, and a call costs more
        self._missed: dict[str, int] = {}  # disabled filter -> number of last tokens that it refused to follow
        for member in filters:
            self.add(member)

    def __len__(self) -> int:
        return len(self.members)

    def __iter__(self) -> Iterator[LogitFilter]:
        return iter(tuple(self.members))

    @property
    def names(self) -> tuple[str, ...]:
        """All names, in running order."""
        return tuple(member.name for member in self.members)

    def add(self, filter: LogitFilter) -> None:  # noqa: A002  # as the parameter is called everywhere
        """Add after all others of the same priority. Raises InputError if the name is taken."""
        self.insert(len(self.members), filter)

    def insert(self, index: int, filter: LogitFilter) -> None:  # noqa: A002
        """Add at an index among those of the same priority, as in `list.insert`. Raises as `add`."""
        if filter.name in self.names:
            raise InputError(
                f"there is a filter {filter.name!r} already",
                hint="remove it first, or give one of the two another name",
                field="filters",
            )
        equals = [member for member in self.members if member.priority == filter.priority]
        equals.insert(index, filter)
        others = [member for member in self.members if member.priority != filter.priority]
        self.members = sorted([*others, *equals], key=lambda member: -int(member.priority))  # sorted() is stable

    def remove(self, name: str) -> LogitFilter:
        """Remove and return a filter. Raises UnknownName."""
        removed = self.get(name)
        self.members = [member for member in self.members if member is not removed]
        self._missed.pop(name, None)
        return removed

    def get(self, name: str) -> LogitFilter:
        """Raises UnknownName, listing the names."""
        for member in self.members:
            if member.name == name:
                return member
        raise UnknownName(f"there is no filter {name!r}", hint=f"there are: {', '.join(self.names) or 'none'}")

    def enable(self, name: str) -> None:
        """Raises UnknownName; InputError if the text contains tokens that the filter refuses."""
        self.get(name)
        if self._missed.get(name):
            raise InputError(
                f"{name!r} cannot be enabled: it forbids a token that was taken while it was disabled",
                hint=f"roll back {self._missed[name]} tokens first",
                field="filters",
            )
        self._missed.pop(name, None)

    def disable(self, name: str) -> None:
        """Raises UnknownName."""
        self.get(name)
        self._missed.setdefault(name, 0)

    def is_enabled(self, name: str) -> bool:
        """Raises UnknownName."""
        self.get(name)
        return name not in self._missed

    def apply(self, logits: Logits, context: FilterContext) -> Logits:
        """`(V,) float32` in, `(V,) float32` out; the argument is not changed.

        Lists are accepted. Raises DeadEnd naming the filter that banned the last token, BadLogits naming a filter that
        returned invalid logits, InputError for an argument that is not numeric.
        """
        logits = as_logits(logits)
        active = self._active()
        if not active:
            return logits
        _check(logits, logits.shape, "", is_first=True)
        out = logits.copy()  # (V,), a copy, in case a filter writes into its argument
        for member in active:
            out = member.apply(out, context)
            _check(out, logits.shape, member.name)
        return out

    def apply_with_result(self, logits: Logits, context: FilterContext) -> FilterResult:
        """As `apply`, with a report."""
        logits = as_logits(logits)
        out = self.apply(logits, context)
        banned = int(np.count_nonzero((logits > -np.inf) & (out == -np.inf)))
        return FilterResult(
            logits=out, banned_count=banned, active_filters=tuple(member.name for member in self._active())
        )

    def on_token(self, token: int) -> None:
        """Record a taken token. If an enabled filter refuses it, its TokenRefused is raised and no filter has
        changed."""
        moved: list[LogitFilter] = []
        try:
            for member in self.members:
                if member.name not in self._missed:
                    member.on_token(token)
                    moved.append(member)
        except Exception:
            for member in moved:
                member.rollback(1)
            raise
        for name, missed in self._missed.items():
            self._missed[name] = self._follow(self.get(name), token, missed)

    def rollback(self, count: int) -> None:
        """Undo the last `count` tokens. If a filter cannot, its error is raised and no filter has changed."""
        if isinstance(count, bool) or not isinstance(count, int | np.integer) or count < 0:
            raise InputError(f"{count!r} is no number of tokens to roll back", field="count")
        count = int(count)
        steps = [(member, max(0, count - self._missed.get(member.name, 0))) for member in self.members]
        # On forks first, so that the real rollback starts only if every filter can do it.
        for member, step in steps[1:]:
            copy = member.fork()
            if copy is not member:
                copy.rollback(step)
        for member, step in steps:
            member.rollback(step)
        self._missed = {name: max(0, missed - count) for name, missed in self._missed.items()}

    def fork(self) -> FilterChain:
        """An independent copy: every filter is forked, and enabled or disabled as in the original."""
        other = FilterChain(member.fork() for member in self.members)
        other._missed = self._missed.copy()
        return other

    def reset(self) -> None:
        """Back to the start of a text, for every filter, disabled ones included. Raises InputError, before any filter
        is reset, for a filter that follows the text and has no `reset`."""
        for member in self.members:
            if not callable(getattr(member, "reset", None)):
                raise InputError(
                    f"the filter {member.name!r} has no reset", hint="put a new one into the chain", field="filters"
                )
        for member in self.members:
            member.reset()  # type: ignore[attr-defined]  # just checked
        self._missed = dict.fromkeys(self._missed, 0)

    def clone(self) -> FilterChain:
        """Another name for `fork`."""
        return self.fork()

    def _active(self) -> list[LogitFilter]:
        return [member for member in self.members if member.name not in self._missed]

    @staticmethod
    def _follow(member: LogitFilter, token: int, missed: int) -> int:
        """Pass a token to a disabled filter; returns how many tokens it has missed."""
        if missed:
            return missed + 1
        try:
            member.on_token(token)
        except TokenRefused:
            return 1
        return 0


def _check(logits: Logits, shape: tuple[int, ...], name: str, *, is_first: bool = False) -> None:
    """Check that logits can be drawn from, in one pass: NaN and both infinities show in the maximum."""
    who = "the logits" if is_first else f"the filter {name!r}"
    if not isinstance(logits, np.ndarray) or not np.issubdtype(logits.dtype, np.floating):
        raise BadLogits(f"{who} must give an array of floats, not {_kind_of(logits)}")
    if logits.shape != shape or logits.ndim != 1 or not logits.shape[0]:
        raise BadLogits(f"{who} must be of shape (V,), not {logits.shape}")
    largest = float(logits.max())
    if math.isnan(largest) or largest == math.inf:
        raise BadLogits(f"{who} {'hold' if is_first else 'gave'} {'NaN' if math.isnan(largest) else 'infinity'}")
    if largest == -math.inf:
        raise DeadEnd(
            "no token is left before the first filter" if is_first else f"the filter {name!r} left no token",
            hint=None if is_first else "nothing can be drawn; allow something, or disable it",
        )


def as_logits(logits: Any) -> Logits:
    """An array of floats unchanged, or a list as float32. Raises InputError."""
    if isinstance(logits, np.ndarray):
        array: Any = logits
    else:
        try:
            array = np.asarray([] if logits is None else logits, dtype=np.float32)
        except (TypeError, ValueError, OverflowError) as error:
            raise InputError(f"logits are an array of floats, not {_kind_of(logits)}", field="logits") from error
    if not np.issubdtype(array.dtype, np.floating):
        raise InputError(f"logits are an array of floats, not {_kind_of(array)}", field="logits")
    row: Logits = array
    return row


def as_row(logits: Any) -> Logits:
    """As `as_logits`, with shape (V,). Raises InputError."""
    row = as_logits(logits)
    if row.ndim != 1 or not row.shape[0]:
        raise InputError(f"logits must be of shape (V,), not {row.shape}", field="logits")
    return row


def _kind_of(value: Any) -> str:
    return f"an array of {value.dtype}" if isinstance(value, np.ndarray) else type(value).__name__


class RenamedFilter:
    """A filter under another name."""

    def __init__(self, inner: LogitFilter, name: str) -> None:
        self.inner = inner
        self.name = name
        self.priority = inner.priority

    def apply(self, logits: Logits, context: FilterContext) -> Logits:
        return self.inner.apply(logits, context)

    def on_token(self, token: int) -> None:
        self.inner.on_token(token)

    def rollback(self, count: int) -> None:
        self.inner.rollback(count)

    def reset(self) -> None:
        self.inner.reset()  # type: ignore[attr-defined]  # optional in the protocol

    def fork(self) -> RenamedFilter:
        return RenamedFilter(self.inner.fork(), self.name)


def distinct(filters: Iterable[LogitFilter]) -> list[LogitFilter]:
    """The same filters with distinct names: later ones of the same name become `NAME 2`, `NAME 3`."""
    named: dict[str, LogitFilter] = {}
    for member in filters:
        name, count = member.name, 1
        while name in named:
            count += 1
            name = f"{member.name} {count}"
        named[name] = member if count == 1 else RenamedFilter(member, name)
    return list(named.values())


class _Stateless:
    """Base of filters that do not depend on the sequence."""

    def on_token(self, token: int) -> None:
        """Does nothing."""

    def rollback(self, count: int) -> None:
        """Does nothing."""

    def reset(self) -> None:
        """Does nothing."""


class LogitBias(_Stateless):
    """Adds to the logits of some tokens; -inf bans a token. Priority HIGH: llama.cpp applies biases before penalties.

    Raises SamplingError for invalid ids or numbers; `apply` raises it for an id outside the logits.
    """

    priority = Priority.HIGH

    def __init__(self, biases: Mapping[int, float], *, name: str = "logit_bias") -> None:
        self.name = name
        pairs = _items(biases)
        self.biases = {_token_id(token, "logit_bias"): _bias(token, value) for token, value in pairs}
        self._ids = np.asarray(list(self.biases), dtype=np.intp)  # (n,)
        self._amounts = np.asarray(list(self.biases.values()), dtype=np.float32)  # (n,)

    @staticmethod
    def of(
        encode: Vocab | Callable[[str], Iterable[int]], biases: Mapping[str, float], *, name: str = "logit_bias"
    ) -> LogitBias:
        """Biases by text: each token of a text gets its bias; a token that several texts share gets the sum.

        encode: text to ids without specials, or a vocabulary with an encoder. Raises VocabError for a vocabulary
        without one.
        """
        if isinstance(encode, Vocab):
            if encode.encoder is None:
                raise VocabError("this vocabulary cannot split text into tokens", hint="give a function, or token ids")
            encode = encode.encoder
        sums: dict[int, float] = {}
        for text, value in _items(biases):
            if not isinstance(text, str):
                raise SamplingError(f"logit_bias: {text!r} is no text", field="logit_bias")
            tokens = list(dict.fromkeys(int(token) for token in encode(text)))
            if not tokens:
                raise SamplingError(f"logit_bias: {text!r} has no token", field="logit_bias")
            for token in tokens:
                sums[token] = sums.get(token, 0.0) + _bias(text, value)
        return LogitBias(sums, name=name)

    def apply(self, logits: Logits, context: FilterContext) -> Logits:
        logits = as_row(logits)
        _within(self._ids, logits, "logit_bias")
        out = logits.copy()  # (V,)
        out[self._ids] += self._amounts
        return out

    def fork(self) -> LogitBias:
        return self  # it is immutable


class TokenBan(_Stateless):
    """Tokens that are never taken. Raises as LogitBias does."""

    priority = Priority.NORMAL

    def __init__(self, ids: Iterable[int], *, name: str = "token_ban") -> None:
        self.name = name
        if isinstance(ids, str | bytes) or not isinstance(ids, Iterable):
            raise SamplingError(f"token_ban: {ids!r} is no list of token ids", field="token_ban")
        self.ids = tuple(dict.fromkeys(_token_id(token, "token_ban") for token in ids))
        self._ids = np.asarray(self.ids, dtype=np.intp)  # (n,)

    @staticmethod
    def single(token: int, *, name: str = "token_ban") -> TokenBan:
        """Ban one token."""
        return TokenBan([token], name=name)

    def apply(self, logits: Logits, context: FilterContext) -> Logits:
        logits = as_row(logits)
        _within(self._ids, logits, "token_ban")
        out = logits.copy()  # (V,)
        out[self._ids] = -np.inf
        return out

    def fork(self) -> TokenBan:
        return self  # it is immutable


def _token_id(token: object, field: str) -> int:
    if isinstance(token, bool) or not isinstance(token, int | np.integer) or not 0 <= token < ID_LIMIT:
        raise SamplingError(f"{field}: {token!r} is no token id", field=field)
    return int(token)


def _items(biases: Any) -> Iterable[tuple[Any, Any]]:
    if not isinstance(biases, Mapping):
        raise SamplingError(
            f"logit_bias: biases are a mapping to numbers, not {type(biases).__name__}", field="logit_bias"
        )
    return biases.items()


def _bias(key: object, value: float) -> float:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    # NaN fails both comparisons.
    if not is_number or not (abs(value) <= LARGEST or value == -math.inf):
        raise SamplingError(f"logit_bias: {value!r} for {key!r} is no number", hint="-inf bans", field="logit_bias")
    return float(value)


def _within(ids: NDArray[np.intp], logits: Logits, field: str) -> None:
    if ids.size and int(ids.max()) >= logits.shape[0]:
        raise SamplingError(f"{field}: token {int(ids.max())} is outside 0..{logits.shape[0] - 1}", field=field)
