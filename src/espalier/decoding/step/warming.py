"""Loads every kernel that draws, measures or masks, without a model: a few steps over rows of noise.

A kernel is compiled at its first call after an installation, which takes seconds, and loaded at its first in a process.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import product
from typing import Any

import numpy as np

from espalier.constraints.compiler import Compiler
from espalier.constraints.matching.automaton import CompiledAutomaton
from espalier.constraints.spec import Gbnf, JsonSchema, Regex
from espalier.decoding.step.decide import decide, decide_late, record_forced
from espalier.decoding.step.record import Watch
from espalier.sampling.chain import Chain
from espalier.sampling.config import SamplingConfig
from espalier.sampling.draw import RandomStream
from espalier.sampling.fast.candidates import allowed
from espalier.sampling.filters import FilterContext
from espalier.sampling.fit import FittedConfig, fit
from espalier.tokens import mask as masks
from espalier.tokens.mask import Logits, Mask
from espalier.tokens.vocab import Vocab

SAMPLERS: tuple[dict[str, Any], ...] = (
    {},
    {"temperature": 0.0},
    {"dry_multiplier": 0.8, "top_k": 0},
    {"ignore_eos": True, "mirostat": 2},
)
"""Samplings that together need every kernel: one draws with all samplers, and few others stand around it."""
WATCHES = Watch("off"), Watch("summary"), Watch("full")
SHARES = 0, 1, 600
"""Of so many ids one is allowed; 0 is no mask."""
PROMPT = (1, 2, 3) * 6  # what DRY finds repeated
OBJECT = JsonSchema({"type": "object", "properties": {"a": {"type": "string"}}})


def warm_masks(compiler: Compiler) -> None:
    """The kernels of masks."""
    for spec in (OBJECT, Regex("[a-z]{1,9}")):
        matcher = compiler.compile(spec).matcher()
        for _ in range(4):  # masks of an object's keys need one more than that of its bracket
            allowed = masks.allowed_ids(matcher.mask(), compiler.vocab.width)
            if matcher.is_finished or not allowed.size:
                break
            matcher.advance(int(allowed[0]))
    nested = compiler.compile(Gbnf('root ::= "(" root ")" | "a"'))
    assert isinstance(nested, CompiledAutomaton)
    nested.machine.landings(nested.machine.start)  # asked for compositions alone


def warm_steps(vocab: Vocab) -> None:
    """The kernels of all steps over rows of this vocabulary's length. The model is not asked."""
    generator = np.random.Generator(np.random.Philox(1))
    noise = generator.standard_normal(vocab.width).astype(np.float32)  # (V,)
    for sampler in SAMPLERS:
        config = SamplingConfig(**sampler)
        fitted = fit(config, vocab, _no_tokens)
        for share, watch in product(SHARES, WATCHES):
            _step(noise, _mask(vocab.width, share), watch, vocab, config, fitted)
    for share in SHARES:  # what beams and particles rank
        allowed(noise, _mask(vocab.width, share), np.empty_like(noise))


def _step(
    raw: Logits, mask: Mask | None, watch: Watch, vocab: Vocab, config: SamplingConfig, fitted: FittedConfig
) -> None:
    """One step by each way of deciding, and its record."""
    chain = Chain(config, fitted=fitted)
    chain.start(PROMPT)
    for token in PROMPT[:3]:
        chain.on_token(token, 0.5)
    arguments: dict[str, Any] = {
        "vocab": vocab,
        "chain": chain,
        "context": FilterContext(3, PROMPT, PROMPT[:3]),
        "watch": watch,
    }
    records = [decide(raw, mask, stream=RandomStream(1), **arguments).record]
    if mask is not None:
        allows = partial(masks.test, mask)
        records.append(decide_late(raw, mask.copy, allows, stream=RandomStream(1), **arguments).record)
        records.append(record_forced(raw, int(masks.allowed_ids(mask, vocab.width)[0]), mask, **arguments))
    for record in records:
        if record is not None:
            record.to_json()  # it may be made when it is read


def _mask(width: int, share: int) -> Mask | None:
    """Every `share`-th id from the first on; None without a mask."""
    return None if share == 0 else masks.from_ids(np.arange(0, width, share), width)


def _no_tokens(_: str) -> Sequence[int]:
    raise AssertionError("no sampler here names a text")
