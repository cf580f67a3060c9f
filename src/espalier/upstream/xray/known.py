"""What is known of a server: its tokens as Espalier and as llama.cpp's grammar see them, and grammars that were read.

It makes no requests: `upstream/llama_server` asks.
"""

from __future__ import annotations

import threading
from collections import OrderedDict

from espalier.grammar.parser import parse
from espalier.sampling.samplers.context import NO_BREAKERS, Breakers
from espalier.sampling.samplers.dry import resolve_breakers
from espalier.tokens.vocab import Vocab
from espalier.upstream.xray.grammar.kinds import TokenKinds
from espalier.upstream.xray.grammar.matcher import States
from espalier.upstream.xray.grammar.pieces import Pieces
from espalier.upstream.xray.grammar.program import GrammarProgram, compile_program
from espalier.upstream.xray.sampler.settings import SamplerSettings

KEPT = 32


class ServerTokens:
    """The tokens of one server. From any thread; the States that it lends belong to one thread at a time."""

    def __init__(self, vocab: Vocab) -> None:
        self.vocab = vocab
        spelled = [vocab.bytes_of(token) or vocab.special_texts.get(token, "").encode() for token in range(vocab.width)]
        self.pieces = Pieces(spelled, frozenset(vocab.eos_ids))
        self._special = {text: token for token, text in vocab.special_texts.items()}
        self._idle: OrderedDict[str, States] = OrderedDict()
        self._read: OrderedDict[str, tuple[GrammarProgram, TokenKinds]] = OrderedDict()
        self._lock = threading.Lock()

    def borrow(self, grammar: str) -> States:
        """The states of a grammar, to be given back. Raises GrammarError, LimitExceeded."""
        with self._lock:
            states = self._idle.pop(grammar, None)
            if states is not None:
                return states
            known = self._read.get(grammar)
            if known is not None:
                self._read.move_to_end(grammar)
        if known is None:
            program = compile_program(parse(grammar), special=self._special)
            known = program, TokenKinds(program, self.pieces)
            with self._lock:
                self._read[grammar] = known
                while len(self._read) > KEPT:
                    self._read.popitem(last=False)
        program, kinds = known
        return States(program, self.pieces, kinds)

    def give_back(self, grammar: str, states: States) -> None:
        """States that have grown large are dropped."""
        with self._lock:
            if states.is_small:
                self._idle[grammar] = states
            while len(self._idle) > KEPT:
                self._idle.popitem(last=False)

    def breakers(self, settings: SamplerSettings) -> Breakers:
        """DRY's sequence breakers as tokens."""
        if not settings.has_dry:
            return NO_BREAKERS
        return resolve_breakers(settings.dry_sequence_breakers, self.vocab)
