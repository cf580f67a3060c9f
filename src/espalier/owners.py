"""For whom work is done, and caches that tell no owner what another one has asked for.

It knows no owner: a key of a server, a user. What is found for one owner is kept for that owner alone, so how long the
same work takes for another one does not depend on it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache, wraps
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")
_OWNER: ContextVar[str] = ContextVar("working_for", default="")
_REQUEST: ContextVar[object | None] = ContextVar("one_request", default=None)


@contextmanager
def working_for(owner: str) -> Iterator[None]:
    """Keep what is computed inside for this owner alone."""
    token = _OWNER.set(owner)
    try:
        yield
    finally:
        _OWNER.reset(token)


def owner() -> str:
    """Whom the calling thread or task works for; empty outside `working_for`."""
    return _OWNER.get()


@contextmanager
def one_request() -> Iterator[None]:
    """What is submitted inside belongs together: several outputs of one request."""
    token = _REQUEST.set(object())
    try:
        yield
    finally:
        _REQUEST.reset(token)


def this_request() -> object | None:
    """What the outputs of one request have in common; None outside `one_request`."""
    return _REQUEST.get()


def owned_cache(maxsize: int) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """As `functools.lru_cache`, with results that are found again by the owner for whom they were made alone. maxsize:
    of all owners together. `cache_clear` of the function forgets all of them."""

    def wrap(function: Callable[P, T]) -> Callable[P, T]:
        @lru_cache(maxsize=maxsize)
        def kept(_owner: str, *args: P.args, **kwargs: P.kwargs) -> T:
            return function(*args, **kwargs)

        @wraps(function)
        def found(*args: P.args, **kwargs: P.kwargs) -> T:
            return kept(_OWNER.get(), *args, **kwargs)  # type: ignore[arg-type]  # as hashable as for lru_cache

        found.cache_clear = kept.cache_clear  # type: ignore[attr-defined]  # as functools does it
        return found

    return wrap
