"""What a token costs outside the model, in µs, by the size of the vocabulary and of the batch; CPU time, medians.

A model that answers at once, with rows from a table: what is left is the driver, the strategy `mask`, masks, the draw
and the text. Beside it the draw alone, row by row as strategies ask for it, and all rows in one kernel call.
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Sequence
from typing import Any

import numba
import numpy as np

from benchmarks.harness import Table, microseconds
from espalier import SamplingConfig, Vocab
from espalier.constraints.base import Compiled
from espalier.constraints.compiler import Compiler
from espalier.constraints.spec import JsonSchema
from espalier.decoding.masking import mask_plan
from espalier.decoding.plan import Job
from espalier.decoding.ports import Extend, Rows, SequenceId
from espalier.decoding.step.record import Watch
from espalier.engines.scheduling.drive import drive
from espalier.sampling.chain import Chain
from espalier.sampling.draw import RandomStream
from espalier.sampling.fast.kernels.rows import draw_row
from espalier.sampling.fast.program import inputs_of, program_of
from espalier.tokens import mask as masks

WIDTHS, BATCHES = (2304, 32_000, 131_072), (1, 8, 32)
TOKENS, ROUNDS, POOL = 64, 9, 16
SCHEMA = JsonSchema({"type": "array", "items": {"type": "string"}, "minItems": 500})
CONFIGS = {"the default": SamplingConfig(), "greedy": SamplingConfig(temperature=0.0, repetition_penalty=1.0)}


class TableModel:
    """A StepModel that gives the rows of a table in turn, each `(1, V)`."""

    def __init__(self, width: int) -> None:
        rng = np.random.default_rng(3)
        law = -1.3 * np.log(np.arange(1, width + 1)) + 12.0  # (V,) float64, Zipf's law
        self._rows = [rng.permutation(law)[None].astype(np.float32) for _ in range(POOL)]
        for row in self._rows:
            row[0, -1] = -30.0  # the end of a text would end a run early
        self._turn, self._ids = itertools.cycle(self._rows), itertools.count()
        self._lengths: dict[SequenceId, int] = {}
        self.width, self.max_positions, self.max_sequences, self.capacity = width, 4096, 64, 1 << 20
        self.can_truncate = True

    @property
    def rows(self) -> Rows:
        """The table, `(POOL, V) float32`."""
        return np.concatenate(self._rows)

    def new(self) -> SequenceId:
        sequence = SequenceId(next(self._ids))
        self._lengths[sequence] = 0
        return sequence

    def extend(self, work: Sequence[Extend]) -> list[Rows]:
        for item in work:
            self._lengths[item.sequence] += len(item.tokens)
        return [next(self._turn) for _ in work]

    def length(self, sequence: SequenceId) -> int:
        return self._lengths[sequence]

    def fork(self, sequence: SequenceId) -> SequenceId:
        raise NotImplementedError("the strategy `mask` forks nothing")

    def truncate(self, sequence: SequenceId, length: int) -> None:
        raise NotImplementedError("the strategy `mask` takes nothing back")

    def free(self, sequence: SequenceId) -> None:
        del self._lengths[sequence]


def vocab_of(width: int) -> Vocab:
    """All bytes, then words of two to seven letters, then EOS."""
    rng = np.random.default_rng(5)
    words = {bytes([i]) for i in range(256)}
    while len(words) < width - 1:
        words.add(bytes(rng.integers(97, 123, size=int(rng.integers(2, 8))).tolist()))
    return Vocab.from_tokens([*sorted(words), b""], eos_ids=[width - 1])


def main() -> None:
    table = Table({"µs a token": "<34"} | {f"batch {size}": ">12.1f" for size in BATCHES})
    for width in WIDTHS:
        vocab, model = vocab_of(width), TableModel(width)
        constraint = Compiler(vocab).compile(SCHEMA)
        for name, config in CONFIGS.items():
            for kind, one in (("free", None), ("JSON", constraint)):
                found = [loop(model, vocab, config, one, size) for size in BATCHES]
                table.row(f"{width:>7} {name}, {kind:<14}", *found)
    print()
    table = Table({"µs a draw, the default": "<34", "row by row": ">12.2f", "in one call": ">12.2f", "÷": ">12.2f"})
    for width in WIDTHS:
        for count in (10, width // 2):
            single, together = draws(TableModel(width).rows, count)
            table.row(f"{width:>7}, {count:>6} allowed", single, together, single / together)


def loop(model: TableModel, vocab: Vocab, config: SamplingConfig, constraint: Compiled | None, size: int) -> float:
    """µs of CPU time a token of `size` sequences in lock-step; the first round warms."""

    def run() -> None:
        for _ in drive(model, [mask_plan(job(vocab, config, constraint, number)) for number in range(size)]):
            pass

    return statistics.median(microseconds(run, TOKENS * size) for _ in range(ROUNDS))


def job(vocab: Vocab, config: SamplingConfig, constraint: Compiled | None, number: int) -> Job:
    return Job(
        vocab=vocab,
        prompt=(65, 66, 67),
        matcher=None if constraint is None else constraint.matcher(),
        chain=Chain(config),
        stream=RandomStream(7, number),
        max_tokens=TOKENS,
        watch=Watch("off"),
    )


def draws(rows: Rows, count: int) -> tuple[float, float]:
    """µs a row: a kernel call for each row, and one for all, without what Python does to ask for it."""
    width = rows.shape[1]
    chain = Chain(CONFIGS["the default"])
    chain.start(list(range(100, 164)))
    bits = masks.from_ids(np.random.default_rng(1).choice(width, size=count, replace=False), width)
    program = chain.kept(program_of)
    if program is None:
        raise AssertionError("the default is drawn in a kernel")
    inputs: list[Any] = [
        inputs_of(row, bits, chain, program, program.drawing, int(row.argmax()), 0.0, 0.4) for row in rows
    ]
    shared, favourites = inputs[0][2:7], np.array([each.favourite for each in inputs])
    stacked, tokens = np.stack([bits] * len(rows)), np.empty(len(rows), dtype=np.int64)

    def single() -> None:
        for each in inputs:
            draw_row(*each)

    def together() -> None:
        _draw_rows(rows, stacked, *shared, favourites, 0.0, 0.4, tokens)

    found: list[list[float]] = [[], []]
    for _ in range(20 * ROUNDS):
        for times, run in zip(found, (single, together), strict=True):
            times.append(microseconds(run, len(rows)))
    return statistics.median(found[0]), statistics.median(found[1])


@numba.njit
def _draw_rows(rows, bits, tokens, said, losses, settings, room, favourites, chance, uniform, out):  # type: ignore[no-untyped-def]
    for row in range(rows.shape[0]):
        drawn = draw_row(rows[row], bits[row], tokens, said, losses, settings, room, favourites[row], chance, uniform)
        out[row] = drawn[0]


if __name__ == "__main__":
    main()
