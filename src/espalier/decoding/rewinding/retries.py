"""What of a text must not be taken again after it was taken back: a depth-first search, as far as it has gone.

A place is how many tokens come before it, and all that is known of a place is known of these tokens alone. It knows
neither models nor matchers: tokens and reasons go in, places to go back to come out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from espalier.automata.reasons.blame import Blame


@dataclass(slots=True)
class _Position:
    """One place after certain tokens. refused: leads nowhere. put_off: led to something that was taken back, and is
    taken up when nothing else is left, with what is known of the place after it. resumed: was taken up."""

    refused: dict[int, Blame] = field(default_factory=dict)
    put_off: dict[int, tuple[Blame, _Position]] = field(default_factory=dict)
    resumed: dict[int, _Position] = field(default_factory=dict)


class Retries:
    """The places of one text, from its beginning to where it is now."""

    def __init__(self) -> None:
        self._path = [_Position()]
        self._settled = 0

    @property
    def forbidden(self) -> Mapping[int, Blame]:
        """The tokens that are not to be taken here, and why; those that could be taken up come last."""
        here = self._path[-1]
        if not here.put_off:
            return here.refused
        return here.refused | {token: why for token, (why, _) in here.put_off.items()}

    def taken(self, token: int) -> None:
        """A token was taken here."""
        self._path.append(self._path[-1].resumed.get(token) or _Position())

    def settled(self, count: int) -> None:
        """The first `count` tokens stay."""
        for place in range(self._settled, count):
            self._path[place] = _Position()  # nobody comes back to it
        self._settled = max(self._settled, count)

    def recall(self, tokens: Sequence[int], why: Blame) -> int:
        """These tokens, the last of which was only tried here, go back together. Returns the place to go on from.

        That is the first of theirs, where the first of them is put off: another may be taken, which need not end like
        this. Where it was put off before and had to be taken up, the same is done with what follows it; the last is
        refused for good.
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
        """Nothing else is left here: take up what was put off. False where there is nothing of that kind."""
        here = self._path[-1]
        if not here.put_off:
            return False
        here.resumed |= {token: after for token, (_, after) in here.put_off.items()}
        here.put_off.clear()
        return True

    def dead_end(self, token: int, why: Blame) -> None:
        """There is no way on from here: the last token, which led here, goes back and is refused for good."""
        self._path.pop()
        here = self._path[-1]
        here.resumed.pop(token, None)
        here.refused[token] = why
