"""`Chain`: the sampler chain of one sequence. It runs the logit filters, then the samplers in the order of the config.

The chain knows no token masks: its caller passes logits in which forbidden tokens are already -inf. It draws nothing:
the caller passes the uniform number for xtc, and reports which token was taken and its probability.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import numpy as np

from espalier.sampling.config import SamplingConfig
from espalier.sampling.filters import FilterChain, FilterContext, LogitFilter
from espalier.sampling.fit import NOTHING_FITTED, FittedConfig, needs_fit
from espalier.sampling.history import History
from espalier.sampling.samplers.context import TransformContext
from espalier.sampling.samplers.mirostat import first_mu, mirostat, next_mu
from espalier.sampling.samplers.plugged import sampler_named
from espalier.sampling.samplers.sampler import Transform
from espalier.sampling.samplers.temperature import temperature
from espalier.tokens.mask import Logits

T = TypeVar("T")


class Chain:
    """The order of the samplers is `config.sampler_order`. The state is that of the filters, the history and mirostat's
    mu; only `start`, `on_token` and `rollback` change it, and a fork shares none of it.

    A sampler at its neutral value does not run and costs nothing. fitted: from `fit`; required if the config names
    tokens or DRY is on. heating, running: names of the samplers that `heat` and `shape` run, in order, without mirostat
    and without the greedy choice. takes_whole_rows: whether mirostat or a plug-in's sampler has to see all logits, in
    order of id.
    """

    def __init__(
        self,
        config: SamplingConfig,
        filters: FilterChain | Iterable[LogitFilter] = (),
        *,
        fitted: FittedConfig | None = None,
    ) -> None:
        if fitted is None and needs_fit(config):
            raise ValueError("this config names tokens: fit it to a vocabulary first")
        self.config = config
        self.filters = filters if isinstance(filters, FilterChain) else FilterChain(filters)
        self.fitted = fitted or NOTHING_FITTED
        names = config.active
        samplers = {name: sampler_named(name) for name in names}
        untruncating = [name for name, sampler in samplers.items() if not sampler.truncates]
        heating = [name for name in untruncating if not (config.is_greedy and name == "temperature")]
        self.heating = tuple(heating)
        self.running = self.heating if config.is_greedy else names
        self._heating: tuple[Transform, ...] = tuple(samplers[name].transform for name in heating)
        self._shaping: tuple[Transform, ...] = tuple(samplers[name].transform for name in names)
        if config.mirostat:
            self._shaping += (mirostat,)
        self.needs_chance = any(sampler.draws for sampler in samplers.values()) and not config.is_greedy
        self.takes_whole_rows = bool(config.mirostat or config.plugged)
        #: the history with its token counts. Read only; the next token invalidates it.
        self.past = History(config.repetition_window if "penalties" in names else 0)
        self._room: Logits = np.empty(0, dtype=np.float32)  # (V,), allocated by `room`
        self._kept: dict[object, Any] = {}
        self._mus = [
            first_mu(config.mirostat_tau)
        ]  # one per generated token and one before the first; the last is current

    @property
    def draws_per_token(self) -> int:
        """How many uniform numbers a token takes from the stream: one for xtc where it is on, then one to draw."""
        return 2 if self.needs_chance else 1

    @property
    def can_ban(self) -> bool:
        """Whether a field of the config or a filter may ban tokens at some step."""
        return bool(self.fitted.bans or self.fitted.ends or self.filters.members)

    @property
    def mu(self) -> float:
        """Mirostat's state."""
        return self._mus[-1]

    @property
    def history(self) -> Sequence[int]:
        """Ids of prompt and output. The next token invalidates this view."""
        return self.past.ids

    @property
    def generated(self) -> int:
        """How many tokens were taken."""
        return self.past.generated

    def start(self, prompt: Sequence[int]) -> None:
        """Set the prompt's ids, before the first token: penalties and DRY look at them."""
        self.past.start(prompt)
        self._mus = [first_mu(self.config.mirostat_tau)]

    def context(self, chance: float = 0.0) -> TransformContext:
        """The values that the samplers may read at this step."""
        history = self.past
        return TransformContext(
            config=self.config,
            history=history.ids,
            generated=history.generated,
            seen=history.seen,
            produced=history.produced,
            chance=chance,
            mu=self._mus[-1],
            breakers=self.fitted.breakers,
        )

    def room(self, width: int) -> Logits:
        """A reusable `(V,) float32` scratch row: allocating one costs more than filling it."""
        if self._room.shape[0] != width:
            self._room = np.empty(width, dtype=np.float32)
        return self._room

    def kept(self, make: Callable[[Chain], T]) -> T:
        """What a function works out of the config alone, worked out once."""
        try:
            value: T = self._kept[make]
        except KeyError:
            value = self._kept[make] = make(self)
        return value

    def bias(self, logits: Logits, context: FilterContext) -> Logits:
        """Apply everything that comes before the mask, `(V,) -> (V,)`: `logit_bias` and `allowed_ids`, then the
        filters. Returns the argument itself if there is nothing to do."""
        logits = self.fitted.apply(logits)
        return self.filters.apply(logits, context) if self.filters.members else logits

    def heat(self, logits: Logits, context: TransformContext | None = None) -> Logits:
        """Penalties, DRY and temperature without truncation, in the config's order. The result is p' of
        docs/strategies.md, the distribution that importance weights refer to. With greedy decoding, temperature is left
        out. context: what the samplers read, where it is not that of this step."""
        return self._run(self._heating, logits, context)

    def shape(self, logits: Logits, chance: float = 0.0, context: TransformContext | None = None) -> Logits:
        """Run all samplers in order, `(V,) -> (V,)`; the token is drawn from the result. chance: a uniform number in
        [0, 1), used if `needs_chance`. context: as in `heat`."""
        context = self.context(chance) if context is None and self._shaping else context
        if self.config.is_greedy:  # no truncation runs: the most probable token is taken in any case
            return temperature(self._run(self._heating, logits, context), 0.0)
        return self._run(self._shaping, logits, context)

    def on_token(self, token: int, prob: float | None = None) -> None:
        """Record a taken token. prob: its probability in the distribution it was drawn from, None if it was not drawn;
        mirostat learns from it."""
        if self.filters.members:
            self.filters.on_token(token)
        self.past.push(token)
        if self.config.mirostat:
            mu = self._mus[-1]
            if prob is not None:
                mu = next_mu(mu, prob, self.config.mirostat_tau, self.config.mirostat_eta)
            self._mus.append(mu)

    def rollback(self, count: int) -> None:
        """Undo the last `count` tokens. Raises ValueError if there were fewer."""
        self.past.pop(count)
        self.filters.rollback(count)
        if self.config.mirostat and count:
            del self._mus[-count:]

    def fork(self) -> Chain:
        copy = Chain(self.config, self.filters.fork(), fitted=self.fitted)
        copy.past, copy._mus, copy._kept = self.past.fork(), self._mus.copy(), self._kept
        return copy

    def _run(self, transforms: tuple[Transform, ...], logits: Logits, context: TransformContext | None) -> Logits:
        if not transforms:
            return logits
        context = self.context() if context is None else context
        for transform in transforms:
            logits = transform(logits, context)
        return logits
