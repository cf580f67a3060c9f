"""Tekken's 131,072 ids, with compilers of ours and matchers of llguidance over them, and walks that both take."""

from __future__ import annotations

import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from llguidance import LLMatcher, LLParserLimits, LLTokenizer
from llguidance.numpy import fill_next_token_bitmask

from benchmarks.schema.llguidance_peer import LlgBackend
from espalier.constraints.compiler import Compiler
from espalier.constraints.spec import Regex
from espalier.tokens import mask as masks
from espalier.tokens.trie import TokenTrie, load_trie
from espalier.tokens.vocab import Vocab
from tests.tokenizers import tekken_vocab


class Tekken:
    """The vocabulary and what is made of it once: the trie is measured elsewhere (`constraints/vocabulary.py`)."""

    def __init__(self, vocab: Vocab | None = None) -> None:
        self.vocab = vocab or tekken_vocab()
        self.trie: TokenTrie = load_trie(self.vocab, Path(tempfile.gettempdir()))
        self.compiler().compile(Regex("a|b")).matcher().mask()  # numba compiles or loads

    def compiler(self) -> Compiler:
        """A compiler that has compiled nothing."""
        compiler = Compiler(self.vocab)
        compiler._trie = self.trie
        return compiler

    def encode(self, text: str) -> list[int]:
        if self.vocab.encoder is None:  # a part of the vocabulary
            return list(self.trie.segment(text.encode()) or ())
        return self.vocab.encoder(text)

    @property
    def llguidance(self) -> LLTokenizer:
        return _backend(self).tokenizer

    def llguidance_start(self, lark: str, limits: LLParserLimits | None = None) -> LLMatcher:
        """llguidance's matcher of a grammar in its Lark, with forcing off: with it on, a mask holds one token where
        others are allowed. Raises ValueError where it is refused."""
        more = {} if limits is None else {"limits": limits}
        start = LLMatcher(self.llguidance, f'%llguidance {{"no_forcing": true}}\n{lark}', log_level=0, **more)
        if start.is_error():
            raise ValueError(start.get_error())
        return start


@cache
def tekken() -> Tekken:
    return Tekken()


@cache
def _backend(tekken: Tekken) -> LlgBackend:
    return LlgBackend(tekken.vocab, tekken.trie)


def walk(compiled: Any, tokens: list[int]) -> int:
    """A mask and an advance for each token by our matcher: how many tokens were allowed."""
    matcher = compiled.matcher()
    for count, token in enumerate(tokens):
        if not masks.test(matcher.mask(), token):
            return count
        matcher.advance(token)
    return len(tokens)


def walk_llguidance(start: LLMatcher, tokens: list[int], width: int) -> int:
    """The same by a copy of llguidance's matcher."""
    matcher = start.deep_copy()
    for count, token in enumerate(tokens):
        out = np.zeros(masks.words(width), dtype=np.int32)
        fill_next_token_bitmask(matcher, out.reshape(1, -1), 0)
        if not masks.test(out, token) or not matcher.consume_token(token):
            return count
    return len(tokens)


def all_of(count: int, tokens: list[int], who: str) -> None:
    """Raises SystemExit where a walk ended before the last token."""
    if count != len(tokens):
        raise SystemExit(f"{who} refuses token {count}")
