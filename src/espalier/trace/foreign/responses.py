"""Read replies of OpenAI-compatible servers: the generated text with its log probabilities.

Supported: chat completions and completions, as one JSON object or as a recorded event stream, and llama-server's own
route. Values are taken as they are. This module knows neither rejection logs nor what may be concluded from the values.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from espalier.errors import InputError
from espalier.files.json_shape import check_shape
from espalier.files.limits import REPLY
from espalier.json_record.declaration import LARGEST

MOST_TOKENS = 1 << 20
"""No output has more: a larger count is not believed."""
_LINE_END = re.compile(r"\r\n|\n|\r")
"""Line ends of an event stream; Python's `splitlines` would also split at U+2028, which may occur within a text."""


class ResponseError(InputError):
    """This is not a completion reply."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiStep:
    """One generated token in a reply. id: None if the server gives none. logprob: ln of its probability, None if not
    finite. top: the listed candidates, unchanged. after: whether the probabilities are those after grammar and samplers
    (`post_sampling_probs`), which do not show what the model wanted. is_missing: whether the reply has no entry for
    this token."""

    id: int | None
    text: str
    bytes: tuple[int, ...] | None
    logprob: float | None
    top: tuple[Mapping[str, Any], ...]
    after: bool = False
    is_missing: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiChoice:
    """One output. steps: None if the reply has no probabilities. text: the content. tokens: the ids of all its tokens;
    None if the reply does not list them. total: how many tokens it has; None if the reply does not say. has_all:
    whether its server gives an entry for every token but those that end the text. is_finished: whether the output came
    to its end; not of a recording that was cut. has_text: whether `reasoning` and `text` are all that was generated;
    not with tool calls."""

    index: int
    text: str
    reasoning: str
    finish_reason: str | None
    steps: tuple[ApiStep, ...] | None
    tokens: tuple[int, ...] | None = None
    total: int | None = None
    has_all: bool = False
    is_finished: bool = True
    has_text: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    """One reply. seconds: how long it took, 0 if it does not say. slot, task: llama-server's, if given. settings:
    `generation_settings`, empty if not given. request: the name under which the server logged it, if given."""

    request_id: str
    model: str
    created: int
    choices: tuple[ApiChoice, ...]
    seconds: float = 0.0
    slot: int | None = None
    task: int | None = None
    request: str | None = None
    prompt: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)

    def choice(self, index: int = 0, *, is_bare: bool = False) -> ApiChoice:
        """is_bare: whether one without log probabilities will do. Raises ResponseError if the choice does not exist or
        has none."""
        for choice in self.choices:
            if choice.index == index:
                if choice.steps is None and not is_bare:
                    raise ResponseError(
                        f"choice {index} of the response has no log probabilities",
                        hint='ask for them: "logprobs": true, "top_logprobs": 10',
                        field="logprobs",
                    )
                return choice
        known = ", ".join(str(choice.index) for choice in self.choices)
        raise ResponseError(f"the response has no choice {index}", hint=f"it has: {known or 'none'}", field="choice")

    @property
    def temperature(self) -> float | None:
        """None if the reply does not tell."""
        return finite(self.settings.get("temperature"))


def read_response(text: str | bytes) -> Response:
    """Parse a reply as received: a JSON object, or the lines of a stream (`data: {...}`).

    A byte order mark is ignored. Raises ResponseError saying what is wrong.
    """
    read = _decode_utf8(text).removeprefix("\ufeff")
    if not read.strip():
        raise ResponseError("the response is empty")
    if read.lstrip()[0] in "{[":
        return response_of(_load_json(read, "the response"))
    return _join_stream(_events(read))


def _decode_utf8(text: str | bytes) -> str:
    """Decode UTF-8; half a character at the end of a recording is left out."""
    if isinstance(text, str):
        return text
    try:
        return text.decode("utf-8")
    except UnicodeDecodeError as error:
        if error.end == len(text) and error.reason == "unexpected end of data":
            return text[: error.start].decode("utf-8")
        raise ResponseError(f"the response is not UTF-8 at byte {error.start}") from error


def response_of(data: Any) -> Response:
    """The reply in one JSON object, or llama-server's list of one for each output. Raises ResponseError."""
    if isinstance(data, list) and data and all(isinstance(reply, Mapping) and "content" in reply for reply in data):
        return _build_response(data[0], [_native(reply, position) for position, reply in enumerate(data)], data[0])
    if not isinstance(data, Mapping):
        raise ResponseError(f"the response is no object but {_kind(data)}")
    if data.get("error") is not None and not data.get("choices"):
        error = data["error"]
        message = error.get("message") if isinstance(error, Mapping) else error
        raise ResponseError(f"the response is an error: {str(message)[:200]}")
    verbose = data.get("__verbose")
    verbose = verbose if isinstance(verbose, Mapping) else {}
    if "choices" not in data:
        if "content" not in data and "completion_probabilities" not in data:
            raise ResponseError("the response has no choices", hint="it is no reply of a completion")
        return _build_response(data, [_native(data)], data)
    choices = data["choices"]
    if not isinstance(choices, Sequence) or isinstance(choices, str) or not choices:
        raise ResponseError("the response has no choices", field="choices")
    parsed = []
    for position, choice in enumerate(choices):
        if not isinstance(choice, Mapping):
            raise ResponseError(f"choices[{position}] is no object but {_kind(choice)}")
        parsed.append(_choice(choice, position, verbose if len(choices) == 1 else {}))
    if len(parsed) == 1:
        parsed = [replace(parsed[0], total=_total(data, verbose))]
    return _build_response(data, parsed, verbose)


def _total(data: Mapping[str, Any], verbose: Mapping[str, Any]) -> int | None:
    """How many tokens the only output of a reply has."""
    usage, timings = data.get("usage"), data.get("timings")
    counts = (
        verbose.get("tokens_predicted"),
        usage.get("completion_tokens") if isinstance(usage, Mapping) else None,
        timings.get("predicted_n") if isinstance(timings, Mapping) else None,
    )
    return next((count for count in map(whole, counts) if count is not None and 0 <= count <= MOST_TOKENS), None)


def _build_response(data: Mapping[str, Any], choices: Iterable[ApiChoice], verbose: Mapping[str, Any]) -> Response:
    settings = verbose.get("generation_settings")
    slot, created = whole(verbose.get("id_slot")), data.get("created")
    request = _name(data.get("request_id")) or _name(verbose.get("request_id")) or None
    return Response(
        request_id=str(data.get("id") or "unknown"),
        model=str(data.get("model") or "unknown"),
        created=created if isinstance(created, int) else 0,
        seconds=_seconds(data.get("timings")),
        choices=tuple(choices if request is None else (replace(choice, has_all=True) for choice in choices)),
        slot=slot if slot is not None and slot >= 0 else None,
        task=whole(data.get("task_id", verbose.get("task_id"))),
        request=request,
        prompt=verbose["prompt"] if isinstance(verbose.get("prompt"), str) else "",
        settings=settings if isinstance(settings, Mapping) else {},
    )


def _seconds(timings: Any) -> float:
    parts = ("prompt_ms", "predicted_ms")
    return (
        sum(max(0.0, finite(timings.get(name)) or 0.0) for name in parts) / 1000
        if isinstance(timings, Mapping)
        else 0.0
    )


def _choice(data: Mapping[str, Any], position: int, verbose: Mapping[str, Any]) -> ApiChoice:
    message = data.get("message")
    message = message if isinstance(message, Mapping) else {}
    index = data.get("index")
    steps = _steps(data.get("logprobs"), f"choices[{position}].logprobs")
    if steps is None:  # from a server with --verbose, which sends it twice
        steps = _steps(verbose.get("completion_probabilities"), "__verbose.completion_probabilities")
    return ApiChoice(
        index=index if isinstance(index, int) else position,
        text=_text(message.get("content", data.get("text"))),
        reasoning=_text(message.get("reasoning_content")),
        finish_reason=_name(data.get("finish_reason")),
        steps=steps,
        tokens=_ids(data.get("token_ids")) or _ids(verbose.get("tokens")),
        is_finished="delta" not in data or data.get("finish_reason") is not None,
        has_text=not message.get("tool_calls"),
    )


def _native(data: Mapping[str, Any], position: int = 0) -> ApiChoice:
    """A reply of llama-server's own route."""
    stopped, index = data.get("stop_type"), whole(data.get("index"))
    return ApiChoice(
        index=position if index is None else index,
        text=_text(data.get("content")),
        reasoning="",
        finish_reason=None if stopped is None else "length" if stopped == "limit" else "stop",
        steps=_steps(data.get("completion_probabilities"), "completion_probabilities"),
        tokens=_ids(data.get("tokens")),
        total=_total(data, data),
        is_finished=data.get("stop") is not False,
    )


def _steps(data: Any, where: str) -> tuple[ApiStep, ...] | None:
    if data is None:
        return None
    if isinstance(data, Mapping):
        if "tokens" in data:
            return _old(data, where)
        data = data.get("content")
        if data is None:
            return None
    if not isinstance(data, Sequence) or isinstance(data, str):
        raise ResponseError(f"{where} is no list but {_kind(data)}")
    return tuple(step_of(step, f"{where}[{position}]") for position, step in enumerate(data))


def step_of(data: Any, where: str) -> ApiStep:
    """One entry of the token list, in any of llama-server's formats. Raises ResponseError naming `where`."""
    if not isinstance(data, Mapping):
        raise ResponseError(f"{where} is no object but {_kind(data)}")
    after = "logprob" not in data and "prob" in data
    logprob = _ln(data.get("prob")) if after else data.get("logprob")
    top = data.get("top_probs" if after else "top_logprobs")
    token = data.get("id")
    spelled = data.get("bytes")
    return ApiStep(
        id=whole(token),
        text=_text(data.get("token")),
        bytes=spelled_bytes(spelled),
        logprob=finite(logprob),
        top=tuple(candidate for candidate in top if isinstance(candidate, Mapping))
        if isinstance(top, Sequence)
        else (),
        after=after,
    )


def _old(data: Mapping[str, Any], where: str) -> tuple[ApiStep, ...]:
    """The oldest format of OpenAI's completions: parallel lists."""
    tokens = data["tokens"]
    logprobs, top = (data.get(name) or [] for name in ("token_logprobs", "top_logprobs"))
    for name, values in (("tokens", tokens), ("token_logprobs", logprobs), ("top_logprobs", top)):
        if not isinstance(values, list):
            raise ResponseError(f"{where}.{name} is no list but {_kind(values)}")
    steps = []
    for position, text in enumerate(tokens):
        near = top[position] if position < len(top) and isinstance(top[position], Mapping) else {}
        steps.append(
            ApiStep(
                id=None,
                text=_text(text),
                bytes=None,
                logprob=finite(logprobs[position] if position < len(logprobs) else None),
                top=tuple({"token": token, "logprob": value} for token, value in near.items()),
            )
        )
    return tuple(steps)


# A recorded stream


@dataclass(slots=True)
class _PartialChoice:
    """A choice while its stream is being read."""

    text: list[str] = field(default_factory=list)
    reasoning: list[str] = field(default_factory=list)
    finish: str | None = None
    steps: list[ApiStep] | None = None
    tokens: list[int] = field(default_factory=list)
    has_calls: bool = False


def _events(text: str) -> Iterator[Mapping[str, Any]]:
    """The objects of the `data:` lines; comments, other fields and the end mark are skipped. A truncated last line is
    left out."""
    lines = _LINE_END.split(text)
    seen = False
    for index, line in enumerate(lines):
        name, colon, value = line.partition(":")
        if not colon or name.strip() != "data":
            continue
        seen = True
        value = value.strip()
        if not value or value == "[DONE]":
            continue
        try:
            check_shape(value, REPLY, f"line {index + 1}")
            event = json.loads(value)
        except (ValueError, RecursionError) as error:
            if index == len(lines) - 1:
                return
            raise ResponseError(f"line {index + 1} of the stream is no JSON: {error}") from error
        if isinstance(event, Mapping):
            yield event
    if not seen:
        raise ResponseError("this is neither a JSON object nor a recorded stream", hint="lines begin with `data: `")


def _join_stream(events: Iterable[Mapping[str, Any]]) -> Response:
    first: Mapping[str, Any] = {}
    verbose: Mapping[str, Any] = {}
    counts: dict[str, Any] = {}
    partial: dict[int, _PartialChoice] = {}
    for event in events:
        if event.get("error") is not None:
            return response_of(event)
        first = first or event
        counts |= {name: event[name] for name in ("usage", "timings", "request_id") if event.get(name) is not None}
        extra = event.get("__verbose", event if "generation_settings" in event else None)
        verbose = extra if isinstance(extra, Mapping) else verbose
        choices = event.get("choices")
        if choices is None and ("content" in event or "completion_probabilities" in event):
            native = partial.setdefault(whole(event.get("index")) or 0, _PartialChoice())
            native.text.append(_text(event.get("content")))
            _extend(native, event.get("completion_probabilities"), "completion_probabilities")
            native.tokens += _ids(event.get("tokens")) or ()
            native.finish = _native(event).finish_reason if event.get("stop") else native.finish
        for choice in choices if isinstance(choices, list) else ():
            if not isinstance(choice, Mapping):
                raise ResponseError(f"a choice of the stream is no object but {_kind(choice)}")
            delta, index = choice.get("delta"), choice.get("index")
            delta = delta if isinstance(delta, Mapping) else {}
            mine = partial.setdefault(index if isinstance(index, int) else 0, _PartialChoice())
            mine.text.append(_text(delta.get("content", choice.get("text"))))
            mine.reasoning.append(_text(delta.get("reasoning_content")))
            mine.has_calls = mine.has_calls or bool(delta.get("tool_calls"))
            mine.finish = _name(choice.get("finish_reason")) or mine.finish
            _extend(mine, choice.get("logprobs"), "logprobs")
            mine.tokens += _ids(choice.get("token_ids")) or ()
    if not partial:
        raise ResponseError("the stream holds no choice")
    total = _total(counts, verbose) if len(partial) == 1 else None
    choices_ = [
        ApiChoice(
            index=index,
            text="".join(part.text),
            reasoning="".join(part.reasoning),
            finish_reason=part.finish,
            steps=None if part.steps is None else tuple(part.steps),
            tokens=tuple(part.tokens) or None,
            total=total,
            is_finished=part.finish is not None,
            has_text=not part.has_calls,
        )
        for index, part in sorted(partial.items())
    ]
    return _build_response({**counts, **first}, choices_, verbose)


def _extend(mine: _PartialChoice, data: Any, where: str) -> None:
    steps = _steps(data, where)
    if steps is not None:
        mine.steps = [*(mine.steps or ()), *steps]


# Values


def _load_json(text: str, what: str) -> Any:
    check_shape(text, REPLY, what)
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ResponseError(f"{what} is no JSON: {error}") from error


def _text(value: Any) -> str:
    """The text of a content; of a list of parts, their texts joined."""
    if isinstance(value, str):
        return value
    if isinstance(value, Sequence):
        return "".join(_text(part.get("text")) for part in value if isinstance(part, Mapping))
    return ""


def _ln(prob: Any) -> float | None:
    return math.log(prob) if isinstance(prob, int | float) and not isinstance(prob, bool) and prob > 0 else None


def _name(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def whole(value: Any) -> int | None:
    """A whole number that a record can hold; None for anything else."""
    is_whole = isinstance(value, int) and not isinstance(value, bool)
    return value if is_whole and abs(value) <= LARGEST else None


def _ids(value: Any) -> tuple[int, ...] | None:
    """A list of token ids; None for anything else, and for an empty list."""
    if not isinstance(value, list) or not value or not all(type(number) is int for number in value):
        return None
    return tuple(value)


def finite(value: Any) -> float | None:
    """A number that fits into a float; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:  # an integer of more than 308 digits
        return None
    return number if math.isfinite(number) else None


def spelled_bytes(value: Any) -> tuple[int, ...] | None:
    """A list of bytes; None for anything else."""
    if not isinstance(value, list) or not all(type(byte) is int and 0 <= byte < 256 for byte in value):
        return None
    return tuple(value)


def _kind(value: Any) -> str:
    names = {type(None): "null", list: "a list", str: "a text", bool: "true or false", dict: "an object"}
    return names.get(type(value), "a number")
