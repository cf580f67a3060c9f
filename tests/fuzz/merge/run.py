"""Requests of a made-up server, one damaged log, and the reply to one of them: what the merge states must be the truth.

The oracle is the server's own memory: it knows of each token whether a draw was refused, and which. A step that the
merge calls unknown is never wrong; how many it states is counted. A link that is marked as weak may be to another
request's task, which is counted too; but no event of that task contradicts the reply, it is the only such task or was
asked for as the most recent one, and a log that holds the reply's own task alone is always merged, unless it has lost
rejections that the reply proves.
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from random import Random
from typing import Any

from espalier.errors import EspalierError
from espalier.trace.foreign.log_reader import LogReader
from espalier.trace.foreign.merge import CombinedTrace, merge
from espalier.trace.foreign.responses import ResponseError, read_response
from tests.fuzz.merge.files import Log, write_log, write_reply
from tests.fuzz.merge.server import PIECES, Request, Sampling, Template, run
from tests.fuzz.session import Finding, Totals

SCHEMAS = (
    Template((b"{", b'"', b"name", b'"', b":", b'"', 4, b"}")),
    Template((b"{", b'"', b"name", b'"', b":", b'"', 6, b",", b'"', b"city", b'"', b":", b'"', 8, b"}")),
    Template((b"1", b",", b"2", b",", b"7")),
    Template((12,)),
    Template((b'"', 20)),
)
HEATS = (0.0, 0.3, 0.8, 1.0, 1.5)


class MergeFuzzer:
    """One case: 1 to 6 requests, of which some share prompt, schema and sampling, in one log."""

    def one(self, seed: int, totals: Totals) -> None:
        random = Random(seed)
        requests = _requests(random)
        log = write_log(requests, random)
        mine = random.choice(requests)
        reply, _ = write_reply(mine, random, is_own=log.is_own)
        options: dict[str, Any] = {}
        if random.random() < 0.2:
            options = {"request": mine.name} if log.is_own and random.random() < 0.5 else {"task": mine.task}
        elif random.random() < 0.1:
            options = {"task": random.choice(requests).task}
        elif random.random() < 0.2:
            options = {"most_recent": True}
        kind = "own" if log.is_own else "other"
        try:
            made = merge(
                read_response(reply),
                lambda: LogReader(io.BytesIO(log.text.encode("utf-8", "surrogatepass"))),
                **options,
            )
        except EspalierError as error:
            totals.counts[f"{kind}: {type(error).__name__}"] += 1
            is_read = not isinstance(error, ResponseError)
            if is_read and not log.is_own and _alone(log, mine) and options.get("task") in (None, mine.task):
                fault = f"a log of one task is refused: {error}"
                totals.findings.append(Finding(seed=seed, fault=fault, spec=(kind, log.damages, options), text=""))
            return
        assert made.link is not None
        totals.counts[f"{kind}: by {made.link.how}"] += 1
        totals.features.update(log.damages)
        for name, count in made.data["summary"].items():
            if name in ("rejected_steps", "accepted_steps", "unknown_steps"):
                totals.counts[f"{kind}: {name}"] += count
        claimed = options.get("task")
        if claimed is not None and claimed != mine.task:
            return  # what a person claims is taken where nothing contradicts it
        if made.link.is_weak:
            totals.counts[f"{kind}: weak and another's"] += bool(_fault(made, mine, log))
            fault = _fault_of_weak(made, mine, log, options)
        else:
            fault = _fault(made, mine, log)
        has_lost = log.silent and "proves rejections" in made.link.reason
        if not made.is_matched and not log.is_own and _alone(log, mine) and not has_lost:
            fault = f"a log of one task is not merged: {made.link}"
        if fault:
            totals.findings.append(Finding(seed=seed, fault=fault, spec=(kind, log.damages, options), text=reply[:0]))


def _requests(random: Random) -> list[Request]:
    found: list[Request] = []
    prompts = [random.getrandbits(32) for _ in range(random.choice((1, 2, 6)))]
    schemas = random.sample(SCHEMAS, random.choice((1, 1, 3)))
    slots = random.choice((1, 2, 4))
    free = [0] * slots
    task = random.choice((0, 0, 40))
    for number in range(random.randint(1, 6)):
        slot = random.randrange(slots)
        begin = free[slot]
        free[slot] = begin + random.choice((5, 7, 12))
        request = Request(
            name=f"req-{number}",
            prompt=random.choice(prompts),
            template=random.choice(schemas),
            sampling=Sampling(temperature=random.choice(HEATS), top_k=random.choice((3, len(PIECES)))),
            task=task,
            slot=slot,
            begin=begin,
        )
        task += random.choice((1, 1, 7))
        run(request, random, most=random.choice((4, 30, 40)))
        found.append(request)
    return found


def _alone(log: Log, mine: Request) -> bool:
    """Whether the log holds the reply's own task and no other."""
    return _tasks(log) == {mine.task}


def _tasks(log: Log) -> set[int]:
    return {event["task_id"] for event in LogReader(io.BytesIO(log.text.encode("utf-8", "surrogatepass")))}


def _fault_of_weak(made: CombinedTrace, mine: Request, log: Log, options: Mapping[str, Any]) -> str:
    """What breaks the rule of links that are marked as weak; "" if nothing."""
    assert made.link is not None
    tokens = [step.token for step in mine.steps]
    if made.link.how == "empty":
        return "" if not _tasks(log) else f"there are events, and none are seen ({made.link})"
    if made.link.how not in ("only", "recent") or (made.link.how == "recent" and "most_recent" not in options):
        return f"nobody asked for {made.link}"
    for event in LogReader(io.BytesIO(log.text.encode("utf-8", "surrogatepass"))):
        if made.link.key is None or event["task_id"] != made.link.key.task:
            continue
        taken, step = event.get("resampled"), event["step"]
        is_known = step < len(made.data["steps"]) and made.data["steps"][step]["token"]["id"] is not None
        if is_known and taken is not None and taken["id"] != tokens[step]:
            stated = made.data["steps"][step]["rejection_sampling"]["was_rejected"]
            if stated:
                return f"step {step} took {taken['id']}, and the reply has {tokens[step]} ({made.link})"
    return ""


def _fault(made: CombinedTrace, mine: Request, log: Log) -> str:
    """What the merge states and the server knows to be otherwise; "" if nothing."""
    steps = made.data["steps"]
    for place, one in enumerate(steps):
        sampled: Mapping[str, Any] = one["rejection_sampling"]
        stated = sampled["was_rejected"]
        if stated is None:
            continue
        if place >= len(mine.steps):
            return f"step {place} is none of the output's"
        truth = mine.steps[place]
        if stated and truth.rejected is None:
            return f"step {place} is said to have a rejection, and has none (by {made.link})"
        if stated and sampled["rejected"]["id"] != truth.rejected:
            return (
                f"step {place} is said to have rejected {sampled['rejected']['id']}, not {truth.rejected} ({made.link})"
            )
        if not stated and truth.rejected is not None and not log.silent:
            return f"step {place} is said to be accepted, and {truth.rejected} was rejected (by {made.link})"
    return ""
