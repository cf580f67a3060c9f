"""Makes a Trace of a reply that was followed: masses, stages and blame of every step, each exact or with its bounds."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from espalier.constraints.spec import Gbnf
from espalier.errors import EspalierError
from espalier.sampling.config import FIELDS
from espalier.sampling.config_names import from_llama
from espalier.tokens.vocab import Vocab
from espalier.trace.measure import measure
from espalier.trace.records import Trace
from espalier.trace.steps import Candidate, Exactness, StepRecord
from espalier.upstream.xray.distribution import ReportedTokens
from espalier.upstream.xray.follow import NO_ID, ReplyReplay
from espalier.upstream.xray.grammar.matcher import States
from espalier.upstream.xray.known import ServerTokens
from espalier.upstream.xray.replay import MASKED, ReplayStep
from espalier.upstream.xray.sampler.chain import Draw
from espalier.upstream.xray.wire.reply import OutputSoFar
from espalier.upstream.xray.wire.request import ClientRequest

LISTED = 10
AGAIN = 5e-3
"""How far a removed mass may be off that comes from another forward pass than the one that the server drew from."""
ROUNDED = 2.0**-24
"""What one addition of single floats may lose of a sum of about 1."""
ALMOST = 1.0 - 2.0**-53
CANCELLED = "cancelled"
"""Why a text ended that was cut: its client left, or its server died."""
FROM = "llama-server"
"""`sampler` of the trace's sampling: it drew the tokens with random numbers of its own."""


class Masses(NamedTuple):
    """least, most: bounds of the removed mass. allowed: how many tokens are, 0 if unknown."""

    least: float
    most: float
    allowed: int
    tax: float
    before: float
    after: float


def trace_of(
    followed: ReplyReplay, output: OutputSoFar, client_request: ClientRequest, known: ServerTokens, *, index: int = 0
) -> Trace:
    """The trace of one output of a reply."""
    records = [_record(place, step, followed.states, known.vocab) for place, step in enumerate(followed.steps)]
    text = b"".join(record.bytes for record in records).decode("utf-8", "replace")
    settings = followed.settings
    grammar = "" if settings is None else settings.grammar
    counts = {name: sum(record.exactness == name for record in records) for name in ("exact", "bounded", "untraceable")}
    return Trace(
        steps=tuple(records),
        text=text,
        finish_reason=output.finish or (CANCELLED if output.is_cut else "stop"),
        model=output.model,
        prompt=output.prompt,
        asked=client_request.last_said(index),
        constraint=asked_constraint(client_request) if settings is None else constraint_of(grammar),
        sampling=_sampling(output.settings),
        strategy="rejection",
        prompt_ids=tuple(followed.prompt_ids),
        setup={
            "traced": "xray",
            "steps": counts,
            "rejected": sum(record.was_rejected for record in records),
            "unknown": sum(record.is_unknown for record in records),
            "asked_again": followed.asked_again,
            **({"reason": followed.reason} if followed.reason else {}),
        },
    )


def combined_of(
    trace: Trace, data: Mapping[str, Any], *, text: str, request_id: str, created: int, timestamp: str
) -> dict[str, Any]:
    """The trace in the combined form of the rejection tracer, with the whole trace under `espalier`. data: the trace as
    JSON, whose parts are not copied. text: of the output, as its reply spells it."""
    rejected = sum(step.was_rejected for step in trace.steps)
    known = sum(not step.is_unknown for step in trace.steps)
    return {
        "metadata": {"request_id": request_id, "model": trace.model, "created": created, "timestamp": timestamp},
        "steps": [_combined_step(step) for step in data["steps"]],
        "summary": {
            "total_steps": len(trace.steps),
            "rejected_steps": rejected,
            "rejection_rate": rejected / known if known else None,
            "unknown_steps": len(trace.steps) - known,
            "final_output": text,
        },
        "espalier": data,
    }


def _combined_step(step: Mapping[str, Any]) -> dict[str, Any]:
    token = step["token"]
    top = [
        {
            "id": candidate["id"],
            "token": candidate["text"],
            "bytes": candidate["bytes"],
            "logprob": _ln(candidate["prob"]),
        }
        for candidate in step["pre_masking"]
    ]
    if step.get("is_unknown"):
        sampled: dict[str, Any] = {"was_rejected": None, "verdict": "unknown", "note": step.get("note", "")}
    elif step["was_rejected"]:
        sampled = {"task_id": None, "slot_id": None, "was_rejected": True}
        sampled |= {name: step[name] for name in ("rejected", "pre_masking", "post_grammar", "post_chain", "resampled")}
    else:
        sampled = {"was_rejected": False, "note": "no rejection: the first token that was sampled was accepted"}
    return {
        "step": step["step"],
        "token": {name: token[name] for name in ("id", "text", "bytes", "logprob")},
        "api_top_logprobs": top,
        "rejection_sampling": sampled,
    }


def _ln(prob: float) -> float | None:
    return math.log(prob) if prob > 0 else None


def _record(place: int, step: ReplayStep, states: States | None, vocab: Vocab) -> StepRecord:
    verdict, reported = step.verdict, step.reported
    rejected = verdict.first if verdict.outcome == "rejected" else None
    allows = _Allows(step, states)
    masses = _masses(step, states)
    if reported is not None and reported.is_again:
        least = max(0.0, masses.least - AGAIN)
        masses = masses._replace(least=least, most=min(1.0, masses.most + AGAIN), tax=-math.log1p(-least))
    logprob = _logprob(step)
    prob = math.exp(min(logprob, 0.0))
    taken = verdict.taken
    is_unknown = verdict.outcome == "unknown"
    exactness: Exactness = "exact"
    note = ""
    if is_unknown:
        exactness, note = ("untraceable" if step.state is None or reported is None else "bounded"), step.reason
    elif masses.most > masses.least or reported is None:
        is_again = reported is not None and reported.is_again
        note = "the server was asked again" if is_again else "the server listed the best tokens only"
        exactness = "bounded"
    keep = [step.token] + ([rejected.token] if rejected is not None else [])
    wanted = [] if reported is None else _list_tokens(reported, keep)
    refused = rejected.token if rejected is not None else None
    if refused is None and wanted and not allows(wanted[0][0]):
        refused = wanted[0][0]
    inside = max(1.0 - masses.least, 1e-300)
    name = _Names(vocab, allows)
    return StepRecord(
        step=place,
        token_id=step.token,
        text=name.text(step.token),
        bytes=name.bytes(step.token),
        logprob=logprob,
        pre_masking=tuple(name.candidate(token, math.exp(value), value) for token, value in wanted),
        post_grammar=tuple(
            name.candidate(token, min(1.0, math.exp(value) / inside), value) for token, value in wanted if allows(token)
        ),
        post_chain=() if taken is None else _drawn_candidates(taken, name, step.token),
        resampled=name.candidate(step.token, prob if taken is None else taken.prob, logprob),
        allowed_count=masses.allowed,
        removed_mass=masses.least,
        tax_nats=masses.tax,
        z_sampled=None,
        entropy_before=masses.before,
        entropy_after=masses.after,
        was_rejected=rejected is not None,
        rejected=None if rejected is None else name.candidate(rejected.token, rejected.prob, None),
        is_special=step.token in vocab.special_texts,
        blame=None
        if refused is None or states is None or step.state is None
        else states.blame(step.state, refused, step.begun),
        exactness=exactness,
        was_changed=None if not wanted else not allows(wanted[0][0]),
        rule=next(iter(states.rules(step.state)), None) if states is not None and step.state is not None else None,
        bounds=(masses.least, masses.most) if exactness != "exact" else None,
        is_unknown=is_unknown,
        note=note,
    )


class _Allows:
    """Whether a token is allowed at a step; everything is where nothing constrains it or the grammar is unknown."""

    def __init__(self, step: ReplayStep, states: States | None) -> None:
        self._step, self._states = step, states

    def __call__(self, token: int) -> bool:
        if self._states is None or self._step.state is None:
            return True
        return self._states.allows(self._step.state, token, self._step.begun)


def _masses(step: ReplayStep, states: States | None) -> Masses:
    reported = step.reported
    if states is None or step.state is None:
        is_free = step.verdict.outcome != "unknown"  # nothing constrains it
        return Masses(0.0, 0.0 if is_free else 1.0, 0, 0.0, *(_entropies(reported, None)))
    if reported is None:
        return Masses(0.0, 1.0, 0, 0.0, 0.0, 0.0)
    if reported.is_whole:
        mask = states.mask(step.state, step.begun)
        measured = measure(reported.row(), mask)
        return Masses(
            measured.removed_mass,
            measured.removed_mass,
            int(np.count_nonzero(mask)),
            measured.tax_nats,
            measured.entropy_before,
            measured.entropy_after,
        )
    refused = ~states.allowed(step.state, reported.ids, step.begun)
    probs = np.exp(reported.logprobs.astype(np.float64))
    out, total = math.fsum(probs[refused].tolist()), math.fsum(probs.tolist())
    rest, count = _unlisted_mass(reported, total, float(probs[-1])), 0
    unlisted = reported.width - reported.ids.shape[0]
    if reported.width <= MASKED:
        mask = states.mask(step.state, step.begun)
        count = int(np.count_nonzero(mask))
        unlisted = count - int(np.count_nonzero(mask[reported.ids]))
    # No unlisted token has more than the last listed one. What all of them have lies between 0 and `rest`, of which
    # each end gives one bound: shares of the listed tokens are of the true sum, which the server rounds.
    allowed = unlisted * float(probs[-1])
    sure = max(0.0, 1.0 - total - ROUNDED * reported.width - allowed)  # of unlisted tokens that are refused
    least = min(ALMOST, (out + sure) / (total + sure + min(rest, allowed)))
    most = min((out + rest) / (total + rest), 1.0 - math.exp(_logprob(step)) / (total + rest))
    return Masses(least, max(most, least), count, -math.log1p(-least), 0.0, 0.0)


def _unlisted_mass(reported: ReportedTokens, total: float, last: float) -> float:
    """The most that the unlisted tokens have together. total: the sum of the listed ones. last: the least of them. The
    server divides by a sum that it made of single floats, from which small addends have dropped."""
    missing = reported.width - reported.ids.shape[0]
    return float(min(missing * last, max(0.0, 1.0 - total) + ROUNDED * reported.width))


def _entropies(reported: ReportedTokens | None, mask: NDArray[np.bool_] | None) -> tuple[float, float]:
    if reported is None or not reported.is_whole:
        return 0.0, 0.0
    measured = measure(reported.row(), mask)
    return measured.entropy_before, measured.entropy_after


def _logprob(step: ReplayStep) -> float:
    reported = step.reported
    if reported is None:
        return -math.inf
    if reported.chosen == step.token and reported.chosen_logprob is not None:
        return min(reported.chosen_logprob, 0.0)
    place = np.flatnonzero(reported.ids == step.token)
    return min(float(reported.logprobs[place[0]]), 0.0) if place.size else -math.inf


def _list_tokens(reported: ReportedTokens, keep: Sequence[int]) -> list[tuple[int, float]]:
    """The best tokens, and those to keep, with their ln of probability."""
    listed = list(zip(reported.ids[:LISTED].tolist(), reported.logprobs[:LISTED].tolist(), strict=True))
    have = {token for token, _ in listed}
    for token in dict.fromkeys(keep):
        place = np.flatnonzero(reported.ids == token)
        if token in have:
            continue
        if place.size:
            listed.append((token, float(reported.logprobs[place[0]])))
        elif token == reported.chosen and reported.chosen_logprob is not None:
            listed.append((token, reported.chosen_logprob))
    return [(token, min(value, 0.0)) for token, value in listed]


def _drawn_candidates(draw: Draw, name: _Names, token: int) -> tuple[Candidate, ...]:
    order = np.argsort(-draw.probs, kind="stable")[:LISTED].tolist()
    order = [at for at in order if draw.probs[at] > 0]
    if not any(draw.ids[at] == token for at in order):
        order += np.flatnonzero(draw.ids == token).tolist()
    return tuple(name.candidate(int(draw.ids[at]), float(draw.probs[at]), float(draw.logits[at])) for at in order)


class _Names:
    """Candidates with texts and bytes."""

    def __init__(self, vocab: Vocab, allows: _Allows) -> None:
        self._vocab, self._allows = vocab, allows

    def text(self, token: int) -> str:
        return "\ufffd" if token == NO_ID else self._vocab.text_of(token)

    def bytes(self, token: int) -> bytes:
        return b"" if token == NO_ID else self._vocab.bytes_of(token)

    def candidate(self, token: int, prob: float, logit: float | None) -> Candidate:
        known = logit is not None and math.isfinite(logit)
        return Candidate(
            id=token,
            text=self.text(token),
            bytes=self.bytes(token),
            prob=min(1.0, max(0.0, prob)),
            logit=logit if known else None,
            allowed=token == NO_ID or self._allows(token),
        )


def constraint_of(grammar: str) -> Mapping[str, Any] | None:
    """The constraint as traces state it; None for no grammar."""
    if not grammar:
        return None
    try:
        return Gbnf(grammar).to_json()
    except EspalierError:
        return {"kind": "gbnf", "grammar": grammar}


def asked_constraint(client_request: ClientRequest) -> Mapping[str, Any]:
    """What the request holds its outputs to, as far as it says so itself."""
    grammar = client_request.body.get("grammar")
    if isinstance(grammar, str) and (spec := constraint_of(grammar)) is not None:
        return spec
    if client_request.schema is not None:
        return {"kind": "json_schema", "schema": client_request.schema}
    return {"kind": "tool_calls" if client_request.body.get("tools") else "json_object"}


def _sampling(settings: Mapping[str, Any] | None) -> dict[str, Any]:
    """The settings as our own config has them, as far as it has them."""
    if settings is None:
        return {"sampler": FROM}
    names = {field.llama for field in FIELDS.values() if field.llama} - {"n_cmpl", "stop", "logit_bias"}
    given = {name: value for name, value in settings.items() if name in names}
    try:
        return {**from_llama(given).to_json(), "sampler": FROM}
    except EspalierError:
        return {
            **{name: value for name, value in given.items() if isinstance(value, int | float | str)},
            "sampler": FROM,
        }
