"""Log probabilities in OpenAI's two shapes, for chat and for text completions.

They are of the model's own distribution, before constraint and samplers, as in vLLM and llama-server. Impossible tokens
have -9999.0, since JSON has no infinity.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Protocol

from espalier.decoding.prompt_scores import PromptToken
from espalier.trace.records import StepRecord

IMPOSSIBLE = -9999.0


class Logprobs(Protocol):
    """The log probabilities of one output, in one call or piece by piece."""

    def of(self, steps: Sequence[StepRecord]) -> dict[str, Any]: ...


class ChatLogprobsLog:
    """`{"content": [{token, bytes, logprob, top_logprobs}]}`, one entry per generated token without EOS. top: how many
    most probable tokens each entry has. with_ids: whether tokens also have their `id`, as in llama-server's replies,
    where it is known."""

    def __init__(self, top: int, *, with_ids: bool = False) -> None:
        self._top, self._with_ids = top, with_ids

    def of(self, steps: Sequence[StepRecord]) -> dict[str, Any]:
        return {"content": [self._one(step) for step in steps], "refusal": None}

    def _one(self, step: StepRecord) -> dict[str, Any]:
        best = step.pre_masking[: self._top]
        tops = [
            self._token(candidate.id, candidate.text, candidate.bytes) | {"logprob": of_probability(candidate.prob)}
            for candidate in best
        ]
        token = self._token(step.token_id, step.text, step.bytes)
        return token | {"logprob": finite(step.logprob), "top_logprobs": tops}

    def _token(self, number: int, text: str, raw: bytes) -> dict[str, Any]:
        named = {"token": text, "bytes": list(raw)}
        return {"id": number, **named} if self._with_ids and number >= 0 else named


class TextLogprobsLog:
    """`{tokens, token_logprobs, top_logprobs, text_offset}`. Offsets are in characters and start with 0 at the first
    token that is shown."""

    def __init__(self, top: int) -> None:
        self._top = top
        self._offset = 0

    def of(self, steps: Sequence[StepRecord]) -> dict[str, Any]:
        offsets = []
        for step in steps:
            offsets.append(self._offset)
            self._offset += len(step.text)
        return {
            "tokens": [spelled(step.text, step.bytes) for step in steps],
            "token_logprobs": [finite(step.logprob) for step in steps],
            "top_logprobs": [self._tops(step) for step in steps] if self._top else None,
            "text_offset": offsets,
        }

    def with_prompt(self, prompt: Sequence[PromptToken], steps: Sequence[StepRecord]) -> dict[str, Any]:
        """The log probabilities of an echoed prompt and of every generated token, EOS too: clients count the tokens
        from both ends."""
        texts, logprobs, tops, offsets = [], [], [], []
        for prompt_token in prompt:
            own = prompt_token.token
            offsets.append(self._offset)
            self._offset += len(own.text)
            texts.append(spelled(own.text, own.bytes))
            logprobs.append(None if own.logprob is None else finite(own.logprob))
            by_text: dict[str, float] = {}
            for two in (*prompt_token.top, own):
                if two.logprob is not None:
                    by_text.setdefault(spelled(two.text, two.bytes), finite(two.logprob))
            tops.append(by_text if own.logprob is not None else None)
        rest = self.of(steps)
        return {
            "tokens": texts + rest["tokens"],
            "token_logprobs": logprobs + rest["token_logprobs"],
            "top_logprobs": tops + rest["top_logprobs"] if self._top else None,
            "text_offset": offsets + rest["text_offset"],
        }

    def _tops(self, step: StepRecord) -> dict[str, float]:
        """The log probabilities by text; of two tokens with the same text, that of the more probable one."""
        by_text: dict[str, float] = {}
        for candidate in step.pre_masking[: self._top]:
            by_text.setdefault(spelled(candidate.text, candidate.bytes), of_probability(candidate.prob))
        by_text.setdefault(spelled(step.text, step.bytes), finite(step.logprob))
        return by_text


def spelled(text: str, raw: bytes) -> str:
    """A token's text; bytes that are not UTF-8 as OpenAI writes them."""
    try:
        return raw.decode() or text
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in raw)


def finite(logprob: float) -> float:
    return max(logprob, IMPOSSIBLE) if not math.isnan(logprob) else IMPOSSIBLE


def of_probability(probability: float) -> float:
    return math.log(probability) if probability > 0 else IMPOSSIBLE
