"""A made-up llama-server: it samples by llama.cpp's rule from a model of 40 tokens, and remembers what it did.

The model's logits depend on the prompt and on all tokens so far, so that two requests with the same prompt agree as
long as their texts do. The grammar is a template of fixed and free tokens, shared by many requests. This module knows
nothing of Espalier.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

WORDS = ("Ada", " in", " the", " garden", "Bo", " small", " looms", "cat", " of", " pears", "Zoe", " walks")
PIECES: tuple[bytes, ...] = (
    b"",
    b"{",
    b'"',
    b":",
    b",",
    b"}",
    b"\n",
    b" ",
    b"0",
    b"1",
    b"2",
    b"7",
    b"name",
    b"age",
    b"city",
    b"Sure",
    b"Here",
    b"```",
    b"\xc3",
    b"\xa9",
    b"\xe2\x82",
    b"\xac",
    "é".encode(),
    b"a\xc3",
    *(one.encode() for one in WORDS),
)
END = 0
ID = {piece: place for place, piece in enumerate(PIECES)}
HALVES = {ID[b"\xc3"]: ID[b"\xa9"], ID[b"a\xc3"]: ID[b"\xa9"], ID[b"\xe2\x82"]: ID[b"\xac"]}
FREE = frozenset(ID[one.encode()] for one in WORDS) | {ID["é".encode()], *HALVES}
SECONDS = 5
"""Of each request; times are whole seconds."""


@dataclass(frozen=True, slots=True)
class Template:
    """parts: a token that must come, or the most tokens of a text that `"` ends."""

    parts: tuple[bytes | int, ...]

    def allowed(self, tokens: Sequence[int]) -> frozenset[int]:
        at = 0
        for part in self.parts:
            if isinstance(part, bytes):
                if at == len(tokens):
                    return frozenset({ID[part]})
                at += 1
                continue
            count = 0
            while True:
                before = tokens[at - 1] if at else -1
                if at == len(tokens):
                    if before in HALVES:
                        return frozenset({HALVES[before]})
                    return frozenset({ID[b'"']}) | (FREE if count < part else frozenset())
                at += 1
                count += 1
                if tokens[at - 1] == ID[b'"']:
                    break
        return frozenset({END})


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    temperature: float
    top_k: int


@dataclass(slots=True, kw_only=True)
class Step:
    """rejected: the token drawn first and refused. logprobs: ln of the model's probabilities, for all tokens. after,
    chain: the probabilities after the grammar and after the samplers."""

    token: int
    rejected: int | None
    rejected_prob: float
    logprobs: list[float]
    after: dict[int, float] = field(default_factory=dict)
    chain: dict[int, float] = field(default_factory=dict)


@dataclass(slots=True, kw_only=True)
class Request:
    """One request and what became of it. begin: seconds since the server's start."""

    name: str
    prompt: int
    template: Template
    sampling: Sampling
    task: int
    slot: int
    begin: int
    steps: list[Step] = field(default_factory=list)
    finish: str = "stop"


def run(request: Request, random: Random, *, most: int) -> None:
    """Generate at most `most` tokens."""
    tokens: list[int] = []
    while len(tokens) < most:
        logits = model(request.prompt, tokens)
        total = math.log(math.fsum(math.exp(one) for one in logits))
        logprobs = [one - total for one in logits]
        allowed = request.template.allowed(tokens)
        first, chances = drawn(logits, request.sampling, random)
        if first in allowed:
            step = Step(token=first, rejected=None, rejected_prob=0.0, logprobs=logprobs)
        else:
            masked = [one if place in allowed else -math.inf for place, one in enumerate(logits)]
            again, chain = drawn(masked, request.sampling, random)
            mass = math.fsum(math.exp(logprobs[one]) for one in allowed)
            after = {one: math.exp(logprobs[one]) / mass for one in allowed}
            step = Step(
                token=again, rejected=first, rejected_prob=chances[first], logprobs=logprobs, after=after, chain=chain
            )
        request.steps.append(step)
        tokens.append(step.token)
        if step.token == END:
            return
    request.finish = "length"


def model(prompt: int, tokens: Sequence[int]) -> list[float]:
    """The logits; a token that the text is likely to go on with is not always one that the grammar allows."""
    seed = hashlib.blake2b(repr((prompt, tuple(tokens))).encode(), digest_size=8).digest()
    random = Random(seed)
    return [random.gauss(0.0, 2.5) for _ in PIECES]


def drawn(logits: Sequence[float], sampling: Sampling, random: Random) -> tuple[int, dict[int, float]]:
    """A token, and the probabilities it was drawn with: top_k, temperature, a draw."""
    ranked = sorted((one for one in range(len(logits)) if logits[one] > -math.inf), key=lambda one: -logits[one])
    if sampling.temperature <= 0:
        return ranked[0], {ranked[0]: 1.0}
    kept = ranked[: sampling.top_k]
    weights = [math.exp((logits[one] - logits[kept[0]]) / sampling.temperature) for one in kept]
    total = math.fsum(weights)
    chances = {one: weight / total for one, weight in zip(kept, weights, strict=True)}
    return random.choices(kept, weights)[0], chances


def text_of(token: int) -> str:
    return PIECES[token].decode("utf-8", "replace")


def event_of(request: Request, place: int, *, candidates: int) -> dict[str, Any]:
    """The step as a patched llama-server logs it."""
    step = request.steps[place]
    assert step.rejected is not None
    wanted = sorted(range(len(PIECES)), key=lambda one: -step.logprobs[one])[:candidates]
    return {
        "task_id": request.task,
        "slot_id": request.slot,
        "step": place,
        "rejected": {"id": step.rejected, "text": text_of(step.rejected), "prob": step.rejected_prob},
        "pre_masking": [{"id": one, "text": text_of(one), "prob": math.exp(step.logprobs[one])} for one in wanted],
        "post_grammar": [_logged(step.after, one) for one in wanted],
        "post_chain": [{"id": one, "text": text_of(one), "prob": chance} for one, chance in step.chain.items()],
        "resampled": {"id": step.token, "text": text_of(step.token), "prob": step.chain[step.token]},
    }


def _logged(after: Mapping[int, float], one: int) -> dict[str, Any]:
    chance = after.get(one)
    return {"id": one, "text": text_of(one), "logit": -math.inf if chance is None else math.log(chance)}


def entries_of(request: Request, *, top: int, leaves_out: bool, with_ids: bool) -> list[dict[str, Any]]:
    """The log probabilities of a reply. leaves_out: whether a token that leaves a character incomplete has no entry,
    and the next one has its text too, as in llama-server."""
    found, held = [], b""
    for step in request.steps:
        text = held + PIECES[step.token]
        if leaves_out and _is_open(text):
            held = text
            continue
        held = b""
        ranked = sorted(range(len(PIECES)), key=lambda one: -step.logprobs[one])[:top]
        near = [{**_named(one, with_ids), "logprob": step.logprobs[one]} for one in ranked]
        entry = {
            "token": text.decode("utf-8", "replace"),
            "bytes": list(text),
            "logprob": step.logprobs[step.token],
            "top_logprobs": near,
        }
        found.append({"id": step.token, **entry} if with_ids else entry)
    return found


def _named(one: int, with_ids: bool) -> dict[str, Any]:
    named = {"token": text_of(one), "bytes": list(PIECES[one])}
    return {"id": one, **named} if with_ids else named


def _is_open(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return True
    return False
