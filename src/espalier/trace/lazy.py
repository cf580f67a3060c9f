"""`LateFields`: an object whose fields are computed when one of them is first read."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, Self


class LateFields:
    """Base of frozen dataclasses with slots, some of which are made when one of their fields is first read. Such an
    object equals one that was made at once, with the same hash; copies and pickles are made at once."""

    __slots__ = ("_make", "origin")
    __dataclass_fields__: ClassVar[dict[str, Any]]
    #: What the object is a view of, kept as long as the object; None for any other object.
    origin: Any

    @classmethod
    def later(cls, make: Callable[[], Self], origin: Any = None) -> Self:
        """An object with the fields of what `make` returns. `make` is called at the first access to a field, and must
        not depend on when that is; what it references is kept until then. Two threads that access first may both call
        it."""
        instance = object.__new__(cls)
        object.__setattr__(instance, "_make", make)
        object.__setattr__(instance, "origin", origin)
        return instance

    def made_of(self, origin: Any) -> Self:
        """The same object, with what it was made of."""
        object.__setattr__(self, "origin", origin)
        return self

    def make(self) -> None:
        """Make the fields now, if they are not yet: who reads one later waits for nothing."""
        getattr(self, next(iter(type(self).__dataclass_fields__)))

    if not TYPE_CHECKING:  # for a type checker this would make every misspelt field an Any

        def __getattr__(self, name: str) -> Any:
            """Called for slots that hold nothing yet."""
            names = type(self).__dataclass_fields__
            if name == "origin":  # made at once
                return None
            if name not in names:
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
            make = object.__getattribute__(self, "_make")
            if make is not None:  # else another thread has just filled all slots
                full = make()
                for slot in names:
                    object.__setattr__(self, slot, getattr(full, slot))
                object.__setattr__(self, "_make", None)
            return object.__getattribute__(self, name)
