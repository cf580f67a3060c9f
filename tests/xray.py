"""llama.cpp's own sampler as the truth for replays: what it drew first, and what it took."""

from __future__ import annotations

from typing import Any

import numpy as np

from espalier import SamplingConfig
from espalier.sampling.fit import fit
from espalier.upstream.xray.distribution import Level, ReportedTokens
from espalier.upstream.xray.grammar.pieces import Pieces

NAMES = {
    "temperature": "temperature",
    "dynatemp_range": "dynatemp_range",
    "dynatemp_exponent": "dynatemp_exponent",
    "top_k": "top_k",
    "top_p": "top_p",
    "min_p": "min_p",
    "top_n_sigma": "top_n_sigma",
    "min_keep": "min_keep",
    "xtc_probability": "xtc_probability",
    "xtc_threshold": "xtc_threshold",
    "repetition_penalty": "repeat_penalty",
    "repetition_window": "repeat_last_n",
    "frequency_penalty": "frequency_penalty",
    "presence_penalty": "presence_penalty",
    "dry_multiplier": "dry_multiplier",
    "dry_base": "dry_base",
    "dry_allowed_length": "dry_allowed_length",
    "dry_window": "dry_penalty_last_n",
    "mirostat": "mirostat",
    "mirostat_tau": "mirostat_tau",
    "mirostat_eta": "mirostat_eta",
}
"""Our names -> llama-server's."""
SAMPLERS = {"typical_p": "typ_p"}


def settings_of(config: SamplingConfig, *, seed: int, grammar: str = "") -> dict[str, Any]:
    """The config as llama-server returns it."""
    found = {theirs: getattr(config, ours) for ours, theirs in NAMES.items()}
    return found | {
        "seed": seed,
        "grammar": grammar,
        "typical_p": config.typical_p or 1.0,
        "samplers": [SAMPLERS.get(name, name) for name in config.sampler_order],
        "dry_sequence_breakers": list(config.dry_breakers),
        "logit_bias": [{"token": token, "bias": bias} for token, bias in config.logit_bias],
    }


def reported(row: np.ndarray, count: int = 0, *, off: float | None = None) -> ReportedTokens:
    """What the server reports of `(V,) float32` logits: the best `count` tokens, 0 for all. off: how far the level of
    the logits may be off; None does not tell it."""
    top = float(row.max())
    total = np.float32(np.log(np.exp((row - top).astype(np.float64)).sum()))
    logprobs = ((row - np.float32(top)) - total).astype(np.float32)
    order = np.argsort(-row, kind="stable")[: count or row.shape[0]]
    level = None if off is None else Level(float(top) + float(total), off)
    return ReportedTokens(ids=order.astype(np.int64), logprobs=logprobs[order], width=row.shape[0], level=level)


def sampler_of(engine: Any, config: SamplingConfig, grammar: str | None, *, seed: int) -> Any:
    """llama.cpp's sampler over the engine's vocabulary."""
    make = engine.engine._runs._native
    return make(config, fit(config, engine.vocab, engine.vocab.encoder), seed=seed, grammar=grammar)


def pieces_of(vocab: Any) -> Pieces:
    """The tokens as the server spells them."""
    spelled = [vocab.bytes_of(i) or vocab.special_texts.get(i, "").encode() for i in range(vocab.width)]
    return Pieces(spelled, frozenset(vocab.eos_ids))
