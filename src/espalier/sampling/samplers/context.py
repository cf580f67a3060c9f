"""What a transform may look at beside the logits: one frozen value, made anew for each step. It computes nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from espalier.sampling.config import SamplingConfig
from espalier.sampling.samplers.dry import NO_BREAKERS, Breakers
from espalier.sampling.samplers.penalties import count_window


@dataclass(frozen=True, slots=True, kw_only=True)
class TransformContext:
    """Valid for its step alone: the collections are the chain's own, and change when a token is taken.

    history: ids of prompt and output, oldest first; the last `generated` of them are the output. seen, said: how often
    each id occurs among the last `repetition_window` of them, and how often as output there. chance: xtc's uniform
    number in [0, 1). mu: mirostat's state. breakers: DRY's, as tokens.
    """

    config: SamplingConfig
    history: Sequence[int] = ()
    generated: int = 0
    seen: Mapping[int, int] = field(default_factory=dict)
    said: Mapping[int, int] = field(default_factory=dict)
    chance: float = 0.0
    mu: float = 0.0
    breakers: Breakers = field(default_factory=dict)

    @staticmethod
    def of(
        config: SamplingConfig,
        history: Sequence[int] = (),
        generated: int = 0,
        *,
        chance: float = 0.0,
        mu: float = 0.0,
        breakers: Breakers = NO_BREAKERS,
    ) -> TransformContext:
        """With the counts of this history, from scratch: what the chain's own must equal."""
        seen, said = count_window(history, generated, config.repetition_window)
        return TransformContext(
            config=config,
            history=history,
            generated=generated,
            seen=seen,
            said=said,
            chance=chance,
            mu=mu,
            breakers=breakers,
        )
