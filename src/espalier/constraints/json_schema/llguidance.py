"""Matchers over llguidance. No other module imports it.

Grammars are compiled with forcing off (`no_forcing`), because our token masks depend on bytes only: at forced positions
llguidance would otherwise allow only the canonical token. EOS is handled here and never shown to llguidance, so every
EOS id is allowed exactly when the text is complete.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from llguidance import LLMatcher, LLParserLimits, LLTokenizer, TokenizerWrapper
from llguidance.numpy import fill_next_token_bitmask

from espalier.automata.reasons.blame import Blame
from espalier.constraints.base import Compiled, Matcher
from espalier.constraints.matching.base import MatcherBase, check_undo
from espalier.constraints.spec import Spec
from espalier.errors import LimitExceeded, NotAvailable, VocabError
from espalier.tokens import mask as masks
from espalier.tokens.mask import Mask
from espalier.tokens.trie import TokenTrie
from espalier.tokens.vocab import Vocab

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


class Fallback(Protocol):
    """The same schema as an automaton, for the questions that llguidance cannot answer."""

    def compiled(self) -> Compiled:
        """Raises NotAvailable if the schema has no automaton."""
        ...


class LlgCompiled:
    """A grammar in llguidance's Lark, compiled for one vocabulary. Immutable; a matcher is a deep copy."""

    def __init__(self, spec: Spec, backend: LlgBackend, lark: str, *, fallback: Fallback | None = None) -> None:
        self.spec = spec
        self.vocab = backend.vocab
        self.spelled: Mapping[int, bytes] = {}
        self.fallback = fallback
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

    __slots__ = ("_fallback", "_fallback_taken", "_finished", "_inner", "_tokens")

    def __init__(self, compiled: LlgCompiled, inner: Any, tokens: tuple[int, ...] = (), finished: bool = False) -> None:
        super().__init__(compiled)
        self._inner = inner
        self._tokens = [*tokens]  # without EOS
        self._finished = finished
        self._fallback: Matcher | None = None
        self._fallback_taken = 0  # how many of the tokens the fallback has taken

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
        if self._fallback is not None and self._fallback_taken > len(self._tokens):
            self._fallback.rollback(self._fallback_taken - len(self._tokens))
            self._fallback_taken = len(self._tokens)

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
        if token in self._vocab.eos_ids:
            return Blame(member=self._kind, reason="the text is not complete, so it cannot end here")
        if not self._vocab.bytes_of(token):
            return Blame(member=self._kind, reason="a special token or padding, which stands outside the text")
        fallback = self._fallback_matcher()
        if fallback.allows(token):
            raise NotAvailable("llguidance does not say where a token fails, and our automaton allows this token")
        return fallback.explain(token)

    def shortest_completion(self) -> tuple[int, ...]:
        if self._finished:
            return ()
        if self.is_accepting:
            return (self._compiled.vocab.eos_ids[0],)
        found = self._fallback_matcher().shortest_completion()
        if self._inner.validate_tokens(list(found[:-1])) != len(found) - 1:
            raise NotAvailable("llguidance does not know the shortest completion, and refuses the automaton's")
        return found

    def _fallback_matcher(self) -> Matcher:
        """A matcher of the same schema's automaton after the same tokens. Raises NotAvailable."""
        if self._compiled.fallback is None:
            raise NotAvailable(
                "llguidance does not say where a token fails, or how a text is completed",
                hint="the mask says what is allowed: matcher.allows(token)",
            )
        if self._fallback is None:
            self._fallback, self._fallback_taken = self._compiled.fallback.compiled().matcher(), 0
        for token in self._tokens[self._fallback_taken :]:
            if not self._fallback.allows(token):
                raise NotAvailable("the text so far has a spelling that our automaton does not allow")
            self._fallback.advance(token)
            self._fallback_taken += 1
        return self._fallback

    def _check(self) -> None:
        """Fail closed: a matcher in error must never look like one that allows nothing."""
        if self._inner.is_error():
            raise LimitExceeded(
                f"llguidance stopped: {_first_line(self._inner.get_error())}",
                hint="the grammar is too costly at this point",
            )
