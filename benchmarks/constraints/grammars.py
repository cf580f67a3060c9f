"""Masks of llama.cpp's eight sample grammars on Tekken's 131,072 ids: ours against llguidance's.

    python benchmarks/constraints/grammars.py FOLDER_WITH_GBNF_FILES [--rounds 5] [--tokens 500] [--wall]

For each grammar a text of some 500 tokens is sampled from it. Cold: a compiled grammar that was never asked walks the
text once, a mask and an advance each token, a copy of every mask included. Warm: the same once more. Both are CPU time
(--wall: wall time), medians over rounds in which the engines take turns. Compiling is a column of its own; what numba
compiles or loads, once a process, is measured apart and printed first. llguidance takes its own translation of GBNF
with its default slices (they help it in strings) and with forcing off, since with it on a mask holds one token where
others are allowed; it has no warm step of a shared
grammar, so its second walk is a fresh copy of the same matcher.
Where llguidance refuses a token of the text, its column says after how many.
"""

from __future__ import annotations

import argparse
import gc
import sys
import time
from pathlib import Path
from random import Random
from typing import Any

from llguidance.gbnf_to_lark import gbnf_to_lark

from benchmarks.harness import Table, medians, timed
from benchmarks.tekken import Tekken, all_of, tekken, walk, walk_llguidance
from espalier.constraints.matching.automaton import compile_grammar
from espalier.constraints.spec import Gbnf
from espalier.grammar.builtin import GRAMMARS
from espalier.grammar.parser import parse
from espalier.grammar.sample import SentenceSampler

JOINED = {"english": " ", "japanese": " ", "list": "", "arithmetic": "", "c": ""}
"""Grammars whose sentences joined by this are a sentence again: the sampler's own are short."""


def sampled(made: Tekken, name: str, source: str, count: int) -> list[int]:
    """The tokens of a text of the grammar, `count` at most."""
    rng, sampler = Random(0), SentenceSampler(parse(source))
    if name not in JOINED:
        text = max((sampler.draw(rng, max_size=8 * count) for _ in range(200)), key=len)
        return made.encode(text)[:count]
    parts: list[str] = []
    total = 0
    while total < count:
        part = sampler.draw(rng, max_size=3 * count)
        if part:
            parts.append(part)
            total += len(made.encode(part))
    return made.encode(JOINED[name].join(parts))[:count]


FOLDER = Path(__file__).resolve().parents[3] / "shared" / "data" / "gbnf"


def sources(folder: Path = FOLDER) -> dict[str, str]:
    """llama.cpp's sample grammars by name; where they are not there, our built-in ones."""
    found = {path.stem: path.read_text(encoding="utf-8") for path in sorted(folder.glob("*.gbnf"))}
    return found or {name: str(GRAMMARS.load(name)) for name in GRAMMARS}


def ours(made: Tekken, source: str) -> Any:
    return compile_grammar(parse(source), Gbnf(source), made.vocab, made.trie)


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, nargs="?", default=FOLDER)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=500)
    parser.add_argument("--wall", action="store_true", help="wall time and not CPU time")
    arguments = parser.parse_args([] if argv is None else argv)
    clock = time.perf_counter if arguments.wall else time.process_time
    made = tekken()
    warm_up = ours(made, 'root ::= "a" root "b" | "c"')
    _, loading = timed(lambda: walk(warm_up, made.encode("aacbb")), clock)
    print(f"numba, once a process: {loading:.0f} ms\n")
    # What the tokenizers hold is not ours to collect while we measure.
    gc.collect()
    gc.freeze()
    table = Table(
        {
            "grammar": ">12",
            "tokens": ">12",
            "compile": ">12.1f",
            "cold": ">12.1f",
            "warm µs": ">12.2f",
            "llg compile": ">12.1f",
            "llg cold": ">12.1f",
            "llg again": ">12.1f",
            "cold ÷ llg": ">12.2f",
        }
    )
    for name, source in sources(arguments.folder).items():
        tokens = sampled(made, name, source, arguments.tokens)
        *found, taken = medians(measured(made, source, tokens, clock) for _ in range(arguments.rounds))
        note = "" if taken == len(tokens) else f"  llguidance refuses token {taken:.0f}"
        table.row(name, len(tokens), *found, found[1] / found[4], note)
    print("\ncompile, cold, llg: ms")


def measured(made: Tekken, source: str, tokens: list[int], clock: Any) -> list[float]:
    """Ours: ms to compile and of a cold walk, µs of a warm step; llguidance: ms to compile, of a walk, of a second one,
    and how many tokens it took."""
    compiled, compiling = timed(lambda: ours(made, source), clock)
    walks = [timed(lambda: all_of(walk(compiled, tokens), tokens, "ours"), clock)[1] for _ in range(2)]
    start, llg_compiling = timed(lambda: made.llguidance_start(gbnf_to_lark(source)), clock)
    taken, llg_cold = timed(lambda: walk_llguidance(start, tokens, made.vocab.width), clock)
    _, again = timed(lambda: walk_llguidance(start, tokens, made.vocab.width), clock)
    return [compiling, walks[0], walks[1] * 1e3 / len(tokens), llg_compiling, llg_cold, again, taken]


if __name__ == "__main__":
    main(sys.argv[1:])
