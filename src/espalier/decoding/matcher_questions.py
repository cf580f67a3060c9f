"""Asks a matcher what the record of a step needs besides its mask: why a token is refused, members' masks, the rule.

The only module of `decoding` that looks for the optional protocols of matchers, `Composite` and `Ruled`. It knows no
logits and no strategy.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias, cast

from espalier.automata.reasons.blame import Blame
from espalier.constraints.base import Composite, Matcher, Ruled
from espalier.errors import LimitExceeded, NotAvailable
from espalier.tokens.mask import Mask

NamedMasks: TypeAlias = Sequence[tuple[str, Mask]]


class MatcherQuestions:
    """The questions about one matcher; None is a sequence without a constraint. Nothing here changes the matcher."""

    __slots__ = ("_composite", "_matcher", "_ruled")

    def __init__(self, matcher: Matcher | None) -> None:
        # Checks of a protocol are slower than a warm mask: they are made once, and `about` keeps their answers.
        self._matcher = matcher
        self._composite = matcher if isinstance(matcher, Composite) else None
        self._ruled = matcher if isinstance(matcher, Ruled) else None

    def about(self, fork: Matcher | None) -> MatcherQuestions:
        """The same questions about a fork of the matcher."""
        other = object.__new__(MatcherQuestions)
        other._matcher = fork
        other._composite = None if self._composite is None else cast(Composite, fork)
        other._ruled = None if self._ruled is None else cast(Ruled, fork)
        return other

    def why_refused(self, token: int) -> Blame | None:
        """Why the constraint refuses a token; None where it allows the token, and where the reason cannot be known."""
        if self._matcher is None or self._matcher.allows(token):
            return None  # padding or a filter's ban: not the constraint's doing
        try:
            return self._matcher.explain(token)
        except (NotAvailable, LimitExceeded):
            return None  # the record then says that the token was refused, and not why

    def member_masks(self) -> NamedMasks:
        """As in `Composite`; empty where the matcher has no members, and where their masks cannot be had."""
        if self._composite is None:
            return ()
        try:
            return self._composite.member_masks()
        except (NotAvailable, LimitExceeded):
            return ()  # the record then says how much was removed, and not by which member

    def member_names(self) -> tuple[str, ...]:
        """The names of a composition's members, which are those with a place (`all_of[0].regex`); empty without."""
        return tuple(name for name, _ in self.member_masks() if "[" in name)

    def rule_of(self, token: int) -> str | None:
        """As in `Ruled`; None where the matcher has no rules, and where the rule cannot be known."""
        if self._ruled is None:
            return None
        try:
            return self._ruled.rule_of(token)
        except (NotAvailable, LimitExceeded):
            return None  # the record then says what the token cost, and not in which rule


NO_MATCHER = MatcherQuestions(None)


def members_with_whole(matcher: Matcher, name: str) -> list[tuple[str, Mask]]:
    """The masks of a matcher's members and its own last, as `Composite.member_masks`; a matcher without members is one
    itself, called `name`. Raises NotAvailable, LimitExceeded."""
    return matcher.member_masks() if isinstance(matcher, Composite) else [(name, matcher.mask())]
