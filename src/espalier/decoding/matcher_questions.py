"""What every plan asks of a matcher beside its mask: why a token is refused, what the members allow, how a text ended.

It knows nothing of how tokens are drawn.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from espalier.automata.reasons.blame import Blame
from espalier.constraints.base import Composite, Matcher, Ruled
from espalier.errors import LimitExceeded, NotAvailable
from espalier.tokens.mask import Mask


def explained(matcher: Matcher | None, token: int) -> Blame | None:
    """Why the constraint refuses a token; None where it does not, and where that cannot be known."""
    if matcher is None or matcher.allows(token):
        return None  # padding or a filter's ban: not the constraint's doing
    try:
        return matcher.explain(token)
    except (NotAvailable, LimitExceeded):
        return None  # the record then says that it was refused, and not why


def member_masks(composite: Composite | None) -> Sequence[tuple[str, Mask]]:
    """The masks of a composition's members; none where there are none, or they cannot be had."""
    if composite is None:
        return ()
    try:
        return composite.member_masks()
    except (NotAvailable, LimitExceeded):
        return ()  # the record then says how much was removed, and not by whom


def ruler(matcher: Matcher | None) -> Callable[[int], str | None]:
    """Tells the rule in which a token that is allowed begins; None where the constraint has no rules, or cannot tell.
    To be made once for a sequence: the check is slow."""
    if not isinstance(matcher, Ruled):
        return lambda token: None

    def told(token: int) -> str | None:
        try:
            return matcher.rule_of(token)
        except (NotAvailable, LimitExceeded):
            return None  # the record then says what the token cost, and not where

    return told
