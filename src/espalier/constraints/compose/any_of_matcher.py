"""The matcher of several members of which one is enough: each member's own, as far as it goes along.

A member that refuses a token is left behind until that token is undone. It knows no kind of constraint: members are
used through the contract of `base.py` alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import reduce
from itertools import takewhile

import numpy as np

from espalier.automata.reasons.blame import Blame
from espalier.constraints.base import Compiled, Composite, Matcher
from espalier.constraints.closing import closing, is_loose, within
from espalier.constraints.refusal import refusal
from espalier.constraints.spec import Spec
from espalier.errors import InputError, NotAvailable, SpecError
from espalier.tokens.mask import Mask
from espalier.tokens.trie import TokenTrie
from espalier.tokens.vocab import Vocab


class AnyOfCompiled:
    """Compiled members side by side, by name in their order. Raises SpecError where two spell one token differently."""

    def __init__(self, spec: Spec, names: Sequence[str], members: Sequence[Compiled], trie: TokenTrie) -> None:
        self.spec = spec
        self.names = tuple(names)
        self.members = tuple(members)
        self.trie = trie
        self.vocab: Vocab = members[0].vocab
        self.spelled: Mapping[int, bytes] = _united(self.names, self.members)

    def matcher(self, *, before: str = "") -> AnyOfMatcher:
        """As in `Compiled`. A member that what the prompt holds does not fit is left out. Raises InputError if that is
        every one."""
        found: list[Matcher | None] = []
        faults: list[InputError] = []
        for member in self.members:
            try:
                found.append(member.matcher(before=before))
            except InputError as error:
                found.append(None)
                faults.append(error)
        if len(faults) == len(found):
            raise faults[0]
        return AnyOfMatcher(self, found)

    def accepts(self, text: str | bytes) -> bool:
        return any(member.accepts(text) for member in self.members)


def _united(names: Sequence[str], members: Sequence[Compiled]) -> dict[int, bytes]:
    found: dict[int, tuple[str, bytes]] = {}
    for name, member in zip(names, members, strict=True):
        for token, data in member.spelled.items():
            other, spelling = found.setdefault(token, (name, data))
            if spelling != data:
                raise SpecError(
                    f"token {token} is {spelling!r} in the text of {other}, and {data!r} in that of {name}",
                    field="members",
                )
    return {token: data for token, (_, data) in found.items()}


def _shared(sequences: Sequence[Sequence[int]]) -> int:
    """How many items they begin with are the same."""
    return sum(1 for _ in takewhile(lambda items: len(set(items)) == 1, zip(*sequences, strict=False)))


class AnyOfMatcher:
    """One sequence's state. Laws: tests/laws.py."""

    __slots__ = ("_alive", "_compiled", "_history", "_members", "_taken")

    def __init__(self, compiled: AnyOfCompiled, members: list[Matcher | None]) -> None:
        self._compiled = compiled
        self._members = members  # None for one that the prompt has left out
        self._alive = tuple(place for place, member in enumerate(members) if member is not None)
        self._taken = [0] * len(members)  # how many tokens each member has taken
        self._history: list[tuple[int, ...]] = []  # who was alive before each token, EOS too

    @property
    def is_accepting(self) -> bool:
        return any(member.is_accepting for member in self._living())

    @property
    def is_finished(self) -> bool:
        return any(member.is_finished for member in self._living())

    def mask(self) -> Mask:
        found = [member.mask() for member in self._living()]
        return reduce(lambda one, other: np.bitwise_or(one, other, out=one), found)

    def allows(self, token: int) -> bool:
        return any(member.allows(token) for member in self._living())

    def advance(self, token: int) -> None:
        takers = tuple(place for place in self._alive if self._member(place).allows(token))
        if not takers:
            raise refusal(self._compiled.vocab, token, self._compiled.spec.kind, is_finished=self.is_finished)
        for place in takers:
            self._member(place).advance(token)
            self._taken[place] += 1
        self._history.append(self._alive)
        self._alive = takers

    def rollback(self, count: int) -> None:
        if not 0 <= count <= len(self._history):
            raise ValueError(f"cannot undo {count} of {len(self._history)} tokens")
        if not count:
            return
        kept = len(self._history) - count
        for place, taken in enumerate(self._taken):
            if taken > kept:
                self._member(place).rollback(taken - kept)
                self._taken[place] = kept
        self._alive = self._history[kept]
        del self._history[kept:]

    def fork(self) -> AnyOfMatcher:
        other = AnyOfMatcher(self._compiled, [None if one is None else one.fork() for one in self._members])
        other._alive = self._alive
        other._taken = self._taken.copy()
        other._history = self._history.copy()
        return other

    def forced(self) -> tuple[int, ...]:
        """What the members' own have in common: the same tokens, then the same bytes."""
        first, *rest = [member.forced() for member in self._living()]
        if not rest or not first:
            return first
        same = _shared([first, *rest])
        texts = [self._text(tokens[same:]) for tokens in (first, *rest)]
        spelled = self._compiled.trie.segment(texts[0][: _shared(texts)])
        return self._viable((*first[:same], *(spelled or ())))

    def _viable(self, tokens: tuple[int, ...]) -> tuple[int, ...]:
        """As many as no member refuses: where bytes are missing, not every spelling is allowed."""
        probe = self.fork()
        for count, token in enumerate(tokens):
            if not all(member.allows(token) for member in probe._living()):
                return tokens[:count]
            probe.advance(token)
        return tokens

    def _text(self, tokens: Sequence[int]) -> bytes:
        """The bytes up to the first token that has none."""
        found = bytearray()
        for token in tokens:
            data = self._compiled.vocab.bytes_of(token)
            if not data:
                break
            found += data
        return bytes(found)

    def explain(self, token: int) -> Blame:
        """By the member that the token's bytes fit longest, with what the others expected."""
        if self.allows(token):
            raise ValueError(f"token {token} is allowed")
        kind = self._compiled.spec.kind
        if self.is_finished:
            return Blame(member=kind, reason="the text has ended")
        if not 0 <= token < self._compiled.vocab.width:
            return Blame(member=kind, reason="there is no such token")
        found = [self._blame(place, token) for place in self._alive]
        chief = max(found, key=lambda blame: -1 if blame.offset is None else blame.offset)  # the first of equal ones
        others = [f"{one.expected} ({one.member})" for one in found if one is not chief and one.expected]
        own = [chief.expected] if chief.expected else []
        return replace(chief, expected="; or ".join([*own, *others]) or None)

    def _blame(self, place: int, token: int) -> Blame:
        name = self._compiled.names[place]
        try:
            return replace(self._member(place).explain(token), member=name)
        except NotAvailable:
            return Blame(member=name, reason="it refuses this token and cannot say why")

    def shortest_completion(self) -> tuple[int, ...]:
        found: list[tuple[int, ...]] = []
        fault: NotAvailable | None = None
        for member in self._living():
            try:
                found.append(member.shortest_completion())
            except NotAvailable as error:
                fault = fault or error
        if not found and fault is not None:
            raise fault
        return min(found, key=len)

    def is_loose(self, most: int) -> bool:
        """See `closing.Closing`, as for the next two."""
        return all(is_loose(member, most) for member in self._living())

    def closing(self, most: int) -> Mask:
        width = self._compiled.vocab.width
        found = [closing(member, most, width) for member in self._living()]
        return reduce(lambda one, other: np.bitwise_or(one, other, out=one), found)

    def within(self, most: int) -> tuple[int, ...] | None:
        return next((way for member in self._living() if (way := within(member, most)) is not None), None)

    def member_masks(self) -> list[tuple[str, Mask]]:
        """As in `Composite`: of the last member that goes along, if it has members; else this alone, since no member
        takes away what another allows."""
        first, *rest = self._living()
        if rest or not isinstance(first, Composite) or first.is_finished:
            return [(self._compiled.spec.kind, self.mask())]
        name = self._compiled.names[self._alive[0]]
        return [(f"{name}.{inner}", mask) for inner, mask in first.member_masks()]

    def _living(self) -> list[Matcher]:
        return [self._member(place) for place in self._alive]

    def _member(self, place: int) -> Matcher:
        member = self._members[place]
        assert member is not None, "who is left out takes no token"
        return member
