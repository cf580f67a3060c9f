"""The sampler chain of one sequence: filters, then the transforms in the order that the config names.

It knows nothing about masks: the caller gives it logits in which forbidden tokens are -inf already.
"""

from __future__ import annotations

from collections.abc import Iterable

from espalier.sampling.config import SamplingConfig
from espalier.sampling.filters import FilterChain, FilterContext, LogitFilter
from espalier.sampling.transforms import TRANSFORMS, temperature
from espalier.tokens.mask import Logits


class Chain:
    """Order is data: `config.order`. All state is in the filters."""

    def __init__(self, config: SamplingConfig, filters: FilterChain | Iterable[LogitFilter] = ()) -> None:
        self.config = config
        self.filters = filters if isinstance(filters, FilterChain) else FilterChain(filters)

    def bias(self, logits: Logits, context: FilterContext) -> Logits:
        """The filters' part: penalties, biases and bans on the model's logits, `(V,) -> (V,)`."""
        return self.filters.apply(logits, context) if len(self.filters) else logits

    def heat(self, logits: Logits) -> Logits:
        """Temperature alone, without truncation: the distribution that importance weights refer to."""
        return temperature(logits, self.config.temperature) if "temperature" in self.config.order else logits

    def shape(self, logits: Logits) -> Logits:
        """The transforms' part, in order: what is drawn from, `(V,) -> (V,)`."""
        if self.config.is_greedy:
            return temperature(logits, 0.0)  # truncations never change the most probable token
        for name in self.config.order:
            logits = TRANSFORMS[name](logits, self.config)
        return logits

    def on_token(self, token: int) -> None:
        self.filters.on_token(token)

    def rollback(self, count: int) -> None:
        self.filters.rollback(count)

    def fork(self) -> Chain:
        return Chain(self.config, self.filters.fork())
