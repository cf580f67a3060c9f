"""`TransformContext`: what a sampler may read beside the logits at one step, with the token counts for penalties."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, TypeAlias

Breakers: TypeAlias = Mapping[int, tuple[tuple[int, ...], ...]]
"""First token of a DRY breaker -> the tokens that must follow it, one tuple for each way; `()` if the token alone is a
breaker."""
NO_BREAKERS: Breakers = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class TransformContext:
    """Valid for one step only: the collections belong to the chain, and change when a token is taken.

    config: the SamplingConfig; typed as Any because the config is built from the samplers' declarations, and these read
    their own fields from it. history: ids of prompt and output, oldest first; the last `generated` ids are the output.
    seen, produced: how often each id occurs among the last `repetition_window` ids, and how often as output there.
    chance: a uniform number in [0, 1) for xtc. mu: mirostat's state. breakers: DRY's breakers as tokens.
    """

    config: Any
    history: Sequence[int] = ()
    generated: int = 0
    seen: Mapping[int, int] = field(default_factory=dict)
    produced: Mapping[int, int] = field(default_factory=dict)
    chance: float = 0.0
    mu: float = 0.0
    breakers: Breakers = field(default_factory=dict)

    @staticmethod
    def of(
        config: Any,
        history: Sequence[int] = (),
        generated: int = 0,
        *,
        chance: float = 0.0,
        mu: float = 0.0,
        breakers: Breakers = NO_BREAKERS,
    ) -> TransformContext:
        """With the counts computed from this history; the chain keeps equal counts step by step."""
        seen, produced = count_window(history, generated, config.repetition_window)
        return TransformContext(
            config=config,
            history=history,
            generated=generated,
            seen=seen,
            produced=produced,
            chance=chance,
            mu=mu,
            breakers=breakers,
        )


def count_window(history: Sequence[int], generated: int, window: int) -> tuple[dict[int, int], dict[int, int]]:
    """`seen` and `produced` of a history whose last `generated` ids are the output: how often each id occurs in the
    last `window` tokens (-1: in all), and how often as output there."""
    start = 0 if window < 0 else max(0, len(history) - window)
    first_said = len(history) - generated
    seen: dict[int, int] = {}
    produced: dict[int, int] = {}
    for index in range(start, len(history)):
        token = history[index]
        seen[token] = seen.get(token, 0) + 1
        if index >= first_said:
            produced[token] = produced.get(token, 0) + 1
    return seen, produced
