"""A small llama-server in plain Python, as the truth for replies that are followed: what it drew first, what it took.

Logits by the tokens before, mt19937 from its definition, samplers over lists, and a grammar whose texts are written
down: it shares nothing with what is tested.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from espalier.tokens.vocab import Vocab
from espalier.upstream.xray.distribution import entry_of
from espalier.upstream.xray.known import ServerTokens
from espalier.upstream.xray.wire.reply import OutputSoFar

SPELLED = [b"a", b"b", b"c", b"d", b"ab", b"ca", b"\xc3", b"\xa9", "é".encode(), b"bc", b"cc", b"<think>", b""]
WIDTH, END, THINK = len(SPELLED), len(SPELLED) - 1, 11
GRAMMAR = 'root ::= ("ab" | "é" | "c"){2,6}'
UNITS = (b"ab", "é".encode(), b"c")
PROMPT = [0, 3, 2]
KNOWN = ServerTokens(Vocab.from_tokens(SPELLED, eos_ids=[END], special_ids={END: "<|end|>"}))
PLAIN: dict[str, Any] = {
    "seed": 7, "samplers": ["penalties", "top_k", "temperature"], "temperature": 1.0, "dynatemp_range": 0.0,
    "dynatemp_exponent": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0, "typical_p": 1.0, "top_n_sigma": -1.0,
    "min_keep": 0, "xtc_probability": 0.0, "xtc_threshold": 0.1, "repeat_last_n": 64, "repeat_penalty": 1.0,
    "presence_penalty": 0.0, "frequency_penalty": 0.0, "dry_multiplier": 0.0, "dry_base": 1.75,
    "dry_allowed_length": 2, "dry_penalty_last_n": -1, "dry_sequence_breakers": [], "mirostat": 0, "mirostat_tau": 5.0,
    "mirostat_eta": 0.1, "logit_bias": [], "n_predict": -1, "grammar": GRAMMAR,
}  # fmt: skip


def numbers(seed: int) -> random.Random:
    """mt19937, begun from one word."""
    words = [seed]
    for place in range(1, 624):
        words.append((1812433253 * (words[-1] ^ (words[-1] >> 30)) + place) % 2**32)
    made = random.Random()
    made.setstate((3, (*words, 624), None))
    return made


def fits(text: bytes, *, is_whole: bool) -> bool:
    """Whether a text is one of the grammar, or begins one."""
    count = 0
    while unit := next((one for one in UNITS if text.startswith(one)), b""):
        text, count = text[len(unit) :], count + 1
    if is_whole:
        return not text and 2 <= count <= 6
    return count <= 6 if not text else count < 6 and any(one.startswith(text) for one in UNITS)


@dataclass
class Server:
    """told: how many probabilities each entry of the reply has. stale: whether what it has in its cache is wrong.
    splits: whether it ends tokens inside a character. asked: each question as it was asked."""

    settings: dict[str, Any]
    told: int = WIDTH
    stale: bool = False
    splits: bool = False
    begins: bytes = b""
    tokens: list[int] = field(default_factory=list)
    refused: list[int | None] = field(default_factory=list)
    asked: list[tuple[str, int, int, bool]] = field(default_factory=list)

    def logits(self, tokens: Sequence[int]) -> list[float]:
        chance = random.Random(",".join(map(str, tokens)))
        logits = [chance.gauss(0, 1.5) for _ in range(WIDTH)]
        logits[6] += 1 if self.splits else -25
        return logits

    def logprobs(self, tokens: Sequence[int]) -> list[float]:
        logits = self.logits(tokens)
        total = math.log(math.fsum(map(math.exp, logits)))
        return [logit - total for logit in logits]

    def answer(self, tokens: Sequence[int], count: int, *, logprobs: list[float] | None = None) -> dict[str, Any]:
        listed = self.logprobs(tokens) if logprobs is None else logprobs
        best = sorted(range(WIDTH), key=lambda token: -listed[token])[:count]
        return {"top_logprobs": [{"id": token, "logprob": listed[token]} for token in best]}

    def prompt_ids(self, prompt: str) -> list[int]:
        self.asked.append((prompt, 0, 0, False))
        return list(PROMPT)

    def entry(self, tokens: Sequence[int], *, count: int, is_fresh: bool) -> Any:
        self.asked.append(("entry", len(tokens), count, is_fresh))
        assert list(tokens) == [*PROMPT, *self.tokens][: len(tokens)]
        if self.stale and not is_fresh:
            taken = [*PROMPT, *self.tokens][len(tokens)]
            return self.answer(
                tokens, count, logprobs=[-50.0 if one == taken else -2 - one / 9 for one in range(WIDTH)]
            )
        return self.answer(tokens, count)

    def probed(self, tokens: Sequence[int], probe: Any, *, count: int, is_fresh: bool) -> Any:
        self.asked.append(("probed", len(tokens), count, is_fresh))
        logits = self.logits(tokens)
        logits[probe.token] += dict(probe.settings()["logit_bias"])[probe.token]
        for token in set(tokens[-probe.window :]):
            logits[token] = self.penalised(logits[token], probe.settings()["repeat_penalty"])
        total = math.fsum(map(math.exp, logits))
        return {"top_probs": [{"id": token, "prob": math.exp(logits[token]) / total} for token in range(WIDTH)]}

    def penalised(self, logit: float, factor: float) -> float:
        return logit * factor if logit <= 0 else logit / factor

    def draw(self, chance: random.Random, allowed: Sequence[bool]) -> int:
        given, past = self.settings, [*PROMPT, *self.tokens]
        logits = [logit if may else -math.inf for logit, may in zip(self.logits(past), allowed, strict=True)]
        for one in given["logit_bias"]:
            logits[one["token"]] += one["bias"]
        last = past[-given["repeat_last_n"] :]
        for token in set(last):
            logits[token] = self.penalised(logits[token], given["repeat_penalty"])
            logits[token] -= given["presence_penalty"] + last.count(token) * given["frequency_penalty"]
        order = list(range(WIDTH))
        if given["top_k"] > 0:
            order = sorted(order, key=lambda token: -logits[token])[: given["top_k"]]
        weights = [math.exp((logits[token] - max(logits)) / given["temperature"]) for token in order]
        low, high = chance.getrandbits(32), chance.getrandbits(32)
        target, total = (low + high * 2**32) / 2**64 * math.fsum(weights), 0.0
        for token, weight in zip(order, weights, strict=True):
            total += weight
            if total >= target:
                return token
        raise AssertionError

    def allows(self, token: int) -> bool:
        text = self.begins + b"".join(SPELLED[one] for one in self.tokens)
        return fits(text, is_whole=True) if token == END else fits(text + SPELLED[token], is_whole=False)

    def generate(self, most: int = 20, *, is_free: Any = lambda tokens: False) -> Server:
        """is_free: whether nothing holds the next token to the grammar, after these."""
        chance, everything = numbers(self.settings["seed"]), [True] * WIDTH
        while len(self.tokens) < most and END not in self.tokens:
            token, refused = self.draw(chance, everything), None
            if self.settings["grammar"] and not is_free(self.tokens) and not self.allows(token):
                refused, token = token, self.draw(chance, [self.allows(one) for one in range(WIDTH)])
            self.tokens.append(token)
            self.refused.append(refused)
        return self

    def entries(self) -> dict[int, Any]:
        """By place; none where a text would be cut inside a character."""
        found, held = {}, b""
        for place, token in enumerate(self.tokens):
            past, held = [*PROMPT, *self.tokens[:place]], held + SPELLED[token]
            if not held.endswith(b"\xc3"):
                own = {"id": token, "logprob": self.logprobs(past)[token], "bytes": list(held)}
                held = b""
                found[place] = entry_of(self.answer(past, self.told) | own)
        return found

    def output(self, **more: Any) -> OutputSoFar:
        """The reply, which is no stream."""
        ended = "stop" if self.tokens[-1] == END else "length"
        found: dict[str, Any] = {"tokens": list(self.tokens), "listed": list(self.entries().values())}
        found |= {"count": len(self.tokens), "settings": self.settings, "prompt": "adc", "finish": ended}
        return OutputSoFar(**found | more)

    def stream(self, **more: Any) -> OutputSoFar:
        """The reply as a stream: what has no entry is not named, either."""
        entries = self.entries()
        return self.output(
            **{"tokens": None, "listed": [], "entries": entries, "ids": {at: self.tokens[at] for at in entries}} | more
        )
