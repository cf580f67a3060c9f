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
import statistics
import sys
import tempfile
import time
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
from llguidance import LLMatcher, LLTokenizer, TokenizerWrapper
from llguidance.gbnf_to_lark import gbnf_to_lark
from llguidance.numpy import fill_next_token_bitmask

from benchmarks.schema.llguidance_peer import _View
from espalier.constraints.matching.automaton import compile_grammar
from espalier.constraints.spec import Gbnf
from espalier.grammar.builtin import GRAMMARS
from espalier.grammar.parser import parse
from espalier.grammar.sample import SentenceSampler
from espalier.tokens import mask as masks
from espalier.tokens.trie import TokenTrie, load_trie
from espalier.tokens.vocab import Vocab
from tests.tokenizers import tekken_vocab

JOINED = {"english": " ", "japanese": " ", "list": "", "arithmetic": "", "c": ""}
"""Grammars whose sentences joined by this are a sentence again: the sampler's own are short."""


def sampled(name: str, source: str, vocab: Vocab, count: int) -> list[int]:
    """The tokens of a text of the grammar, `count` at most."""
    assert vocab.encoder is not None
    rng, sampler = Random(0), SentenceSampler(parse(source))
    if name not in JOINED:
        text = max((sampler.draw(rng, max_size=8 * count) for _ in range(200)), key=len)
        return vocab.encoder(text)[:count]
    parts: list[str] = []
    total = 0
    while total < count:
        part = sampler.draw(rng, max_size=3 * count)
        if part:
            parts.append(part)
            total += len(vocab.encoder(part))
    return vocab.encoder(JOINED[name].join(parts))[:count]


FOLDER = Path(__file__).resolve().parents[3] / "shared" / "data" / "gbnf"


def sources(folder: Path = FOLDER) -> dict[str, str]:
    """llama.cpp's sample grammars by name; where they are not there, our built-in ones."""
    found = {path.stem: path.read_text(encoding="utf-8") for path in sorted(folder.glob("*.gbnf"))}
    return found or {name: str(GRAMMARS.load(name)) for name in GRAMMARS}


class Ours:
    def __init__(self, source: str, vocab: Vocab, trie: TokenTrie) -> None:
        self.compiled = compile_grammar(parse(source), Gbnf(source), vocab, trie)

    def walk(self, tokens: list[int]) -> int:
        """How many tokens were taken."""
        matcher = self.compiled.matcher()
        for i, token in enumerate(tokens):
            if not masks.test(matcher.mask(), token):
                return i
            matcher.advance(token)
        return len(tokens)


class Theirs:
    def __init__(self, source: str, tokenizer: LLTokenizer, width: int) -> None:
        lark = '%llguidance {"no_forcing": true}\n' + gbnf_to_lark(source)
        self.start = LLMatcher(tokenizer, lark, log_level=0)
        if self.start.is_error():
            raise ValueError(self.start.get_error())
        self.width = masks.words(width)

    def walk(self, tokens: list[int]) -> int:
        matcher = self.start.deep_copy()
        for i, token in enumerate(tokens):
            out = np.zeros(self.width, dtype=np.int32)
            fill_next_token_bitmask(matcher, out.reshape(1, -1), 0)
            if not masks.test(out, token) or not matcher.consume_token(token):
                return i
        return len(tokens)


def timed(clock: Any, action: Any) -> tuple[Any, float]:
    start = clock()
    result = action()
    return result, (clock() - start) * 1e3


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, nargs="?", default=FOLDER)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=500)
    parser.add_argument("--wall", action="store_true", help="wall time and not CPU time")
    arguments = parser.parse_args([] if argv is None else argv)
    clock = time.perf_counter if arguments.wall else time.process_time
    vocab = tekken_vocab()
    trie = load_trie(vocab, Path(tempfile.gettempdir()))
    tokenizer = LLTokenizer(TokenizerWrapper(_View(vocab, trie)), n_vocab=vocab.width, eos_token=list(vocab.eos_ids))
    warm_up = Ours('root ::= "a" root "b" | "c"', vocab, trie)
    _, loading = timed(clock, lambda: warm_up.walk(vocab.encoder("aacbb")))  # type: ignore[misc]  # tekken has one
    print(f"numba, once a process: {loading:.0f} ms\n")
    # What the tokenizers hold is not ours to collect while we measure.
    gc.collect()
    gc.freeze()
    head = ("grammar", "tokens", "compile", "cold", "warm µs", "llg compile", "llg cold", "llg again", "cold ÷ llg")
    print(("{:>12}" * len(head)).format(*head))
    for name, source in sources(arguments.folder).items():
        tokens = sampled(name, source, vocab, arguments.tokens)
        rows: list[list[float]] = []
        taken = len(tokens)
        for _ in range(arguments.rounds):
            ours, compiling = timed(clock, lambda source=source: Ours(source, vocab, trie))
            done, cold = timed(clock, lambda ours=ours, tokens=tokens: ours.walk(tokens))
            if done != len(tokens):
                raise SystemExit(f"{name}: refused token {done}")
            _, warm = timed(clock, lambda ours=ours, tokens=tokens: ours.walk(tokens))
            theirs, llg_compiling = timed(clock, lambda source=source: Theirs(source, tokenizer, vocab.width))
            taken, llg_cold = timed(clock, lambda theirs=theirs, tokens=tokens: theirs.walk(tokens))
            _, again = timed(clock, lambda theirs=theirs, tokens=tokens: theirs.walk(tokens))
            rows.append([compiling, cold, warm * 1e3 / len(tokens), llg_compiling, llg_cold, again])
        compiling, cold, warm, llg_compiling, llg_cold, again = map(statistics.median, zip(*rows, strict=True))
        note = "" if taken == len(tokens) else f"  llguidance refuses token {taken}"
        print(
            f"{name:>12}{len(tokens):>12}{compiling:>12.1f}{cold:>12.1f}{warm:>12.2f}"
            f"{llg_compiling:>12.1f}{llg_cold:>12.1f}{again:>12.1f}{cold / llg_cold:>12.2f}{note}",
            flush=True,
        )
    print("\ncompile, cold, llg: ms")


if __name__ == "__main__":
    main(sys.argv[1:])
