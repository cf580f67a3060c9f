"""Cuts prompts to MAX_INPUT_TOKENS, if it is set.

A conversation loses its oldest turns first, each with the replies to it, so that the rest is still a conversation; then
the beginning of the oldest user message that is left. System messages and the generation prompt stay. It knows no body
and no reply.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from espalier.chat.messages import check_messages
from espalier.engines.base import Request
from espalier.engines.protocols import Engine
from espalier.errors import CapabilityError, PromptTooLong
from espalier.time_limit import check

RESERVED = 256
"""Tokens left for a reply if its request does not say how many, or half of the context."""
JOINER = "\u200d"
JOINERS = frozenset((JOINER, "\ufe0e", "\ufe0f"))
INSTRUCTING = ("system", "developer")


def room_for_prompt(context: int, *, reply: int | None) -> int | None:
    """The most tokens of a prompt that is cut so that a reply has room. context: tokens of one sequence, 0 if unknown.
    reply: tokens that it may have, None where nothing says so. None for no limit."""
    return max(1, context - min(reply or RESERVED, context // 2)) if context else None


def cut_prompts(engine: Engine, requests: Sequence[Request], limit: int) -> tuple[tuple[Request, ...], tuple[int, ...]]:
    """The requests with prompts of at most `limit` tokens, and how many tokens each lost. Outputs of one prompt share
    its cut. Blocks. Raises PromptTooLong if the part that must stay is longer, and what the engine raises."""
    cuts: list[tuple[Request, int]] = []
    for place, request in enumerate(requests):
        before = requests[place - 1] if place else None
        if before is not None and _same_prompt(request, before):
            cut, lost = cuts[-1]
            parts = {"prompt": cut.prompt, "messages": cut.messages, "prompt_ids": cut.prompt_ids}
            cuts.append((replace(request, **parts), lost))  # type: ignore[arg-type]  # each of its own type
        else:
            cuts.append(_cut(engine, request, limit))
    return tuple(request_cut for request_cut, _ in cuts), tuple(lost for _, lost in cuts)


def _same_prompt(request: Request, other: Request) -> bool:
    return (
        request.prompt is other.prompt and request.messages is other.messages and request.prompt_ids is other.prompt_ids
    )


def _cut(engine: Engine, request: Request, limit: int) -> tuple[Request, int]:
    if engine.vocab is None:
        raise CapabilityError(f"{engine.name} does not know its tokens, so its prompts cannot be cut")
    special_ids, specials = engine.vocab.special_ids, tuple(engine.vocab.special_texts.values())
    size = len(engine.prompt_ids(request))
    if size <= limit:
        return request, 0
    if request.prompt_ids is not None:
        # Ids are cut from the front; a BOS stays.
        first = request.prompt_ids[:1] if request.prompt_ids[0] in special_ids else ()
        kept = (*first, *request.prompt_ids[size - limit + len(first) :]) if limit > len(first) else first
        return replace(request, prompt_ids=kept[:limit]), size - limit

    def fits(changed: Request) -> bool:
        check()
        return len(engine.prompt_ids(changed)) <= limit

    if request.messages is None:
        text = request.prompt or ""
        cut = _shortest_cut(text, specials, lambda rest: fits(replace(request, prompt=rest)))
        if cut is None:
            raise _too_long(limit, "prompt")
        shorter = replace(request, prompt=text[cut:])
    else:
        shorter = _cut_messages(request, specials, fits, limit)
    return shorter, size - len(engine.prompt_ids(shorter))


def _cut_messages(request: Request, specials: Sequence[str], fits: Callable[[Request], bool], limit: int) -> Request:
    messages = check_messages(request.messages or ())
    turns = [place for place, message in enumerate(messages) if message["role"] == "user"]
    if not turns:
        raise _too_long(limit, "messages")

    def without(turn: int) -> list[Mapping[str, Any]]:
        """The messages from this turn on, and all system messages."""
        first = turns[turn] if turn else 0
        return [message for place, message in enumerate(messages) if place >= first or message["role"] in INSTRUCTING]

    low, high = 0, len(turns) - 1  # the last turn is never dropped
    while low < high:
        middle = (low + high) // 2
        if fits(replace(request, messages=tuple(without(middle)))):
            high = middle
        else:
            low = middle + 1
    kept = without(low)
    fitting = replace(request, messages=tuple(kept))
    if fits(fitting):
        return fitting
    place = next(place for place, message in enumerate(kept) if message["role"] == "user")
    text = kept[place]["content"]

    def shortened(rest: str) -> Request:
        return replace(request, messages=(*kept[:place], {**kept[place], "content": rest}, *kept[place + 1 :]))

    cut = _shortest_cut(text, specials, lambda rest: fits(shortened(rest)))
    if cut is None:
        raise _too_long(limit, "messages")
    return shortened(text[cut:])


def _shortest_cut(text: str, specials: Sequence[str], fits: Callable[[str], bool]) -> int | None:
    """The fewest characters to cut from the beginning, by binary search; None if even one character does not fit. A
    shorter text nearly always has fewer tokens; the result itself was tried."""

    def rest_fits(cut: int) -> bool:
        return cut < len(text) and fits(text[cut:])

    low, high = 1, len(text) - 1
    if not rest_fits(_border(text, high, specials)):
        return None
    while low < high:
        middle = (low + high) // 2
        if rest_fits(_border(text, middle, specials)):
            high = middle
        else:
            low = middle + 1
    return _border(text, high, specials)


def _border(text: str, start: int, specials: Sequence[str]) -> int:
    """The first position from `start` on where a text may be cut: neither inside a grapheme, nor inside the text of a
    special token."""
    while start < len(text):
        after = start
        while after < len(text) and after and (_goes_on(text[after]) or text[after - 1] == JOINER):
            after += 1
        for special in specials:
            at = text.find(special, max(0, after - len(special) + 1), after + len(special) - 1)
            if 0 <= at < after:
                after = at + len(special)
        if after == start:
            break
        start = after
    return start


def _goes_on(character: str) -> bool:
    """Whether it continues the grapheme before it."""
    return character in JOINERS or unicodedata.combining(character) != 0


def _too_long(limit: int, field: str) -> PromptTooLong:
    return PromptTooLong(
        f"the part of the prompt that must stay is longer than {limit} tokens",
        hint="the system message, the last turn and the template stay whole",
        field=field,
    )
