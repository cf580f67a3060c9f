"""Compiles a `Wordlist` to a DFA over bytes: the words of the list and the writing rules of the language, in UTF-8."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import product

from espalier.automata.languages.dfa import Dfa
from espalier.automata.masks.machine import Machine, State
from espalier.automata.phrases.word_loop import WordParts, word_loop
from espalier.automata.reasons.explain import RulePosition
from espalier.constraints.base import Compiled
from espalier.constraints.compiler import Compiler
from espalier.constraints.matching.automaton import compile_dfa
from espalier.constraints.matching.spelling import check_spelled
from espalier.constraints.words.kept import kept_or_made
from espalier.constraints.words.spec import Wordlist, check_top
from espalier.errors import GrammarError, SpecError
from espalier.lexicon.files import WordFiles
from espalier.lexicon.languages import (
    APOSTROPHES,
    COLONS,
    DASHES,
    DIGITS,
    HYPHENS,
    OPENING,
    QUOTES,
    WHITESPACE,
    Language,
    capitalised,
    fold,
    language,
)

WORD = re.compile(r"[^\W\d_]+")
MAX_APOSTROPHES = 6
"""The most apostrophes in one word; each has two spellings, so every one doubles the spellings of the word."""


def compile_wordlist(spec: Wordlist, compiler: Compiler) -> Compiled:
    """The word list for one vocabulary. Raises as `wordlist_language` does, and VocabError."""
    for field, words in (("words", spec.words or ()), ("extra", spec.extra), ("names", spec.names)):
        check_spelled(words, "words", field, compiler.vocab, compiler.trie)
    compiled = compile_dfa(wordlist_language(spec, compiler), spec, compiler.vocab, compiler.trie)
    compiled.explain_with(lambda machine: _ListReasons(machine, list_name(spec)))
    return compiled


def wordlist_language(spec: Wordlist, compiler: Compiler) -> Dfa:
    """The DFA of the texts. Raises SpecError (`top` beyond the list, no word that stands alone), UnknownName for a
    language without a list, LimitExceeded."""
    rules = language(spec.lang)
    listed = listed_words(spec, compiler.words)
    try:
        return kept_or_made(spec, listed, compiler.cache_dir, lambda: word_loop(_parts(spec, rules, listed)))
    except GrammarError as error:
        raise SpecError(
            "no text can be made of these words", hint="none of them stands alone", field="words"
        ) from error


def listed_words(spec: Wordlist, files: WordFiles) -> tuple[str, ...]:
    """The allowed words, best first: the list up to `top`, then `extra`. Raises SpecError, UnknownName."""
    words = files.words(spec.lang or "") if spec.words is None else spec.words
    if spec.top is not None:
        check_top(spec.top, len(words), list_name(spec))
        words = words[: spec.top]
    return tuple(dict.fromkeys((*words, *spec.extra)))


def list_name(spec: Wordlist) -> str:
    """The name of the list in messages."""
    return "the list" if spec.words is not None else f"the list {spec.lang}"


def separator_characters(spec: Wordlist) -> str:
    """The distinct characters that may stand between words."""
    rules = language(spec.lang)
    more = [WHITESPACE, rules.punctuation, spec.separators]
    more += [QUOTES, rules.quotes] if spec.quotes else []
    more += [COLONS, rules.colons] if spec.colons else []
    more += [DASHES] if spec.hyphens else []
    return "".join(dict.fromkeys("".join(more)))


def _parts(spec: Wordlist, rules: Language, listed: Sequence[str]) -> WordParts:
    elided = {w for w in listed if rules.elisions and w.endswith("'") and w != "'"}
    clitics = {w for w in listed if rules.clitics and w.startswith("'") and w != "'" and w not in elided}
    words = [w for w in listed if w not in elided and w not in clitics]
    known = set(listed)
    names = [*spec.names, *(form for form in rules.capitals if fold(form, rules) in known)]
    capital = spec.capitals != "never"
    return WordParts(
        words=_spell(words),
        capitals=_capitals(words, rules) if capital else (),
        names=_spell(name.replace("’", "'") for name in names),
        elided=_spell(sorted(elided)),
        elided_capitals=_capitals(elided, rules) if capital else (),
        clitics=_spell(sorted(clitics)),
        digits=_spell(DIGITS + rules.digits) if spec.digits else (),
        hyphens=_spell(HYPHENS) if spec.hyphens else (),
        separators=[c.encode() for c in separator_characters(spec)],
        ends=_spell(rules.ends + "\n\r" + (OPENING if spec.quotes else "")),
        max_run=spec.max_run,
        spaced=rules.spaced,
        capitals_anywhere=spec.capitals == "anywhere",
    )


def _spell(texts: Iterable[str]) -> list[bytes]:
    """The words in UTF-8, in all spellings of their apostrophes. Raises SpecError for a word with too many."""
    spellings: list[bytes] = []
    for text in texts:
        if "'" not in text:
            spellings.append(text.encode())
            continue
        pieces = text.split("'")
        if len(pieces) - 1 > MAX_APOSTROPHES:
            raise SpecError(f"the word {text!r} has more than {MAX_APOSTROPHES} apostrophes", field="words")
        spellings += [
            "".join(a + b for a, b in zip(pieces, (*marks, ""), strict=True)).encode()
            for marks in product(APOSTROPHES, repeat=len(pieces) - 1)
        ]
    return spellings


def _capitals(words: Iterable[str], rules: Language) -> list[tuple[bytes, bytes]]:
    """(capitalised, plain) pairs of the first letters of the words, for the start of a sentence."""
    first = {next((letters for letters in rules.digraphs if word.startswith(letters)), word[0]) for word in words}
    return [(form.encode(), letters.encode()) for letters in sorted(first) for form in capitalised(letters, rules)]


class _ListReasons:
    """Names the list as the rule. See `automata/reasons/explain.py`."""

    def __init__(self, machine: Machine, name: str) -> None:
        self.machine = machine
        self._name = name

    def rule_position(self, state: State) -> RulePosition:
        return self._name, None

    def reason(self, state: State, read: bytes, refused: bytes) -> str | None:
        """Names the word, where the token shows one: "fox" for " fox"."""
        token = (read + refused).decode("utf-8", "replace")
        word = next((word for word in WORD.finditer(token) if len(token[: word.end()].encode()) > len(read)), None)
        if word is None or len(token[: word.start()].encode()) > len(read):
            return None  # what is refused stands before the word
        begins = word.start() > 0 or self._from_start(read) == state
        said = "is not in the list" if begins else "continues no word of the list"
        return f"“{word[0]}” {said}"

    def _from_start(self, read: bytes) -> State | None:
        """The state after these bytes at the beginning of a text."""
        state: State | None = self.machine.start
        for byte in read:
            state = None if state is None else self.machine.step(state, byte)
        return state
