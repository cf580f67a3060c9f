"""The sampler chain a second time, in plain numpy, written from docs/sampling.md. It shares no code with `sampling`.

Sums are float64; logits stay float32, as documented. Where a cut or a draw is so near an edge that the last digits of a
sum decide, the result says so by its margin.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

NEG_INF = np.float32(-np.inf)
Row = NDArray[np.float32]  # (V,)


@dataclass(slots=True)
class Shaped:
    """row: `(V,) float32` after the samplers, removed tokens -inf. margin: how far away the nearest cut is."""

    row: Row
    margin: float = math.inf

    def near(self, distance: float) -> None:
        self.margin = min(self.margin, abs(distance))


@dataclass(frozen=True, slots=True)
class Past:
    """What samplers know of the text. breakers: token -> rests of DRY's breakers that it begins. mu: mirostat's."""

    prompt: Sequence[int]
    said: Sequence[int]
    breakers: Mapping[int, Sequence[Sequence[int]]]
    mu: float
    chance: float


def softmax(row: NDArray[Any]) -> NDArray[np.float64]:
    """`(n,) float64`."""
    weights = np.exp(row.astype(np.float64) - float(row.max()))
    return np.asarray(weights / weights.sum())


def active(config: Mapping[str, Any]) -> list[str]:
    """The samplers that run, in order. config: all fields of SamplingConfig."""
    is_on = {
        "penalties": config["repetition_window"] != 0
        and (config["repetition_penalty"] != 1 or config["frequency_penalty"] != 0 or config["presence_penalty"] != 0),
        "dry": config["dry_multiplier"] > 0 and config["dry_window"] != 0,
        "top_n_sigma": config["top_n_sigma"] > 0,
        "top_k": config["top_k"] > 0,
        "typical_p": 0 < config["typical_p"] < 1,
        "top_p": config["top_p"] < 1,
        "min_p": config["min_p"] > 0,
        "xtc": config["xtc_probability"] > 0 and config["xtc_threshold"] <= 0.5,
        "temperature": config["temperature"] != 1 or config["dynatemp_range"] != 0,
    }
    return [name for name in config["sampler_order"] if is_on[name]]


def is_greedy(config: Mapping[str, Any]) -> bool:
    return bool(config["temperature"] == 0 and not config["dynatemp_range"])


def heated(row: Row, config: Mapping[str, Any], past: Past) -> Row:
    """Penalties, DRY and temperature over the whole vocabulary: p' of docs/strategies.md."""
    found = Shaped(row)
    for name in active(config):
        if name in ("penalties", "dry", "temperature"):
            found = RUN[name](found, config, past)
    return found.row


def shaped(row: Row, config: Mapping[str, Any], past: Past) -> Shaped:
    """All samplers. row: forbidden tokens are -inf."""
    found = Shaped(row)
    if is_greedy(config):
        for name in active(config):
            if name in ("penalties", "dry"):
                found = RUN[name](found, config, past)
        best = int(np.argmax(found.row))
        others = np.delete(found.row, best)
        found.near(float(found.row[best]) - float(others.max()))
        return Shaped(_only(found.row, np.array([best])), found.margin)
    for name in active(config):
        found = RUN[name](found, config, past)
    if config["mirostat"]:
        found = _mirostat(found, config, past.mu)
    return found


def pick(found: Shaped, uniform: float) -> tuple[int, float, float]:
    """(token, probability, margin): inverse CDF in order of id."""
    ids = np.flatnonzero(found.row > NEG_INF)
    probs = softmax(found.row[ids])
    mass = np.cumsum(probs)
    place = min(int(np.searchsorted(mass, uniform, side="right")), ids.size - 1)
    margin = min(found.margin, abs(float(mass[place]) - uniform))
    if place:
        margin = min(margin, abs(uniform - float(mass[place - 1])))
    return int(ids[place]), float(probs[place]), margin if ids.size > 1 else found.margin


def _only(row: Row, ids: NDArray[Any]) -> Row:
    out = np.full_like(row, NEG_INF)
    out[ids] = row[ids]
    return out


def _ranked(row: Row) -> NDArray[Any]:
    ids = np.flatnonzero(row > NEG_INF)
    return ids[np.argsort(-row[ids], kind="stable")]


def _penalties(found: Shaped, config: Mapping[str, Any], past: Past) -> Shaped:
    window = config["repetition_window"]
    line = [*past.prompt, *past.said]
    begin = 0 if window < 0 else max(0, len(line) - window)
    said = Counter(line[max(begin, len(past.prompt)) :])
    row = found.row.copy()
    factor = np.float32(config["repetition_penalty"])
    for token in set(line[begin:]):
        if token >= row.size or row[token] == NEG_INF:
            continue
        value = row[token]
        value = value / factor if value > 0 else value * factor
        if said[token]:
            value = value - (
                np.float32(said[token]) * np.float32(config["frequency_penalty"])
                + np.float32(config["presence_penalty"])
            )
        row[token] = value
    return Shaped(row, found.margin)


def _dry(found: Shaped, config: Mapping[str, Any], past: Past) -> Shaped:
    line = [*past.prompt, *past.said]
    if config["dry_window"] >= 0:
        line = line[len(line) - min(len(line), config["dry_window"]) :]
    least = config["dry_allowed_length"]
    last = len(line)  # where the last breaker ends
    for place in range(len(line) - 1, -1, -1):
        rests = [rest for rest in past.breakers.get(line[place], ()) if line[place + 1 :][: len(rest)] == list(rest)]
        if rests:
            last = len(line) - (place + 1 + max(map(len, rests)))
            break
    longest: dict[int, int] = {}
    for place in range(1, len(line)):  # the token at `place` follows what ends before it
        same = 0
        while same < min(last, place) and line[place - 1 - same] == line[len(line) - 1 - same]:
            same += 1
        if same >= least:
            longest[line[place]] = max(same, longest.get(line[place], 0))
    row = found.row.copy()
    for token, same in longest.items():
        if () in [tuple(rest) for rest in past.breakers.get(token, ())] or row[token] == NEG_INF:
            continue
        row[token] = np.float32(float(row[token]) - config["dry_multiplier"] * config["dry_base"] ** (same - least))
    return Shaped(row, found.margin)


def _top_k(found: Shaped, config: Mapping[str, Any], _past: Past) -> Shaped:
    order = _ranked(found.row)
    k = config["top_k"]
    if order.size > k:
        found.near(float(found.row[order[k - 1]]) - float(found.row[order[k]]) or math.inf)
    return Shaped(_only(found.row, order[:k]), found.margin)


def _top_p(found: Shaped, config: Mapping[str, Any], _past: Past) -> Shaped:
    order = _ranked(found.row)
    mass = np.cumsum(softmax(found.row[order]))
    cut = int(np.count_nonzero(mass < config["top_p"])) + 1
    found.near(float(np.abs(mass - config["top_p"]).min()))
    _edge(found, order, max(cut, config["min_keep"]))
    return Shaped(_only(found.row, order[: max(cut, config["min_keep"])]), found.margin)


def _min_p(found: Shaped, config: Mapping[str, Any], _past: Past) -> Shaped:
    order = _ranked(found.row)
    over = found.row[order].astype(np.float64) - float(found.row[order[0]]) - math.log(config["min_p"])
    found.near(float(np.abs(over).min()))
    kept = max(int(np.count_nonzero(over >= 0)), config["min_keep"])
    return Shaped(_only(found.row, order[:kept]), found.margin)


def _typical(found: Shaped, config: Mapping[str, Any], _past: Past) -> Shaped:
    order = _ranked(found.row)
    probs = softmax(found.row[order])
    with np.errstate(divide="ignore", invalid="ignore"):
        surprise = -np.log(probs)
        entropy = float(np.nansum(probs * surprise))
    away = np.abs(surprise - entropy)
    nearest = np.argsort(away, kind="stable")
    mass = np.cumsum(probs[nearest])
    cut = max(int(np.count_nonzero(mass <= config["typical_p"])) + 1, config["min_keep"])
    found.near(float(np.abs(mass - config["typical_p"]).min()))
    if cut < nearest.size:
        found.near(float(away[nearest[cut]] - away[nearest[cut - 1]]))
    return Shaped(_only(found.row, order[nearest[:cut]]), found.margin)


def _top_n_sigma(found: Shaped, config: Mapping[str, Any], _past: Past) -> Shaped:
    values = found.row[found.row > NEG_INF].astype(np.float64)
    if values.size <= 1:
        return found
    edge = values.max() - config["top_n_sigma"] * values.std()
    found.near(float(np.abs(values - edge).min()))
    return Shaped(np.where(found.row >= edge, found.row, NEG_INF), found.margin)


def _xtc(found: Shaped, config: Mapping[str, Any], past: Past) -> Shaped:
    if past.chance > config["xtc_probability"]:
        return found
    order = _ranked(found.row)
    probs = softmax(found.row[order])
    above = int(np.count_nonzero(probs >= config["xtc_threshold"]))
    found.near(float(np.abs(probs - config["xtc_threshold"]).min()))
    if above < 2 or order.size - (above - 1) < config["min_keep"]:
        return found
    _edge(found, order, above - 1)
    return Shaped(_only(found.row, order[above - 1 :]), found.margin)


def _edge(found: Shaped, order: NDArray[Any], cut: int) -> None:
    """Two tokens beside a cut whose logits are nearly equal may change places; equal ones may not."""
    if 0 < cut < order.size:
        found.near(float(found.row[order[cut - 1]]) - float(found.row[order[cut]]) or math.inf)


def _temperature(found: Shaped, config: Mapping[str, Any], _past: Past) -> Shaped:
    value = config["temperature"]
    if config["dynatemp_range"]:
        probs = softmax(found.row[found.row > NEG_INF])
        if probs.size <= 1:
            return found
        entropy = -float(sum(p * math.log(p) for p in probs.tolist() if p > 0))
        low, high = max(0.0, value - config["dynatemp_range"]), value + config["dynatemp_range"]
        value = low + (high - low) * (entropy / math.log(probs.size)) ** config["dynatemp_exponent"]
    if value == 0:
        return Shaped(_only(found.row, np.array([int(np.argmax(found.row))])), found.margin)
    return Shaped(found.row / np.float32(value), found.margin)


def _mirostat(found: Shaped, config: Mapping[str, Any], mu: float) -> Shaped:
    order = _ranked(found.row)
    if order.size <= 1:
        return found
    probs = softmax(found.row[order])
    with np.errstate(divide="ignore", invalid="ignore"):
        if config["mirostat"] == 2:
            over = -np.log2(probs) - mu
            found.near(float(np.abs(over).min()))
            kept = int(np.count_nonzero(over <= 0))
        else:
            best = probs[:100]
            place = np.arange(1, best.size)
            steps, drops = np.log((place + 1) / place), np.log(best[:-1] / best[1:])
            usable = np.isfinite(drops)
            zipf = float((steps * drops)[usable].sum() / (steps**2)[usable].sum()) if usable.any() else math.nan
            epsilon = zipf - 1
            if math.isnan(zipf) or zipf == 0 or epsilon == 0:
                return Shaped(found.row, 0.0)
            many = (epsilon * 2**mu / (1 - float(found.row.size) ** -epsilon)) ** (1 / zipf)
            found.near(many - round(many))
            kept = int(min(many, order.size))
    return Shaped(_only(found.row, order[: max(1, kept)]), found.margin)


RUN = {
    "penalties": _penalties,
    "dry": _dry,
    "top_n_sigma": _top_n_sigma,
    "top_k": _top_k,
    "typical_p": _typical,
    "top_p": _top_p,
    "min_p": _min_p,
    "xtc": _xtc,
    "temperature": _temperature,
}
