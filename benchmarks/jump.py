"""Jump-forward decoding on compact schemas: characters per second beside `mask` and beside no constraint at all.

Greedy, no trace, one thread, CPU time, the three in turns on the same prompts. Then, from traced runs: how often
`jump` gives the text that `mask` gives, and the sum of ln p of the chosen tokens under the model's own distribution,
per text, `jump` minus `mask`: above 0 where the tokenizer's own split is what the model expects. The demo model is so
small that a pass of several tokens costs llama.cpp nearly as much as as many passes; the second, of random weights, is
of a size at which it does not.
"""

from __future__ import annotations

import math
import statistics
import time
from itertools import product
from typing import Any

import espalier
from benchmarks.figures import note
from benchmarks.harness import Table, one_thread, ratio
from benchmarks.random_llama import random_llama
from espalier.engines.base import Result
from espalier.engines.huggingface.model import TransformersStepModel
from espalier.engines.local.engine import LocalEngine
from espalier.wiring import demo_model

ROUNDS = 3
STRING, NAME = (
    {"type": "string", "maxLength": 24},
    {"type": "string", "pattern": "^[A-Z][a-z]{1,9}( [A-Z][a-z]{1,9})?$"},
)
YEARS = {"type": "integer", "minimum": 18, "maximum": 99}
FIELDS: dict[str, dict[str, Any]] = {
    "user": {"name": NAME, "email": STRING, "age": YEARS, "role": {"enum": ["administrator", "editor", "member"]}},
    "flags": {"name": NAME, "newsletter_enabled": {"type": "boolean"}, "two_factor_enabled": {"type": "boolean"}},
    "server": {
        "host": STRING,
        "port": {"enum": [80, 443, 8080]},
        "enabled": {"type": "boolean"},
        "protocol": {"enum": ["http", "https"]},
    },
    "ticket": {
        "priority": {"enum": ["low", "medium", "high"]},
        "status": {"enum": ["open", "closed", "in_progress"]},
        "assigned_to": NAME,
        "category": {"enum": ["billing", "technical", "account"]},
    },
    "review": {
        "sentiment": {"enum": ["positive", "negative", "neutral"]},
        "is_spam": {"type": "boolean"},
        "language": {"enum": ["english", "spanish", "german"]},
    },
    "call": {
        "name": {"enum": ["get_weather", "read_file", "send_email"]},
        "city": NAME,
        "unit": {"enum": ["celsius", "fahrenheit"]},
    },
    "order": {
        "customer_name": NAME,
        "delivery_method": {"enum": ["standard", "express", "pickup"]},
        "quantity": {"type": "integer", "minimum": 1, "maximum": 9},
        "gift_wrapped": {"type": "boolean"},
    },
    "event": {
        "event_type": {"enum": ["created", "updated", "deleted"]},
        "user_name": NAME,
        "severity": {"enum": ["information", "warning", "critical"]},
        "acknowledged": {"type": "boolean"},
    },
}
PROMPTS = ("Generate user info", "Describe a server with host, port and enabled.", "What is the weather in Madrid?")
WAYS = ("free", "mask", "jump")


def schema(fields: dict[str, Any]) -> espalier.JsonSchema:
    body = {"type": "object", "properties": fields, "required": [*fields], "additionalProperties": False}
    return espalier.JsonSchema(body, whitespace="compact")


def main() -> None:
    with one_thread():
        compared = ("mask/free", "jump/free", "jump/mask", "tokens/pass")
        table = Table(
            {"characters a second of CPU": "<28"} | dict.fromkeys(WAYS, ">12.0f") | dict.fromkeys(compared, ">12.2f")
        )
        cases = [(prompt, schema(fields)) for fields, prompt in product(FIELDS.values(), PROMPTS)]
        engines = {
            "demo, transformers": (espalier.load(demo_model()), cases),
            "demo, llama.cpp": (espalier.load(demo_model() / "demo.gguf", threads=1), cases),
            "random 100 M, transformers": (large(), cases[:: len(PROMPTS)]),
        }
        for name, (engine, some) in engines.items():
            speeds(table, name, engine, some, max_tokens=64)
        print()
        for name, (engine, some) in engines.items():
            agreement(name, engine, some, max_tokens=120)


def large() -> espalier.LoadedEngine:
    """Random weights behind the demo model's tokenizer."""
    model = TransformersStepModel(random_llama(pad_token_id=0, tie_word_embeddings=False))
    vocab = espalier.Vocab.from_tokenizer(demo_model(), width=model.width)
    encoder = vocab.encoder
    if encoder is None:
        raise AssertionError("a byte-level tokenizer has an encoder")

    def encode(text: str, *, add_special: bool) -> list[int]:
        return encoder(text)

    return espalier.LoadedEngine(LocalEngine(name="random", model=model, vocab=vocab, encode=encode))


def local(engine: espalier.LoadedEngine) -> LocalEngine:
    if not isinstance(engine.engine, LocalEngine):
        raise TypeError("an engine in this process")
    return engine.engine


def asked(way: str, spec: espalier.JsonSchema, engine: espalier.LoadedEngine) -> dict[str, Any]:
    raw = {"raw": True} if not engine.engine.capabilities.chat_template else {}
    if way == "free":
        return {"ignore_eos": bool(raw), **raw}
    return {"constraint": spec, "strategy": way, **raw}


def speeds(
    table: Table,
    title: str,
    engine: espalier.LoadedEngine,
    cases: list[tuple[str, espalier.JsonSchema]],
    *,
    max_tokens: int,
) -> None:
    """A round is all cases in all ways; the first is not counted."""
    rates: dict[str, list[float]] = {way: [] for way in WAYS}
    passes, tokens = 0, 0
    model: Any = local(engine).model
    inner = model.extend

    def counted(work: Any) -> Any:
        nonlocal passes
        passes += 1
        return inner(work)

    for turn in range(ROUNDS + 1):
        spent, said = dict.fromkeys(WAYS, 0.0), dict.fromkeys(WAYS, 0)
        for (prompt, spec), way in product(cases, WAYS):
            model.extend = counted if way == "jump" else inner
            began = time.process_time()
            result = engine.generate(
                prompt, temperature=0, trace="off", max_tokens=max_tokens, **asked(way, spec, engine)
            )
            spent[way] += time.process_time() - began
            said[way] += len(result.text)
            tokens += len(result.token_ids) * (way == "jump")
        if turn:
            for way in WAYS:
                rates[way].append(said[way] / spent[way])
    model.extend = inner
    pairs = (("mask", "free"), ("jump", "free"), ("jump", "mask"))
    middles = {way: statistics.median(rates[way]) for way in reversed(WAYS)}
    note("Jump-forward decoding", title, "characters/s", middles, more_is_better=True)
    ratios = [ratio(rates[one], rates[other]) for one, other in pairs]
    table.row(title, *(statistics.median(rates[way]) for way in WAYS), *ratios, tokens / passes)


def agreement(
    title: str, engine: espalier.LoadedEngine, cases: list[tuple[str, espalier.JsonSchema]], *, max_tokens: int
) -> None:
    texts = ids = forced = steps = 0
    differences: list[float] = []
    same: list[float] = []  # of those with the same text
    for prompt, spec in cases:
        mask, jump = (
            engine.generate(prompt, temperature=0, trace="steps", max_tokens=max_tokens, **asked(way, spec, engine))
            for way in WAYS[1:]
        )
        if not (jump.verdict and mask.verdict and jump.verdict.valid and mask.verdict.valid):
            raise AssertionError(f"not valid: {jump.text}, {mask.text}")
        texts += jump.text == mask.text
        ids += jump.token_ids == mask.token_ids
        steps += len(jump.token_ids)
        forced += sum(step.was_forced for step in jump.trace.steps) if jump.trace else 0
        differences.append(log_likelihood(jump) - log_likelihood(mask))
        if jump.text == mask.text:
            same.append(differences[-1])
    count = len(cases)
    alike = f"{statistics.mean(same):+.2f} where the text is the same" if same else "no text is the same"
    print(
        f"{title}: of {count} greedy documents {texts} are the same text as with mask, {ids} the same tokens; "
        f"{forced / steps:.0%} of the tokens forced; ln p, jump - mask: mean {statistics.mean(differences):+.2f} nats "
        f"(median {statistics.median(differences):+.2f}, {alike})",
        flush=True,
    )


def log_likelihood(result: Result) -> float:
    """Sum of ln p of the chosen tokens, nats."""
    return math.fsum(step.logprob for step in result.trace.steps) if result.trace else math.nan


if __name__ == "__main__":
    main()
