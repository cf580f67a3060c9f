"""llguidance as a peer to compare with: matchers over it. The product does not use it.

Grammars are compiled with forcing off (`no_forcing`), because our token masks depend on bytes only: at forced positions
llguidance would otherwise allow only the canonical token. EOS is handled here and never shown to llguidance, so every
EOS id is allowed exactly when the text is complete.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from llguidance import LLMatcher, LLParserLimits, LLTokenizer, TokenizerWrapper
from llguidance.numpy import fill_next_token_bitmask

from espalier.automata.reasons.blame import Blame
from espalier.constraints.matching.base import MatcherBase, check_undo
from espalier.constraints.spec import Spec
from espalier.errors import LimitExceeded, NotAvailable, VocabError
from espalier.tokens import mask as masks
from espalier.tokens.mask import Mask
from espalier.tokens.trie import TokenTrie
from espalier.tokens.vocab import Vocab

ESCAPES = '"\\\\bfnrt'
"""Each character has one spelling: in keys, `\\u0061` and `\\/` would be second spellings of a declared `a` and `/`."""
WHITESPACE: dict[str, dict[str, Any]] = {
    "natural": {"whitespace_flexible": False, "item_separator": ", ?", "key_separator": ": ?"},
    "compact": {"whitespace_flexible": False, "item_separator": ",", "key_separator": ":"},
    "flexible": {"whitespace_flexible": True, "whitespace_pattern": r"[ \t\r\n]{0,40}"},
}
"""Our layouts, as llguidance takes them: separators are regular expressions."""
FORCED_BYTES_LIMIT = 512  # longer forced runs are returned in pieces


class LlgBackend:
    """llguidance's tokenizer for one vocabulary, made once and shared. Raises VocabError if bytes have no token of
    their own."""

    def __init__(self, vocab: Vocab, trie: TokenTrie) -> None:
        missing = vocab.missing_bytes()
        if missing:
            # A mask could lead into the middle of a character or literal whose next byte no token has: a dead end.
            shown = " ".join(f"{b:02x}" for b in missing[:16])
            raise VocabError(
                f"{len(missing)} byte values have no token of their own: {shown}{' …' if len(missing) > 16 else ''}",
                hint="a constraint could trap the model; use a tokenizer with byte fallback",
            )
        self.vocab = vocab
        self.trie = trie
        self.tokenizer = LLTokenizer(
            TokenizerWrapper(_View(vocab, trie)), n_vocab=vocab.width, eos_token=list(vocab.eos_ids)
        )


class _View:
    """The attributes that llguidance's TokenizerWrapper reads."""

    def __init__(self, vocab: Vocab, trie: TokenTrie) -> None:
        texts = vocab.special_texts
        # Specials need some bytes here, or llguidance would treat them as padding; they are listed as special below.
        self.tokens = [texts[i].encode() if i in texts else vocab.bytes_of(i) for i in range(vocab.width)]
        self.eos_token_id = vocab.eos_ids[0]
        self.bos_token_id = None
        self.special_token_ids = sorted(vocab.special_ids)
        self._trie = trie

    def __call__(self, text: str | bytes) -> list[int]:
        data = text.encode() if isinstance(text, str) else text
        return list(self._trie.segment(data) or ())


class LlgCompiled:
    """A grammar in llguidance's Lark, compiled for one vocabulary. Immutable; a matcher is a deep copy."""

    def __init__(self, spec: Spec, backend: LlgBackend, lark: str) -> None:
        self.spec = spec
        self.vocab = backend.vocab
        self.spelled: Mapping[int, bytes] = {}
        self._backend = backend
        # The limits bound the cost of one step. They are wide enough for one-character lexemes, and exceeding them
        # raises LimitExceeded instead of hanging.
        limits = LLParserLimits(step_max_items=2_000_000, initial_lexer_fuel=10_000_000)
        self._start = LLMatcher(backend.tokenizer, lark, log_level=0, limits=limits)
        if self._start.is_error():
            raise LlgRefusal(self._start.get_error())

    @property
    def trie(self) -> TokenTrie:
        return self._backend.trie

    def matcher(self, *, before: str = "") -> LlgMatcher:
        return LlgMatcher(self, self._start.deep_copy())

    def accepts(self, text: str | bytes) -> bool:
        try:
            data = text.encode() if isinstance(text, str) else text
        except UnicodeEncodeError:
            return False  # half a character is in no language
        tokens = self.trie.segment(data)
        if tokens is None:
            return False
        matcher = self.matcher()
        for token in tokens:
            if not matcher.allows(token):
                return False
            matcher.advance(token)
        return matcher.is_accepting


def _first_line(message: str | None) -> str:
    """The first line of llguidance's error message; the rest is its whole state."""
    return (message or "unknown error").splitlines()[0][:300]


class LlgRefusal(Exception):
    """llguidance's own message for a grammar that it does not accept."""


class LlgMatcher(MatcherBase[LlgCompiled]):
    """One sequence's state. Laws: tests/laws.py."""

    __slots__ = ("_finished", "_inner", "_tokens")

    def __init__(self, compiled: LlgCompiled, inner: Any, tokens: tuple[int, ...] = (), finished: bool = False) -> None:
        super().__init__(compiled)
        self._inner = inner
        self._tokens = [*tokens]  # without EOS
        self._finished = finished

    @property
    def is_accepting(self) -> bool:
        return not self._finished and bool(self._inner.is_accepting())

    @property
    def is_finished(self) -> bool:
        return self._finished

    def mask(self) -> Mask:
        vocab = self._compiled.vocab
        out = masks.empty(vocab.width)  # (W,) int32
        if self._finished:
            return out
        fill_next_token_bitmask(self._inner, out.reshape(1, -1), 0)
        self._check()
        masks.set_bits_inplace(out, vocab.eos_ids, self.is_accepting)
        return out

    def allows(self, token: int) -> bool:
        vocab = self._compiled.vocab
        if self._finished or not 0 <= token < vocab.width:
            return False
        if token in vocab.eos_ids:
            return self.is_accepting
        # A special or padding id is outside the byte language, and llguidance would complain about it.
        if not vocab.bytes_of(token):
            return False
        allowed = bool(self._inner.validate_tokens([token]))
        self._check()
        return allowed

    def advance(self, token: int) -> None:
        if not self.allows(token):
            raise self._refusal(token)
        if token in self._compiled.vocab.eos_ids:
            self._finished = True
        elif not self._inner.consume_token(token):
            raise LimitExceeded(f"llguidance stopped: {_first_line(self._inner.get_error())}")
        else:
            self._tokens.append(token)

    def rollback(self, count: int) -> None:
        done = len(self._tokens) + self._finished
        check_undo(count, done)
        if count == 0:
            return
        inner = count - 1 if self._finished else count
        if inner and not self._inner.rollback(inner):
            raise LimitExceeded(f"llguidance could not roll back: {_first_line(self._inner.get_error())}")
        self._finished = False
        del self._tokens[len(self._tokens) - inner :]

    def fork(self) -> LlgMatcher:
        return LlgMatcher(self._compiled, self._inner.deep_copy(), tuple(self._tokens), self._finished)

    def forced(self) -> tuple[int, ...]:
        if self._finished:
            return ()
        # Of bytes only, whatever splits them: it is the tokens that forcing is off for. Changes nothing.
        data = bytes(self._inner.compute_ff_bytes())[:FORCED_BYTES_LIMIT]
        self._check()
        return self._compiled.trie.segment(data) or ()

    def _blame(self, token: int) -> Blame:
        raise NotAvailable("llguidance does not say where a token fails")

    def shortest_completion(self) -> tuple[int, ...]:
        raise NotAvailable("llguidance does not say how a text is completed")

    def _check(self) -> None:
        """Fail closed: a matcher in error must never look like one that allows nothing."""
        if self._inner.is_error():
            raise LimitExceeded(
                f"llguidance stopped: {_first_line(self._inner.get_error())}",
                hint="the grammar is too costly at this point",
            )
