"""The tokens that an automaton allows in a state, by what each can do to the open item of an array with unique items.

Only those that may end an item, or after which too few other items are left, must be looked at for each text; what a
group may do is worked out once for a state. It knows no text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from espalier.automata.masks.cache import AnswerCache
from espalier.automata.masks.machine import Landings, Machine, State
from espalier.constraints.unique.endings import ItemEnding, items_after
from espalier.constraints.unique.room import ENDLESS, MOST_DIGITS, ItemRoom, find_room
from espalier.constraints.unique.structure import SEVERAL, Marks, StructuralTokens
from espalier.constraints.unique.tracker import ESCAPE, OPENS, QUOTE, trailing_number
from espalier.constraints.unique.values import BLANK, PLAIN, equal
from espalier.constraints.watching import OpenItem, Tracker

GROUPS_BYTES = 32 * 2**20
GROUP_BYTES = 400
MOST_SETTLED = 64
"""Tokens to one state of which each is looked at by itself."""
MOST_LEVELS = 3
"""Arrays with unique items within one another, of whose items it is known how tokens end them."""
MOST_ENDS = 4
"""Items that end in one completion, of which it is asked whether they repeat one."""
NO_POWER = re.compile(rb"\A[eE][-+]?0+\Z")
"""A number has the same value without it."""
ITEM_ENDS = b",]"
ENDS, BLANKS = (sum(1 << byte for byte in some) for some in (ITEM_ENDS, BLANK))
STRING_END = (ItemEnding(0, b'"', is_begun=True),)
MOST_DEPTH = 3
"""Room is looked for as if no more brackets of an item were open: deeper, a completion goes through enough of it."""
MAX_ROOMS = 20_000


GroupsPlace: TypeAlias = tuple[State, tuple[int, ...] | None, bool, bool]
"""A state, and the open item: its levels, whether a string is open, and whether after a backslash in it."""


class TokenGroup(NamedTuple):
    """Tokens that lead an automaton from one state to one other."""

    state: State
    ids: NDArray[np.int32]
    #: What they share after they made the open string longer; None where each is looked at by itself.
    tail: bytes | None
    #: Each might begin another item.
    may_go_on: bool
    #: The items that each ends, None where that is not known: of those that make a string longer, what they share.
    ends: tuple[ItemEnding, ...] | None
    #: What the items that are open after each may become; nothing where that is not known.
    room: ItemRoom = ItemRoom()
    #: The bytes of the longest.
    longest: int = 0
    #: The items that the completion of fewest bytes after each ends beside `ends`; None where that is not known.
    settled: tuple[ItemEnding, ...] | None = None

    @property
    def ends_string(self) -> bool:
        """Whether they end an item by ending the open string, and no other."""
        return self.tail is not None and self.ends == STRING_END

    @property
    def ends_containers(self) -> bool:
        """Whether what they end is known only where the open items differ from all before them."""
        return self.tail is not None and bool(self.ends) and not self.ends_string


class StateGroups(NamedTuple):
    """The groups of a state, by what each might do to the open items."""

    every: tuple[TokenGroup, ...]
    #: They end no item, and what the open items may become is known by its room.
    only_room: bool
    #: The ids of those that end an item and make no string longer, by the item.
    ends: tuple[tuple[ItemEnding, tuple[int, ...]], ...]
    #: Some of these are containers.
    ends_containers: bool
    #: Those that end an item by ending the open string.
    string_ends: tuple[TokenGroup, ...]
    #: Those of which something is known only where the open items differ from all before them.
    if_differs: tuple[TokenGroup, ...]
    #: Those after which the open items may become nothing that is sure to differ, but for what they are in the shortest
    #: completion: by `ends` and `settled`.
    settling: tuple[tuple[tuple[ItemEnding, ...], tuple[ItemEnding, ...], tuple[TokenGroup, ...]], ...]
    #: The plain texts of all of these where the open item has not begun, and where it has; None where some have others.
    settled_texts: tuple[frozenset[bytes] | None, frozenset[bytes] | None]
    #: The others, but for `unknown`.
    roomy: tuple[TokenGroup, ...]
    #: What the open items may become after each of `roomy`, at least.
    room: ItemRoom
    #: The bytes of the longest token of `roomy` that makes a number longer.
    longest: int
    #: Those of which nothing is known.
    unknown: tuple[TokenGroup, ...]
    #: What still matters where the open items differ from all before them: the items after these.
    going_on: StateGroups | None


def _by_deed(groups: tuple[TokenGroup, ...], *, differs: bool = False) -> StateGroups:
    """differs: what the tokens end is known to differ."""
    unknown = tuple(group for group in groups if group.ends is None)
    roomy = tuple(group for group in groups if group.ends is not None and (group.room.values or group.settled is None))
    ends: dict[ItemEnding, tuple[int, ...]] = {}
    settling: dict[tuple[tuple[ItemEnding, ...], tuple[ItemEnding, ...]], tuple[TokenGroup, ...]] = {}
    for group in groups:
        if group.tail is None and not differs:
            for end in group.ends or ():
                ends[end] = (*ends.get(end, ()), *group.ids.tolist())
        if group.ends is not None and group.settled is not None and not group.room.values:
            known = group.ends, group.settled
            settling[known] = (*settling.get(known, ()), group)
    return StateGroups(
        every=groups,
        only_room=len(roomy) == len(groups) and (differs or not any(group.ends for group in groups)),
        ends=tuple(ends.items()),
        ends_containers=any(end.is_container for end in ends),
        string_ends=tuple(group for group in groups if group.ends_string and not differs),
        if_differs=tuple(group for group in groups if group.ends_containers and not differs),
        settling=tuple((ends, settled, some) for (ends, settled), some in settling.items()),
        settled_texts=(_plain_texts(settling, is_begun=False), _plain_texts(settling, is_begun=True)),
        roomy=roomy,
        room=ItemRoom(
            min((group.room.values for group in roomy), default=ENDLESS),
            is_number=any(group.room.is_number for group in roomy),
        ),
        longest=max((group.longest for group in roomy), default=0),
        unknown=unknown,
        going_on=None if differs else _by_deed(tuple(group for group in groups if group.may_go_on), differs=True),
    )


def _plain_texts(
    settling: Iterable[tuple[tuple[ItemEnding, ...], tuple[ItemEnding, ...]]], *, is_begun: bool
) -> frozenset[bytes] | None:
    """The texts of items that end so where the open item of the innermost array has begun, or has not; None where they
    are not one plain text each."""
    texts = []
    for ends, settled in settling:
        last = settled[-1] if len(settled) == 1 else None
        if last is None or (last.is_begun and is_begun) or not PLAIN.fullmatch(last.text):
            return None
        if any(end.text or end.level for end in ends):  # what they end is more than is written of it
            return None
        texts.append(last.text)
    return frozenset(texts)


class TokenGroups:
    """The groups of one automaton's states. plainest: the completion of fewest bytes of a state. text_of: a token's
    bytes in the text. Thread-safe: what is kept is only ever added."""

    def __init__(
        self,
        machine: Machine,
        tracker: Tracker,
        tokens: StructuralTokens,
        plainest: Callable[[State], bytes | None],
        text_of: Callable[[int], bytes],
    ) -> None:
        self._machine, self._tracker, self._tokens = machine, tracker, tokens
        self._plainest, self._text_of = plainest, text_of
        self._groups = AnswerCache(self._groups_of, GROUPS_BYTES, _bytes_of)
        self._rooms = AnswerCache(self._find_room, MAX_ROOMS)
        self._forced = AnswerCache(self._ends_one_way, MAX_ROOMS)
        #: Whether no array has two items in the completions of fewest bytes after the tokens of a state.
        self.opens_little: Callable[[State], bool] = AnswerCache(self._find_little, MAX_ROOMS)

    def release(self) -> None:
        """Drop all it holds: its caches hold methods of it. Nothing may be asked for any more."""
        vars(self).clear()

    def of(self, state: State, item: OpenItem | None, *, in_string: bool) -> StateGroups:
        """The tokens that the automaton allows in a state. item: the open item, None where room is of no use."""
        if item is None:
            return self._groups((state, None, in_string, False))
        levels = item.levels
        if levels[0] > MOST_DEPTH or len(levels) > MOST_LEVELS:  # nothing is known of how tokens end these
            levels = (min(levels[0], MOST_DEPTH + 1),) * (MOST_LEVELS + 1)
        return self._groups((state, levels, in_string, item.is_escaped))

    def _groups_of(self, place: GroupsPlace) -> StateGroups:
        state, levels, in_string, is_escaped = place
        item = None if levels is None else OpenItem(0, levels, in_string, is_escaped)
        return _by_deed(tuple(self._grouped(self._machine.landings(state), item, in_string=in_string)))

    def _grouped(self, landings: Landings, item: OpenItem | None, *, in_string: bool) -> Iterator[TokenGroup]:
        tokens = self._tokens
        for number, state in enumerate(landings.states):
            every = landings.ids[landings.which == number]
            ends, goes_on = self._ends(every, item, in_string=in_string)
            for may_end, may_go_on in ((False, False), (True, False), (True, True)):
                ids = every[(ends == may_end) & (goes_on == may_go_on)]
                if not ids.size:
                    continue
                group = TokenGroup(state, ids, None, may_go_on, None if may_end else ())
                if item is not None and not may_end:
                    room = self._room_after(int(ids[0]), state, item)
                    longest = max(len(self._text_of(token)) for token in ids.tolist()) if room.is_number else 0
                    group = group._replace(room=room, longest=longest)
                if in_string:
                    tails = tokens.tail[ids]
                    for tail in np.unique(tails).tolist():
                        shared = None if tail < 0 else tokens.tails[tail]
                        alike = group._replace(ids=ids[tails == tail], tail=shared)
                        if item is None or not may_end or item.is_escaped or shared is None:
                            yield alike
                        else:
                            yield self._with_ends(alike, shared, item, in_string=True)
                elif item is not None and (may_end or (not group.room.values and ids.size <= MOST_SETTLED)):
                    for token in ids.tolist():
                        alone = group._replace(ids=np.array([token], dtype=np.int32))
                        yield self._with_ends(alone, self._text_of(token), item, in_string=False)
                else:
                    yield group

    def _with_ends(self, group: TokenGroup, data: bytes, item: OpenItem, *, in_string: bool) -> TokenGroup:
        """The group with the items that its tokens end. data: their bytes, or those of the tail."""
        if len(item.levels) > MOST_LEVELS:
            return group
        read = partial(items_after, levels=item.levels, in_string=in_string, is_nested=self._tracker.is_nested)
        after = read(data)
        if after is None or not all(end.is_begun for end in after.ends):
            return group
        room = group.room
        if after.open is None:
            room = ItemRoom(ENDLESS)
        elif group.ends is None:
            room = self._next_room(data, group.state, after.open, more=len(after.ends))
        settled, rest = None, self._plainest(group.state)
        if not room.values and rest is not None:
            completed = read(data + rest)
            settled = None if completed is None or completed.open is not None else completed.ends
        if settled is not None:
            settled = tuple(end._replace(text=NO_POWER.sub(b"", end.text)) for end in settled[len(after.ends) :])
            if in_string and any(end.is_begun or end.text.startswith(b'"') for end in settled):
                settled = None  # what the token adds to it is not known, or whether it is what the token ends
            elif not _may_differ(settled):
                settled = None
        return group._replace(ends=after.ends, room=room, settled=settled)

    def _next_room(self, data: bytes, state: State, item: OpenItem, *, more: int) -> ItemRoom:
        """What the item that is open after some bytes may become, beside `more` others."""
        room = self.room(state, item)
        number = trailing_number(data)
        if room.is_number and (len(number) == len(data) or len(number) > MOST_DIGITS):
            return ItemRoom()
        return ItemRoom(room.values if room.values == ENDLESS else max(0, room.values - more))

    def _ends(
        self, ids: NDArray[np.int32], item: OpenItem | None, *, in_string: bool
    ) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Whether each token might end the open item, or open an array with unique items inside it, and whether it
        might do more after it."""
        if item is None:
            return np.zeros(len(ids), dtype=np.bool_), np.zeros(len(ids), dtype=np.bool_)
        more = Marks.GOES_ON
        if self._tracker.is_nested:
            more |= Marks.OPENS
        if not in_string:
            more |= Marks.EXPONENT
        if not item.levels[0]:
            more |= Marks.COMMA | Marks.ENDS_STRING
        marked = partial(self._tokens.marked, ids, in_string=in_string, is_escaped=item.is_escaped)
        goes_on = marked(more)
        return goes_on | marked(Marks.CLOSES), goes_on

    def _room_after(self, token: int, state: State, item: OpenItem) -> ItemRoom:
        """What the open item may become after a token that does not end it."""
        depth, inside, escaped = item.levels[0], item.in_string, item.is_escaped
        for byte in self._text_of(token):
            if inside:
                inside, escaped = escaped or byte != QUOTE, byte == ESCAPE and not escaped
            elif byte == QUOTE:
                inside = True
            else:
                depth += byte in OPENS
        return self.room(state, OpenItem(item.begin, (depth,), inside, escaped))

    def _find_little(self, state: State) -> bool:
        ways = [self._plainest(after) for after in self._machine.landings(state).states]
        return not any(way is None or SEVERAL.search(way) for way in ways)

    def is_forced(self, group: TokenGroup) -> bool:
        """Whether a number, true, false or null is open after the tokens which can end in one way alone, as
        `settled`."""
        ends = group.settled or ()
        if len(ends) != 1 or ends[0].is_container or ends[0].text.startswith(b'"'):
            return False
        return self._forced(group.state)

    def _ends_one_way(self, state: State | None) -> bool:
        rest = None if state is None else self._plainest(state)
        for byte in rest or b"":
            members = 0 if state is None else self._machine.options(state)[0] & ~BLANKS
            if byte in ITEM_ENDS:
                return not members & ~ENDS
            if members != 1 << byte or state is None:
                return False
            state = self._machine.step(state, byte)
        return False

    def room(self, state: State, item: OpenItem) -> ItemRoom:
        """What the open item may become from a state on."""
        return self._rooms((state, min(item.levels[0], MOST_DEPTH), item.in_string, item.is_escaped))

    def _find_room(self, place: tuple[State, int, bool, bool]) -> ItemRoom:
        state, depth, in_string, is_escaped = place
        return find_room(self._machine, self._plainest, state, depth=depth, in_string=in_string, is_escaped=is_escaped)


def _bytes_of(place: GroupsPlace, groups: StateGroups) -> int:
    return sum(group.ids.nbytes + GROUP_BYTES for group in groups.every)


def _may_differ(ends: Sequence[ItemEnding]) -> bool:
    """Whether so few items end that it is asked whether they differ, and those that are known do."""
    whole = [end for end in ends if not end.is_begun]
    return len(ends) <= MOST_ENDS and not any(
        end.level == other.level and equal(end.text, other.text) for i, end in enumerate(whole) for other in whole[:i]
    )
