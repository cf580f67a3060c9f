"""The cost of the vLLM processor for each step at V = 131,072: masks, and masks put on the logits, by batch size.

    python -m benchmarks.scale.processor

Rows are in documents of one schema, at different places, with caches warm. CPU time of one process, median of the
steps, engines in turn: ours (`apply`: follow one token, mask, spread, apply), llguidance (consume, fill, its
NumPy kernel) and, where it can be imported, xgrammar (accept, fill, its CPU kernel), which is vLLM's own path on a CPU.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from random import Random
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from llguidance import LLMatcher
from llguidance.numpy import allocate_token_bitmask, apply_token_bitmask_inplace, fill_next_token_bitmask

import espalier
import tests.engine_doubles  # noqa: F401  # without vLLM, its interface as published stands in for it
from benchmarks.harness import Table, timed
from benchmarks.record import RECORD
from benchmarks.schema.llguidance_peer import LlgBackend
from benchmarks.tekken import tekken
from espalier.constraints.compiler import Compiler
from espalier.constraints.spec import JsonSchema
from espalier.tokens.vocab import Vocab

from espalier.integrations.vllm import ConstraintProcessor  # isort: skip
from vllm.v1.sample.logits_processor import BatchUpdate  # isort: skip

SIZES = (1, 8, 64, 256)
STEPS = 12
SCHEMA = {"type": "array", "items": RECORD, "minItems": 1, "maxItems": 3}
Step = Callable[[int], None]


class Processor(ConstraintProcessor):
    vocab: Vocab

    @classmethod
    def vocab_of(cls, vllm_config: Any) -> Vocab:
        return cls.vocab


def texts(vocab: Vocab, count: int) -> list[list[int]]:
    """Tokens of random documents, without EOS, each at least STEPS + 1 long."""
    compiled, rng, found = Compiler(vocab).compile(JsonSchema(SCHEMA)), Random(1), []
    while len(found) < count:
        matcher, tokens = compiled.matcher(), list[int]()
        while len(tokens) < 40:
            done = matcher.shortest_completion()
            allowed = np.flatnonzero(np.unpackbits(matcher.mask().view(np.uint8), bitorder="little"))
            token = int(rng.choice(list(allowed[:2000]))) if rng.random() < 0.5 else int(done[0])
            matcher.advance(token)
            if matcher.is_finished:
                break
            tokens.append(token)
        if len(tokens) > STEPS:
            found.append(tokens)
    return found


def ours(vocab: Vocab, rows: list[list[int]], logits: torch.Tensor) -> Step:
    made = Processor(SimpleNamespace(), torch.device("cpu"), False)
    asked = SimpleNamespace(extra_args={"espalier": {"json_schema": SCHEMA}})
    outputs: list[list[int]] = [[] for _ in rows]
    added = [(place, asked, None, output) for place, output in enumerate(outputs)]
    made.update_state(BatchUpdate(batch_size=len(rows), removed=[], added=added, moved=[]))

    def step(at: int) -> None:
        made.update_state(None)
        made.apply(logits)
        for output, tokens in zip(outputs, rows, strict=True):
            output.append(tokens[at])

    return step


def llguidance(backend: LlgBackend, rows: list[list[int]], logits: torch.Tensor) -> Step:
    start = LLMatcher(backend.tokenizer, LLMatcher.grammar_from_json_schema(SCHEMA))
    matchers = [start.deep_copy() for _ in rows]
    mask, flat = allocate_token_bitmask(len(rows), logits.shape[1]), logits.numpy()

    def step(at: int) -> None:
        for place, matcher in enumerate(matchers):
            fill_next_token_bitmask(matcher, mask, place)
        apply_token_bitmask_inplace(flat, mask)
        for matcher, tokens in zip(matchers, rows, strict=True):
            matcher.consume_token(tokens[at])

    return step


def xgrammar(vocab: Vocab, rows: list[list[int]], logits: torch.Tensor) -> Step:
    import xgrammar as xg

    info = xg.TokenizerInfo(
        list(vocab.tokens), xg.VocabType.RAW, vocab_size=vocab.width, stop_token_ids=list(vocab.eos_ids)
    )
    grammar = xg.GrammarCompiler(info).compile_grammar(espalier.to_xgrammar(JsonSchema(SCHEMA)))
    matchers = [xg.GrammarMatcher(grammar) for _ in rows]
    mask = xg.allocate_token_bitmask(len(rows), vocab.width)

    def step(at: int) -> None:
        for place, matcher in enumerate(matchers):
            matcher.fill_next_token_bitmask(mask, place)
        xg.apply_token_bitmask_inplace(logits, mask)
        for matcher, tokens in zip(matchers, rows, strict=True):
            matcher.accept_token(tokens[at])

    return step


def main() -> None:
    torch.set_num_threads(1)
    vocab, backend = tekken().vocab, tekken().compiler().part(LlgBackend)
    Processor.vocab = vocab
    documents = texts(vocab, max(SIZES))
    print(f"V = {vocab.width:,}; CPU ms for each step, median of {STEPS} steps on one thread")
    table = Table({"batch": ">6", "ours": ">10.2f", "llguidance": ">12.2f", "xgrammar": ">10.2f"})
    for size in SIZES:
        rows = documents[:size]
        logits = torch.zeros((size, vocab.width))
        made = {"ours": partial(ours, vocab, rows, logits), "llguidance": partial(llguidance, backend, rows, logits)}
        if find_spec("xgrammar") is not None:
            made["xgrammar"] = partial(xgrammar, vocab, rows, logits)
        for build in made.values():  # warm: kernels, masks by state
            warm = build()
            for at in range(STEPS):
                logits.zero_()
                warm(at)
        steps = {name: build() for name, build in made.items()}
        spent: dict[str, list[float]] = {name: [] for name in steps}
        for at in range(STEPS):
            for name, step in steps.items():
                logits.zero_()
                spent[name].append(timed(lambda step=step, at=at: step(at))[1])
        names = ("ours", "llguidance", "xgrammar")
        table.row(size, *(statistics.median(spent[name]) if name in spent else "-" for name in names))


if __name__ == "__main__":
    main()
