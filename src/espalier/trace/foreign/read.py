"""Read any file about a generation as a Trace: our own, the combined form, a rejection log, a reply, a grammar trace.

Missing values of the others are not made up: such steps have exactness `bounded`, and bounds on the removed mass.
The kind of a file is detected from its content. The steps are read by `steps.py`.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, BinaryIO, Literal, NamedTuple

from espalier.errors import InputError
from espalier.files.json_shape import check_shape
from espalier.files.limits import LOG, REPLY
from espalier.files.reading import open_file, read_within
from espalier.trace.foreign.estimate import Estimate, estimates
from espalier.trace.foreign.grammar_trace import grammar_trace
from espalier.trace.foreign.log_reader import LogReader
from espalier.trace.foreign.matching import MatchError
from espalier.trace.foreign.placing import placed
from espalier.trace.foreign.responses import Response, ResponseError, read_response, response_of
from espalier.trace.foreign.steps import of_combined, of_event, of_reply, text_of
from espalier.trace.foreign.tasks import TaskKey, Tasks, named_tasks
from espalier.trace.records import StepRecord, Trace, with_sidecar
from espalier.trace.records import trace_of as trace_of_json

Kind = Literal["trace", "combined", "log", "response", "grammar"]
KIND_NAMES: Mapping[Kind, str] = {
    "trace": "trace",
    "combined": "merged",
    "log": "rejection log",
    "response": "reply",
    "grammar": "grammar trace",
}
HEAD = 4096

ANY_KIND = replace(LOG, noun="file", field="trace")
"""Until the file is read, it is not known which kind it is; logs are the largest."""
_LOG = re.compile(rb'\s*\{(?:\s*"(?:log_version|timestamp)"\s*:\s*"[^"\\]*"\s*,)*\s*"events"\s*:\s*\[')
_LOG_FIELD = re.compile(rb'\s*\{\s*"log_version"\s*:')
_BOM = b"\xef\xbb\xbf"
_HINT = "known are: traces (Trace.save), `espalier trace merge`, rejection logs, replies of OpenAI-compatible servers"


class FormatError(InputError):
    """This file does not describe a generation."""


class ForeignTrace(NamedTuple):
    """kind: the detected kind of file. notes: messages for a person."""

    trace: Trace
    kind: Kind
    notes: tuple[str, ...] = ()


def read_any(path: str | os.PathLike[str], **options: Any) -> Trace:
    """The trace of any file that `read` accepts; same arguments and errors."""
    return read(path, **options).trace


def read(
    path: str | os.PathLike[str],
    *,
    choice: int = 0,
    task: int | None = None,
    slot: int | None = None,
    request: str | None = None,
    temperature: float | None = None,
) -> ForeignTrace:
    """choice: index in a reply. task, slot, request: ids in a rejection log. temperature: the request's, for a
    reply that does not state it.

    Raises FormatError saying what the file looks like, InputError for an option of another kind of file, MatchError for
    a log of several tasks if none was chosen, ResponseError, LogError and InputError for a file that is damaged or
    cannot be read.
    """
    with open_file(path, ANY_KIND) as file:  # once: a pipe gives its content once
        head = file.read(HEAD).removeprefix(_BOM)
        file.seek(0)
        if _LOG.match(head) or _LOG_FIELD.match(head):
            _check("log", choice=choice or None, task=task, slot=slot, request=request, temperature=temperature)
            return _of_log(file, path, task=task, slot=slot, request=request)
        data = _data(path, read_within(file, REPLY, os.fspath(path)))
        file.seek(0)
        if (kind := kind_of(data, path)) == "log":
            _check(kind, choice=choice or None, task=task, slot=slot, request=request, temperature=temperature)
            return _of_log(file, path, task=task, slot=slot, request=request)
    _check(kind, choice=choice or None, task=task, slot=slot, request=request, temperature=temperature)
    if kind == "trace":
        return ForeignTrace(with_sidecar(trace_of_json(data, os.fspath(path)), path), kind)
    if kind == "grammar":
        return ForeignTrace(
            grammar_trace(data), kind, ("probabilities are made of the logits of the listed candidates",)
        )
    if kind == "combined":
        return ForeignTrace(trace_of_combined(data, path), kind, ("what the model wanted is known within bounds only",))
    reply = data if isinstance(data, Response) else response_of(data)
    trace, notes = trace_of(reply, choice=choice, temperature=temperature)
    return ForeignTrace(trace, "response", notes)


def _check(kind: Kind, **options: float | str | None) -> None:
    """Raises InputError for an option of another kind of file, so that no option is silently ignored."""
    for name, value in options.items():
        needs: Kind = "log" if name in ("task", "slot", "request") else "response"
        if value is not None and kind != needs:
            raise InputError(f"{name} is for a {KIND_NAMES[needs]}, and this is a {KIND_NAMES[kind]} file", field=name)


def kind_of(data: Any, path: str | os.PathLike[str]) -> Kind:
    """The kind of parsed JSON. Raises FormatError saying what it looks like."""
    if isinstance(data, Response):
        return "response"
    if not isinstance(data, Mapping):
        raise _unknown(path, "a JSON list" if isinstance(data, list) else "one JSON value")
    if data.get("format") == "espalier-trace":
        return "trace"
    if isinstance(data.get("steps"), list) and isinstance(data.get("metadata"), Mapping):
        return "combined"
    if "trace_version" in data:
        return "grammar"
    if isinstance(data.get("events"), list):
        return "log"
    if {"choices", "content", "completion_probabilities", "error"} & data.keys():
        return "response"
    if {"text", "usage", "finish_reason"} <= data.keys():
        raise _unknown(path, "a result of `espalier generate --json`, which holds no steps: use --trace FILE")
    if {"$schema", "properties", "$defs"} & data.keys():
        raise _unknown(path, "a JSON Schema")
    names = ", ".join(repr(str(name)[:30]) for name in list(data)[:5])
    raise _unknown(path, f"a JSON object with {names}" if names else "an empty JSON object")


def trace_of(response: Response, *, choice: int = 0, temperature: float | None = None) -> tuple[Trace, tuple[str, ...]]:
    """The trace of a reply alone, with estimated rejections, and messages about it. Raises ResponseError if the reply
    has no log probabilities."""
    chosen = response.choice(choice)
    reported = placed(chosen).steps
    notes: tuple[str, ...]
    estimated: Sequence[Estimate | None]
    if any(step.after for step in reported):
        estimated, notes = [None] * len(reported), ("probabilities after sampling show nothing of what was refused",)
    else:
        estimated = estimates(response, reported, temperature=temperature)
        unknown = sum(estimate is not None and estimate.verdict == "unknown" for estimate in estimated)
        notes = ("rejections are estimated from the reply alone",)
        if unknown:
            notes += (f"of {unknown} of {len(reported)} steps it cannot be told whether a token was rejected",)
    steps = tuple(of_reply(position, *pair) for position, pair in enumerate(zip(reported, estimated, strict=True)))
    grammar = response.settings.get("grammar")
    trace = Trace(
        steps=steps,
        text=text_of(steps),
        finish_reason=chosen.finish_reason or "unknown",
        model=response.model,
        prompt=response.prompt,
        constraint={"kind": "gbnf", "grammar": grammar} if isinstance(grammar, str) and grammar else None,
        sampling={name: value for name, value in response.settings.items() if _is_plain(name, value)},
        strategy="rejection",
        decoding={"read_from": KIND_NAMES["response"], "estimated": True},
    )
    return trace, notes


def _is_plain(name: str, value: Any) -> bool:
    """Whether a setting has one short value; the grammar is shown separately, and the rest is internal to the
    server."""
    return isinstance(value, str | int | float) and name != "grammar" and len(str(value)) <= 200


def trace_of_combined(data: Mapping[str, Any], path: str | os.PathLike[str]) -> Trace:
    """The trace of a combined form; one that the proxy wrote holds its own. Raises ResponseError, InputError."""
    if isinstance(data.get("espalier"), Mapping):
        return trace_of_json(data["espalier"], os.fspath(path))
    metadata = data["metadata"]
    after = metadata.get("post_sampling_probs") is True
    steps = tuple(
        of_combined(position, step, after=after, path=os.fspath(path)) for position, step in enumerate(data["steps"])
    )
    origin = {
        name: metadata[name]
        for name in ("request_id", "created", "timestamp", "rejection_log_version", "rejection_log_timestamp")
        if isinstance(metadata.get(name), str | int)
    }
    return Trace(
        steps=steps,
        text=text_of(steps),
        finish_reason="unknown",
        model=str(metadata.get("model") or ""),
        strategy="rejection",
        decoding={"read_from": KIND_NAMES["combined"], "estimated": metadata.get("estimated") is True, **origin},
    )


def _of_log(
    file: BinaryIO, path: str | os.PathLike[str], *, task: int | None, slot: int | None, request: str | None
) -> ForeignTrace:
    """The trace of one task of a log: only the steps at which a token was refused."""
    keys: dict[TaskKey, int] = {}
    tasks = Tasks()
    for event in LogReader(file):
        key = tasks.key(event)
        if key is None:
            continue
        if task in (None, key.task) and slot in (None, key.slot) and request in (None, key.request):
            keys[key] = keys.get(key, 0) + 1
    if not keys:
        which = "" if task is None and slot is None and request is None else " of that task, slot or request"
        raise FormatError(f"the log {os.fspath(path)!r} has no events{which}", field="task" if which else None)
    if len(keys) > 1:
        raise MatchError(
            f"the log holds {len(keys)} tasks: {named_tasks(keys)}",
            hint="say which with --task, --slot or --request, or merge it with the reply of one",
            field="task",
        )
    (chosen,) = keys
    tasks = Tasks()
    file.seek(0)
    records = [of_event(event) for event in LogReader(file) if tasks.key(event) == chosen]
    steps = tuple(sorted(records, key=lambda step: step.step))
    trace = Trace(
        steps=steps,
        text=_with_gaps(steps),
        finish_reason="unknown",
        strategy="rejection",
        decoding={"read_from": KIND_NAMES["log"], "task": chosen.task, "slot": chosen.slot},
    )
    return ForeignTrace(trace, "log", (f"{chosen}: a log holds only the steps at which a token was rejected",))


def has_gaps(trace: Trace) -> bool:
    """Whether tokens are missing between the steps, as in a rejection log: runs of tokens are then unknown."""
    return any(step.step != position for position, step in enumerate(trace.steps))


def _with_gaps(steps: Iterable[StepRecord]) -> str:
    parts: list[str] = []
    last = -1
    for step in steps:
        parts += ["…"] if step.step != last + 1 else []
        parts.append(step.text)
        last = step.step
    return "".join(parts)


def _data(path: str | os.PathLike[str], content: bytes) -> Any:
    """Parsed JSON, or the Response of a recorded stream."""
    text = content.removeprefix(_BOM).lstrip()
    if not text:
        raise _unknown(path, "an empty file")
    if text[:1] not in (b"{", b"["):
        if re.match(rb"(?:data|event|id|retry)?:", text):
            return read_response(content)
        raise _unknown(
            path, "an HTML page" if text[:1] == b"<" else "a GGUF model" if text[:4] == b"GGUF" else "no JSON"
        )
    check_shape(text, REPLY, os.fspath(path))
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        if text.startswith(b"{") and b'"end":' in text.partition(b"\n")[2]:
            raise _unknown(path, "lines of JSON, as JsonLinesRecorder writes them") from error
        raise ResponseError(f"{os.fspath(path)!r} is no whole JSON: {error}") from error


def _unknown(path: str | os.PathLike[str], looks: str) -> FormatError:
    return FormatError(f"{os.fspath(path)!r} tells of no generation: it looks like {looks}", hint=_HINT, field="path")
