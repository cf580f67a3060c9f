"""Reads the streams of `/v1/chat/completions` and `/v1/completions`: text, reasoning, calls, probabilities, the reason
of the end, usage. It knows no engine."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from espalier.errors import UpstreamError
from espalier.upstream.link import Exchange, excerpt, parsed

DONE = "[DONE]"
Finish = Literal["stop", "length"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CallPiece:
    """More of a call. index: its place in the turn, None where the server does not say it. id: where the server gives
    one. name: in its first piece. arguments: more of its JSON text."""

    index: int | None = None
    id: str = ""
    name: str = ""
    arguments: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """text: more of the content. reasoning: more of what came beside the content. calls: more of calls. steps: entries
    of `logprobs.content`. finish: set in the chunk that ends the text. usage: set in the last chunk, if the server
    sends it."""

    text: str = ""
    reasoning: str = ""
    calls: tuple[CallPiece, ...] = ()
    steps: tuple[Mapping[str, Any], ...] = ()
    finish: Finish | None = None
    usage: Mapping[str, Any] | None = None


def chunks_of(exchange: Exchange, url: str) -> Iterator[Chunk]:
    """The chunks of one answer. Raises UpstreamError for a stream that ends without a reason, an error within it, a
    refusal, and what is no chunk."""
    has_ended = False
    with exchange:
        for text in exchange.events():
            if text == DONE:
                break
            chunk = _chunk(parsed(url, text), url)
            has_ended = has_ended or chunk.finish is not None
            yield chunk
    if not has_ended:
        raise UpstreamError(f"{url} broke off before the end of its answer")


def _chunk(data: Any, url: str) -> Chunk:
    if not isinstance(data, Mapping):
        raise UpstreamError(f"{url} answered {type(data).__name__} instead of an object")
    if data.get("error"):
        error = data["error"]
        said = error.get("message", "") if isinstance(error, Mapping) else error
        raise UpstreamError(f"{url} failed: {excerpt(str(said))}")
    usage = data.get("usage")
    choices = data.get("choices")
    if not isinstance(choices, list):
        raise UpstreamError(f"{url} answered without choices", hint="check the address and the engine")
    chunk = Chunk(usage=usage if isinstance(usage, Mapping) else None)
    if not choices:
        return chunk
    choice = choices[0]
    delta = choice.get("delta") if isinstance(choice, Mapping) else None
    if isinstance(choice, Mapping) and delta is None and isinstance(choice.get("text"), str):  # a text completion
        delta = {"content": choice["text"]}
    if delta is None and isinstance(choice, Mapping) and choice.get("finish_reason"):
        delta = {}
    if not isinstance(delta, Mapping):
        raise UpstreamError(f"{url} answered a choice without a delta", hint="check the address and the engine")
    if delta.get("refusal"):
        raise UpstreamError(f"{url} refuses to answer: {excerpt(str(delta['refusal']))}")
    if delta.get("function_call"):
        raise UpstreamError(f"{url} calls a function in a form that OpenAI has given up", hint="update the server")
    calls = delta.get("tool_calls") or []
    if not isinstance(calls, list):
        raise UpstreamError(f"{url} sent tool calls that are no list: {excerpt(str(calls))}")
    return Chunk(
        text=_text(delta.get("content")),
        reasoning=_text(delta.get("reasoning_content")) or _text(delta.get("reasoning")),
        calls=tuple(_call(tool_call, url) for tool_call in calls),
        steps=_steps(choice.get("logprobs")),
        finish=_finish(choice.get("finish_reason"), url),
        usage=chunk.usage,
    )


def _text(data: Any) -> str:
    return data if isinstance(data, str) else ""


def _call(data: Any, url: str) -> CallPiece:
    """Arguments may come as an object, which is then whole. Raises UpstreamError."""
    call = data if isinstance(data, Mapping) else {}
    index, function = call.get("index"), call.get("function")
    function = {} if function is None and call.get("id") else function
    if (index is not None and (type(index) is not int or index < 0)) or not isinstance(function, Mapping):
        raise UpstreamError(f"{url} sent a tool call that is none: {excerpt(str(data))}")
    arguments = function.get("arguments")
    if not isinstance(arguments, str | Mapping | None):
        raise UpstreamError(f"{url} sent arguments that are no object: {excerpt(str(arguments))}")
    return CallPiece(
        index=index,
        id=_text(call.get("id")),
        name=_text(function.get("name")),
        arguments=json.dumps(arguments, ensure_ascii=False) if isinstance(arguments, Mapping) else arguments or "",
    )


def _steps(data: Any) -> tuple[Mapping[str, Any], ...]:
    """Entries of chats; the parallel lists of text completions become such entries."""
    if not isinstance(data, Mapping):
        return ()
    content, tokens = data.get("content"), data.get("tokens")
    if isinstance(content, list):
        return tuple(part for part in content if isinstance(part, Mapping))
    if not isinstance(tokens, list):
        return ()
    own, tops = data.get("token_logprobs"), data.get("top_logprobs")
    own, tops = own if isinstance(own, list) else [], tops if isinstance(tops, list) else []
    entries = []
    for place, token in enumerate(tokens):
        near = tops[place] if place < len(tops) and isinstance(tops[place], Mapping) else {}
        listed = [{"token": name, "logprob": value} for name, value in near.items()]
        entries.append({"token": token, "logprob": own[place] if place < len(own) else None, "top_logprobs": listed})
    return tuple(entries)


def _finish(reason: Any, url: str) -> Finish | None:
    if reason is None:
        return None
    if reason in ("stop", "tool_calls"):
        return "stop"
    if reason == "length":
        return "length"
    raise UpstreamError(f"{url} ended its answer with {excerpt(str(reason))}")
