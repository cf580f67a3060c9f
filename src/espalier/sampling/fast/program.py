"""What a sampler chain tells the kernels of `kernels/`: which token is drawn, and p' of a row, in one call each.

The samplers of `CODES` are covered, in any order. Mirostat and plug-ins' samplers have to see all logits in Python: for
them, and where a kernel says that the last digits of a sum would decide, the caller asks the plain functions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from espalier.sampling.chain import Chain
from espalier.sampling.config import SamplingConfig
from espalier.sampling.draw import DrawnToken
from espalier.sampling.fast.candidates import DRAWS, kernels
from espalier.sampling.fast.codes import (
    DRY,
    DYNAMIC,
    MIN_P,
    PENALTIES,
    SIZE,
    TEMPERATURE,
    TOP_K,
    TOP_N_SIGMA,
    TOP_P,
    TYPICAL_P,
    XTC,
)
from espalier.sampling.samplers.dry import losses, repeat_limit
from espalier.sampling.samplers.penalties import amount
from espalier.tokens.mask import Logits, Mask

Settings = NDArray[np.float64]
NOTHING = np.zeros(0, dtype=np.int32)  # (0,)
NO_IDS = np.zeros(0, dtype=np.int64)  # (0,)
NO_COUNTS = NO_IDS, NO_IDS
NO_LOSSES = np.zeros((0, 2), dtype=np.float64)


def _heat(config: SamplingConfig) -> tuple[float, ...]:
    if not config.dynatemp_range:
        return (TEMPERATURE, config.temperature)
    low = max(0.0, config.temperature - config.dynatemp_range)
    high = min(config.temperature + config.dynatemp_range, float(np.finfo(np.float64).max))
    return (DYNAMIC, low, high - low, config.dynatemp_exponent)


CODES: dict[str, Callable[[SamplingConfig], tuple[float, ...]]] = {
    "top_k": lambda config: (TOP_K, config.top_k),
    "top_p": lambda config: (TOP_P, config.top_p),
    "min_p": lambda config: (MIN_P, float(np.float32(math.log(config.min_p)))),
    "typical_p": lambda config: (TYPICAL_P, config.typical_p),
    "top_n_sigma": lambda config: (TOP_N_SIGMA, config.top_n_sigma),
    "xtc": lambda config: (XTC, config.xtc_probability, config.xtc_threshold),
    "penalties": lambda config: (
        PENALTIES,
        *(
            float(amount(value))
            for value in (config.repetition_penalty, config.frequency_penalty, config.presence_penalty)
        ),
    ),
    "dry": lambda config: (DRY,),
    "temperature": _heat,
}
"""Samplers that the kernels know -> their code and amounts."""


class Program(NamedTuple):
    """The settings, `(n,) float64`, that the kernels of one config take."""

    #: of the biases and all samplers
    drawing: Settings
    #: the same without the biases, for a row that has them already
    drawing_biased: Settings
    #: of the biases and the samplers that remove no token
    summing: Settings
    #: the same without the biases; None where the temperature depends on the row
    heating: Settings | None
    #: whether only a constraint bans tokens, and one kernel sums up a step
    is_common: bool
    has_penalties: bool
    has_dry: bool


def program_of(chain: Chain) -> Program | None:
    """None where only the plain functions know what to do, and while no kernel is compiled. Ask for
    `chain.kept(program_of)`, so that a text is drawn in one way."""
    config, fitted = chain.config, chain.fitted
    if chain.takes_whole_rows or not CODES.keys() >= {*chain.running, *chain.heating} or not DRAWS.is_ready():
        return None
    biases = [*fitted.ids.tolist(), *fitted.biases.tolist()]

    def settings(names: Sequence[str], biases: Sequence[float]) -> Settings:
        samplers = [code for name in names for code in (*CODES[name](config), 0.0, 0.0, 0.0)[:SIZE]]
        numbers = (config.min_keep, config.is_greedy, len(biases) // 2, len(names))
        return np.array([*numbers, *samplers, *biases], dtype=np.float64)

    heats_by_row = bool(config.dynatemp_range) and "temperature" in chain.heating
    return Program(
        drawing=settings(chain.running, biases),
        drawing_biased=settings(chain.running, ()),
        summing=settings(chain.heating, biases),
        heating=None if heats_by_row else settings(chain.heating, ()),
        is_common=not (heats_by_row or fitted.bans or fitted.ends or biases),
        has_penalties="penalties" in chain.running,
        has_dry="dry" in chain.running,
    )


class RowInputs(NamedTuple):
    """What the kernel `draw_row` takes, in its order."""

    row: Logits
    bits: Mask
    tokens: NDArray[np.int64]
    said: NDArray[np.int64]
    losses: NDArray[np.float64]
    settings: Settings
    room: Logits
    favourite: int
    chance: float
    uniform: float

    def copied(self) -> RowInputs:
        """The same after the model, the matcher and the chain have gone on."""
        row, bits, tokens, said, lost, settings, _, *rest = self
        copies = row.copy(), bits.copy(), tokens.copy(), said.copy(), lost, settings, NO_ROOM, *rest
        return new_tuple(RowInputs, copies)


NO_ROOM = np.empty(0, dtype=np.float32)  # (0,)
new_tuple = tuple.__new__  # what is made at every token is made without the function that a named tuple has for it


def inputs_of(
    row: Logits,
    bits: Mask | None,
    chain: Chain,
    program: Program,
    settings: Settings,
    favourite: int,
    chance: float = 0.0,
    uniform: float = 0.0,
) -> RowInputs:
    """row: `(V,) float32` without NaN and +inf. bits: `(W,) int32`, what is allowed; ids beyond it are forbidden; None
    for all. favourite: the index of the row's first maximum."""
    tokens, said = chain.past.counts() if program.has_penalties else NO_COUNTS
    return new_tuple(
        RowInputs,
        (
            row if row.flags.carray else np.require(row, dtype=np.float32, requirements=("C", "W")),
            NOTHING if bits is None else bits if bits.flags.carray else np.require(bits, requirements=("C", "W")),
            tokens,
            said,
            dry_losses(chain) if program.has_dry else NO_LOSSES,
            settings,
            chain.room(row.shape[0]),
            favourite,
            chance,
            uniform,
        ),
    )


def list_inputs(inputs: RowInputs, show: int) -> DrawnToken | None:
    """The token with the candidates that it was drawn from: all that are left, but of a long row that nothing has cut
    at least the `show` most probable ones, all that tie with them, and the token. None where the plain functions have
    to decide."""
    if not inputs.room.shape[0]:
        inputs = inputs._replace(room=np.empty_like(inputs.row))
    token, prob, logit, ids, logits, probs = kernels("rows").show_row(*inputs, show)
    if token < 0:
        return None
    if probs.size and probs.min() < 0.0:
        left = probs >= 0.0  # (n,) bool
        ids, probs, logits = ids[left], probs[left], logits[left]
    return DrawnToken(token, prob, logit, ids, probs, logits)


def heated(row: Logits, chain: Chain) -> Logits:
    """`chain.heat(row)`, `(V,) float32`; returns the argument itself if no sampler runs."""
    program = chain.kept(program_of)
    if not chain.heating:
        return row
    if program is None or program.heating is None:
        return chain.heat(row)
    inputs, out = inputs_of(row, None, chain, program, program.heating, 0), np.empty(row.shape[0], dtype=np.float32)
    _, is_sure = kernels("changes").heat_row(
        inputs.row, inputs.settings, inputs.tokens, inputs.said, inputs.losses, len(chain.heating), row.max(), out
    )
    return out if is_sure else chain.heat(row)


def dry_losses(chain: Chain) -> NDArray[np.float64]:
    """DRY's penalties, `(n, 2) float64`: tokens and amounts, in time linear in the window."""
    config, line, fitted = chain.config, chain.past.line, chain.fitted
    length = line.shape[0] if config.dry_window < 0 else min(line.shape[0], config.dry_window)
    least = config.dry_allowed_length
    if length <= least:
        return NO_LOSSES
    recent = line[line.shape[0] - length :]  # (length,) int64
    begins = fitted.begins[np.minimum(recent, fitted.begins.size - 1)]  # (length,) bool
    backs = (length - 1 - int(index) for index in np.flatnonzero(begins)[::-1])
    limit = repeat_limit(chain.history, length, fitted.breakers, backs)
    if limit < least:
        return NO_LOSSES
    same = np.empty(length, dtype=np.int64)  # by distance from the end
    kernels("places").repeats(recent, limit, least, same)
    places = np.flatnonzero(same >= 0)
    longest: dict[int, int] = {}
    for token, repeated in zip(recent[length - places].tolist(), same[places].tolist(), strict=True):
        if longest.get(token, -1) < repeated:
            longest[token] = repeated
    lost = losses(longest, config.dry_multiplier, config.dry_base, least, fitted.breakers)
    return np.array([*lost.items()], dtype=np.float64).reshape(-1, 2)
