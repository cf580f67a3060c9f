"""The samplers by name: `(logits, context) -> logits`, pure, `(V,) float32` in and out. The registry is data.

The functions are in the module of their kind: penalties, dry, truncations, heat, mirostat. This one knows only which
field of the config goes to which argument.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from espalier.sampling.samplers.context import TransformContext
from espalier.sampling.samplers.dry import dry
from espalier.sampling.samplers.mirostat import MIROSTATS
from espalier.sampling.samplers.penalties import penalties
from espalier.sampling.samplers.temperature import dynamic_temperature, temperature
from espalier.sampling.samplers.truncations import min_p, top_k, top_n_sigma, top_p, typical_p, xtc
from espalier.tokens.mask import Logits

Transform: TypeAlias = Callable[[Logits, TransformContext], Logits]


def _penalties(logits: Logits, context: TransformContext) -> Logits:
    config = context.config
    return penalties(
        logits,
        config.repetition_penalty,
        config.frequency_penalty,
        config.presence_penalty,
        context.seen,
        context.said,
    )


def _dry(logits: Logits, context: TransformContext) -> Logits:
    config = context.config
    return dry(
        logits,
        context.history,
        multiplier=config.dry_multiplier,
        base=config.dry_base,
        allowed_length=config.dry_allowed_length,
        window=config.dry_window,
        breakers=context.breakers,
    )


def _temperature(logits: Logits, context: TransformContext) -> Logits:
    config = context.config
    if config.dynatemp_range:
        return dynamic_temperature(logits, config.temperature, config.dynatemp_range, config.dynatemp_exponent)
    return temperature(logits, config.temperature)


def _xtc(logits: Logits, context: TransformContext) -> Logits:
    config = context.config
    return xtc(logits, config.xtc_probability, config.xtc_threshold, context.chance, config.min_keep)


TRANSFORMS: dict[str, Transform] = {
    "penalties": _penalties,
    "dry": _dry,
    "top_n_sigma": lambda logits, context: top_n_sigma(logits, context.config.top_n_sigma),
    "top_k": lambda logits, context: top_k(logits, context.config.top_k),
    "typical_p": lambda logits, context: typical_p(logits, context.config.typical_p, context.config.min_keep),
    "top_p": lambda logits, context: top_p(logits, context.config.top_p, context.config.min_keep),
    "min_p": lambda logits, context: min_p(logits, context.config.min_p, context.config.min_keep),
    "xtc": _xtc,
    "temperature": _temperature,
}
"""Name in `SamplingConfig.sampler_order` -> transform. To add a sampler: a pure function, a field, a line here."""

UNTRUNCATED = frozenset({"penalties", "dry", "temperature"})
"""Those that remove nothing: what `p'` of the design, section 4, is made of."""


def mirostat(logits: Logits, context: TransformContext) -> Logits:
    """The version that the config asks for; it runs after all others, in the place of the truncations."""
    return MIROSTATS[context.config.mirostat](logits, context.mu)
