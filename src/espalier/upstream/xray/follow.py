"""Follows one reply from its first token to its last, and asks the server again for what the reply leaves out.

What is asked again is checked against the token that was taken, and left out if it does not fit. It knows no HTTP.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Protocol

from espalier.errors import EspalierError, UpstreamError
from espalier.upstream.xray.distribution import Entry, Level, Reported, entry_of, read_entry
from espalier.upstream.xray.grammar.lazy import Awaited, thinks
from espalier.upstream.xray.grammar.matcher import States
from espalier.upstream.xray.grammar.pieces import WHOLE
from espalier.upstream.xray.known import Known
from espalier.upstream.xray.level import Probe, level_of, probe_of
from espalier.upstream.xray.replay import Replay, Step, Verdict
from espalier.upstream.xray.sampler.chain import Chain
from espalier.upstream.xray.sampler.settings import SamplerSettings, read_settings
from espalier.upstream.xray.wire.alignment import with_entries
from espalier.upstream.xray.wire.reply import Told

log = logging.getLogger(__name__)
NO_ID = -1
MOST_UPGRADES = 256
"""Positions of one reply that are asked for again to decide what the listed tokens do not."""
CUT = "the reply was cut before it told its settings"
THINKING = "the model may think here, where a lazy grammar is suspended by tags that the server does not tell"
LOOKED_BACK = 128
"""Bytes in which a tag is looked for, after each token."""
HELD = 3
"""Tokens at the end of a text, at most, that are held back as parts of one character."""
WIDEST = 300_000
"""Up to so many tokens, a single position is asked for with all of them."""


class Again(Protocol):
    """Asks the server for single positions."""

    def prompt_ids(self, prompt: str) -> list[int]:
        """The tokens of a prompt as the server returned it. Raises UpstreamError."""

    def entry(self, tokens: Sequence[int], *, count: int, is_fresh: bool) -> Any:
        """The entry of probabilities after these tokens. count: how many; is_fresh: without the server's cache. Raises
        UpstreamError."""

    def probed(self, tokens: Sequence[int], probe: Probe, *, count: int, is_fresh: bool) -> Any:
        """The entry of probabilities after sampling by the probe's settings. Raises UpstreamError."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Followed:
    """settings: None if the reply does not tell. prompt_ids: empty if they were not needed. reason: why nothing, or
    nothing from some token on, could be followed. is_lost: whether the reply contradicts what is known of the server.
    asked_again: how many positions were asked for again. steps: keep states of `states` alive."""

    settings: SamplerSettings | None
    steps: list[Step]
    prompt_ids: list[int]
    reason: str
    asked_again: int
    states: States | None = None
    is_lost: bool = False


def has_gaps(output: Told, known: Known) -> bool:
    """Whether the reply leaves out the probabilities of a token, so that the server will be asked again."""
    if output.tokens is not None:
        return not all(with_entries(_spelled(output.tokens, known)))
    return len(output.entries) < output.count


@contextmanager
def following(output: Told, known: Known, again: Again | None, *, count: int) -> Iterator[Followed]:
    """The reply, followed; its grammar's states are lent for as long as the context is open. again: None to ask for
    nothing. count: probabilities to ask for."""
    settings, states, reason = None, None, ""
    try:
        if output.settings is None and output.is_cut:
            raise UpstreamError(CUT)
        settings = read_settings(output.settings)
        reason = settings.reason or (_laid_out(output, known) if output.is_rest else "")
        if (
            output.is_rest
            and not reason
            and output.finish == "length"
            and output.count < settings.most <= output.count + HELD
        ):
            output.count = settings.most
        if settings.grammar and not reason:
            states = known.borrow(settings.grammar)
    except UpstreamError as error:
        reason = str(error)
    except EspalierError as error:
        reason = f"the grammar cannot be followed: {error}"
    if settings is None or reason:
        steps = _unfollowed(output, known, reason)
        yield Followed(settings=settings, steps=steps, prompt_ids=[], reason=reason, asked_again=0)
        return
    try:
        yield _Run(output, known, again, settings, states, count).followed()
    finally:
        if states is not None:
            known.give_back(settings.grammar, states)


class _Run:
    def __init__(
        self,
        output: Told,
        known: Known,
        again: Again | None,
        settings: SamplerSettings,
        states: States | None,
        count: int,
    ) -> None:
        self._told, self._known, self._again, self._settings, self._states = output, known, again, settings, states
        self._count = min(count or known.vocab.width, known.vocab.width)
        self._asked = 0
        self._upgrades = MOST_UPGRADES
        self._prompt: list[int] = []
        self._reason = ""
        self._thinks = False

    def followed(self) -> Followed:
        told, known = self._told, self._known
        entries = _aligned(told, known)
        if entries is None:
            self._reason = "the probabilities of the reply cannot be told apart by token"
        if self._settings.needs_history:
            self._read_prompt(is_needed=True)
        chain = Chain(self._settings, width=known.vocab.width, breakers=known.breakers(self._settings))
        triggers = self._settings.triggers
        awaited = None if triggers is None else Awaited(triggers)
        prefill = self._prefill()
        replay = Replay(chain, self._states, list(self._prompt), reason=self._reason, awaited=awaited, prefill=prefill)
        seen = b"" if triggers is None else str((told.settings or {}).get("generation_prompt") or "").encode()
        for place in range(told.count):
            if not self._thinks and thinks(seen):
                self._thinks = True
                replay.give_up(THINKING)
            token = told.tokens[place] if told.tokens is not None else told.ids.get(place)
            reported = self._reported(entries, place)
            if reported is None:
                reported = self._asked_for(replay, token)
            level = self._level(replay, reported)
            if level is not None and reported is not None:
                reported = replace(reported, level=level)
            if token is None:
                token = None if reported is None else replay.predict(reported, self._ends(place))
                if token is None:
                    reason = "which token the server took here is not known"
                    return self._made(replay, reason, more=told.count - place, after=place)
            if (
                self._upgrades
                and reported is not None
                and (level is not None or not self._settings.has_repeat)
                and not reported.is_whole
                and not replay.decides(token, reported)
            ):
                self._upgrades -= 1
                reported = self._asked_for(replay, token, is_whole=True, level=level) or reported
            replay.advance(token, reported)
            seen = b"" if triggers is None else (seen + known.pieces.pieces[token])[-LOOKED_BACK:]
        return self._made(replay, "", more=0, after=0)

    def _ends(self, place: int) -> frozenset[int] | None:
        """The tokens that end a text, where the token is known to be one of them."""
        output = self._told
        is_end = place == output.count - 1 and output.finish == "stop" and not output.is_stopped_by_word
        return self._known.pieces.eog if is_end else None

    def _made(self, replay: Replay, reason: str, *, more: int, after: int) -> Followed:
        steps = replay.finish()
        steps += _unknown([self._told.ids.get(place, NO_ID) for place in range(after, after + more)], reason)
        return Followed(settings=self._settings, steps=steps, prompt_ids=self._prompt,
                        reason=replay.reason or reason, asked_again=self._asked, states=self._states,
                        is_lost=replay.is_lost and not self._reason and not self._thinks)  # fmt: skip

    def _reported(self, entries: dict[int, Entry] | None, place: int) -> Reported | None:
        entry = None if entries is None else entries.get(place)
        return None if entry is None else read_entry(entry, self._known.vocab.width)

    def _read_prompt(self, *, is_needed: bool) -> None:
        """The prompt's tokens; without them nothing is asked again."""
        output = self._told
        try:
            if self._again is None:
                raise UpstreamError("the server is not asked for more")
            if not output.has_prompt:
                raise UpstreamError("the reply tells the prompt of the first outputs only")
            ids = self._again.prompt_ids(output.prompt)
            if output.prompt_count is not None and len(ids) != output.prompt_count:
                raise UpstreamError("its text splits into other tokens")
        except EspalierError as error:
            self._again = None
            if is_needed:
                self._reason = f"penalties look at the prompt's tokens, which are not known: {error}"
            return
        self._prompt = ids

    def _prefill(self) -> list[tuple[int, bytes]]:
        """What the grammar has taken before the first token. How it splits into tokens matters only to a grammar that
        names tokens."""
        text = self._told.prefill
        if not text or self._states is None:
            return []
        if not self._states.has_tokens:
            return [(-1, text.encode())]
        try:
            if self._again is None:
                raise UpstreamError("the server is not asked for more")
            ids = self._again.prompt_ids(text)
        except EspalierError as error:
            self._reason = f"the tokens of the generation prompt are not known: {error}"
            return []
        return [(prompt_id, self._known.pieces.pieces[prompt_id]) for prompt_id in ids]

    def _level(self, replay: Replay, reported: Reported | None) -> Level | None:
        """How large the logits are, where a repeat penalty needs to know and the server can be asked."""
        if reported is None or self._again is None or replay.is_lost or not replay.needs_level(reported):
            return None
        history = [*self._prompt, *replay.tokens()]
        probe = probe_of(reported, history, self._known.pieces.pieces)
        if probe is None or not self._upgrades:
            return None
        self._upgrades -= 1
        for is_fresh in (False, True):
            try:
                entry = self._again.probed(history, probe, count=self._count, is_fresh=is_fresh)
                level = level_of(entry, reported, probe, history)
            except EspalierError as error:
                log.info("a position could not be asked for again: %s", error)
                return None
            self._asked += 1
            if level is not None:
                return level
        return None

    def _asked_for(
        self, replay: Replay, token: int | None, *, is_whole: bool = False, level: Level | None = None
    ) -> Reported | None:
        """The server's answer for the position after the tokens so far, if it fits the token."""
        if self._again is not None and not self._prompt:
            self._read_prompt(is_needed=False)
        if self._again is None or replay.is_lost:
            return None
        width = self._known.vocab.width
        count = width if is_whole or token is None else self._count
        if width > WIDEST:
            count = self._count
        for is_fresh in (False, True):
            try:
                entry = self._again.entry([*self._prompt, *replay.tokens()], count=count, is_fresh=is_fresh)
                again = replace(read_entry(entry_of(entry), width), is_again=True, level=level)
            except EspalierError as error:
                log.info("a position could not be asked for again: %s", error)
                return None
            self._asked += 1
            if token is None or replay.fits(token, again):
                return again
        return None


def _aligned(output: Told, known: Known) -> dict[int, Entry] | None:
    """The entries by position; None if it cannot be told which is which."""
    if output.tokens is None:
        return output.entries
    places = [place for place, has in enumerate(with_entries(_spelled(output.tokens, known))) if has]
    given = output.listed
    if len(given) > len(places) or (len(given) < len(places) and not output.is_stopped_by_word):
        return None
    entries = dict(zip(places, given, strict=False))
    if any(entry.chosen != output.tokens[place] for place, entry in entries.items()):
        return None
    return entries


def _laid_out(output: Told, known: Known) -> str:
    """Give the entries of a further output their positions. Returns why they do not follow one another, "" if they
    do."""
    why = ""
    for place, entry in enumerate(output.listed):
        output.entries[place] = entry
        if entry.chosen is not None:
            output.ids[place] = entry.chosen
        if entry.chosen is None or _spelled([entry.chosen], known) != [entry.sent]:
            why = "the reply leaves out tokens of this output, and does not tell how many"
    output.count = len(output.listed)
    return why


def _spelled(tokens: Sequence[int], known: Known) -> list[bytes]:
    """What each token adds to the text; special ones add nothing."""
    return [known.vocab.bytes_of(token) if 0 <= token < known.vocab.width else b"" for token in tokens]


def _unfollowed(output: Told, known: Known, reason: str) -> list[Step]:
    """Steps of which the model's probabilities may be known, and no more."""
    entries = _aligned(output, known) or {}
    tokens = output.tokens or [output.ids.get(place, NO_ID) for place in range(output.count)]
    steps = _unknown(tokens, reason)
    made = []
    for place, step in enumerate(steps):
        entry = entries.get(place)
        try:
            reported = None if entry is None else read_entry(entry, known.vocab.width)
        except UpstreamError:
            reported = None
        made.append(Step(step.token, None, step.begun, reported, step.verdict, reason))
    return made


def _unknown(tokens: Sequence[int], reason: str) -> list[Step]:
    return [Step(token, None, WHOLE, None, Verdict("unknown"), reason) for token in tokens]
