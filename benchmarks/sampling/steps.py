"""One sampling step at V = 131,072, from a row of logits and a packed mask to a token, beside others; one core.

Ours is `decide` with the trace off, everything included. llama.cpp: its sampler chain, with and without writing the
`llama_token_data` array that it works on; forbidden logits are -inf in it already. transformers: its processors with
one thread, softmax and multinomial. All take turns on the same rows; medians of CPU time, in µs. How long a turn is
matters, so there are two tables: with turns of one step ours starts cold, and llama.cpp's chain with the array that its
fill has just written.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from benchmarks.figures import OURS, note
from benchmarks.harness import OFF, Table, medians, microseconds, one_core
from benchmarks.sampling.peers import LlamaCpp, Transformers
from espalier import SamplingConfig, Vocab
from espalier.decoding.step.decide import decide
from espalier.decoding.step.record import Watch
from espalier.sampling.chain import Chain
from espalier.sampling.draw import RandomStream, draw
from espalier.sampling.filters import FilterContext
from espalier.tokens import mask as masks
from espalier.tokens.mask import Mask
from espalier.trace.records import TraceLevel

WIDTH = 131_072
ROWS, ROUNDS = 8, 12
CASES: dict[str, tuple[SamplingConfig, int]] = {
    "the default": (SamplingConfig(), 0),
    "the default, half allowed": (SamplingConfig(), WIDTH // 2),
    "the default, 10 allowed": (SamplingConfig(), 10),
    "no truncation": (SamplingConfig(**OFF), 0),
    "no truncation, half allowed": (SamplingConfig(**OFF), WIDTH // 2),
    "no truncation, 10 allowed": (SamplingConfig(**OFF), 10),
    "top-p 0.95 alone": (SamplingConfig(**OFF | {"top_p": 0.95, "temperature": 1.0}), 0),
    "min-p 0.05 alone": (SamplingConfig(**OFF | {"min_p": 0.05, "temperature": 1.0}), 0),
    "greedy": (SamplingConfig(temperature=0.0, repetition_penalty=1.0), 0),
    "greedy, penalties": (SamplingConfig(temperature=0.0), 0),
    "greedy, 10 allowed": (SamplingConfig(temperature=0.0, repetition_penalty=1.0), 10),
}
"""The default: penalty 1.1 over 64 tokens, top-k 40, top-p 0.95, min-p 0.05, temperature 0.7. Second: ids allowed, 0
is no mask."""


def rows() -> list[NDArray[np.float32]]:
    """`(V,) float32` each, Zipf's law with noise: a few likely tokens and a long tail."""
    rng = np.random.default_rng(2026)
    law = -1.3 * np.log(np.arange(1, WIDTH + 1)) + 12.0  # (V,) float64
    return [rng.permutation(law + rng.normal(scale=0.7, size=WIDTH)).astype(np.float32) for _ in range(ROWS)]


def main() -> None:
    with one_core():
        print("warm: a turn is 8 steps long")
        steps(ROWS)
        print("\ncold: a turn is one step, after the others have used the caches and given memory back")
        steps(1)
        levels()


def steps(size: int) -> None:
    table = Table(
        {
            "µs a step": "<28",
            "ours": ">10.1f",
            "llama.cpp": ">10.1f",
            "with fill": ">10.1f",
            "transform": ">10.0f",
            "÷ llama": ">10.2f",
            "÷ fill": ">10.2f",
            "÷ transf.": ">10.1f",
        }
    )
    for name, (config, count) in CASES.items():
        ours, *others = medians(measured(config, count, size))
        values = dict(
            zip((OURS, "llama.cpp", "llama.cpp with its array", "transformers"), (ours, *others), strict=True)
        )
        note(f"Sampling, {WIDTH:,} ids, {'warm' if size > 1 else 'cold'}", name, "µs", values)
        table.row(name, ours, *others, *(other / ours for other in others))


def measured(config: SamplingConfig, count: int, size: int) -> list[tuple[float, float, float, float]]:
    """µs of each step: ours, llama.cpp's chain, the same with the fill, transformers. size: steps a turn."""
    table, history, mask = rows(), prompt(), allowing(count)
    step = our_step(config, history, mask, "off")
    flags = None if mask is None else masks.unpack(mask, WIDTH)  # (V,) bool
    llama, others = LlamaCpp(config, WIDTH, history), Transformers(config, history, flags)
    banned = [row if flags is None else np.where(flags, row, np.float32(-np.inf)) for row in table]  # (V,) float32 each
    found = []
    for turn in range(ROUNDS + 1):
        for at in range(0, ROWS, size):
            ours = [microseconds(lambda row=row: step(row)) for row in table[at : at + size]]
            pairs = [
                (microseconds(lambda row=row: llama.fill(row)), microseconds(llama.sample))
                for row in banned[at : at + size]
            ]
            theirs = [microseconds(lambda row=row: others.sample(row)) for row in table[at : at + size]]
            if turn:  # the first turn compiles, and warms caches
                found += [(a, bare, fill + bare, b) for a, (fill, bare), b in zip(ours, pairs, theirs, strict=True)]
    llama.close()
    return found


def levels() -> None:
    print()
    shown = Table({"µs a step, the default": "<28"} | dict.fromkeys(("plain", "off", "summary", "full"), ">12.1f"))
    for count in (0, WIDTH // 2, 10):
        table, mask = rows(), allowing(count)
        config, history = SamplingConfig(), prompt()
        runs = [plain_step(config, history, mask)]
        runs += [our_step(config, history, mask, level) for level in ("off", "summary", "full")]
        times: list[list[float]] = [[] for _ in runs]
        for turn in range(ROUNDS + 1):
            for run, found in zip(runs, times, strict=True):
                took = [microseconds(lambda run=run, row=row: run(row)) for row in table]
                found += took if turn else []
        name = f"{count} allowed" if count else "no mask"
        shown.row(name, *map(statistics.median, times))
    print("plain: the functions of the samplers one after the other on the whole row, and nothing recorded")


def our_step(
    config: SamplingConfig, history: list[int], mask: Mask | None, level: TraceLevel
) -> Callable[[NDArray[np.float32]], object]:
    chain, stream = chain_after(config, history), RandomStream(1)
    vocab = Vocab.from_tokens([b"%d" % i for i in range(WIDTH - 1)] + [b""], eos_ids=[WIDTH - 1])
    context = FilterContext(step=len(history), prompt=(), generated=())
    watch = Watch(level)
    return lambda row: decide(row, mask, vocab=vocab, chain=chain, stream=stream, context=context, watch=watch)


def plain_step(
    config: SamplingConfig, history: list[int], mask: Mask | None
) -> Callable[[NDArray[np.float32]], object]:
    chain, stream = chain_after(config, history), RandomStream(1)

    def run(row: NDArray[np.float32]) -> object:
        masked = row if mask is None else np.where(masks.unpack(mask, WIDTH), row, np.float32(-np.inf))  # (V,)
        return draw(chain.shape(masked), stream)

    return run


def chain_after(config: SamplingConfig, history: list[int]) -> Chain:
    chain = Chain(config)
    chain.start(history[:20])
    for token in history[20:]:
        chain.on_token(token)
    return chain


def prompt() -> list[int]:
    return [int(i) for i in np.random.default_rng(7).integers(0, WIDTH, size=200)]


def allowing(count: int) -> Mask | None:
    if not count:
        return None
    ids = np.random.default_rng(11).choice(WIDTH, size=count, replace=False)
    return masks.from_ids(ids, WIDTH)


if __name__ == "__main__":
    main()
