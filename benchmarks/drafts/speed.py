"""`draft` beside `mask` and beside no constraint: characters a second of CPU time, tokens a pass, acceptance by source.

One thread, no trace, the ways in turns on the same prompts and seeds, medians over rounds; the first round is not
counted, but what it teaches the drafts stays, as it does in a process that serves. The tokens of `draft` are compared
with those of `mask` in every run. A token of JSON has fewer characters than one of free text: `a token` compares the
time of a token alone. The large models, of 100 M parameters, have random weights: what they say in a string is random,
so what is gained there is what the schema says.
`python -m benchmarks.drafts.speed [transformers|llama.cpp ...] [--model demo|large|all] [--large FILE]
[--rounds N] [--fresh] [--only KIND]`
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from itertools import product
from pathlib import Path
from typing import Any

import torch

import espalier
from benchmarks.harness import Table, ratio
from benchmarks.jump import FIELDS, PROMPTS, large, schema
from espalier.wiring import demo_model

ROUNDS = 3
FEWER = 2  # rounds of a large model
MOST = 48
WAYS = ("free", "mask", "draft")
ENGINES = ("transformers", "llama.cpp")
GGUF = demo_model() / "demo.gguf"
COPIED = (
    "Ticket 4711: the customer Maria Lopez (maria.lopez@example.org) reports that the invoice of 12 March is wrong. "
    "Copy the values into JSON."
)
TICKET = {
    "type": "object",
    "properties": {
        "customer": {"enum": ["Maria Lopez", "Mario Lopez", "Marian Lorenz"]},
        "email": {"enum": ["maria.lopez@example.org", "mario.lopez@example.org"]},
    },
    "required": ["customer", "email"],
    "additionalProperties": False,
}
NATURAL = [espalier.JsonSchema(one.to_json()["schema"]) for one in map(schema, FIELDS.values())]
CASES: dict[str, list[tuple[str, Any]]] = {
    "compact JSON": [(prompt, schema(one)) for one, prompt in zip(FIELDS.values(), PROMPTS * 3, strict=False)],
    "natural JSON": [(prompt, one) for one, prompt in zip(NATURAL, PROMPTS * 3, strict=False)],
    "extraction": [(COPIED, espalier.JsonSchema(TICKET)), (COPIED, espalier.JsonSchema(TICKET, whitespace="compact"))],
    "free text": [(prompt, None) for prompt in PROMPTS],
    "word list": [(prompt, espalier.Wordlist(["the", "dog", "fox", "says", "quick", "lazy"])) for prompt in PROMPTS],
}


Cases = Sequence[tuple[str, Any]]
MODELS = ("demo", "large")


def main(
    names: Sequence[str] = ENGINES,
    models: Sequence[str] = ("demo",),
    file: Path | None = None,
    rounds: int | None = None,
    kinds: Sequence[str] = tuple(CASES),
    *,
    is_fresh: bool = False,
) -> None:
    """file: a GGUF file for `large` on llama.cpp; else one is made. is_fresh: every round has other seeds."""
    torch.set_num_threads(1)
    compared = ("draft/free", "draft/mask", "a token", "tokens/pass")
    table = Table(
        {"characters a second of CPU": "<40"}
        | dict.fromkeys(WAYS, ">12.0f")
        | dict.fromkeys(compared, ">12.2f")
        | {"  said/drafted by source": ""}
    )
    for model, name in product(models, names):
        with ExitStack() as stack:
            engine = stack.enter_context(opened(model, name, file, stack))
            for temperature, kind in product((0.0, 0.8), kinds):
                cases = CASES[kind] if model == "demo" else CASES[kind][:2]
                title = f"{name}, {kind}, {temperature}" if model == "demo" else f"{name} 100 M, {kind}, {temperature}"
                count = rounds or (ROUNDS if model == "demo" else FEWER)
                speed(table, title, engine, cases, temperature=temperature, rounds=count, is_fresh=is_fresh)


def opened(model: str, name: str, file: Path | None, stack: ExitStack) -> espalier.LoadedEngine:
    if model == "demo":
        return espalier.load(demo_model()) if name == "transformers" else espalier.load(GGUF, threads=1)
    if name == "transformers":
        return large()
    if file is None:
        from tests.gguf_models import write_large

        file = write_large(Path(stack.enter_context(tempfile.TemporaryDirectory())) / "large.gguf")
    return espalier.load(file, threads=1)


def speed(
    table: Table,
    title: str,
    engine: espalier.LoadedEngine,
    cases: Cases,
    *,
    temperature: float,
    rounds: int,
    is_fresh: bool,
) -> None:
    rates: dict[str, list[float]] = {way: [] for way in WAYS}
    times: dict[str, list[float]] = {way: [] for way in WAYS}  # seconds of a token
    sources: Counter[tuple[str, str]] = Counter()
    passes = tokens = 0
    # A model without a template knows no end of a turn.
    plain: dict[str, Any] = {} if engine.engine.capabilities.chat_template else {"raw": True}
    for turn in range(rounds + 1):
        spent, said, taken = dict.fromkeys(WAYS, 0.0), dict.fromkeys(WAYS, 0), dict.fromkeys(WAYS, 0)
        for seed, (prompt, spec) in enumerate(cases, start=turn * len(cases) if is_fresh else 0):
            texts = {}
            for way in WAYS:
                asked: dict[str, Any] = {"temperature": temperature, "trace": "off", "max_tokens": MOST, **plain}
                more: dict[str, Any] = {} if way == "free" else {"constraint": spec, "strategy": way}
                if spec is None or way == "free":
                    more["ignore_eos"] = bool(plain)
                began = time.process_time()
                result = engine.generate(prompt, seed=seed, **asked, **more)
                spent[way] += time.process_time() - began
                said[way] += len(result.text)
                taken[way] += len(result.token_ids)
                texts[way] = result.token_ids
            if texts["mask"] != texts["draft"]:
                print(f"  other tokens than mask: {title}, seed {seed}", flush=True)
            drafting = result.drafting
            if turn and drafting is not None:
                passes, tokens = passes + drafting.passes, tokens + drafting.tokens
                for one in drafting.drafts:
                    sources[one.source, "drafted"] += one.drafted
                    sources[one.source, "accepted"] += one.accepted
        if turn:
            for way in WAYS:
                rates[way].append(said[way] / spent[way])
                times[way].append(spent[way] / taken[way])
    ratios = [*(ratio(rates["draft"], rates[other]) for other in WAYS[:2]), ratio(times["free"], times["draft"])]
    told = ", ".join(
        f"{name} {sources[name, 'accepted']}/{sources[name, 'drafted']}"
        for name in sorted({name for name, _ in sources})
    )
    table.row(title, *(statistics.median(rates[way]) for way in WAYS), *ratios, tokens / passes, f"  {told}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("engines", nargs="*", metavar="|".join(ENGINES))
    parser.add_argument("--model", choices=[*MODELS, "all"], default="demo")
    parser.add_argument("--large", type=Path, help="a GGUF file of about 100 M parameters")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--fresh", action="store_true", help="other seeds in every round")
    parser.add_argument("--only", action="append", choices=CASES, help="kinds of texts")
    given = parser.parse_args()
    main(
        given.engines or ENGINES,
        MODELS if given.model == "all" else [given.model],
        given.large,
        given.rounds,
        given.only or tuple(CASES),
        is_fresh=given.fresh,
    )
