"""Full-vocabulary masks of llama.cpp's sample grammars on Tekken's 131,072 ids: ours against llama.cpp's own C++.

Both walk the same sampled text; per step, the median and the mean over the text, of rounds in which they take turns.
llama.cpp builds such a mask whenever its first draw is refused. Ours: first pass (cold) and second pass (warm).
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.constraints.grammars import Ours, sampled, sources
from espalier.tokens.trie import load_trie
from tests.llama_grammar import LlamaGrammar, LlamaVocab, write_vocab_gguf
from tests.tokenizers import tekken_vocab

ROUNDS = 3
TOKENS = 120  # llama.cpp needs up to 100 ms for one mask


def main() -> None:
    vocab = tekken_vocab()
    folder = Path(tempfile.gettempdir())
    trie = load_trie(vocab, folder)
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / "vocab.gguf"
        write_vocab_gguf(vocab, path)
        llama = LlamaVocab(path)
    Ours('root ::= "a" root "b" | "c"', vocab, trie).walk(vocab.encoder("aacbb"))  # type: ignore[misc]  # compiles
    head = ("grammar", "tokens", "cold µs", "warm µs", "llama.cpp µs", "÷ cold", "÷ warm")
    print(("{:>14}" * len(head)).format(*head))
    for name, source in sources().items():
        tokens = sampled(name, source, vocab, TOKENS)
        cold, warm, theirs = [], [], []
        for _ in range(ROUNDS):
            ours = Ours(source, vocab, trie)
            cold.append(per_step(lambda ours=ours, tokens=tokens: ours.walk(tokens)))
            warm.append(per_step(lambda ours=ours, tokens=tokens: ours.walk(tokens)))
            theirs.append(per_step(lambda source=source, tokens=tokens: walk(LlamaGrammar(llama, source), tokens)))
        a, b, c = map(statistics.median, (cold, warm, theirs))
        print(f"{name:>14}{len(tokens):>14}{a:>14.1f}{b:>14.2f}{c:>14.1f}{c / a:>14.1f}{c / b:>14.0f}", flush=True)


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
