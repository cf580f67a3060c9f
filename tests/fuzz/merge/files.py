"""The files of a fuzzed server: its log in either format, damaged, and the reply to one request in one of its
shapes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from random import Random
from typing import Any

from tests.fuzz.merge.server import END, SECONDS, Request, entries_of, event_of, text_of

START = 1_800_000_000
"""Unix seconds."""


@dataclass(slots=True, kw_only=True)
class Log:
    """is_own: in Espalier's format, with names and numbers. silent: whether events were lost that such a log would have
    shown to be lost, but this one does not."""

    text: str
    is_own: bool
    is_closed: bool = True
    silent: bool = False
    damages: list[str] = field(default_factory=list)


def write_log(requests: Sequence[Request], random: Random) -> Log:
    """The log of a server, perhaps damaged."""
    is_own = random.random() < 0.5
    candidates = random.choice((0, 3, 10))
    log = Log(text="", is_own=is_own)
    rows = _in_order([rows_of(one, candidates=candidates, is_own=is_own) for one in requests], random)
    begun = START - 60
    damage = random.choice(("none", "none", "cut", "task", "drop", "twice", "rotate", "open", "null"))
    twins = len({one.prompt for one in requests}) < len(requests)
    if damage in ("task", "drop") and not is_own and twins:
        damage = "none"  # without numbers such a log cannot be told from an honest one
    log.damages.append(damage)
    if damage == "task":
        lost = random.choice(requests).task
        rows = [one for one in rows if one["task_id"] != lost]
        log.silent = not is_own
    elif damage == "drop":
        rows = [one for one in rows if random.random() < 0.7]
        log.silent = not is_own
    elif damage == "twice":
        rows = [one for one in rows for _ in range(1 + (random.random() < 0.3))]
    elif damage == "null":
        rows = [{**one, "resampled": None} if "step" in one and random.random() < 0.5 else one for one in rows]
    elif damage == "rotate" and rows:
        at = random.randrange(len(rows))
        begun = rows[at]["time"] + (0 if is_own else 2)
        rows = rows[at:]
    head = datetime.fromtimestamp(begun, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    version = "espalier-1" if is_own else "2"
    whole = f'{{"log_version":"{version}","timestamp":"{head}","events":[' + written(rows)
    if damage == "open":
        whole = whole.rpartition("]")[0].rstrip() + random.choice(("", ","))
    elif damage == "cut":
        whole = whole[: random.randrange(min(len(whole) - 1, 60), len(whole))]
    log.is_closed = damage not in ("open", "cut")
    if damage == "cut" and not is_own and whole.rstrip().endswith(("}", "},", "[")):
        log.silent = True  # cut between two events, such a log is like one that is still being written
    log.text = whole
    return log


def rows_of(request: Request, *, candidates: int, is_own: bool) -> list[dict[str, Any]]:
    """Its events, and in a log of Espalier the note of its end; each with the time."""
    found: list[dict[str, Any]] = []
    named = {"request_id": request.name} if is_own else {}
    for place, step in enumerate(request.steps):
        if step.rejected is not None:
            number = {"number": len(found)} if is_own else {}
            time = START + request.begin + place * SECONDS // len(request.steps)
            found.append({**event_of(request, place, candidates=candidates), **named, **number, "time": time})
    if is_own:
        note = {"task_id": request.task, "slot_id": request.slot, **named, "steps": len(request.steps)}
        found.append({**note, "events": len(found), "time": START + request.begin + SECONDS})
    return found


def _in_order(lists: list[list[dict[str, Any]]], random: Random) -> list[dict[str, Any]]:
    """All rows by time, those of one second in any order that keeps each request's own."""
    marked = [(row["time"], random.random(), i, row) for i, rows in enumerate(lists) for row in rows]
    order = sorted(marked, key=lambda one: one[:2])
    left = {i: iter(rows) for i, rows in enumerate(lists)}
    return [next(left[i]) for _, _, i, _ in order]


def written(rows: Sequence[dict[str, Any]]) -> str:
    """Events, each with the notes since the last one, and the notes after the last event."""
    events, notes = [], []
    for row in rows:
        plain = {name: value for name, value in row.items() if name != "time"}
        if "step" in row:
            events.append(plain | ({"ended": notes} if notes else {}))
            notes = []
        else:
            notes.append(plain)
    text = ",\n".join(json.dumps(one) for one in events).replace("-Infinity", "-inf")
    return text + "\n]" + (f',"ended":{json.dumps(notes)}' if notes else "") + "}\n"


def write_reply(request: Request, random: Random, *, is_own: bool) -> tuple[str, int]:
    """The reply to a request as text, and how many of its tokens it tells of."""
    leaves_out = not is_own and random.random() < 0.5
    with_ids = random.random() < 0.8
    entries = entries_of(request, top=random.choice((0, 1, 5, 40)), leaves_out=leaves_out, with_ids=with_ids)
    tokens = [one.token for one in request.steps]
    has_end = tokens[-1] == END
    text = "".join(one["token"] for one in entries)
    created = START + request.begin + (0 if is_own else SECONDS)
    timings = {"prompt_ms": 0.0, "predicted_ms": 1000.0 * SECONDS}
    settings = {
        "temperature": request.sampling.temperature,
        "top_k": request.sampling.top_k,
        "grammar": "root ::= x",
        "samplers": ["top_k", "temperature"],
    }
    named = {"request_id": request.name} if is_own and random.random() < 0.8 else {}
    if has_end and entries and (named or random.random() < 0.3):
        entries = entries[:-1]  # no entry for the token that ends the text
    if not is_own and random.random() < 0.3:
        native = {
            "content": text,
            "tokens": tokens if random.random() < 0.5 else [],
            "id_slot": request.slot,
            "tokens_predicted": len(tokens),
            "generation_settings": settings,
            "stop": True,
            "timings": timings,
            "stop_type": "eos" if has_end else "limit",
            "completion_probabilities": entries,
            "created": created,
        }
        return json.dumps(native), len(tokens)
    head = {"id": f"chatcmpl-{request.name}", "model": "m", "created": created, **named}
    if random.random() < 0.3:
        return _streamed(head, entries, request, random), len(tokens)
    choice: dict[str, Any] = {
        "index": 0,
        "message": {"role": "assistant", "content": text},
        "finish_reason": request.finish,
        "logprobs": {"content": entries},
    }
    more: dict[str, Any] = {"timings": timings} if not is_own else {}
    if random.random() < 0.8:
        more["usage"] = {"completion_tokens": len(tokens), "prompt_tokens": 3}
    if is_own and random.random() < 0.5:
        choice["token_ids"] = tokens
    if not is_own and random.random() < 0.4:
        more["__verbose"] = {
            "id_slot": request.slot,
            "generation_settings": settings,
            "tokens": tokens if random.random() < 0.5 else [],
        }
    return json.dumps({**head, "choices": [choice], **more}), len(tokens)


def _streamed(head: dict[str, Any], entries: Sequence[dict[str, Any]], request: Request, random: Random) -> str:
    lines = []
    for one in entries:
        choice = {"index": 0, "delta": {"content": one["token"]}, "logprobs": {"content": [one]}}
        lines.append({**head, "choices": [choice]})
    lines.append({**head, "choices": [{"index": 0, "delta": {}, "finish_reason": request.finish}]})
    if random.random() < 0.5:
        lines.append({**head, "choices": [], "usage": {"completion_tokens": len(request.steps)}})
    text = "".join(f"data: {json.dumps(one)}\n\n" for one in lines) + "data: [DONE]\n\n"
    if random.random() < 0.3 and len(lines) > 2:  # a recording that ends early
        text = text[: random.randrange(len(lines[0]), len(text))] if random.random() < 0.5 else text
    return text


def words_of(request: Request) -> str:
    return "".join(text_of(one.token) for one in request.steps)
