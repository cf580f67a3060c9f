"""The matcher of `AllOf`: masks from the members as one, and each member's own matcher to say which member refuses.

The members' matchers are created when a blame is first asked for, and catch up with the sequence only when asked again.
It does not know how the members were joined.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Self

from espalier.automata.reasons.blame import Blame
from espalier.constraints.base import Compiled, Matcher, RuleNames
from espalier.constraints.matching.base import CompiledWrapper, WrappingMatcher, blame_of
from espalier.errors import EspalierError, NotAvailable, TokenRefused
from espalier.time_limit import WorkLock
from espalier.tokens.mask import Mask

TOGETHER = "each member allows it, but no text that goes on satisfies all of them"


class CompiledAllOf(CompiledWrapper):
    """The members as one automaton. names: the members', in order of blame. make: compiles each member alone when first
    needed."""

    def __init__(self, whole: Compiled, names: Sequence[str], make: Callable[[], list[Compiled]]) -> None:
        super().__init__(whole)
        self.whole = whole
        self.names = tuple(names)
        self._make = make
        self._members: list[Compiled] | None = None
        self._fault = ""
        self._lock = WorkLock(is_paced=True)

    def members(self) -> list[Compiled]:
        """The members, each compiled alone. Raises NotAvailable where one cannot be compiled alone."""
        with self._lock:
            if self._members is None and not self._fault:
                try:
                    self._members = self._make()
                except EspalierError as error:
                    self._fault = error.message  # it would be the same the next time
            if self._members is None:
                raise NotAvailable(f"it is not known which member refuses a token: {self._fault}")
            return self._members

    def matcher(self, *, before: str = "") -> AllOfMatcher:
        return AllOfMatcher(self, self.whole.matcher(before=before))


class AllOfMatcher(WrappingMatcher[CompiledAllOf, Matcher]):
    """The state of one sequence. Laws: tests/laws.py."""

    __slots__ = ("_members", "_seen", "_tokens")

    def __init__(self, compiled: CompiledAllOf, whole: Matcher) -> None:
        super().__init__(compiled, whole)
        self._tokens: list[int] = []  # EOS too
        self._members: list[Matcher] = []  # none until one is asked
        self._seen: list[int] = []  # how many tokens each member has taken

    def advance(self, token: int) -> None:
        super().advance(token)
        self._tokens.append(token)

    def rollback(self, count: int) -> None:
        super().rollback(count)
        left = len(self._tokens) - count
        del self._tokens[left:]
        for place, member in enumerate(self._members):
            if self._seen[place] > left:
                member.rollback(self._seen[place] - left)
                self._seen[place] = left

    def fork(self) -> Self:
        other = super().fork()
        other._tokens = self._tokens.copy()
        other._members = [member.fork() for member in self._members]
        other._seen = self._seen.copy()
        return other

    def rule_of(self, token: int) -> str | None:
        """See `RuleNames`: by the first member that knows one."""
        members = (self._member(place) for place in range(len(self._compiled.names)))
        rules = (member.rule_of(token) for member in members if isinstance(member, RuleNames))
        return next((rule for rule in rules if rule is not None), None)

    def _blame(self, token: int) -> Blame:
        """The blame of the first member that refuses the token."""
        for place, name in enumerate(self._compiled.names):
            if not (member := self._member(place)).allows(token):
                return blame_of(member, name, token)
        return replace(self._inner.explain(token), reason=TOGETHER)

    def member_masks(self) -> list[tuple[str, Mask]]:
        """See `base.Composite`."""
        member_masks = [(name, member.mask()) for name, member in self.singles()]
        return [*member_masks, (self._compiled.spec.kind, self.mask())]

    def singles(self) -> list[tuple[str, Matcher]]:
        """Each member's own matcher after the same tokens, with its name. They must not be changed. Raises
        NotAvailable."""
        return [(name, self._member(place)) for place, name in enumerate(self._compiled.names)]

    def _member(self, place: int) -> Matcher:
        """A member's own matcher, after the same tokens as the whole."""
        if not self._members:
            self._members = [compiled.matcher() for compiled in self._compiled.members()]
            self._seen = [0] * len(self._members)
        member = self._members[place]
        while self._seen[place] < len(self._tokens):
            try:
                member.advance(self._tokens[self._seen[place]])
            except TokenRefused as error:  # a word file was edited in between
                raise NotAvailable(f"{self._compiled.names[place]} is no longer what it was") from error
            self._seen[place] += 1
        return member
