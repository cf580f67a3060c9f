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
    """The free text `plain`, whose one phrase is the format's marker, with the two states above behind it."""
    return _Mentions(plain, wire).text()


class _Mentions:
    """Explores the states of `plain`, each on a line that is blank so far or within one."""

    def __init__(self, plain: TriggerText, wire: WireFormat) -> None:
        self._plain = plain
        self._marker, self._opener = wire.marker.encode(), wire.call_opener.encode()
        path = [plain.after(0, self._marker[:count]) for count in range(len(self._marker) + 1)]
        self._on_marker = {(path[i], byte): path[i + 1] for i, byte in enumerate(self._marker)}
        # The bytes that begin a name, where no opener follows.
        self._name_bytes = frozenset(byte for byte in range(128) if not self._opener and wire.begins_call(chr(byte)))
        self._root = Fragment(edges=[], symbols=[], final=[], leaf=[])
        self._numbers: dict[tuple[int, bool], int] = {}  # by state of the plain text and whether the line is blank
        self._todo: list[tuple[int, bool]] = []

    def text(self) -> TriggerText:
        self._number(0, is_blank=True)
        (met,) = self._plain.met
        always, inside = self._number(met, is_blank=True), self._number(met, is_blank=False)
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
        while self._todo:
            state, is_blank = self._todo.pop()
            self._follow(self._numbers[state, is_blank], state, is_blank=is_blank)
        return TriggerText(fragment=self._root, met=(always, inside))

    def _number(self, state: int, *, is_blank: bool) -> int:
        """The state of the result for one of the plain text's."""
        number = self._numbers.get((state, is_blank))
        if number is None:
            number = self._numbers[state, is_blank] = self._add(final=self._plain.fragment.final[state])
            self._todo.append((state, is_blank))
        return number

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
            state = self._plain.after(0, opener[:count])
            refused = BLANKS | {byte} if count == 0 else frozenset((byte,))
            self._follow(source, state, is_blank=is_blank and self._marker.startswith(opener[:count]), refused=refused)
            if count + 1 < len(opener):
                following = self._add(final=self._plain.fragment.final[self._plain.after(0, opener[: count + 1])])
                self._root.edges[source].append((1 << byte, (following,)))
                source = following

    def _follow(self, source: int, state: int, *, is_blank: bool, refused: frozenset[int] = frozenset()) -> None:
        """Let `source` go on as `state` of the plain text does, but for the refused bytes."""
        for members, (target,) in self._plain.fragment.edges[state]:
            blank = within = 0
            for byte in range(256):
                if not members >> byte & 1 or byte in refused:
                    continue
                on_marker = self._on_marker.get((state, byte)) == target
                if byte == LINE_END or (is_blank and (on_marker or (state == 0 and byte in BLANKS))):
                    blank |= 1 << byte
                else:
                    within |= 1 << byte
            for mask, stays_blank in ((blank, True), (within, False)):
                if mask:
                    self._root.edges[source].append((mask, (self._number(target, is_blank=stays_blank),)))
