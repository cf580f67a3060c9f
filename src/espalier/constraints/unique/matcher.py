"""A matcher that enforces `uniqueItems` for items of every kind, on top of an automaton that does not.

It removes from the mask each token that would repeat an item, and each token after which every completion would. A
completion that repeats nothing is therefore always left, and while an array with unique items is open the matcher holds
one. `search.py` finds these completions, `tracker.py` follows the items.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from functools import partial
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from espalier.automata.masks.machine import State, missing_error
from espalier.automata.reasons.blame import Blame
from espalier.automata.reasons.describe import quoted
from espalier.constraints.matching.automaton import AutomatonMatcher, CompiledAutomaton
from espalier.constraints.matching.base import CompiledWrapper, WrappingMatcher
from espalier.constraints.unique.endings import OpenItems
from espalier.constraints.unique.groups import TokenGroup, TokenGroups
from espalier.constraints.unique.room import MOST_DIGITS, ItemRoom
from espalier.constraints.unique.search import MOST_TRIES, TRIES, CompletionSearch, GaveUp
from espalier.constraints.unique.structure import RepeatedStrings, StructuralTokens
from espalier.constraints.unique.tracker import ESCAPE
from espalier.constraints.watching import OpenItem, RepeatedItem, Seen, Tracker
from espalier.errors import LimitExceeded, NotAvailable, SchemaError, TokenRefused
from espalier.tokens import mask as masks
from espalier.tokens.mask import Mask

SHOWN = 80  # bytes of an item in a message


class TrackedPosition(NamedTuple):
    """A position in a text."""

    #: What the tracker knows.
    point: Hashable
    #: A completion that repeats nothing, or its beginning up to where one is sure to exist; None where one is now.
    way: bytes | None
    #: Where the open item begins, if each open item is known to differ from those before it; -1 if not.
    differs: int = -1


class CompiledUniqueItems(CompiledWrapper):
    """An automaton for one vocabulary, and the tracker of its texts.

    is_easy: outside all arrays with unique items, and where one opens, a completion that repeats nothing is sure to
    exist. Raises VocabError for a vocabulary without a token for some byte, SchemaError where every text repeats an
    item, LimitExceeded where that cannot be told.
    """

    def __init__(self, inner: CompiledAutomaton, tracker: Tracker, tokens: StructuralTokens, *, is_easy: bool) -> None:
        super().__init__(inner)
        if lacking := inner.vocab.missing_bytes():
            raise missing_error(lacking, "an item could not be made different from the earlier ones")
        self.inner = inner
        self.tracker = tracker
        self.tokens = tokens
        self.is_easy = is_easy
        self.repeated = RepeatedStrings(tokens)
        #: A token's bytes in the text.
        self.text_of = partial(_text_of, inner)
        self.search = CompletionSearch(inner.machine, inner.ends, self.text_of, tracker)
        self.groups = TokenGroups(inner.machine, tracker, tokens, self.search.plainest, self.text_of)
        self.first = TrackedPosition(tracker.start, None if is_easy else self._first_way())

    def _first_way(self) -> bytes:
        try:
            way = self.search.find(self.inner.machine.start, self.tracker.start, patient=True)
        except GaveUp:
            raise _not_told("whether some document repeats no item") from None
        if way is None:
            raise SchemaError("no document can satisfy this schema: too few different items are possible")
        return way

    def matcher(self, *, before: str = "") -> ItemsMatcher:
        return ItemsMatcher(self, self.inner.matcher(before=before), [self.first])

    def accepts(self, text: str | bytes) -> bool:
        if not self.inner.accepts(text):
            return False
        data = text.encode() if isinstance(text, str) else text
        return not isinstance(self.tracker.feed(self.tracker.start, data), RepeatedItem)

    def __del__(self) -> None:
        """Break the cycles of the groups, so that they are free at once, see `LazyNetwork`."""
        if hasattr(self, "groups"):
            self.groups.release()


def _text_of(compiled: CompiledAutomaton, token: int) -> bytes:
    return compiled.spelled.get(token) or compiled.vocab.bytes_of(token)


class ItemsMatcher(WrappingMatcher[CompiledUniqueItems, AutomatonMatcher]):
    """One sequence's state. held: one after each token but EOS, and the first. Laws: tests/laws.py."""

    __slots__ = ("_held",)

    def __init__(self, compiled: CompiledUniqueItems, inner: AutomatonMatcher, held: list[TrackedPosition]) -> None:
        super().__init__(compiled, inner)
        self._held = held

    # One token

    def _after(self, token: int, state: State) -> TrackedPosition | RepeatedItem | None:
        """The position after a token that leads the automaton to `state`; None if every completion repeats an item."""
        compiled, held = self._compiled, self._held[-1]
        data = compiled.text_of(token)
        point = compiled.tracker.feed(held.point, data)
        if isinstance(point, RepeatedItem):
            return point
        if compiled.is_easy and not compiled.tracker.is_watching(point):
            return TrackedPosition(point, None)
        # Where an array is closed another one may begin at the same offset.
        differs = -1 if b"]" in data else held.differs
        if compiled.is_easy and (sure := self._sure(point, state, differs)) is not None:
            return sure
        if held.way is not None and held.way.startswith(data):
            return TrackedPosition(point, held.way[len(data) :])
        try:
            way = compiled.search.find(state, point, near=compiled.is_easy)
        except GaveUp:
            return None
        return None if way is None else TrackedPosition(point, way)

    def _sure(self, point: Hashable, state: State, differs: int) -> TrackedPosition | None:
        """The position, if the open items surely can be completed. differs: that of the position before."""
        compiled = self._compiled
        tracker = compiled.tracker
        item = tracker.open_item(point)
        if item is None:
            return None
        if differs != item.begin:
            room = compiled.groups.room(state, item)
            number = tracker.open_number(point) if room.is_number else b""
            if not _is_full(room, tracker.count(point), number, 0):
                return TrackedPosition(point, None)
            if not tracker.differs(point):
                return None
        return TrackedPosition(point, None, item.begin)

    def _landing(self, token: int) -> TrackedPosition | RepeatedItem | None:
        """As `_after`, for a token that the automaton allows and that is no EOS."""
        state = self._compiled.inner.machine.advance(self._inner.state, token)
        assert state is not None
        return self._after(token, state)

    def allows(self, token: int) -> bool:
        if not self._inner.allows(token):
            return False
        return token in self._vocab.eos_ids or isinstance(self._landing(token), TrackedPosition)

    def advance(self, token: int) -> None:
        state = None
        if not (self.is_finished or token in self._vocab.eos_ids):
            state = self._compiled.inner.machine.advance(self._inner.state, token)
        if state is None:
            self._inner.advance(token)  # or it raises
            return
        after = self._after(token, state)
        if not isinstance(after, TrackedPosition):
            shown = self._vocab.text_of(token)
            raise TokenRefused(f"token {token} ({shown!r}) is refused: {self._reason(token, after)}")
        self._inner.advance(token)
        self._held.append(after)

    def rollback(self, count: int) -> None:
        ended = self._inner.is_finished
        self._inner.rollback(count)
        if count:
            del self._held[len(self._held) - count + ended :]

    def fork(self) -> Self:
        other = super().fork()
        other._held = self._held.copy()
        return other

    # All tokens

    def mask(self) -> Mask:
        out = self._inner.mask()
        if not self.is_finished:
            refused = self._refused_tokens(out)
            if refused:
                masks.set_bits_inplace(out, tuple(refused), False)
            if refused and not out.any():
                raise _not_told("whether some completion repeats no item")
        return out

    def _refused_tokens(self, allowed: Mask) -> list[int]:
        """The tokens that the automaton allows and this matcher refuses."""
        compiled, point = self._compiled, self._held[-1].point
        tracker, tokens = compiled.tracker, compiled.tokens
        item = tracker.open_item(point) if compiled.is_easy else None
        if item is None:
            in_string = tracker.in_string(point)
            if not compiled.is_easy or tracker.is_watching(point):
                return self._refused_of(compiled.groups.of(self._inner.state, None, in_string=in_string).every)
            opening = tokens.reopening if in_string else tokens.opening
            return [token for token in masks.chosen(allowed, opening) if not self.allows(token)]
        groups = compiled.groups.of(self._inner.state, item, in_string=item.in_string)
        if self._held[-1].differs == item.begin and groups.going_on is not None:
            groups = groups.going_on
        count = tracker.count(point)
        if groups.only_room and groups.room.values > count and not groups.room.is_number:
            return []
        items = OpenItems(tracker, point)
        number = self._number(groups.room, item, items)
        refused: list[int] = []
        doubtful = [*groups.unknown]
        if _is_full(groups.room, count, number, groups.longest):
            doubtful += [group for group in groups.roomy if _is_full(group.room, count, number, group.longest)]
        if groups.settling and not items.are_plainly_new(groups.settled_texts):
            for ends, settled, some in groups.settling:
                if not items.are_new(ends, settled):
                    for group in some:
                        if compiled.groups.is_forced(group):
                            refused += group.ids.tolist()
                        else:
                            doubtful.append(group)
        differs = (groups.ends_containers or bool(groups.if_differs)) and self._differs(item)
        for end, ids in groups.ends:
            if not (differs and end.is_container) and items.repeats(end):
                refused += ids
        if groups.string_ends:
            closing = self._closing(groups.string_ends, *items.at(0))
            refused += closing or ()
            doubtful += groups.string_ends if closing is None else ()
        if not differs:
            doubtful += groups.if_differs
        if doubtful and (differs or self._differs(item)):
            doubtful = [group for group in doubtful if group.may_go_on]
        return refused + self._refused_of(doubtful) if doubtful else refused

    def _number(self, room: ItemRoom, item: OpenItem, items: OpenItems) -> bytes:
        """The open number, where room is made by more digits of it."""
        if not room.is_number:
            return b""
        return self._compiled.tracker.open_number(self._held[-1].point) if item.levels[0] else items.at(0)[0]

    def _closing(self, groups: Iterable[TokenGroup], begun: bytes, seen: Seen) -> tuple[int, ...] | None:
        """Those of the tokens that end the open string by which it equals an item before; None where that is not known.
        begun: what is written of it. seen: the keys of those before."""
        if ESCAPE in begun:
            return None
        heads = self._compiled.repeated.heads(begun, seen)
        ids = self._compiled.tokens.ids
        return tuple(token for head in heads for group in groups for token in ids.get(head + (group.tail or b""), ()))

    def _refused_of(self, groups: Iterable[TokenGroup]) -> list[int]:
        """Of tokens of which each is looked at, but for those that only make an open string longer."""
        refused: list[int] = []
        for group in groups:
            if group.tail is not None:
                refused += self._refused_alike(group.ids, group.state, group.tail)
            else:
                ids = group.ids.tolist()
                refused += [token for token in ids if not isinstance(self._after(token, group.state), TrackedPosition)]
        return refused

    def _differs(self, item: OpenItem) -> bool:
        """Whether the open items differ from those before them already."""
        held = self._held[-1]
        if held.differs != item.begin:
            if not self._compiled.tracker.differs(held.point):
                return False
            self._held[-1] = held._replace(differs=item.begin)
        return True

    def _refused_alike(self, ids: NDArray[np.int32], state: State, tail: bytes) -> list[int]:
        """Those of the tokens that lead to one state and differ only in how they make the open string longer: what
        completes the text after one of them completes it after each, unless the string equals another one then."""
        refused: list[int] = []
        for place, token in enumerate(ids):
            after = self._after(int(token), state)
            if isinstance(after, TrackedPosition):
                if place + 1 == len(ids):
                    return refused
                risky = np.intersect1d(np.array(self._risky(tail, after.way or b""), dtype=np.int32), ids[place + 1 :])
                return refused + [
                    other for other in risky.tolist() if not isinstance(self._after(other, state), TrackedPosition)
                ]
            refused.append(int(token))
        return refused

    def _risky(self, tail: bytes, way: bytes) -> list[int]:
        """The tokens with this tail after which, if the completion `way` follows, the open string equals another one:
        of an array with unique items, or of the completion itself."""
        compiled = self._compiled
        string = compiled.tracker.open_string(self._held[-1].point)
        if string is None:
            return []
        rest, others = _strings(tail + way)
        rivals = {*string.rivals, *(other for other in others if other.startswith(string.begun))}
        start, stop = len(string.begun), len(rest)
        longer = [
            rival[start : len(rival) - stop] for rival in rivals if rival.endswith(rest) and len(rival) >= start + stop
        ]
        return [token for text in longer for token in compiled.tokens.ids.get(text + tail, ())]

    # Reasons and completions. What is forced repeats no item: every completion goes on with it.

    def _blame(self, token: int) -> Blame:
        if not self._inner.allows(token):
            return self._inner.explain(token)
        after = self._landing(token)
        clash = after if isinstance(after, RepeatedItem) else None
        return Blame(
            member=self._kind,
            reason=self._reason(token, clash),
            rule=None if clash is None else clash.pointer or "/",
            offset=0 if clash is None else clash.offset,
            expected="another name" if clash is not None and clash.is_name else "another item",
        )

    def _reason(self, token: int, clash: RepeatedItem | None) -> str:
        if clash is not None and clash.is_name:
            return f"the name {_show_item(clash.item)} is in the object already, and its names must differ"
        if clash is not None:
            return f"the item {_show_item(clash.item)} is in the array already, and its items are unique"
        compiled = self._compiled
        rest = compiled.search.plainest(compiled.inner.machine.advance(self._inner.state, token)) or b""
        ended = compiled.tracker.feed(self._held[-1].point, compiled.text_of(token) + rest)
        such = f", such as {_show_item(ended.item)}" if isinstance(ended, RepeatedItem) else ""
        what = "a name of the object" if isinstance(ended, RepeatedItem) and ended.is_name else "an item of the array"
        return f"what can follow repeats {what}{such}"

    def shortest_completion(self) -> tuple[int, ...]:
        """The automaton's completion if it repeats nothing; otherwise one that is not always the shortest. Raises
        NotAvailable if none is found."""
        completion = self._inner.shortest_completion()
        if not completion or self._is_clean(completion):
            return completion
        fixed = self._fix_completion()
        if fixed is None:
            raise NotAvailable("no completion was found that repeats no item")
        return fixed

    def _is_clean(self, tokens: tuple[int, ...]) -> bool:
        data = b"".join(map(self._compiled.text_of, tokens))
        return not isinstance(self._compiled.tracker.feed(self._held[-1].point, data), RepeatedItem)

    def _fix_completion(self) -> tuple[int, ...] | None:
        """A completion that repeats nothing, in tokens."""
        held = self._held[-1]
        try:
            way = self._compiled.search.find(self._inner.state, held.point)
        except GaveUp:
            way = held.way
        tokens = None if way is None else self._compiled.inner.trie.segment(way)
        if tokens is None:
            return None
        ahead = self.fork()
        for token in tokens:
            if not ahead.allows(token):
                return None
            ahead.advance(token)
        return (*tokens, self._vocab.eos_ids[0]) if ahead.is_accepting else None

    def is_loose(self, most: int) -> bool:
        """See `closing.Closing`, as for the next two."""
        if self.is_finished:
            return True
        compiled, point = self._compiled, self._held[-1].point
        longest = compiled.inner.trie.max_depth
        if not (compiled.is_easy and self._inner.is_loose(most - longest - compiled.tracker.count(point) - 2)):
            return False
        item = compiled.tracker.open_item(point)
        if item is None:
            return not compiled.tracker.is_watching(point) and compiled.groups.opens_little(self._inner.state)
        # The completion of fewest bytes repeats nothing, or does not with so many more letters as there are items.
        groups = compiled.groups.of(self._inner.state, item, in_string=item.in_string)
        items, count = OpenItems(compiled.tracker, point), compiled.tracker.count(point)
        return (
            not groups.unknown
            and not _is_full(groups.room, count, self._number(groups.room, item, items), groups.longest)
            and (
                not groups.settling
                or items.are_plainly_new(groups.settled_texts)
                or all(items.are_new(ends, settled) for ends, settled, _ in groups.settling)
            )
        )

    def closing(self, most: int) -> Mask:
        compiled, point = self._compiled, self._held[-1].point
        mask = self._inner.closing(most) & self.mask()
        if self.is_finished:
            return mask
        item = compiled.tracker.open_item(point) if compiled.is_easy else None
        in_string = compiled.tracker.in_string(point)
        allowed = masks.unpack(mask, self._vocab.width)
        ways: dict[State, bytes | None] = {}
        out: list[int] = []
        for group in compiled.groups.of(self._inner.state, item, in_string=in_string).every:
            ids = group.ids[allowed[group.ids]]
            if not ids.size:
                continue
            if group.state not in ways:
                way = compiled.inner.ends.within(group.state, most - 1)
                ways[group.state] = None if way is None else b"".join(map(compiled.text_of, way))
            rest = ways[group.state]
            if rest is None:
                out += ids.tolist()
                continue
            if group.tail == b"":
                ids = self._unsettled(ids, rest)
            out += [token for token in ids.tolist() if not self._closes(token, rest, most)]
        masks.set_bits_inplace(mask, tuple(out), False)
        return mask

    def _unsettled(self, ids: NDArray[np.int32], rest: bytes) -> NDArray[np.int32]:
        """Those of the tokens, which lead to one state and only make the open string longer, for which it must be asked
        whether `rest` completes the text: for others it does, as it does for one of them."""
        is_risky = np.isin(ids, np.array(self._risky(b"", rest), dtype=np.int32))
        sure = ids[~is_risky]
        is_known = bool(sure.size) and self._completes(int(sure[0]), rest)
        return ids[is_risky] if is_known else ids

    def _completes(self, token: int, rest: bytes) -> bool:
        """Whether nothing is repeated with `rest` after a token."""
        compiled = self._compiled
        data = compiled.text_of(token) + rest
        return not isinstance(compiled.tracker.feed(self._held[-1].point, data), RepeatedItem)

    def _closes(self, token: int, rest: bytes, most: int) -> bool:
        if self._completes(token, rest):
            return True
        ahead = self.fork()
        ahead.advance(token)
        return ahead.within(most) is not None

    def within(self, most: int) -> tuple[int, ...] | None:
        completion = self._inner.within(most)
        if completion is None or not completion or self._is_clean(completion):
            return completion
        fixed = self._fix_completion()
        return fixed if fixed is not None and len(fixed) <= most else None


def _is_full(room: ItemRoom, count: int, number: bytes, more: int) -> bool:
    """Whether the open items may not become more than what is remembered, `count` items. number: the open one. more:
    bytes that a token adds first."""
    return room.values <= count or (room.is_number and len(number) + more > MOST_DIGITS)


def _not_told(what: str) -> LimitExceeded:
    hint = "ask for fewer items (minItems), or for items with more values"
    tries = f"{TRIES} tries that got no further, {MOST_TRIES} in all"
    return LimitExceeded(f"{what} could not be told in a bounded search ({tries})", hint=hint)


def _strings(way: bytes) -> tuple[bytes, list[bytes]]:
    """The rest of the open string with which a completion begins, and the other strings of the completion."""
    strings: list[bytes] = []
    begun, at = 0, 0
    inside = True
    while at < len(way):
        byte = way[at]
        if byte == ord("\\") and inside:
            at += 1
        elif byte == ord('"'):
            if inside:
                strings.append(way[begun:at])
            inside, begun = not inside, at + 1
        at += 1
    return (strings[0], strings[1:]) if strings else (way, [])


def _show_item(item: bytes) -> str:
    text = item[:SHOWN].decode("utf-8", "replace")
    is_text = text.startswith('"') and len(item) <= SHOWN
    return quoted(text[1:-1] if is_text else text)
