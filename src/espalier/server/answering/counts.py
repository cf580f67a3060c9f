"""How many tokens were read and generated: OpenAI's `usage`, and llama-server's `timings`, which say how fast.

Only `StreamTimings` reads the clock.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from espalier.engines.base import Result, TokenEvent, Usage

Json = dict[str, Any]


def usage(results: Sequence[Result], n: int) -> Json:
    """Token counts of all outputs. A prompt counts once, however many outputs it has. n: runs of one prompt. Reasoning
    tokens are given if there is reasoning."""
    texts = [output for result in results for output in (result, *result.others)]
    prompt = sum(result.usage.prompt_tokens for result in results[::n])
    completion = sum(text.usage.completion_tokens for text in texts)
    usage: Json = {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}
    usage["prompt_tokens_details"] = {"cached_tokens": sum(result.usage.cached_tokens for result in results[::n])}
    if any(text.reasoning is not None or text.usage.reasoning_tokens for text in texts):
        reasoning = sum(text.usage.reasoning_tokens for text in texts)
        usage["completion_tokens_details"] = {"reasoning_tokens": reasoning}
    return usage


class TimedOutput(Protocol):
    """What is known of an output. Times are of `time.monotonic`."""

    #: When its first token came; None before.
    first: float | None
    #: When its latest token came; without a token, when it ended.
    last: float
    #: None until it has ended.
    result: Result | None


def no_timings(_indices: Sequence[int] | None) -> Json:
    """For chunks of no run."""
    return {}


def timings_of(outputs: Sequence[TimedOutput], *, began: float, n: int = 1) -> Json:
    """`timings` of outputs that have ended, together: from the first token of any to the last of all. n: outputs of one
    prompt, which counts once. began: when the engine had taken them."""
    results = [output.result for output in outputs if output.result is not None]
    usage = Usage(
        prompt_tokens=sum(result.usage.prompt_tokens for result in results[::n]),
        completion_tokens=sum(text.usage.completion_tokens for result in results for text in (result, *result.others)),
        cached_tokens=sum(result.usage.cached_tokens for result in results[::n]),
    )
    first = min((output.first for output in outputs if output.first is not None), default=None)
    return timings(usage, began=began, first=first, last=max(output.last for output in outputs))


def timings(usage: Usage, *, began: float, first: float | None, last: float) -> Json:
    """llama-server's `timings`, in milliseconds. prompt_ms: until the first token, queueing included. cache_n: prompt
    tokens found in the prefix cache; prompt_n: the others. began, first, last: of `time.monotonic`."""
    before = 1000 * ((last if first is None else first) - began)
    prompt = usage.prompt_tokens - usage.cached_tokens
    return {
        "cache_n": usage.cached_tokens,
        "prompt_n": prompt,
        "prompt_ms": before,
        "prompt_per_token_ms": before / prompt if prompt else 0.0,
        "prompt_per_second": 1000 * prompt / before if before > 0 else 0.0,
        **predicted(usage.completion_tokens, first=first, last=last),
    }


def predicted(count: int, *, first: float | None, last: float) -> Json:
    """The part of `timings` about generated tokens."""
    after = 0.0 if first is None else 1000 * max(0.0, last - first)
    return {
        "predicted_n": count,
        "predicted_ms": after,
        "predicted_per_token_ms": after / count if count else 0.0,
        "predicted_per_second": 1000 * count / after if after > 0 else 0.0,
    }


@dataclass(slots=True)
class OutputProgress:
    """How far a streamed output is. Times are of `time.monotonic`."""

    #: When its first and its latest token came; None before.
    first: float | None = None
    last: float | None = None
    #: Generated tokens.
    count: int = 0
    #: Of the prompt; None where the engine knows it only at the end.
    prompt_tokens: int | None = None
    cached_tokens: int | None = None


@dataclass(slots=True)
class StreamTimings:
    """`timings` of streamed outputs, by index, up to their latest token."""

    began: float = field(default_factory=time.monotonic)
    _outputs: dict[int, OutputProgress] = field(default_factory=dict)

    def of(self, index: int) -> OutputProgress:
        """How far an output is."""
        return self._outputs.setdefault(index, OutputProgress())

    def count(self, index: int, token: TokenEvent) -> None:
        """Count a token of an output."""
        progress = self.of(index)
        progress.last = time.monotonic()
        if progress.first is None:
            progress.first = progress.last
        progress.count += 1
        progress.prompt_tokens, progress.cached_tokens = token.prompt_tokens, token.cached_tokens

    def so_far(self, index: int, usage: Usage | None = None) -> Json:
        """`timings` up to the latest token; of the prompt only where the engine knows it before the end. usage: the
        counts of an output that has ended."""
        progress = self.of(index)
        last = self.began if progress.last is None else progress.last
        if usage is None:
            if progress.prompt_tokens is None:
                return predicted(progress.count, first=progress.first, last=last)
            usage = Usage(
                prompt_tokens=progress.prompt_tokens,
                completion_tokens=progress.count,
                cached_tokens=progress.cached_tokens or 0,
            )
        return timings(usage, began=self.began, first=progress.first, last=last)
