"""Which generated token each entry of a reply belongs to.

A reply may list fewer log probabilities than it has tokens: llama-server gives none for a token that leaves a character
incomplete (the entry after it then holds the whole character) and often none for the token that ends the text, and a
recorded stream may end early. An entry is placed only where every arrangement that the reply permits agrees. This
module knows no rejection log.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from espalier.trace.foreign.responses import ApiChoice, ApiStep

MOST_WORK = 2_000_000
"""Entries times missing tokens; above it the entries after the first possible gap are not placed."""
GAP = ApiStep(id=None, text="", bytes=None, logprob=None, top=(), is_missing=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedSequence:
    """steps: one for each token, in order; `is_missing` where the reply has no entry. sure: for each, whether it is
    certain that this entry, or none, belongs there. is_whole: whether there are surely no more tokens."""

    steps: tuple[ApiStep, ...]
    sure: tuple[bool, ...]
    is_whole: bool


def placed(choice: ApiChoice) -> PlacedSequence:
    """The tokens of one output."""
    entries = choice.steps or ()
    widths = [0] * len(entries) if choice.has_all else _widths(entries)
    total = choice.total
    if total is not None and total < len(entries):
        total = None  # a count of something else
    if total is None:
        first = next((position for position, width in enumerate(widths) if width), len(entries))
        sure = (True,) * first + (False,) * (len(entries) - first)
        return PlacedSequence(steps=entries, sure=sure, is_whole=False)
    missing = total - len(entries)
    if not missing:
        return PlacedSequence(steps=entries, sure=(True,) * total, is_whole=True)
    tokens = choice.tokens if choice.tokens is not None and len(choice.tokens) == total else None
    offsets = _offsets(entries, widths, missing, tokens)
    if tokens is not None and offsets is None:  # the ids are not those of the entries
        tokens = None
        offsets = _offsets(entries, widths, missing, None)
    return _place_entries(entries, offsets or [range(missing + 1)] * len(entries), total, tokens, choice.finish_reason)


def _place_entries(
    entries: Sequence[ApiStep],
    offsets: Sequence[Sequence[int]],
    total: int,
    tokens: Sequence[int] | None,
    finish: str | None,
) -> PlacedSequence:
    steps = [GAP if tokens is None else replace(GAP, id=tokens[position]) for position in range(total)]
    sure = [False] * total
    last, was_sure = -1, True
    for index, options in enumerate(offsets):
        position, is_sure = index + options[0], len(options) == 1
        steps[position] = entries[index]
        if tokens is not None and entries[index].id is None:
            steps[position] = replace(entries[index], id=tokens[position])
        sure[position] = is_sure
        for between in range(last + 1, position):
            sure[between] = was_sure and is_sure
        last, was_sure = position, is_sure
    for position in range(last + 1, total):
        sure[position] = was_sure
    if entries and last < total - 1 and finish == "stop":  # the token that ended the text
        steps[-1] = replace(steps[-1], is_missing=False)
    return PlacedSequence(steps=tuple(steps), sure=tuple(sure), is_whole=True)


def _widths(entries: Sequence[ApiStep]) -> list[int]:
    """For each entry, how many tokens may be missing right before it: none if its bytes are ASCII, or if a part of a
    character has an entry of its own somewhere, since such a server leaves none out."""
    widths = []
    for entry in entries:
        spelled = entry.text.encode("utf-8", "replace") if entry.bytes is None else bytes(entry.bytes)
        if entry.bytes is not None and not _is_text(spelled):
            return [0] * len(entries)
        widths.append(0 if spelled.isascii() else len(spelled) - 1)
    return widths


def _is_text(spelled: bytes) -> bool:
    try:
        spelled.decode()
    except UnicodeDecodeError:
        return False
    return True


def _offsets(
    entries: Sequence[ApiStep], widths: Sequence[int], missing: int, tokens: Sequence[int] | None
) -> list[list[int]] | None:
    """For each entry, how many tokens may be missing before it, over all arrangements, ascending; None if there is no
    arrangement, or if it takes too long to tell."""
    if missing * len(entries) > MOST_WORK:
        return None
    forward: list[set[int]] = []
    before = {0}
    for index, (entry, width) in enumerate(zip(entries, widths, strict=True)):
        reached = {at + more for at in before for more in range(min(width, missing - at) + 1)}
        if tokens is not None and entry.id is not None:
            reached = {at for at in reached if tokens[index + at] == entry.id}
        if not reached:
            return None
        forward.append(reached)
        before = reached
    possible: list[list[int]] = []
    after: set[int] | None = None
    for index in range(len(entries) - 1, -1, -1):
        alive = forward[index]
        if after is not None:
            width = widths[index + 1]
            alive = {at for at in alive if any(at <= other <= at + width for other in after)}
        possible.append(sorted(alive))
        after = alive
    return possible[::-1]
