"""Reads the stream of `/v1/chat/completions`: text, probabilities, the reason of the end, usage. It knows no engine."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from espalier.errors import UpstreamError
from espalier.upstream.link import Exchange, excerpt, parsed

DONE = "[DONE]"
Finish = Literal["stop", "length"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """text: more of the content. steps: entries of `logprobs.content`. finish: set in the chunk that ends the text.
    usage: set in the last chunk, if the server sends it. reasoned: whether reasoning came beside the content."""

    text: str = ""
    steps: tuple[Mapping[str, Any], ...] = ()
    finish: Finish | None = None
    usage: Mapping[str, Any] | None = None
    reasoned: bool = False


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
    found = Chunk(usage=usage if isinstance(usage, Mapping) else None)
    if not choices:
        return found
    choice = choices[0]
    delta = choice.get("delta") if isinstance(choice, Mapping) else None
    if not isinstance(delta, Mapping):
        raise UpstreamError(f"{url} answered a choice without a delta", hint="check the address and the engine")
    if delta.get("refusal"):
        raise UpstreamError(f"{url} refuses to answer: {excerpt(str(delta['refusal']))}")
    if delta.get("tool_calls"):
        raise UpstreamError(f"{url} calls tools, which it was not offered")
    text, logprobs = delta.get("content"), choice.get("logprobs")
    steps = logprobs.get("content") if isinstance(logprobs, Mapping) else None
    return Chunk(
        text=text if isinstance(text, str) else "",
        steps=tuple(one for one in steps if isinstance(one, Mapping)) if isinstance(steps, list) else (),
        finish=_finish(choice.get("finish_reason"), url),
        usage=found.usage,
        reasoned=bool(delta.get("reasoning_content") or delta.get("reasoning")),
    )


def _finish(reason: Any, url: str) -> Finish | None:
    if reason is None:
        return None
    if reason == "stop":
        return "stop"
    if reason == "length":
        return "length"
    raise UpstreamError(f"{url} ended its answer with {excerpt(str(reason))}")
