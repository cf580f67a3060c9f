"""Loads every kernel that draws, measures or masks, without a model: a matrix of steps over rows of noise.

A kernel is compiled at its first call after an installation, which takes seconds, and loaded at its first in a process.
Which kernels a step needs depends on the length of its row: short rows and long ones take different ways.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import product
from typing import Any

import numpy as np

from espalier.constraints.compiler import Compiler
from espalier.constraints.matching.automaton import AutomatonCompiled
from espalier.constraints.spec import Gbnf, JsonSchema, Regex
from espalier.decoding.step.decide import decide, decide_late, record_forced
from espalier.decoding.step.record import Watch
from espalier.sampling.chain import Chain
from espalier.sampling.config import SamplingConfig
from espalier.sampling.draw import RandomStream
from espalier.sampling.filters import FilterContext
from espalier.sampling.fit import Fitted, fit
from espalier.tokens import mask as masks
from espalier.tokens.mask import Logits, Mask
from espalier.tokens.vocab import Vocab

SAMPLERS: tuple[dict[str, Any], ...] = (
    {"temperature": 0.0}, {"temperature": 0.0, "repetition_penalty": 1.1}, {"temperature": 0.8}, {"top_k": 40},
    {"temperature": 0.8, "top_k": 40, "top_p": 0.95, "min_p": 0.05}, {"top_p": 0.9}, {"min_p": 0.01},
    {"top_p": 0.9, "typical_p": 0.9}, {"top_p": 0.9, "dry_multiplier": 0.8}, {"top_n_sigma": 2.0, "min_p": 0.1},
    {"temperature": 0.8, "repetition_penalty": 1.1, "frequency_penalty": 0.1, "top_p": 0.9, "dry_multiplier": 0.8},
    {"temperature": 0.7, "xtc_probability": 0.5}, {"mirostat": 2}, {"logit_bias": ((0, 1.0),)}, {"ignore_eos": True},
)  # fmt: skip
"""Samplings that together need every kernel that draws, over short rows and long ones."""
NEUTRAL: dict[str, Any] = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0, "repetition_penalty": 1.0}
WATCHES = Watch("off"), Watch("summary"), Watch("steps")
PEAKS = 1.0, 5.0  # the spread of the logits: many tokens are likely, or few
ALLOWED = 1, 600  # of so many ids one is allowed
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
    assert isinstance(nested, AutomatonCompiled)
    nested.machine.landings(nested.machine.start)  # asked for compositions alone


def warm_steps(vocab: Vocab) -> None:
    """The kernels of all steps over rows of this vocabulary's length. The model is not asked."""
    generator = np.random.Generator(np.random.Philox(1))
    noise = generator.standard_normal(vocab.width).astype(np.float32)  # (V,)
    for sampler in SAMPLERS:
        config = SamplingConfig(**NEUTRAL | sampler)
        fitted = fit(config, vocab, _no_tokens)
        for peak, share, watch in product(PEAKS, (0, *ALLOWED), WATCHES):
            _step(noise * np.float32(peak), _mask(vocab.width, share), watch, vocab, config, fitted)


def _step(raw: Logits, mask: Mask | None, watch: Watch, vocab: Vocab, config: SamplingConfig, fitted: Fitted) -> None:
    """One step by each way of deciding, and its record."""
    chain = Chain(config, fitted=fitted)
    chain.start(PROMPT)
    for token in PROMPT[:3]:
        chain.on_token(token, 0.5)
    arguments: dict[str, Any] = {
        "vocab": vocab, "chain": chain, "context": FilterContext(3, PROMPT, PROMPT[:3]), "watch": watch,
    }  # fmt: skip
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
