"""Convert one step of a reply, a combined form or a rejection log into a StepRecord with bounds instead of masses.

If the token has probability p under the model, at most 1 - p was removed, since the token itself was allowed; a
candidate that is known to be refused means that at least its probability was removed. This module reads no files.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from espalier.automata.reasons.blame import Blame
from espalier.trace.foreign.estimate import CLOSE, Estimate, ranked_of
from espalier.trace.foreign.responses import ApiStep, ResponseError, finite, spelled_bytes, step_of, whole
from espalier.trace.steps import Candidate, StepRecord

NO_ID = -1
"""The id of a token whose number is unknown."""
ALMOST = 1.0 - 2.0**-53
"""A removed mass that rounds to 1 still leaves the token itself; its tax is then at least 36.7 nats."""


def of_reply(position: int, reported: ApiStep, estimate: Estimate | None) -> StepRecord:
    """reported: the step as the reply has it. found: its estimate; None for probabilities after sampling, which prove
    nothing."""
    if estimate is None:
        return _record(position, reported, {}, bounds=(0.0, 1.0), is_unknown=True)
    event: dict[str, Any] = {}
    if estimate.rejected is not None:
        event = {"rejected": estimate.rejected}
    return _record(
        position,
        reported,
        event,
        bounds=(estimate.lower, estimate.upper),
        was_rejected=estimate.verdict == "rejected",
        is_unknown=estimate.verdict == "unknown",
        is_sure=estimate.rejected is not None and estimate.lower > 0,
    )


def of_combined(position: int, data: Any, *, after: bool, path: str) -> StepRecord:
    """after: whether the probabilities are those after sampling. Raises ResponseError naming the position."""
    where = f"{path!r}: steps[{position}]"
    if not isinstance(data, Mapping) or not isinstance(data.get("token"), Mapping):
        raise ResponseError(f"{where} has no token")
    token = data["token"]
    top = data.get("api_top_logprobs")
    names = ("prob", "top_probs") if after else ("logprob", "top_logprobs")
    chance: Any = finite(token.get("logprob"))
    if after and chance is not None:
        chance = math.exp(min(chance, 0.0))
    shape = {"id": token.get("id"), "token": token.get("text"), "bytes": token.get("bytes")}
    reported = replace(
        step_of({**shape, names[0]: chance, names[1]: top}, where), is_missing=token.get("is_missing") is True
    )
    event = data.get("rejection_sampling")
    event = event if isinstance(event, Mapping) else {}
    if event.get("was_rejected") is not True:
        bounds = _bounds_of(event.get("removed_mass")) if event.get("estimated") else None
        is_unknown = event.get("was_rejected") is not False or event.get("verdict") == "unknown"
        return _record(position, reported, {}, bounds=bounds, is_unknown=is_unknown)
    bounds = _bounds_of(event.get("removed_mass"))
    is_sure = bounds is not None and event.get("rejected") is not None and bounds[0] > 0
    return _record(position, reported, event, bounds=bounds, was_rejected=True, is_sure=is_sure)


def of_event(event: Mapping[str, Any]) -> StepRecord:
    """A single event of a rejection log."""
    resampled = event.get("resampled")
    resampled = resampled if isinstance(resampled, Mapping) else {}
    number, text, spelled = _number(resampled), _text(resampled), spelled_bytes(resampled.get("bytes"))
    wanted = _candidates(event.get("pre_masking"), NONE)
    mine = next((candidate for candidate in wanted if candidate.id == number and number != NO_ID), None)
    logprob = math.log(mine.prob) if mine is not None and mine.prob > 0 else None
    reported = ApiStep(id=None if number == NO_ID else number, text=text, bytes=spelled, logprob=logprob, top=())
    return _record(event["step"], reported, event, was_rejected=True)


def of_filtering(
    position: int,
    token: Mapping[str, Any],
    *,
    before: Sequence[Mapping[str, Any]],
    after: Sequence[Mapping[str, Any]],
    refused: Mapping[str, Any] | None,
    is_unknown: bool,
) -> StepRecord:
    """A step of a grammar trace. before, after: the candidates of one filtering, with `prob`; what is only in the first
    was masked. refused: the first draw."""
    ids_after = {_number(candidate) for candidate in after}
    masked = [{**candidate, "prob": 0.0, "logit": None} for candidate in before if _number(candidate) not in ids_after]
    number = _number(token)
    chance = next((float(candidate["prob"]) for candidate in before if _number(candidate) == number != NO_ID), 0.0)
    reported = ApiStep(
        id=None if number == NO_ID else number,
        text=next((token[name] for name in ("token_str", "str") if isinstance(token.get(name), str)), ""),
        bytes=None,
        logprob=math.log(chance) if chance > 0 else None,
        top=(),
    )
    event = {"pre_masking": list(before), "post_grammar": [*after, *masked], "rejected": refused}
    return _record(position, reported, event, was_rejected=refused is not None, is_unknown=is_unknown)


def text_of(steps: Iterable[StepRecord]) -> str:
    """The text of the tokens together."""
    return b"".join(step.bytes for step in steps).decode("utf-8", "replace")


def _record(
    position: int,
    reported: ApiStep,
    event: Mapping[str, Any],
    *,
    bounds: tuple[float, float] | None = None,
    was_rejected: bool = False,
    is_unknown: bool = False,
    is_sure: bool = False,
) -> StepRecord:
    """is_sure: whether everything more likely than the token was refused."""
    taken_id = NO_ID if reported.id is None else reported.id
    spelled = reported.text.encode("utf-8", "replace") if reported.bytes is None else bytes(reported.bytes)
    chance = _exp(reported.logprob)
    out = [candidate for candidate in _rows(event.get("post_grammar")) if _is_out(candidate)]
    first = event.get("rejected")
    first = first if isinstance(first, Mapping) else None
    if first is not None:
        out.append(first)
    if is_sure and reported.logprob is not None:
        out += (
            candidate for candidate in ranked_of(reported) if float(candidate["logprob"]) > reported.logprob + CLOSE
        )
    refused = _RefusedTokens(out, taken_id, spelled)
    stated = _candidates(reported.top, refused)
    chosen = Candidate(id=taken_id, text=reported.text, bytes=spelled, prob=chance)
    wanted = stated if stated and not reported.after else _candidates(event.get("pre_masking"), refused)
    # Always list the token itself, even if it is not among the most likely.
    known = reported.logprob is not None and not reported.after
    if wanted and known and not any(_same(candidate, chosen) for candidate in wanted):
        wanted = (*wanted, chosen)
    rejected = None if first is None else _rejected_candidate(first, wanted)
    lower, upper = _bounds(wanted, chance=chance if known else None) if bounds is None else bounds
    drawn = event.get("resampled")
    return StepRecord(
        step=position,
        token_id=taken_id,
        text=reported.text,
        bytes=spelled,
        logprob=-math.inf if reported.logprob is None else min(reported.logprob, 0.0),
        pre_masking=wanted,
        post_grammar=_candidates(event.get("post_grammar"), refused),
        post_chain=stated if reported.after else _candidates(event.get("post_chain"), refused),
        resampled=_candidate(drawn, NONE) if isinstance(drawn, Mapping) else chosen,
        allowed_count=0,
        removed_mass=lower,
        tax_nats=-math.log1p(-min(lower, ALMOST)),
        z_sampled=None,
        entropy_before=0.0,
        entropy_after=0.0,
        was_rejected=was_rejected,
        is_unknown=is_unknown,
        rejected=rejected,
        is_special=not spelled and not reported.is_missing,
        blame=_blame(event.get("blame")),
        exactness="bounded",
        bounds=(lower, upper),
    )


class _RefusedTokens:
    """Tokens that are known to be refused, by id, or by bytes if either side has no id, as in OpenAI's own replies. The
    taken token is never among them."""

    def __init__(self, candidates: Iterable[Mapping[str, Any]], token: int, spelled: bytes | None) -> None:
        pairs = [(_number(candidate), _bytes_of(candidate)) for candidate in candidates]
        pairs = [(number, text) for number, text in pairs if not (number == token != NO_ID)]
        self._ids = {number for number, _ in pairs} - {NO_ID}
        self._texts = {text for _, text in pairs} - {spelled}
        self._nameless = {text for number, text in pairs if number == NO_ID} - {spelled}

    def has(self, number: int, spelled: bytes) -> bool:
        if number == NO_ID:
            return spelled in self._texts
        return number in self._ids or spelled in self._nameless


NONE = _RefusedTokens((), NO_ID, None)


def _bounds(wanted: Collection[Candidate], *, chance: float | None) -> tuple[float, float]:
    """Bounds of the removed mass: at least what is known to be refused, at most everything but the token itself.
    chance: the token's probability, if known."""
    upper = 1.0 if chance is None else 1.0 - chance
    return min(upper, math.fsum(candidate.prob for candidate in wanted if not candidate.allowed)), upper


def _rejected_candidate(data: Mapping[str, Any], wanted: Collection[Candidate]) -> Candidate:
    """The token drawn first; its probability from the log, or else the model's."""
    candidate = _candidate(data, _RefusedTokens([data], NO_ID, None))
    if not _has_chance(data):
        candidate = next((known for known in wanted if _same(known, candidate)), candidate)
    return candidate


def _candidates(data: Any, refused: _RefusedTokens) -> tuple[Candidate, ...]:
    """Candidates, most probable first. If only logits are given, their softmax over the listed ones."""
    rows = _rows(data)
    if rows and not any(_has_chance(row) for row in rows):
        logits = [value for row in rows if (value := finite(row.get("logit"))) is not None]
        top = max(logits, default=0.0)
        total = math.fsum(math.exp(value - top) for value in logits)
        rows = [
            {**row, "prob": 0.0 if (value := finite(row.get("logit"))) is None else math.exp(value - top) / total}
            for row in rows
        ]
    return tuple(sorted((_candidate(row, refused) for row in rows), key=lambda row: -row.prob))


def _candidate(data: Mapping[str, Any], refused: _RefusedTokens) -> Candidate:
    number, text, spelled = _number(data), _text(data), _bytes_of(data)
    chance = next((value for name in ("prob", "p") if (value := finite(data.get(name))) is not None), None)
    if chance is None:
        chance = _exp(finite(data.get("logprob")))
    return Candidate(
        id=number,
        text=text,
        bytes=spelled,
        prob=min(max(chance, 0.0), 1.0),
        logit=finite(data.get("logit")),
        allowed=not refused.has(number, spelled) and data.get("allowed") is not False and not _is_out(data),
    )


def _is_out(data: Mapping[str, Any]) -> bool:
    """Whether a candidate's logit is -inf, as after a mask (null in a merged file)."""
    if "logit" not in data:
        return False
    value = data["logit"]
    return value is None or (isinstance(value, float) and value == -math.inf)


def _has_chance(data: Mapping[str, Any]) -> bool:
    return any(finite(data.get(name)) is not None for name in ("prob", "p", "logprob"))


def _bytes_of(data: Mapping[str, Any]) -> bytes:
    spelled = spelled_bytes(data.get("bytes"))
    return _text(data).encode("utf-8", "replace") if spelled is None else bytes(spelled)


def _number(data: Mapping[str, Any]) -> int:
    """`id`, or `token` if that is a number, as in an older format."""
    for name in ("id", "token"):
        if (number := whole(data.get(name))) is not None:
            return number
    return NO_ID


def _text(data: Mapping[str, Any]) -> str:
    return next((data[name] for name in ("text", "token", "str") if isinstance(data.get(name), str)), "")


def _same(candidate: Candidate, other: Candidate) -> bool:
    return candidate.id == other.id if NO_ID not in (candidate.id, other.id) else candidate.bytes == other.bytes


def _rows(data: Any) -> list[Mapping[str, Any]]:
    return [row for row in data if isinstance(row, Mapping)] if isinstance(data, list | tuple) else []


def _bounds_of(data: Any) -> tuple[float, float] | None:
    """The bounds that an estimate wrote."""
    if not isinstance(data, Mapping):
        return None
    lower, upper = finite(data.get("lower")), finite(data.get("upper"))
    return None if lower is None or upper is None or not 0.0 <= lower <= upper <= 1.0 else (lower, upper)


def _blame(data: Any) -> Blame | None:
    if not isinstance(data, Mapping) or not all(isinstance(data.get(name), str) for name in ("member", "reason")):
        return None
    more = {name: data[name] for name in ("rule", "position", "expected") if isinstance(data.get(name), str)}
    offset = data.get("offset")
    return Blame(member=data["member"], reason=data["reason"], offset=offset if type(offset) is int else None, **more)


def _exp(logprob: float | None) -> float:
    return 0.0 if logprob is None else math.exp(min(logprob, 0.0))
