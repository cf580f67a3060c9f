"""Ending a text within a token limit: which tokens still leave a completion that is short enough.

`is_loose`, `closing` and `within` ask any matcher; one that does not implement `Closing` is asked token by token, which
is slow. Completions are counted in tokens, EOS included. It knows no kind of constraint.
"""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from espalier.constraints.base import Matcher
from espalier.errors import LimitExceeded, NotAvailable, VocabError
from espalier.time_limit import OutOfTime
from espalier.tokens import mask as masks
from espalier.tokens.mask import Mask


@runtime_checkable
class Closing(Protocol):
    """Methods that a matcher may offer besides those of `Matcher`. None of them changes its state."""

    def is_loose(self, most: int) -> bool:
        """Whether the token limit cannot matter yet: after every allowed token, `within(most)` knows a completion. May
        be False where finding out would be costly."""
        ...

    def closing(self, most: int) -> Mask:
        """The allowed tokens after which a completion of at most `most` tokens is known, `(W,) int32`; EOS, where it is
        allowed, needs none."""
        ...

    def within(self, most: int) -> tuple[int, ...] | None:
        """A completion of at most `most` tokens, EOS last; None if none is known. `()` once finished."""
        ...


def is_loose(matcher: Matcher, most: int) -> bool:
    """See `Closing`."""
    return isinstance(matcher, Closing) and matcher.is_loose(most)


def closing(matcher: Matcher, most: int, width: int) -> Mask:
    """See `Closing`. width: V."""
    return matcher.closing(most) if isinstance(matcher, Closing) else by_trying(matcher, most, width)


def by_trying(matcher: Matcher, most: int, width: int) -> Mask:
    """See `Closing.closing`, for any matcher: every allowed token is taken by a copy, which is slow."""
    ids = [int(token) for token in masks.allowed_ids(matcher.mask(), width)]
    return masks.from_ids([token for token in ids if leaves(matcher, token, most)], width)


def leaves(matcher: Matcher, token: int, most: int) -> bool:
    """Whether after an allowed token a completion of at most `most` tokens is known."""
    ahead = matcher.fork()
    ahead.advance(token)
    return ahead.is_finished or within(ahead, most) is not None


def within(matcher: Matcher, most: int) -> tuple[int, ...] | None:
    """See `Closing`."""
    return matcher.within(most) if isinstance(matcher, Closing) else known_within(matcher, most)


def known_within(matcher: Matcher, most: int) -> tuple[int, ...] | None:
    """See `Closing.within`, for any matcher: the shortest completion it knows, if that is short enough."""
    completion = known(matcher)
    return completion if completion is not None and len(completion) <= most else None


class Completing(Protocol):
    """What knows a completion: a matcher, or what stands before one."""

    def shortest_completion(self) -> tuple[int, ...]: ...


def known(matcher: Completing) -> tuple[int, ...] | None:
    """The matcher's shortest completion; None if it knows none."""
    try:
        return matcher.shortest_completion()
    except OutOfTime:
        raise  # the request was given up, which says nothing about the text
    except (NotAvailable, LimitExceeded, VocabError):
        return None
