"""The tokens that an automaton allows in a state, by what each can do to the open item of an array with unique items.

Only those that may end an item, or after which too few other items are left, must be looked at for each text; what a
group may do is worked out once for a state. It knows no text.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from espalier.automata.masks.cache import ByteCache
from espalier.automata.masks.machine import Landings, Machine, State
from espalier.constraints.unique.endings import ANYTHING, ending_of
from espalier.constraints.unique.room import ENDLESS, ItemRoom, find_room
from espalier.constraints.unique.structure import Marks, StructuralTokens
from espalier.constraints.unique.tracker import ESCAPE, OPENS, QUOTE
from espalier.constraints.watching import OpenItem, Tracker

GROUPS_BYTES = 32 * 2**20
GROUP_BYTES = 400
MOST_DEPTH = 3
"""Room is looked for as if no more brackets of an item were open: deeper, a completion goes through enough of it."""
MAX_ROOMS = 20_000


class TokenGroup(NamedTuple):
    """Tokens that lead an automaton from one state to one other."""

    state: State
    ids: NDArray[np.int32]
    #: What they share after they made the open string longer; None where each is looked at by itself.
    tail: bytes | None
    #: What the open item may become after each.
    room: ItemRoom
    #: The bytes of the longest.
    longest: int
    #: Each might end the open item.
    may_end: bool
    #: Each might end it and begin another.
    may_go_on: bool
    #: What each adds to the open item, which it ends, before it at most begins another; None where that is not known.
    ends_with: bytes | None = None
    #: What the next item may become after each of those.
    following: ItemRoom = ItemRoom()


class StateGroups(NamedTuple):
    """The groups of a state, by what each might do to the open item."""

    #: They do not end it.
    staying: tuple[TokenGroup, ...]
    #: They might end it.
    ending: tuple[TokenGroup, ...]
    #: Those of `ending` that might begin another one then.
    going_on: tuple[TokenGroup, ...]
    #: Some make the open string longer before they end it.
    ends_strings: bool
    #: What the open item may become after each of `staying`, at least.
    room: ItemRoom
    #: Bytes of the longest token of `staying` that makes a number longer.
    longest: int


def _by_deed(groups: tuple[TokenGroup, ...]) -> StateGroups:
    staying = tuple(group for group in groups if not group.may_end and not group.may_go_on)
    return StateGroups(
        staying=staying,
        ending=tuple(group for group in groups if group.may_end or group.may_go_on),
        going_on=tuple(group for group in groups if group.may_go_on),
        ends_strings=any(group.ends_with is not None and group.tail is not None for group in groups),
        room=ItemRoom(
            min((group.room.values for group in staying), default=ENDLESS),
            is_number=any(group.room.is_number for group in staying),
        ),
        longest=max((group.longest for group in staying), default=0),
    )


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
        self._groups: ByteCache[Hashable, StateGroups] = ByteCache(GROUPS_BYTES)
        self._rooms: dict[tuple[State, int, bool, bool], ItemRoom] = {}

    def of(self, state: State, item: OpenItem | None, *, in_string: bool) -> StateGroups:
        """The tokens that the automaton allows in a state. item: the open item, None where room is of no use."""
        kind = (state, in_string, None if item is None else (min(item.depth, MOST_DEPTH), item.is_escaped))
        groups = self._groups.get(kind)
        if groups is None:
            landings = self._machine.landings(state)
            some = tuple(self._grouped(landings, item, in_string=in_string))
            groups = _by_deed(some)
            self._groups.put(kind, groups, landings.ids.nbytes + GROUP_BYTES * len(some))
        return groups

    def _grouped(self, landings: Landings, item: OpenItem | None, *, in_string: bool) -> Iterator[TokenGroup]:
        tokens = self._tokens
        for number, state in enumerate(landings.states):
            every = landings.ids[landings.which == number]
            ends, goes_on = self._ends(every, item, in_string=in_string)
            for may_end, may_go_on in ((False, False), (True, False), (True, True)):
                ids = every[(ends == may_end) & (goes_on == may_go_on)]
                if not ids.size:
                    continue
                room = ItemRoom()
                if item is not None and not may_end:
                    room = self.room_after(int(ids[0]), state, item)
                longest = max(len(self._text_of(token)) for token in ids.tolist()) if room.is_number else 0
                plain = TokenGroup(state, ids, None, room, longest, may_end=may_end, may_go_on=may_go_on)
                knows_ends = (
                    may_end and item is not None and not (item.depth or item.is_escaped) and not self._tracker.is_nested
                )
                if in_string:
                    tails = tokens.tail[ids]
                    for tail in np.unique(tails).tolist():
                        shared = None if tail < 0 else tokens.tails[tail]
                        group = plain._replace(ids=ids[tails == tail], tail=shared)
                        yield self._with_end(group, shared or b"", in_string=True) if knows_ends else group
                elif knows_ends:
                    for token in ids.tolist():  # few: they end an item
                        group = plain._replace(ids=np.array([token], dtype=np.int32))
                        yield self._with_end(group, self._text_of(token), in_string=False)
                else:
                    yield plain

    def _with_end(self, group: TokenGroup, data: bytes, *, in_string: bool) -> TokenGroup:
        """The group with what its tokens end the open item with. data: as for `ending_of`."""
        ending = ending_of(data, in_string=in_string)
        if ending is None and not in_string and (rest := self._plainest(group.state)) is not None:
            ending = ending_of(data + rest, in_string=False)  # such as the rest of an exponent, and the array's end
        if ending is None:
            return group
        item = ending.next_item()
        following = ANYTHING if item is None else ending.limited(self.room(group.state, item))
        return group._replace(ends_with=ending.item, following=following)

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
        if not item.depth:
            more |= Marks.COMMA | Marks.ENDS_STRING
        marked = partial(self._tokens.marked, ids, in_string=in_string, is_escaped=item.is_escaped)
        goes_on = marked(more)
        return goes_on | marked(Marks.CLOSES), goes_on

    def room_after(self, token: int, state: State, item: OpenItem) -> ItemRoom:
        """What the open item may become after a token that does not end it."""
        depth, inside, escaped = item.depth, item.in_string, item.is_escaped
        for byte in self._text_of(token):
            if inside:
                inside, escaped = escaped or byte != QUOTE, byte == ESCAPE and not escaped
            elif byte == QUOTE:
                inside = True
            else:
                depth += byte in OPENS
        return self.room(state, OpenItem(item.begin, depth, inside, escaped))

    def room(self, state: State, item: OpenItem) -> ItemRoom:
        """What the open item may become from a state on."""
        depth = min(item.depth, MOST_DEPTH)
        kind = (state, depth, item.in_string, item.is_escaped)
        room = self._rooms.get(kind)
        if room is None:
            if len(self._rooms) >= MAX_ROOMS:
                self._rooms = {}
            room = find_room(
                self._machine, self._plainest, state, depth=depth, in_string=item.in_string, is_escaped=item.is_escaped
            )
            self._rooms[kind] = room
        return room
