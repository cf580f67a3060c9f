"""`computed`: a property that is worked out once for each object, without a lock.

`functools.cached_property` of Python 3.11 holds one lock for all objects of a class while it works: the schema of one
request would wait for that of another. Here two threads that meet may both work it out, and both get the first result.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar, overload

T = TypeVar("T")


class computed(Generic[T]):  # noqa: N801  # it is used as `property` is
    """The class needs a `__dict__`, in which the value stays."""

    def __init__(self, work: Callable[[Any], T]) -> None:
        self._work, self._name, self.__doc__ = work, work.__name__, work.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, instance: None, owner: type) -> computed[T]: ...
    @overload
    def __get__(self, instance: object, owner: type) -> T: ...
    def __get__(self, instance: object | None, owner: type) -> computed[T] | T:
        """Only called the first time: afterwards the value in the object's `__dict__` is found before."""
        if instance is None:
            return self
        value: T = instance.__dict__.setdefault(self._name, self._work(instance))
        return value
