"""The matcher of several members at once: one automaton for all, and each member's own to say who refuses what.

Masks and steps come from the automaton of the whole. The members' own matchers are made when they are first asked,
and follow the sequence as far as they are asked. It does not know how the automaton of the whole was made.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from espalier.automata.reasons.blame import Blame
from espalier.constraints.automaton_matcher import AutomatonCompiled, AutomatonMatcher
from espalier.constraints.base import Compiled, Matcher
from espalier.constraints.spec import Spec
from espalier.errors import EspalierError, NotAvailable, TokenRefused
from espalier.tokens.mask import Mask
from espalier.tokens.vocab import Vocab

TOGETHER = "each member allows it, but no text that goes on satisfies all of them"


class AllOfCompiled:
    """Members made one. names: of the members, in order of blame. make: compiles them each on its own."""

    def __init__(self, whole: AutomatonCompiled, names: Sequence[str], make: Callable[[], list[Compiled]]) -> None:
        self.whole = whole
        self.names = tuple(names)
        self._make = make
        self._members: list[Compiled] | None = None
        self._fault = ""
        self._lock = threading.Lock()

    @property
    def spec(self) -> Spec:
        return self.whole.spec

    @property
    def vocab(self) -> Vocab:
        return self.whole.vocab

    @property
    def spelled(self) -> Mapping[int, bytes]:
        return self.whole.spelled

    def members(self) -> list[Compiled]:
        """The members each on its own. Raises NotAvailable where one cannot be had alone."""
        with self._lock:
            if self._members is None and not self._fault:
                try:
                    self._members = self._make()
                except EspalierError as error:
                    self._fault = error.message  # it would be the same the next time
            if self._members is None:
                raise NotAvailable(f"which member refuses what cannot be told: {self._fault}")
            return self._members

    def matcher(self, *, before: str = "") -> AllOfMatcher:
        return AllOfMatcher(self, self.whole.matcher(before=before))

    def accepts(self, text: str | bytes) -> bool:
        return self.whole.accepts(text)


class AllOfMatcher:
    def __init__(self, compiled: AllOfCompiled, whole: AutomatonMatcher) -> None:
        self._compiled = compiled
        self._whole = whole
        self._tokens: list[int] = []  # EOS too
        self._members: list[Matcher] = []  # none until one is asked
        self._seen: list[int] = []  # how many tokens each member has taken

    @property
    def is_accepting(self) -> bool:
        return self._whole.is_accepting

    @property
    def is_finished(self) -> bool:
        return self._whole.is_finished

    def mask(self) -> Mask:
        return self._whole.mask()

    def allows(self, token: int) -> bool:
        return self._whole.allows(token)

    def advance(self, token: int) -> None:
        self._whole.advance(token)
        self._tokens.append(token)

    def rollback(self, count: int) -> None:
        self._whole.rollback(count)
        kept = len(self._tokens) - count
        del self._tokens[kept:]
        for place, member in enumerate(self._members):
            if self._seen[place] > kept:
                member.rollback(self._seen[place] - kept)
                self._seen[place] = kept

    def fork(self) -> AllOfMatcher:
        other = AllOfMatcher(self._compiled, self._whole.fork())
        other._follow(self)
        return other

    def _follow(self, origin: AllOfMatcher) -> None:
        """Be where another is, whose whole this one has forked."""
        self._tokens = origin._tokens.copy()
        self._members = [member.fork() for member in origin._members]
        self._seen = origin._seen.copy()

    def forced(self) -> tuple[int, ...]:
        return self._whole.forced()

    def shortest_completion(self) -> tuple[int, ...]:
        return self._whole.shortest_completion()

    def is_loose(self, most: int) -> bool:
        """See `closing.Closing`, as for the next two."""
        return self._whole.is_loose(most)

    def closing(self, most: int) -> Mask:
        return self._whole.closing(most)

    def within(self, most: int) -> tuple[int, ...] | None:
        return self._whole.within(most)

    def explain(self, token: int) -> Blame:
        """By the first member that refuses it."""
        told = self._whole.explain(token)
        if self.is_finished or not 0 <= token < self._compiled.vocab.width:
            return told
        for place, name in enumerate(self._compiled.names):
            member = self._member(place)
            if member.allows(token):
                continue
            try:
                return replace(member.explain(token), member=name)
            except NotAvailable:
                return Blame(member=name, reason="it refuses this token and cannot say why")
        return replace(told, reason=TOGETHER)

    def member_masks(self) -> list[tuple[str, Mask]]:
        """See `base.Composite`."""
        found = [(name, self._member(place).mask()) for place, name in enumerate(self._compiled.names)]
        return [*found, (self._compiled.spec.kind, self.mask())]

    def _member(self, place: int) -> Matcher:
        """A member's own matcher after the same tokens."""
        if not self._members:
            self._members = [one.matcher() for one in self._compiled.members()]
            self._seen = [0] * len(self._members)
        member = self._members[place]
        while self._seen[place] < len(self._tokens):
            try:
                member.advance(self._tokens[self._seen[place]])
            except TokenRefused as error:  # a word file was edited in between
                raise NotAvailable(f"{self._compiled.names[place]} is no longer what it was") from error
            self._seen[place] += 1
        return member
