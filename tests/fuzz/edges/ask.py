"""Asks one request through each edge, and gives what came back in one shape.

An edge that refuses gives the code of its error. Records are read when `how` says: at once, after the run, in another
thread, after a copy was made, or as the stream comes.
"""

from __future__ import annotations

import contextlib
import io
import json
import math
import pickle
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from copy import copy
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import espalier
from espalier.cli.main import main_code
from espalier.constraints.soft.spec import SoftJson
from espalier.engines.base import FinishEvent, Result, TokenEvent
from espalier.errors import EspalierError
from espalier.sampling.config import SamplingConfig
from espalier.sampling.config_names import LLAMA_SAMPLERS
from espalier.trace.recorders.protocol import RunInfo
from espalier.trace.records import StepRecord, Trace, TraceLevel
from tests.fuzz.edges.draw import Asked
from tests.server_app import events

Json = dict[str, Any]
READERS = ("after", "backwards", "thread", "threads", "pickle", "copy")


@dataclass(kw_only=True)
class Output:
    """One text. Fields that an edge does not give are None."""

    text: str | None = None
    content: str | None = None
    ids: list[int] | None = None
    finish: str | None = None
    steps: list[Json] | None = None
    summary: Json | None = None
    stop: Any = None
    seed: int | None = None
    valid: Any = None
    calls: list[Any] | None = None
    logprobs: list[Json] | None = None


Answer = list[Output] | str
"""The outputs, or the code of an error."""


def asked_of(make: Callable[[], Answer]) -> Answer:
    try:
        return make()
    except EspalierError as error:
        return f"error {error.code}"


class Eager:
    """A recorder; where there is one, each record is made at its step."""

    def __init__(self, level: TraceLevel) -> None:
        self.level: TraceLevel = level

    def begin(self, _info: RunInfo) -> Eager:
        return self

    def step(self, record: StepRecord) -> None:
        pass

    def end(self, trace: Trace | None) -> None:
        pass


def python(engine: espalier.LoadedEngine, asked: Asked, **more: Any) -> list[Result]:
    """The results of `generate`, further texts of a run after its first."""
    found = engine.generate(asked.prompt, **{"trace": asked.level, **asked.options(), **more})
    return list(found) if isinstance(found, list) else [found]


def flat(results: Sequence[Result]) -> list[Result]:
    return [one for result in results for one in (result, *result.others)]


def output_of(result: Result, how: str = "after") -> Output:
    """how: one of READERS."""
    return Output(
        text=result.text,
        content=result.content,
        ids=list(result.token_ids),
        finish=result.finish_reason,
        steps=read(result.records, how),
        summary=None if result.trace is None else result.trace.summary(),
        stop=result.stop_reason,
        seed=result.seed,
        valid=None if result.verdict is None else result.verdict.valid,
        calls=[(call.name, call.arguments) for call in result.tool_calls],
    )


def read(records: Sequence[StepRecord], how: str) -> list[Json]:
    if how == "backwards":
        return [one.to_json() for one in reversed(records)][::-1]
    if how == "thread":
        with ThreadPoolExecutor(1) as pool:
            return list(pool.map(StepRecord.to_json, records))
    if how == "threads":
        with ThreadPoolExecutor(3) as pool:
            found = list(pool.map(lambda _: [one.to_json() for one in records], range(3)))
        assert found[0] == found[1] == found[2], "threads read different records"
        return found[0]
    if how == "pickle":
        return [one.to_json() for one in pickle.loads(pickle.dumps(list(records)))]
    if how == "copy":
        return [copy(one).to_json() for one in records]
    return [one.to_json() for one in records]


def streamed(engine: espalier.LoadedEngine, asked: Asked, random: Random) -> list[Output]:
    """By `stream`; records are read as they come, every now and then, or at the end."""
    share = random.choice((0.0, 0.3, 1.0))
    texts: dict[int, str] = {}
    kept: dict[int, list[StepRecord]] = {}
    ids: dict[int, list[int]] = {}
    done: dict[int, Result] = {}
    with ThreadPoolExecutor(1) as pool:
        for event in engine.stream(asked.prompt, **{"trace": asked.level, **asked.options()}):
            texts[event.index] = texts.get(event.index, "") + event.text
            if isinstance(event, TokenEvent):
                ids.setdefault(event.index, []).append(event.token_id)
                if event.record is not None:
                    kept.setdefault(event.index, []).append(event.record)
                    if random.random() < share:
                        pool.submit(event.record.to_json).result() if random.random() < 0.5 else event.record.to_json()
            if isinstance(event, FinishEvent):
                done[event.index] = event.result
    found = []
    for index in sorted(done):
        first = output_of(done[index])
        assert texts[index] == first.text, f"streamed {texts[index]!r}, and the result is {first.text!r}"
        assert ids.get(index, []) == first.ids, f"streamed tokens {ids.get(index)} and not {first.ids}"
        if asked.level != "off":
            first.steps = read(kept.get(index, []), "after")
        found += [first, *(output_of(one) for one in done[index].others)]
    return found


def left(engine: espalier.LoadedEngine, asked: Asked, random: Random) -> list[list[Json]]:
    """The records of a stream that was closed after a few tokens, read after that."""
    kept: list[StepRecord] = []
    events = engine.stream(asked.prompt, **{"trace": asked.level, **asked.options()})
    for _, event in zip(range(random.randint(1, 12)), events, strict=False):
        if isinstance(event, TokenEvent) and event.index == 0 and event.record is not None:
            kept.append(event.record)
    events.close()  # type: ignore[attr-defined]  # a generator
    return [read(kept, "backwards")]


def body_of(asked: Asked) -> Json:
    """The body for both OpenAI routes."""
    config = SamplingConfig(**asked.sampling)
    found: Json = {
        "model": "fake",
        "return_token_ids": True,
        "temperature": config.temperature,
        "top_p": config.top_p,
        "top_k": config.top_k,
        "min_p": config.min_p,
        "n": config.n,
        "seed": config.seed,
        "max_tokens": config.max_tokens,
        "min_tokens": config.min_tokens,
        "repetition_penalty": config.repetition_penalty,
        "repeat_last_n": config.repetition_window,
        "frequency_penalty": config.frequency_penalty,
        "presence_penalty": config.presence_penalty,
        "typical_p": config.typical_p or 1.0,
        "top_n_sigma": config.top_n_sigma,
        "min_keep": config.min_keep,
        "xtc_probability": config.xtc_probability,
        "xtc_threshold": config.xtc_threshold,
        "dynatemp_range": config.dynatemp_range,
        "dynatemp_exponent": config.dynatemp_exponent,
        "dry_multiplier": config.dry_multiplier,
        "dry_base": config.dry_base,
        "dry_allowed_length": config.dry_allowed_length,
        "dry_penalty_last_n": config.dry_window,
        "samplers": [LLAMA_SAMPLERS[name] for name in config.sampler_order],
    }
    if config.mirostat:
        found |= {name: getattr(config, name) for name in ("mirostat", "mirostat_tau", "mirostat_eta")}
    if config.stop:
        found["stop"] = list(config.stop)
    if config.stop_ids:
        found["stop_token_ids"] = list(config.stop_ids)
    if config.bad_words:
        found["bad_words"] = list(config.bad_words)
    if config.logit_bias:
        found["logit_bias"] = {str(token): value for token, value in config.logit_bias}
    ours: Json = {name: list(v) if isinstance(v, tuple) else v for name, v in asked.decoding.items()}
    if asked.constraint is not None:
        ours["constraint"] = asked.constraint.to_json()
    if asked.is_soft:
        ours["soft"] = SoftJson().to_json()
    if asked.level != "off":
        ours["trace"] = "summary" if asked.level == "summary" else "steps"
    ours["formats"] = "annotate"  # as in Python
    found["espalier"] = ours
    if asked.tools is not None:
        found["tools"] = [
            {"type": "function", "function": {"name": name, "parameters": one}} for name, one in asked.tools.items()
        ]
        found["tool_choice"] = asked.tool_choice
    return found


def can_ask_http(asked: Asked) -> bool:
    """There, `trace_top_k` is the server's, a ban by `logit_bias` has no spelling, and llama.cpp's mirostat has neither
    penalties nor DRY beside it."""
    given = asked.sampling
    if asked.top_k != 10:
        return False
    if given.get("mirostat") and active(SamplingConfig(**given)):
        return False
    return not any(value == -math.inf for _, value in given.get("logit_bias", ()))


def active(config: SamplingConfig) -> list[str]:
    return [name for name in config.active if name in ("penalties", "dry")]


def http(client: Any, asked: Asked, random: Random) -> Answer:
    """By the route that the prompt is for, whole or as a stream, with log probabilities now and then."""
    body, top = body_of(asked), random.choice((None, None, 0, 3))
    stream, live = random.random() < 0.5, random.random() < 0.5
    if asked.raw:
        body |= {"prompt": asked.prompt, **({} if top is None else {"logprobs": top})}
    else:
        body["messages"] = [{"role": "user", "content": asked.prompt}]
        body |= {} if top is None else {"logprobs": True, "top_logprobs": top}
    if stream:
        body["stream"] = True
        if live and asked.level in ("steps", "full"):
            body["espalier"]["stream_steps"] = True
    reply = client.post("/v1/completions" if asked.raw else "/v1/chat/completions", json=body)
    if reply.status_code != 200:
        error = reply.json()["error"]
        return f"error {error['code']}" if reply.status_code < 500 else f"status {reply.status_code}: {error}"
    return _from_stream(reply.text, asked, body) if stream else _from_whole(reply.json(), asked)


def _from_whole(reply: Json, asked: Asked) -> Answer:
    found = []
    for choice, told in zip(reply["choices"], reply["espalier"]["outputs"], strict=True):
        one = _told(told)
        one.ids, one.finish = choice["token_ids"], choice["finish_reason"]
        if asked.raw:
            one.text = choice["text"]
            one.logprobs = _text_logprobs(choice["logprobs"])
        else:
            message = choice["message"]
            one.content = message["content"] or ""
            one.calls = [(c["function"]["name"], c["function"]["arguments"]) for c in message.get("tool_calls") or ()]
            one.logprobs = None if choice["logprobs"] is None else choice["logprobs"]["content"]
        found.append(one)
    return found


def _told(told: Json) -> Output:
    verdict = told["verdict"]
    return Output(
        steps=told["trace"]["steps"] if "trace" in told else None,
        summary=told.get("summary"),
        stop=told["stop_reason"],
        seed=told["seed"],
        valid=None if verdict is None else verdict["valid"],
    )


def _text_logprobs(found: Json | None) -> list[Json] | None:
    if found is None:
        return None
    return [{"logprob": one, "token": text} for one, text in zip(found["token_logprobs"], found["tokens"], strict=True)]


def _from_stream(text: str, asked: Asked, body: Json) -> Answer:
    data = events(text)
    assert data[-1] == "[DONE]" or '"error"' in data[-1], f"the stream ends with {data[-1]!r}"
    outputs: dict[int, Output] = {}
    for raw in data:
        if raw == "[DONE]":
            continue
        chunk = json.loads(raw)
        if "error" in chunk:
            return f"error {chunk['error']['code']}"
        for choice in chunk["choices"]:
            one = outputs.setdefault(choice["index"], Output(text="", content="", ids=[], calls=[]))
            _add(one, choice, asked)
        told = chunk.get("espalier", {})
        steps = told.get("steps", [])
        for step in steps if isinstance(steps, list) else [steps]:
            _add_steps(outputs, step)
        for report in told.get("outputs", ()):
            one, more = outputs[report["index"]], _told(report)
            one.summary, one.stop, one.seed, one.valid = more.summary, more.stop, more.seed, more.valid
            one.steps = one.steps if more.steps is None else more.steps
    found = [outputs[index] for index in sorted(outputs)]
    for one in found:
        one.text = one.text if asked.raw else None
        one.content = None if asked.raw else one.content
        if body["espalier"].get("stream_steps") and asked.level != "summary":
            one.steps = one.steps or []
    return found


def _add_steps(outputs: dict[int, Output], step: Json) -> None:
    one = outputs.setdefault(step["index"], Output(text="", content="", ids=[], calls=[]))
    one.steps = [*(one.steps or []), {name: value for name, value in step.items() if name != "index"}]


def _add(one: Output, choice: Json, asked: Asked) -> None:
    one.ids = [*(one.ids or []), *choice.get("token_ids", [])]
    one.finish = choice["finish_reason"] or one.finish
    found = choice.get("logprobs")
    if asked.raw:
        one.text = (one.text or "") + choice["text"]
        if found is not None:
            one.logprobs = [*(one.logprobs or []), *(_text_logprobs(found) or [])]
        return
    if found is not None:
        one.logprobs = [*(one.logprobs or []), *found["content"]]
    delta = choice["delta"]
    one.content = (one.content or "") + (delta.get("content") or "")
    calls = one.calls or []
    for call in delta.get("tool_calls", ()):
        while len(calls) <= call["index"]:
            calls.append(("", ""))
        name, arguments = calls[call["index"]]
        more = call["function"]
        calls[call["index"]] = (more.get("name") or name, arguments + more.get("arguments", ""))
    one.calls = calls


def can_ask_command(asked: Asked) -> bool:
    return asked.sampling.get("n", 1) == 1 and asked.tools is None and asked.top_k == 10 and not asked.is_soft


def command_line(asked: Asked, model: str, options: Sequence[str], folder: Path) -> Answer:
    """By `espalier generate --json`, with its trace in a file if one is kept."""
    config = SamplingConfig(**asked.sampling)
    flags = ["generate", "-m", model, *options, "--json"]
    for name, value in asked.sampling.items():
        if name == "logit_bias":
            value = [[token, None if bias == -math.inf else bias] for token, bias in value]
        flags += ["-o", f"{name}={json.dumps(value)}"]
    for name, value in asked.decoding.items():
        flags += [
            f"--{FLAGS.get(name, name).replace('_', '-')}",
            ",".join(value) if isinstance(value, tuple) else str(value),
        ]
    if asked.constraint is not None:
        path = folder / "constraint.json"
        path.write_text(json.dumps(asked.constraint.to_json()))
        flags += ["--constraint", str(path)]
    if asked.raw:
        flags.append("--raw")
    trace = folder / "trace.json"
    trace.unlink(missing_ok=True)
    flags += ["--trace-level", asked.level] + (["--trace", str(trace)] if asked.level in ("steps", "full") else [])
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main_code([*flags, "--", asked.prompt])
    assert config.n == 1
    if not out.getvalue():
        return f"error {code} {err.getvalue()}"
    data = json.loads(out.getvalue())
    kept = Trace.load(trace) if trace.exists() else None
    found = []
    for one in (data, *data.get("others", ())):
        verdict = one["verdict"]
        found.append(
            Output(
                text=one["text"],
                content=one["content"],
                finish=one["finish_reason"],
                stop=one["stop_reason"],
                seed=one["seed"],
                summary=one["trace"],
                valid=None if verdict is None else verdict["valid"],
            )
        )
    if kept is not None:
        found[0].steps = [step.to_json() for step in kept.steps]
        found[0].ids = [step.token_id for step in kept.steps]
    return found


FLAGS = {"drafts": "draft"}


@contextlib.contextmanager
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="fuzz-edges-") as found:
        yield Path(found)


def saved(trace: Trace, where: Path) -> Trace:
    """The trace, saved and loaded."""
    path = where / "saved.json"
    trace.save(path)
    return Trace.load(path)
