"""Free text that may mention the marker of calls: `Write the <tool_call> tag.`

    line start, blanks ──marker──> met[0]   only a call may follow
    within a line ───────marker──> met[1]   a call may follow, or prose that begins no call

`WireFormat.begins_call` says what begins one; the parser of turns (`call_walk.py`) asks the same. It does not know how
a call goes on.
"""

from __future__ import annotations

from espalier.automata.languages.fragment import Fragment
from espalier.automata.phrases.triggers import TriggerText
from espalier.chat.reading.incoming import SPACE
from espalier.chat.wire.formats import WireFormat

LINE_END = ord("\n")
BLANKS = frozenset(SPACE.encode())


def with_mentions(plain: TriggerText, wire: WireFormat) -> TriggerText:
    """The free text `plain`, whose one phrase is the format's marker, with the two states above behind it.

    Each state of `plain` becomes two, `state` on a line that is blank so far and `state + size` within one."""
    return _Mentions(plain, wire).text()


class _Mentions:
    def __init__(self, plain: TriggerText, wire: WireFormat) -> None:
        self._trigger, self._plain = plain, plain.fragment
        (self._met,) = plain.met
        self._size = len(self._plain)
        marker = wire.marker.encode()
        path = [plain.after(0, marker[:count]) for count in range(len(marker) + 1)]
        self._on_marker = {(path[i], byte): path[i + 1] for i, byte in enumerate(marker)}
        self._marker, self._opener = marker, wire.call_opener.encode()
        # The bytes that begin a name, where no opener follows.
        self._name_bytes = frozenset(byte for byte in range(128) if not self._opener and wire.begins_call(chr(byte)))
        self._root = Fragment(edges=[], symbols=[], final=[], leaf=[])
        for final in (*self._plain.final, *self._plain.final):
            self._add(final=final)

    def text(self) -> TriggerText:
        inside = self._met + self._size
        for state in range(self._size):
            self._follow(state, state, is_blank=True)
            self._follow(state + self._size, state, is_blank=False)
        self._root.final[inside] = True
        if self._opener:
            # Behind a mention and whitespace, on a line that is blank so far or within one.
            within, blank = self._add(final=True), self._add(final=True)
            for source, is_blank in ((inside, False), (within, False), (blank, True)):
                self._mention(source, is_blank=is_blank)
                for byte in BLANKS:
                    target = blank if is_blank or byte == LINE_END else within
                    self._root.edges[source].append((1 << byte, (target,)))
        else:
            self._follow(inside, 0, is_blank=False, refused=self._name_bytes)
        return TriggerText(fragment=self._root, met=(self._met, inside))

    def _add(self, *, final: bool) -> int:
        root = self._root
        root.edges.append([])
        root.symbols.append([])
        root.final.append(final)
        root.leaf.append(None)
        return len(root) - 1

    def _mention(self, source: int, *, is_blank: bool) -> None:
        """Let `source`, behind a mention, go on with text that is no opener: a state for each beginning of one."""
        opener = self._opener
        for count, byte in enumerate(opener):
            state = self._trigger.after(0, opener[:count])
            refused = BLANKS | {byte} if count == 0 else frozenset((byte,))
            self._follow(source, state, is_blank=is_blank and self._marker.startswith(opener[:count]), refused=refused)
            if count + 1 < len(opener):
                following = self._add(final=self._plain.final[self._trigger.after(0, opener[: count + 1])])
                self._root.edges[source].append((1 << byte, (following,)))
                source = following

    def _follow(self, source: int, state: int, *, is_blank: bool, refused: frozenset[int] = frozenset()) -> None:
        """Let `source` go on as `state` of the plain text does, but for the refused bytes."""
        for members, (target,) in self._plain.edges[state]:
            blank = within = 0
            for byte in range(256):
                if not members >> byte & 1 or byte in refused:
                    continue
                on_marker = self._on_marker.get((state, byte)) == target
                if byte == LINE_END or (is_blank and (on_marker or (state == 0 and byte in BLANKS))):
                    blank |= 1 << byte
                else:
                    within |= 1 << byte
            for mask, following in ((blank, target), (within, target + self._size)):
                if mask:
                    self._root.edges[source].append((mask, (following,)))
