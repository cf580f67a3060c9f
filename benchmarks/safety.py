"""Safety filters: what a step costs at V = 131,072, what making one costs, and what ordinary text sets off.

A step is `decide` with the trace off on a row of logits (`sampling/steps.py`), with the filter's mask or without any,
in turns; medians of CPU time. In progress: a text that has just begun matches of several categories. The texts are this
project's own source, tests and docs and those of `safety_corpus.py`, by the search that judges outputs, so every line
that is told was looked at by none of the automata; `python -m benchmarks.safety --false-positives` does this alone.
"""

from __future__ import annotations

import random
import statistics
import sys
import tempfile
import time
from collections import Counter
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.harness import Table, microseconds
from benchmarks.sampling.steps import ROUNDS, WIDTH, chain_after, prompt, rows
from espalier import Safety, SamplingConfig, Vocab
from espalier.constraints.base import Matcher
from espalier.constraints.compiler import Compiler
from espalier.constraints.safety.catalogue import CATEGORIES, NEEDS_LIST, PATTERNS, PRESETS
from espalier.constraints.safety.compile import filter_of
from espalier.constraints.safety.judge import find
from espalier.constraints.safety.parts import forget_parts
from espalier.decoding.step.decide import decide
from espalier.decoding.step.record import Watch
from espalier.sampling.draw import RandomStream
from espalier.sampling.filters import FilterContext
from tests.safety_rates.corpus import corpus

ROOT = Path(__file__).parents[1]
BEGUN = ("then rm -r", "password", "4111 1111 1111 111", "how to make a ", "cat x | ba", "AKIAIOSF")
TEXTS = {"source (Python)": ("src", "*.py"), "tests (Python)": ("tests", "*.py"), "docs (Markdown)": ("docs", "*.md")}


TEXTS_MET = 200
CORPUS = 400_000
"""Bytes of the templates' texts."""


def main() -> None:
    if "--false-positives" not in sys.argv:
        making()
        steps()
    false_positives()


def making() -> None:
    print(f"{'s, the automaton':<22}{'made':>8}{'read':>8}{'states':>10}")
    with tempfile.TemporaryDirectory() as folder:
        for name in PRESETS:
            taken = []
            for kept in (None, Path(folder), Path(folder)):  # made, written, read
                filter_of.cache_clear()
                forget_parts()
                start = time.process_time()
                found = filter_of(Safety(name), kept)
                taken.append(time.process_time() - start)
            print(f"{name:<22}{taken[0]:>8.2f}{taken[2]:>8.2f}{found.tables.states:>10}", flush=True)


def vocabulary() -> Vocab:
    """Bytes, and pieces of words of the project's docs and source as a tokenizer would have them, to the full width."""
    text = "\n".join(path.read_text() for path in sorted((ROOT / "src").rglob("*.py")))
    pieces: dict[bytes, None] = {bytes([byte]): None for byte in range(256)}
    stream = random.Random(5)
    while len(pieces) < WIDTH - 1:
        at, size = stream.randrange(len(text)), 1 + min(int(stream.expovariate(0.25)), 15)
        pieces[text[at : at + size].encode()] = None
    return Vocab.from_tokens([*pieces, b""], eos_ids=[WIDTH - 1])


def steps() -> None:
    vocab = vocabulary()
    compiled = Compiler(vocab).compile(Safety("maximum"))
    compiled.matcher().mask()  # the kernels are compiled
    table, context, watch = rows(), FilterContext(step=0, prompt=(), generated=()), Watch("off")
    config, history = SamplingConfig(), prompt()
    chain, stream = chain_after(config, history), RandomStream(1)

    def step(row: NDArray[np.float32], matcher: Matcher | None) -> None:
        mask = None if matcher is None else matcher.mask()
        decide(row, mask, vocab=vocab, chain=chain, stream=stream, context=context, watch=watch)

    places = {"nothing in progress": [b"The quick brown fox. "], "in progress": [text.encode() for text in BEGUN]}
    print()
    shown = Table(
        {
            "µs a step, V = 131,072": "<28",
            "without": ">10.1f",
            "maximum": ">10.1f",
            "ratio": ">8.2f",
            "first time": ">12.0f",
        }
    )
    for name, texts in places.items():
        bare: list[float] = []
        filtered: list[float] = []
        cold: list[float] = []
        for text in texts:
            matcher = compiled.matcher()
            for byte in text:
                matcher.advance(vocab.tokens.index(bytes([byte])))
            cold.append(microseconds(matcher.mask))
            for turn in range(ROUNDS + 1):
                for row in table:
                    one, other = microseconds(partial(step, row, None)), microseconds(partial(step, row, matcher))
                    if turn:
                        bare.append(one)
                        filtered.append(other)
        a, b = statistics.median(bare), statistics.median(filtered)
        shown.row(name, a, b, b / a, statistics.median(cold))
    print("first time: the mask of a state that was never met before, which the filter then remembers")
    never_met(vocab)


def never_met(vocab: Vocab) -> None:
    """The masks of states that this project's docs and source lead to, token by token, where they are new."""
    machine = Compiler(vocab).compile(Safety("maximum")).machine  # type: ignore[attr-defined]
    source, stream, taken, seen = "\n".join(own_texts()["source (Python)"]), random.Random(3), [], set()
    ids = {token: number for number, token in enumerate(vocab.tokens)}
    for _ in range(TEXTS_MET):
        at, state = stream.randrange(len(source)), machine.start
        text = source[at : at + 120].encode()
        while text and state is not None:
            size = next(size for size in range(16, 0, -1) if text[:size] in ids)
            state, text = machine.advance(state, ids[text[:size]]), text[size:]
            if state is not None and state not in seen:
                seen.add(state)
                taken.append(microseconds(partial(machine.mask, state)))
    taken.sort()
    shares = "".join(f"{taken[int(share * (len(taken) - 1))]:>10.0f}" for share in (0.5, 0.9, 0.99, 1.0))
    print(f"{f'{len(taken)} states, µs':<28}{shares}   median, 90 %, 99 %, most")


def false_positives() -> None:
    options = [one.name for one in PATTERNS if one.is_option]
    spec = Safety("maximum", include=options)
    names = [name for name in CATEGORIES if name not in NEEDS_LIST]
    print(f"\n{'found in':<26}{'KB':>8}" + "".join(f"{name:>16}" for name in names) + "  patterns")
    for name, texts in {**own_texts(), **{name: [text] for name, text in corpus(CORPUS).items()}}.items():
        size, found = 0, Counter[str]()
        for text in texts:
            size += len(text.encode())
            found.update(f"{one.category}/{one.pattern}" for one in find(spec, text))
        counts = [sum(n for rule, n in found.items() if rule.startswith(f"{category}/")) for category in names]
        told = ", ".join(f"{rule} {count}" for rule, count in sorted(found.items()))
        print(f"{name:<26}{size / 1000:>8.0f}" + "".join(f"{n:>16}" for n in counts) + f"  {told}", flush=True)
    print("categories that need a list have none here")


def own_texts() -> dict[str, list[str]]:
    """This project's texts, without those about safety: they hold what is to be caught."""
    return {
        name: [path.read_text() for path in sorted((ROOT / folder).rglob(pattern)) if "safety" not in path.name]
        for name, (folder, pattern) in TEXTS.items()
    }


if __name__ == "__main__":
    main()
