"""Asks a matcher what the record of a step needs besides its mask: why a token is refused, members' masks, the rule.

The only module of `decoding` that looks for the optional protocols of matchers: `Composite`, `RuleNames`,
`DeferredBlames`. It knows no logits and no strategy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeAlias, TypeVar, cast

from espalier.automata.reasons.blame import Blame
from espalier.constraints.base import BlamePosition, Composite, DeferredBlames, Matcher, RuleNames
from espalier.errors import LimitExceeded, NotAvailable
from espalier.time_limit import granted, left, time_limit
from espalier.tokens import mask as masks
from espalier.tokens.mask import Mask

NamedMasks: TypeAlias = Sequence[tuple[str, Mask]]
T = TypeVar("T")


class Answers(Protocol):
    """What a record asks about one place of a text."""

    __slots__ = ()

    def why_refused(self, token: int) -> Blame | None:
        """Why the constraint refuses a token; None where it allows the token, and where the reason cannot be known."""
        ...

    def member_masks(self) -> NamedMasks:
        """As in `Composite`; empty where the matcher has no members, and where their masks cannot be had."""
        ...

    def rule_of(self, token: int) -> str | None:
        """As in `RuleNames`; None where the matcher has no rules, and where the rule cannot be known."""
        ...

    def member_names(self) -> tuple[str, ...]:
        """The names of a composition's members, which are those with a place (`all_of[0].regex`); empty without."""
        return tuple(name for name, _ in self.member_masks() if "[" in name)


class _Patience:
    """Whether the answers of a run that are asked for later are still worth a try."""

    __slots__ = ("is_over",)

    def __init__(self) -> None:
        self.is_over = False


class MatcherQuestions(Answers):
    """The questions about one matcher; None is a sequence without a constraint. Nothing here changes the matcher."""

    __slots__ = ("_composite", "_matcher", "_patience", "_placed", "_ruled")

    def __init__(self, matcher: Matcher | None) -> None:
        # Checks of a protocol are slower than a warm mask: they are made once, and `about` keeps their answers.
        self._matcher = matcher
        self._composite = matcher if isinstance(matcher, Composite) else None
        self._ruled = matcher if isinstance(matcher, RuleNames) else None
        self._placed = matcher if isinstance(matcher, DeferredBlames) else None
        self._patience = _Patience()

    def about(self, fork: Matcher | None) -> MatcherQuestions:
        """The same questions about a fork of the matcher."""
        other = object.__new__(MatcherQuestions)
        other._matcher = fork
        other._composite = None if self._composite is None else cast(Composite, fork)
        other._ruled = None if self._ruled is None else cast(RuleNames, fork)
        other._placed = None if self._placed is None else cast(DeferredBlames, fork)
        other._patience = self._patience
        return other

    @property
    def has_members(self) -> bool:
        """Whether `member_masks` may be anything but empty."""
        return self._composite is not None

    def place(self) -> BlamePosition | None:
        """What answers later; None where the answers have to be had at once."""
        if self._placed is None:
            return None
        try:
            return self._placed.place()
        except (NotAvailable, LimitExceeded):
            return None

    def kept(self, mask: Mask | None, token: int, refused: int | None) -> Answers:
        """The answers that the matcher would give now, for after it has moved on. Only these two tokens may be asked
        about: whose rule it is, and why it was refused (None where nobody will ask why); any token where it has a
        `place`.
        mask: the matcher's, `(W,) int32`, which is kept; None where nobody will ask about a token that it allows.

        Answers that are worked out later take no more CPU time each than the limit that holds now gives a step. Once
        one would, or exceeds another limit, nothing more is worked out for the run."""
        members = self.member_masks() if self.has_members else ()
        if self._matcher is None and not members:
            return NO_MATCHER
        place = self.place()
        if place is not None:
            return _AtPlace(members, mask, place, self._patience)
        return _ImmediateAnswers(members, None if refused is None else self.why_refused(refused), self.rule_of(token))

    def why_refused(self, token: int) -> Blame | None:
        if self._matcher is None or self._matcher.allows(token):
            return None  # padding or a filter's ban: not the constraint's doing
        try:
            return self._matcher.explain(token)
        except (NotAvailable, LimitExceeded):
            return None  # the record then says that the token was refused, and not why

    def member_masks(self) -> NamedMasks:
        if self._composite is None:
            return ()
        try:
            return self._composite.member_masks()
        except (NotAvailable, LimitExceeded):
            return ()  # the record then says how much was removed, and not by which member

    def rule_of(self, token: int) -> str | None:
        if self._ruled is None:
            return None
        try:
            return self._ruled.rule_of(token)
        except (NotAvailable, LimitExceeded):
            return None  # the record then says what the token cost, and not in which rule


class _AtPlace(Answers):
    """Answers for the place where a matcher stood; its mask says what was allowed there."""

    __slots__ = ("_mask", "_members", "_patience", "_place", "_seconds")

    def __init__(self, members: NamedMasks, mask: Mask | None, place: BlamePosition, patience: _Patience) -> None:
        self._members, self._mask, self._place = members, mask, place
        self._patience, self._seconds = patience, granted()

    def why_refused(self, token: int) -> Blame | None:
        if self._mask is not None and masks.test(self._mask, token):
            return None
        return self._worked_out(self._place.explain, token)

    def member_masks(self) -> NamedMasks:
        return self._members

    def rule_of(self, token: int) -> str | None:
        return self._worked_out(self._place.rule_of, token)

    def _worked_out(self, ask: Callable[[int], T | None], token: int) -> T | None:
        if self._patience.is_over:
            return None
        try:
            with time_limit(self._seconds, what="explaining one step of the constraint"):
                return ask(token)
        except NotAvailable:
            return None
        except LimitExceeded:
            if not left():  # the reader's time is up, not ours: who has time can read the record yet
                raise
            self._patience.is_over = True
            return None


class _ImmediateAnswers(Answers):
    """The answers of a matcher that cannot answer later."""

    __slots__ = ("_members", "_rule", "_why")

    def __init__(self, members: NamedMasks, why: Blame | None, rule: str | None) -> None:
        self._members, self._why, self._rule = members, why, rule

    def why_refused(self, token: int) -> Blame | None:
        return self._why

    def member_masks(self) -> NamedMasks:
        return self._members

    def rule_of(self, token: int) -> str | None:
        return self._rule


NO_MATCHER = MatcherQuestions(None)


def members_with_whole(matcher: Matcher, name: str) -> list[tuple[str, Mask]]:
    """The masks of a matcher's members and its own last, as `Composite.member_masks`; a matcher without members is one
    itself, called `name`. Raises NotAvailable, LimitExceeded."""
    return matcher.member_masks() if isinstance(matcher, Composite) else [(name, matcher.mask())]
