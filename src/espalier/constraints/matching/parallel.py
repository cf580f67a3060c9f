"""A matcher over several members that read the same text in parallel; under `AnyOf`, `AllOf` and `Thinking`.

A member that refuses a token drops out until that token is undone. Members are used through the contract of `base.py`
alone. It does not know what the members mean to one another: subclasses say who takes a token.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import reduce
from typing import ClassVar, Self, TypeVar

import numpy as np

from espalier.automata.reasons.blame import Blame
from espalier.constraints.base import Compiled, Composite, Matcher
from espalier.constraints.matching.base import MatcherBase, blame_of, check_undo
from espalier.constraints.matching.closing import closing, is_loose, within
from espalier.constraints.spec import Spec
from espalier.errors import NotAvailable, SpecError
from espalier.tokens.mask import Mask
from espalier.tokens.vocab import Vocab


class CompiledParallel:
    """Compiled members, each with the name it has in blames. Raises SpecError where two spell one token differently."""

    def __init__(self, spec: Spec, names: Sequence[str], members: Sequence[Compiled]) -> None:
        self.spec = spec
        self.names = tuple(names)
        self.members = tuple(members)
        self.vocab: Vocab = members[0].vocab
        self.spelled: Mapping[int, bytes] = spellings(self.names, [member.spelled for member in members])

    @abstractmethod
    def matcher(self, *, before: str = "") -> Matcher: ...

    @abstractmethod
    def accepts(self, text: str | bytes) -> bool: ...


def spellings(names: Sequence[str], spelled: Sequence[Mapping[int, bytes]]) -> dict[int, bytes]:
    """The special tokens that are part of the text of any member, with their bytes. Raises SpecError where two members
    spell one token differently."""
    owners: dict[int, tuple[str, bytes]] = {}
    for name, texts in zip(names, spelled, strict=True):
        for token, data in texts.items():
            other, spelling = owners.setdefault(token, (name, data))
            if spelling != data:
                raise SpecError(
                    f"token {token} is {spelling!r} in the text of {other}, and {data!r} in that of {name}",
                    field="members",
                )
    return {token: data for token, (_, data) in owners.items()}


Several = TypeVar("Several", bound=CompiledParallel)


class ParallelMatcher(MatcherBase[Several]):
    """The state of one sequence. A token is allowed if at least one member takes it; the others drop out."""

    __slots__ = ("_alive", "_history", "_members", "_taken")

    def __init__(self, compiled: Several, members: Sequence[Matcher | None]) -> None:
        """members: None for one that does not fit what the prompt holds."""
        super().__init__(compiled)
        self._members = [*members]
        self._alive = tuple(place for place, member in enumerate(members) if member is not None)
        self._taken = [0] * len(members)  # how many tokens each member has taken
        self._history: list[tuple[int, ...]] = []  # `_alive` before each token, EOS too

    @property
    def is_accepting(self) -> bool:
        return any(member.is_accepting for member in self._living())

    @property
    def is_finished(self) -> bool:
        return any(member.is_finished for member in self._living())

    def mask(self) -> Mask:
        return self._unite([self._mask_of(place) for place in self._alive])

    def allows(self, token: int) -> bool:
        return bool(self._takers(token))

    def advance(self, token: int) -> None:
        takers = self._takers(token)
        if not takers:
            raise self._refusal(token)
        for place in takers:
            self._member(place).advance(token)
            self._taken[place] += 1
        self._history.append(self._alive)
        self._alive = takers

    def rollback(self, count: int) -> None:
        check_undo(count, len(self._history))
        if not count:
            return
        left = len(self._history) - count
        for place, taken in enumerate(self._taken):
            if taken > left:
                self._member(place).rollback(taken - left)
                self._taken[place] = left
        self._alive = self._history[left]
        del self._history[left:]

    def fork(self) -> Self:
        """An independent copy. Subclasses copy the fields they add."""
        other = object.__new__(type(self))
        other._compiled = self._compiled
        other._alive = self._alive
        other._members = [None if member is None else member.fork() for member in self._members]
        other._taken = self._taken.copy()
        other._history = self._history.copy()
        return other

    def forced(self) -> tuple[int, ...]:
        """The forced tokens of the only member left; `()` while there are several."""
        first, *rest = self._living()
        return () if rest else first.forced()

    def _blame(self, token: int) -> Blame:
        """By the member that reads most of the token's bytes, with what the others expected."""
        refusing = [place for place in self._alive if not self._member(place).allows(token)]
        blames = [self._blame_of(place, token) for place in refusing]
        chief = max(blames, key=lambda blame: -1 if blame.offset is None else blame.offset)  # the first of equal ones
        own = [chief.expected] if chief.expected else []
        others = [f"{blame.expected} ({blame.member})" for blame in blames if blame is not chief and blame.expected]
        return replace(chief, expected="; or ".join([*own, *others]) or None)

    def shortest_completion(self) -> tuple[int, ...]:
        """The shortest that a member knows. Raises what the first member raised where none knows one."""
        completions: list[tuple[int, ...]] = []
        faults: list[NotAvailable] = []
        for place in self._alive:
            try:
                completions.append(self._completion_of(place))
            except NotAvailable as error:
                faults.append(error)
        if not completions:
            raise faults[0]
        return min(completions, key=len)

    def is_loose(self, most: int) -> bool:
        """See `closing.Closing`, as for the next two."""
        return all(is_loose(member, most) for member in self._living())

    def closing(self, most: int) -> Mask:
        return self._unite([self._closing_of(place, most) for place in self._alive])

    def within(self, most: int) -> tuple[int, ...] | None:
        return next((way for place in self._alive if (way := self._within_of(place, most)) is not None), None)

    def member_masks(self) -> list[tuple[str, Mask]]:
        """See `Composite.member_masks`: the members of the only member left, if it has some; else this matcher alone,
        because while several are left no single one refuses a token."""
        first, *rest = self._living()
        if rest or not isinstance(first, Composite) or first.is_finished:
            return [(self._kind, self.mask())]
        name = self._compiled.names[self._alive[0]]
        return [(f"{name}.{inner}", mask) for inner, mask in first.member_masks()]

    # How members are combined, and what each contributes; subclasses override these.

    UNITE: ClassVar[np.ufunc] = np.bitwise_or
    """Combines the masks of members."""

    def _takers(self, token: int) -> tuple[int, ...]:
        """The members that take a token, by place; none where it is refused."""
        return tuple(place for place in self._alive if self._member(place).allows(token))

    def _mask_of(self, place: int) -> Mask:
        return self._member(place).mask()

    def _blame_of(self, place: int, token: int) -> Blame:
        return blame_of(self._member(place), self._compiled.names[place], token)

    def _completion_of(self, place: int) -> tuple[int, ...]:
        return self._member(place).shortest_completion()

    def _closing_of(self, place: int, most: int) -> Mask:
        return closing(self._member(place), most, self._vocab.width)

    def _within_of(self, place: int, most: int) -> tuple[int, ...] | None:
        return within(self._member(place), most)

    def _unite(self, member_masks: list[Mask]) -> Mask:
        return reduce(lambda mask, other: self.UNITE(mask, other, out=mask), member_masks)

    def _living(self) -> list[Matcher]:
        return [self._member(place) for place in self._alive]

    def _member(self, place: int) -> Matcher:
        member = self._members[place]
        assert member is not None, "a member that is left out takes no token"
        return member
