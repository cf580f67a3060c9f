"""Remembers which tokens must not be taken again after a rewind: the state of a depth-first search over texts.

A place is the number of tokens before it; what is known about a place holds only after exactly these tokens. The module
knows neither models nor matchers: tokens and reasons go in, places to go back to come out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from espalier.automata.reasons.blame import Blame


@dataclass(slots=True)
class _Position:
    """One place after certain tokens. refused: tokens that lead nowhere. put_off: tokens that were taken back and are
    taken up again when no other is left, with the position after each. resumed: tokens that were taken up again."""

    refused: dict[int, Blame] = field(default_factory=dict)
    put_off: dict[int, tuple[Blame, _Position]] = field(default_factory=dict)
    resumed: dict[int, _Position] = field(default_factory=dict)


class Retries:
    """The places of one text, from its beginning to its current end."""

    def __init__(self) -> None:
        self._path = [_Position()]
        self._settled = 0

    @property
    def forbidden(self) -> Mapping[int, Blame]:
        """The tokens that must not be taken here, with reasons; those that can be taken up again come last."""
        here = self._path[-1]
        if not here.put_off:
            return here.refused
        return here.refused | {token: why for token, (why, _) in here.put_off.items()}

    def taken(self, token: int) -> None:
        """Record that a token was taken here."""
        self._path.append(self._path[-1].resumed.get(token) or _Position())

    def settled(self, count: int) -> None:
        """Record that the first `count` tokens are final."""
        for place in range(self._settled, count):
            self._path[place] = _Position()  # the text never comes back to it
        self._settled = max(self._settled, count)

    def recall(self, tokens: Sequence[int], why: Blame) -> int:
        """Take these tokens back together; the last one was only tried. Returns the place to go on from.

        The first token is put off, and the text goes on at its place with another token. Where the first token was put
        off before and had to be taken up again, the next one is put off instead, and so on; the last one is refused for
        good.
        """
        self._path[-1].refused[tokens[-1]] = why
        first = len(self._path) - len(tokens)
        back = len(self._path) - 1
        for place in range(back - 1, first - 1, -1):
            token, here = tokens[place - first], self._path[place]
            if token not in here.resumed:
                here.put_off[token] = (why, self._path[place + 1])
                back = place
        del self._path[back + 1 :]
        return back

    def resume(self) -> bool:
        """Allow the put-off tokens again, as no other token is left here. False where none was put off."""
        here = self._path[-1]
        if not here.put_off:
            return False
        here.resumed |= {token: after for token, (_, after) in here.put_off.items()}
        here.put_off.clear()
        return True

    def dead_end(self, token: int, why: Blame) -> None:
        """Take back the last token and refuse it for good, as it led to a dead end."""
        self._path.pop()
        here = self._path[-1]
        here.resumed.pop(token, None)
        here.refused[token] = why
