"""Regexes on Tekken's 131,072 ids: our automata against llguidance's regex engine, on which the choice rests.

Same pattern, same text, checked to be accepted by both. Compile: from the pattern to the first mask, included. Cold:
a first walk over the text, a mask and an advance each token. Warm: a second walk. CPU time, medians of rounds in which
the two take turns. llguidance with forcing off, default slices.
"""

from __future__ import annotations

import re
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from llguidance import LLMatcher, LLTokenizer, TokenizerWrapper
from llguidance.numpy import fill_next_token_bitmask

from benchmarks.schema.llguidance_peer import _View
from espalier.constraints.compiler import Compiler
from espalier.constraints.spec import Regex
from espalier.tokens import mask as masks
from espalier.tokens.trie import load_trie
from tests.tokenizers import tekken_vocab

ROUNDS = 5
WORDS = "The quick brown fox jumps over the lazy dog while the old clock in the hall strikes nine "
CASES = {
    "date": (r"\d{4}-\d{2}-\d{2}", "2026-11-21"),
    "e-mail": (r"[A-Za-z0-9._%+-]+@[A-Za-z0-9.-]+\.[A-Za-z]{2,}", "rosa.parker@mail.example.org"),
    "sentence": (r"[A-Z][a-z]+( [a-z]+)*[.!?]", WORDS.strip().capitalize() + "."),
    "prose": (r"(\w+\s)+", WORDS * 3),
    "any, bounded": (r".{1,400}", (WORDS * 4)[:390]),
    "letters, bounded": (r"[a-z]{1,500}", "abcdefghij" * 40),
    "unicode": (r"\p{L}+( \p{L}+)*", "Zoë läuft über die Straße nach Hause " * 4 + "heim"),
    "alternatives": ("|".join(f"word{i}" for i in range(500)), "word321"),
    "quoted": (r'"([^"\\]|\\.)*"', '"' + WORDS * 3 + '"'),
}


def main() -> None:
    vocab = tekken_vocab()
    trie = load_trie(vocab, Path(tempfile.gettempdir()))
    tokenizer = LLTokenizer(TokenizerWrapper(_View(vocab, trie)), n_vocab=vocab.width, eos_token=list(vocab.eos_ids))
    Compiler(vocab).compile(Regex("a|b")).matcher().mask()  # numba compiles or loads
    head = ("pattern", "tokens", "compile", "cold", "warm µs", "llg compile", "llg cold", "llg warm µs", "cold ÷ llg")
    print(f"{head[0]:>18}" + ("{:>12}" * (len(head) - 1)).format(*head[1:]))
    for name, (pattern, text) in CASES.items():
        tokens = vocab.encoder(text)  # type: ignore[misc]  # tekken has one
        rows = []
        for _ in range(ROUNDS):
            compiler = Compiler(vocab)
            compiler._trie = trie  # the trie is measured elsewhere
            ours, compiling = timed(lambda compiler=compiler, pattern=pattern: first(compiler, pattern))
            _, cold = timed(lambda ours=ours, tokens=tokens: walk_ours(ours, tokens))
            _, warm = timed(lambda ours=ours, tokens=tokens: walk_ours(ours, tokens))
            theirs, llg_compiling = timed(lambda pattern=pattern: first_theirs(tokenizer, pattern, vocab.width))
            _, llg_cold = timed(lambda theirs=theirs, tokens=tokens: walk_theirs(theirs, tokens, vocab.width))
            _, llg_warm = timed(lambda theirs=theirs, tokens=tokens: walk_theirs(theirs, tokens, vocab.width))
            per = 1e3 / len(tokens)
            rows.append([compiling, cold, warm * per, llg_compiling, llg_cold, llg_warm * per])
        a, b, c, d, e, f = map(statistics.median, zip(*rows, strict=True))
        print(
            f"{name:>18}{len(tokens):>12}{a:>12.2f}{b:>12.2f}{c:>12.2f}{d:>12.2f}{e:>12.2f}{f:>12.2f}{b / e:>12.2f}",
            flush=True,
        )
    print("\ncompile, cold: ms of CPU")


def timed(action: Callable[[], Any]) -> tuple[Any, float]:
    start = time.process_time()
    result = action()
    return result, (time.process_time() - start) * 1e3


def first(compiler: Compiler, pattern: str) -> Any:
    compiled = compiler.compile(Regex(pattern))
    compiled.matcher().mask()
    return compiled


def walk_ours(compiled: Any, tokens: list[int]) -> None:
    matcher = compiled.matcher()
    for token in tokens:
        if not masks.test(matcher.mask(), token):
            raise SystemExit(f"ours refuses {token}")
        matcher.advance(token)


def first_theirs(tokenizer: LLTokenizer, pattern: str, width: int) -> LLMatcher:
    body = re.sub(r"(?<!\\)((?:\\\\)*)/", r"\1\\/", pattern)
    start = LLMatcher(tokenizer, f'%llguidance {{"no_forcing": true}}\nstart: /{body}/', log_level=0)
    if start.is_error():
        raise SystemExit(start.get_error())
    fill_next_token_bitmask(start.deep_copy(), np.zeros((1, masks.words(width)), dtype=np.int32), 0)
    return start


def walk_theirs(start: LLMatcher, tokens: list[int], width: int) -> None:
    matcher = start.deep_copy()
    for token in tokens:
        out = np.zeros(masks.words(width), dtype=np.int32)
        fill_next_token_bitmask(matcher, out.reshape(1, -1), 0)
        if not masks.test(out, token) or not matcher.consume_token(token):
            raise SystemExit(f"llguidance refuses {token}")


if __name__ == "__main__":
    main()
