"""`LazySequence`: a sequence that is computed when it is first read; `LateFields`: an object whose fields are."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Self, TypeVar, overload

T = TypeVar("T")


class LazySequence(Sequence[T], Generic[T]):
    """Equal to the tuple that `make` returns, with the same hash. `make` is called once, at the first access, and must
    not depend on when that is; what it references is kept until then. Two threads that access first may both call it.

    length: the number of items, if known in advance.
    """

    __slots__ = ("_length", "_made", "_make")

    def __init__(self, make: Callable[[], tuple[T, ...]], length: int | None = None) -> None:
        self._make: Callable[[], tuple[T, ...]] | None = make
        self._made: tuple[T, ...] | None = None
        self._length = length

    def _all(self) -> tuple[T, ...]:
        items, make = self._made, self._make
        if items is None:
            if make is None:  # another thread has just made it
                return self._all()
            items = self._made = make()
            self._make = None
        return items

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[T, ...]: ...
    def __getitem__(self, index: int | slice) -> T | tuple[T, ...]:
        return self._all()[index]

    def __iter__(self) -> Iterator[T]:
        return iter(self._all())  # the one of Sequence asks for each item by its index

    def __len__(self) -> int:
        return len(self._all()) if self._length is None else self._length

    def __eq__(self, other: object) -> bool:
        if isinstance(other, LazySequence):
            return self._all() == other._all()
        return self._all() == other if isinstance(other, tuple) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._all())

    def __repr__(self) -> str:
        return repr(self._all())

    def __reduce__(self) -> tuple[Any, ...]:
        """Copies and pickles are plain tuples: `make` may reference a whole vocabulary."""
        return tuple, (self._all(),)


class LateFields:
    """Base of frozen dataclasses with slots, some of which are made when one of their fields is first read. Such an
    object equals one that was made at once, with the same hash; copies and pickles are made at once."""

    __slots__ = ("_make",)
    __dataclass_fields__: ClassVar[dict[str, Any]]

    @classmethod
    def later(cls, make: Callable[[], Self]) -> Self:
        """An object with the fields of what `make` returns. `make` is called at the first access to a field, and must
        not depend on when that is; what it references is kept until then. Two threads that access first may both call
        it."""
        instance = object.__new__(cls)
        object.__setattr__(instance, "_make", make)
        return instance

    def make(self) -> None:
        """Make the fields now, if they are not yet: who reads one later waits for nothing."""
        getattr(self, next(iter(type(self).__dataclass_fields__)))

    if not TYPE_CHECKING:  # for a type checker this would make every misspelt field an Any

        def __getattr__(self, name: str) -> Any:
            """Called for slots that hold nothing yet."""
            names = type(self).__dataclass_fields__
            if name not in names:
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
            make = object.__getattribute__(self, "_make")
            if make is not None:  # else another thread has just filled all slots
                full = make()
                for slot in names:
                    object.__setattr__(self, slot, getattr(full, slot))
                object.__setattr__(self, "_make", None)
            return object.__getattribute__(self, name)
