"""What a matcher can tell besides of the way to the end, so that a limit on tokens costs little until it is near.

`loose`, `closing` and `within` ask any matcher; one that is no `Closing` is asked token by token, which is slow.
Completions are counted in tokens, EOS too. It knows no kind of constraint.
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
    """Beside the methods of a Matcher; none of these changes anything that another method shows."""

    def is_loose(self, most: int) -> bool:
        """Whether after every allowed token at most `most` more complete the text, EOS counted. May be False where that
        is not known cheaply; where it is True, `within` knows such a completion after each of them."""
        ...

    def closing(self, most: int) -> Mask:
        """The allowed tokens after which a completion of at most `most` tokens, EOS counted, is known, `(W,) int32`;
        none is needed after EOS."""
        ...

    def within(self, most: int) -> tuple[int, ...] | None:
        """A completion of at most `most` tokens, EOS last; None where none is known. `()` once finished."""
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
    found = known(matcher)
    return found if found is not None and len(found) <= most else None


def known(matcher: Matcher) -> tuple[int, ...] | None:
    """The matcher's completion; None where it knows none."""
    try:
        return matcher.shortest_completion()
    except OutOfTime:
        raise  # that nobody waits any longer says nothing of the text
    except (NotAvailable, LimitExceeded, VocabError):
        return None
