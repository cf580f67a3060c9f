"""`draft` beside `mask` and beside no constraint: characters a second of CPU time, tokens a pass, acceptance by source.

One thread, no trace, the ways in turns on the same prompts and seeds, medians over rounds; the first round is not
counted, but what it teaches the drafts stays, as it does in a process that serves. The tokens of `draft` are compared
with those of `mask` in every run.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections import Counter
from itertools import product
from typing import Any

import torch

import espalier
from benchmarks.jump import FIELDS, PROMPTS, schema
from espalier.wiring import demo_model

ROUNDS = 3
MOST = 48
WAYS = ("free", "mask", "draft")
ENGINES = ("transformers", "llama.cpp")
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


def main() -> None:
    torch.set_num_threads(1)
    names = [one for one in sys.argv[1:] if one in ENGINES] or ENGINES
    head = ("free", "mask", "draft", "draft/free", "draft/mask", "tokens/pass", "by source: accepted/drafted")
    print(f"{'characters a second of CPU':<36}" + ("{:>12}" * len(head)).format(*head))
    for name in names:
        path = demo_model() if name == "transformers" else demo_model() / "demo.gguf"
        with espalier.load(path, **({} if name == "transformers" else {"threads": 1})) as engine:
            for temperature, (kind, cases) in product((0.0, 0.8), CASES.items()):
                speed(f"{name}, {kind}, {temperature}", engine, cases, temperature)


def speed(title: str, engine: espalier.LoadedEngine, cases: list[tuple[str, Any]], temperature: float) -> None:
    rates: dict[str, list[float]] = {way: [] for way in WAYS}
    sources: Counter[tuple[str, str]] = Counter()
    passes = tokens = 0
    for turn in range(ROUNDS + 1):
        spent, said = dict.fromkeys(WAYS, 0.0), dict.fromkeys(WAYS, 0)
        for seed, (prompt, spec) in enumerate(cases):
            texts = {}
            for way in WAYS:
                asked: dict[str, Any] = {"temperature": temperature, "trace": "off", "max_tokens": MOST}
                more: dict[str, Any] = {} if way == "free" else {"constraint": spec, "strategy": way}
                began = time.process_time()
                result = engine.generate(prompt, seed=seed, **asked, **more)
                spent[way] += time.process_time() - began
                said[way] += len(result.text)
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
    ratios = [statistics.median(a / b for a, b in zip(rates["draft"], rates[other], strict=True)) for other in WAYS[:2]]
    told = ", ".join(
        f"{name} {sources[name, 'accepted']}/{sources[name, 'drafted']}"
        for name in sorted({name for name, _ in sources})
    )
    shown = "".join(f"{statistics.median(rates[way]):>12.0f}" for way in WAYS)
    print(
        f"{title:<36}{shown}" + "".join(f"{one:>12.2f}" for one in (*ratios, tokens / passes)) + f"  {told}", flush=True
    )


if __name__ == "__main__":
    main()
