"""Full-vocabulary masks of llama.cpp's sample grammars on Tekken's 131,072 ids: ours against llama.cpp's own C++.

Both walk the same sampled text; per step, the median and the mean over the text, of rounds in which they take turns.
llama.cpp builds such a mask whenever its first draw is refused. Ours: first pass (cold) and second pass (warm).
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.constraints.grammars import ours, sampled, sources
from benchmarks.figures import OURS, note
from benchmarks.harness import Table, medians
from benchmarks.tekken import tekken
from benchmarks.tekken import walk as walk_ours
from tests.llama_grammar import LlamaGrammar, LlamaVocab, write_vocab_gguf

ROUNDS = 3
TOKENS = 120  # llama.cpp needs up to 100 ms for one mask


def main() -> None:
    made = tekken()
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / "vocab.gguf"
        write_vocab_gguf(made.vocab, path)
        llama = LlamaVocab(path)
    walk_ours(ours(made, 'root ::= "a" root "b" | "c"'), made.encode("aacbb"))  # numba compiles or loads
    table = Table(
        {
            "grammar": ">14",
            "tokens": ">14",
            "cold µs": ">14.1f",
            "warm µs": ">14.2f",
            "llama.cpp µs": ">14.1f",
            "÷ cold": ">14.1f",
            "÷ warm": ">14.0f",
        }
    )
    for name, source in sources().items():
        tokens = sampled(made, name, source, TOKENS)
        rounds = []
        for _ in range(ROUNDS):
            compiled = ours(made, source)
            steps = [per_step(lambda compiled=compiled, tokens=tokens: walk_ours(compiled, tokens)) for _ in range(2)]
            rounds.append([*steps, per_step(lambda s=source, tokens=tokens: walk(LlamaGrammar(llama, s), tokens))])
        cold, warm, theirs = medians(rounds)
        note("Masks of llama.cpp's grammars", name, "µs", {OURS: cold, f"{OURS}, known": warm, "llama.cpp": theirs})
        table.row(name, len(tokens), cold, warm, theirs, theirs / cold, theirs / warm)


def per_step(run: Callable[[], int]) -> float:
    """Microseconds a step; `run` says how many steps it took."""
    start = time.perf_counter()
    steps = run()
    return (time.perf_counter() - start) / steps * 1e6


def walk(grammar: LlamaGrammar, tokens: list[int]) -> int:
    """How many masks were built. llama.cpp refuses some tokens that begin a character which a negated class allows;
    its walk ends there."""
    try:
        for step, token in enumerate(tokens):
            if not grammar.mask()[token]:
                return step + 1
            grammar.accept(token)
        return len(tokens)
    finally:
        grammar.close()


if __name__ == "__main__":
    main()
