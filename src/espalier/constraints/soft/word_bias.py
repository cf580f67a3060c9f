"""The `SoftWordlist` logit filter: subtracts a penalty from tokens that leave the word list. Nothing is forbidden.

A tier follows the automaton of a hard word list with tolerance: after a word that is not listed, the text is off the
list until the next separator. It knows no model; the automata come from `words/compile.py`.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from espalier.automata.masks.cache import ByteCache
from espalier.automata.masks.machine import Machine, State
from espalier.constraints.compiler import Compiler
from espalier.constraints.matching.automaton import CompiledAutomaton
from espalier.constraints.soft.spec import SoftWordlist
from espalier.constraints.words.compile import listed_words, separator_characters
from espalier.constraints.words.spec import Wordlist
from espalier.errors import UnsupportedError
from espalier.lexicon.languages import language
from espalier.sampling.filters import FilterContext, Priority
from espalier.time_limit import WorkLock
from espalier.tokens import mask as masks
from espalier.tokens.mask import Logits
from espalier.tokens.trie import TokenTrie
from espalier.tokens.vocab import Vocab

CACHE_BYTES = 64 * 2**20
"""The memory for the cached penalties of one vocabulary."""
KEPT_LISTS = 8


class TierState(NamedTuple):
    """The state of a text in one tier. state: the automaton's, None off the list. begun: bytes of an incomplete
    character."""

    state: State | None
    begun: bytes = b""


class TierStates(NamedTuple):
    """The states of a text in both tiers. wide: None if the second tier has no words of its own."""

    narrow: TierState
    wide: TierState | None


def word_filter(spec: SoftWordlist, compiler: Compiler) -> WordFilter:
    """The filter of one sequence. Automata and penalties are shared. Raises SpecError, UnknownName, VocabError."""
    return WordFilter(compiler.part(WordPenalties).tiers(spec, compiler))


class WordFilter:
    """A `LogitFilter` that applies the penalties to one sequence."""

    def __init__(self, tiers: Tiers) -> None:
        self._tiers = tiers
        self._places: list[TierStates] = [tiers.start]  # before each token, and now

    @property
    def name(self) -> str:
        return "soft_words"

    @property
    def priority(self) -> Priority:
        return Priority.HIGH

    @property
    def is_on_list(self) -> bool:
        """Whether the last word is, or can still become, a word of the first tier."""
        return self._places[-1].narrow.state is not None

    def apply(self, logits: Logits, context: FilterContext) -> Logits:
        """Logits `(V,) float32` in, a new array of that shape out."""
        return logits - self._tiers.penalties(self._places[-1])

    def on_token(self, token: int) -> None:
        self._places.append(self._tiers.after(self._places[-1], token))

    def rollback(self, count: int) -> None:
        """Raises ValueError for more tokens than there were."""
        if not 0 <= count < len(self._places):
            raise ValueError(f"cannot undo {count} of {len(self._places) - 1} tokens")
        del self._places[len(self._places) - count :]

    def reset(self) -> None:
        """Back to the start of a text."""
        del self._places[1:]

    def fork(self) -> WordFilter:
        other = WordFilter(self._tiers)
        other._places = self._places.copy()
        return other


class WordPenalties:
    """The most recently used soft word lists of one vocabulary, and a bounded cache of their penalties. Thread-safe."""

    def __init__(self, vocab: Vocab, trie: TokenTrie) -> None:
        self.vocab = vocab
        # (V,) bool: tokens with bytes, and EOS. Other special tokens and unused ids get no bias.
        self.judged: NDArray[np.bool_] = np.zeros(vocab.width, dtype=np.bool_)
        self.judged[: len(vocab.tokens)] = [bool(data) for data in vocab.tokens]
        self.judged[list(vocab.eos_ids)] = True
        self.found: ByteCache[tuple[int, TierStates], NDArray[np.float32]] = ByteCache(CACHE_BYTES)
        self._kept: OrderedDict[tuple[int, int, float, float], Tiers] = OrderedDict()
        self._made = 0
        self._lock = WorkLock()

    def tiers(self, spec: SoftWordlist, compiler: Compiler) -> Tiers:
        """The automata of both tiers, compiled if needed. Raises SpecError, UnknownName, VocabError."""
        hard = spec.wordlist
        narrow = _compile_words(hard, compiler)
        size = len(compiler.words.words(hard.lang or "") if hard.words is None else hard.words)
        last = min(spec.last_rank, size)
        wide_spec = _with_top(hard, last)
        wide = narrow if last == hard.top else _compile_words(wide_spec, compiler)
        # By identity, because an edited word file gives a new automaton. The entry keeps its automata alive.
        key = (id(narrow), id(wide), spec.tier2_penalty, spec.tier3_penalty)
        with self._lock:
            tiers = self._kept.get(key)
            if tiers is None:
                self._made += 1
                tiers = Tiers(
                    self,
                    self._made,
                    (spec.tier2_penalty, spec.tier3_penalty),
                    Tier(narrow, hard, compiler),
                    None if wide is narrow else Tier(wide, wide_spec, compiler),
                )
                self._kept[key] = tiers
            self._kept.move_to_end(key)
            while len(self._kept) > KEPT_LISTS:
                self._kept.popitem(last=False)
        return tiers


class Tiers:
    """Both tiers of one spec, and the penalty of each token in each state."""

    def __init__(
        self, shared: WordPenalties, number: int, penalties: tuple[float, float], narrow: Tier, wide: Tier | None
    ) -> None:
        self._shared, self._number = shared, number
        self._second, self._third = np.float32(penalties[0]), np.float32(penalties[1])
        self._narrow, self._wide = narrow, wide
        self.start = TierStates(narrow.start, wide.start if wide else None)

    def after(self, places: TierStates, token: int) -> TierStates:
        """The states after a token. Special tokens, EOS included, change nothing."""
        data = self._shared.vocab.bytes_of(token)
        wide = self._wide.after(places.wide, data) if self._wide and places.wide else None
        return TierStates(self._narrow.after(places.narrow, data), wide)

    def penalties(self, places: TierStates) -> NDArray[np.float32]:
        """The penalty of each token, `(V,) float32`; shared and read-only."""
        key = (self._number, places)
        penalties = self._shared.found.get(key)
        if penalties is None:
            penalties = self._penalties(places)
            penalties.setflags(write=False)
            self._shared.found.put(key, penalties, penalties.nbytes)
        return penalties

    def _penalties(self, places: TierStates) -> NDArray[np.float32]:
        out = np.where(self._shared.judged, self._third, np.float32(0.0))  # (V,) float32
        free = self._narrow.free(places.narrow)  # (V,) bool
        if self._wide and places.wide:
            rare = self._wide.free(places.wide)  # (V,) bool
            out[rare] = self._second
            # A separator is free off the first tier, but not if it ends a word that the second tier must continue.
            free = free & rare
        out[free] = 0.0
        return out


class Tier:
    """The automaton of a hard word list, followed with tolerance."""

    def __init__(self, compiled: CompiledAutomaton, spec: Wordlist, compiler: Compiler) -> None:
        self.compiled = compiled
        self._machine: Machine = compiled.machine
        self._vocab = compiled.vocab
        self._separators = tuple(c.encode() for c in separator_characters(spec))
        self._spaced = language(spec.lang).spaced
        words = [*listed_words(spec, compiler.words), *spec.names]
        self._word_end = _after_a_word(self._machine, words)
        self._off: NDArray[np.bool_] | None = None  # (V,), the free tokens off the list, between two characters
        self.start = TierState(self._machine.start)

    def after(self, place: TierState, data: bytes) -> TierState:
        """The state after any bytes."""
        for byte in data:
            place = self._step(place, byte)
        return place

    def free(self, place: TierState) -> NDArray[np.bool_]:
        """The tokens without a penalty, `(V,) bool`: those that stay on the list. Off the list, EOS and the tokens that
        start with a separator and continue on the list."""
        if place.state is None:
            return self._free_off(place.begun)
        flags = masks.unpack(self._machine.mask(place.state), self._vocab.width)
        if self._machine.accepts(place.state):
            flags[list(self._vocab.eos_ids)] = True
        return flags

    def _step(self, place: TierState, byte: int) -> TierState:
        begun = place.begun if 0x80 <= byte < 0xC0 else b""  # any other byte starts a new character
        character = begun + bytes((byte,))
        half = len(character) < _length(character[0])
        state = None if place.state is None else self._machine.step(place.state, byte)
        if state is not None or half:
            return TierState(state, character if half else b"")
        return TierState(self._after_odd(character))

    def _after_odd(self, character: bytes) -> State | None:
        """The state after a character that is off the list: a separator leads back to the list. In a language without
        spaces any character does, and it may start a word."""
        state = _walk(self._machine, self._word_end, character)
        if self._spaced:
            return state if character in self._separators else None
        return self._word_end if state is None else state

    def _free_off(self, begun: bytes) -> NDArray[np.bool_]:
        if not begun and self._off is not None:
            return self._off
        flags = np.zeros(self._vocab.width, dtype=np.bool_)
        flags[list(self._vocab.eos_ids)] = True
        state = _walk(self._machine, self._word_end, begun)
        if state is not None:
            ids = masks.allowed_ids(self._machine.mask(state), self._vocab.width)
            if self._spaced:
                going_on = [i for i in ids.tolist() if self._separates(begun + self._vocab.tokens[i])]
                ids = np.asarray(going_on, dtype=np.intp)
            flags[ids] = True
        if not begun:
            self._off = flags
        return flags

    def _separates(self, data: bytes) -> bool:
        """Whether the bytes start with a separator, or are a prefix of one."""
        return any(data.startswith(separator) or separator.startswith(data) for separator in self._separators)


def _compile_words(spec: Wordlist, compiler: Compiler) -> CompiledAutomaton:
    compiled = compiler.compile(spec)
    if not isinstance(compiled, CompiledAutomaton):
        raise UnsupportedError(f"a soft word list needs an automaton, not {type(compiled).__name__}")
    return compiled


def _with_top(spec: Wordlist, top: int) -> Wordlist:
    """The spec with another `top`."""
    return Wordlist(**{**{name: getattr(spec, name) for name in spec.json_fields()}, "top": top})


def _after_a_word(machine: Machine, words: Sequence[str]) -> State:
    """The state after one whole word, if possible one that is no prefix of another; the start if no word stands
    alone."""
    ordered = sorted(words)
    after: State | None = None
    for word in words:
        state = _walk(machine, machine.start, word.encode())
        if state is None or not machine.accepts(state):
            continue  # it attaches to another word
        place = bisect_right(ordered, word)
        if place == len(ordered) or not ordered[place].startswith(word):
            return state
        after = state if after is None else after
    return machine.start if after is None else after


def _walk(machine: Machine, state: State | None, data: bytes) -> State | None:
    for byte in data:
        if state is None:
            return None
        state = machine.step(state, byte)
    return state


def _length(first: int) -> int:
    """The number of bytes of a UTF-8 character by its first byte; 1 for a byte that starts none."""
    return 1 if first < 0xC2 or first >= 0xF5 else 2 if first < 0xE0 else 3 if first < 0xF0 else 4
