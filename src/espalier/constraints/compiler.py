"""Compiles specs for one vocabulary and caches the results; `ConstraintKind` says what there is about one kind.

It does not know how any kind is compiled (`kinds.py`). Importing it is quick, because every spec does: what compiling
needs is imported by the functions that need it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from espalier.constraints.base import Verdict
from espalier.constraints.cache import ConstraintCache
from espalier.constraints.kind_table import KINDS
from espalier.constraints.spec import Spec
from espalier.errors import SpecError, UnknownName, UnsupportedError
from espalier.owners import owner
from espalier.time_limit import WorkLock

if TYPE_CHECKING:
    from espalier.automata.languages.dfa import Dfa
    from espalier.automata.languages.network import Network
    from espalier.constraints.base import Compiled
    from espalier.constraints.watching import WatchedLanguage, WatchedMachine
    from espalier.grammar.ast import Grammar
    from espalier.lexicon.files import WordFiles
    from espalier.tokens.trie import TokenTrie
    from espalier.tokens.vocab import Vocab

Part = TypeVar("Part")
S = TypeVar("S", bound=Spec)


class ConstraintKind(ABC, Generic[S]):
    """One kind of constraint: what can be done with its specs. A kind overrides what it can do, and is one object
    without state. Methods import what they need when they are called."""

    @property
    @abstractmethod
    def spec(self) -> type[S]:
        """The class of its specs, whose `kind` is the kind's name."""

    @abstractmethod
    def compile(self, spec: S, compiler: Compiler) -> Compiled:
        """The spec for one vocabulary. Raises SpecError and its subclasses, UnsupportedError, VocabError,
        LimitExceeded."""

    def automaton(self, spec: S, compiler: Compiler) -> Dfa | Network | None:
        """The accepted texts as an automaton over bytes. Kinds with an automaton can be regions of `Free`, and `AllOf`
        can search them for common ends. A Network is returned only where no Dfa exists; None only by a kind that has
        no automata."""
        return None

    def watched(self, spec: S, compiler: Compiler) -> WatchedLanguage | None:
        """The automaton and the tracker that it needs beside it. None: the automaton needs none."""
        return None

    def machine(self, spec: S, compiler: Compiler) -> WatchedMachine | None:
        """The same as a machine that is explored on demand, for `AllOf`. None: it is made of what `compile` returns, or
        else of the automaton."""
        return None

    def judge(self, spec: S, text: str, words: WordFiles) -> Verdict:
        """The verdict on a finished text, which must not use the matcher."""
        return Verdict(valid=None, judge="none")

    def parse(self, spec: S, text: str) -> Any:
        """The value of a complete text."""
        return text

    def to_gbnf(self, spec: S, compiler: Compiler, before: str) -> Grammar | None:
        """The grammar for llama.cpp's own sampler, see `to_gbnf.grammar_of`. None: it is written from the automaton."""
        return None

    @property
    def has_automaton(self) -> bool:
        """Whether the kind has an `automaton` of its own."""
        return type(self).automaton is not ConstraintKind.automaton

    @property
    def has_judge(self) -> bool:
        """Whether the kind has a `judge` of its own."""
        return type(self).judge is not ConstraintKind.judge

    @property
    def has_parser(self) -> bool:
        """Whether the kind has a `parse` of its own."""
        return type(self).parse is not ConstraintKind.parse


def kind_of(spec: Spec) -> ConstraintKind[Any]:
    """The kind of a spec. Raises UnknownName, with the names there are, where nobody declared it; BrokenPlugin."""
    kind = KINDS.load(spec.kind)
    assert isinstance(kind, ConstraintKind)  # `kinds.py` fills the table, and says so of plug-ins
    return kind


def find_kind(spec: Spec) -> ConstraintKind[Any] | None:
    """As `kind_of`; None where nobody declared the kind."""
    try:
        return kind_of(spec)
    except UnknownName:
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Folders:
    """Folders of files. cache: token tries and the automata of filters, kept between runs; None keeps none. wordlists:
    `<lang>.txt` files that replace the lists shipped with Espalier."""

    cache: Path | None = None
    wordlists: Path | None = None


NOWHERE = Folders()


class Compiler:
    """Compiles specs for one vocabulary. Keeps the token trie and the compiled specs used last.

    Safe across threads: a spec that two threads ask for at once may be compiled twice, and one result is kept.
    """

    def __init__(self, vocab: Vocab, *, folders: Folders = NOWHERE) -> None:
        from espalier.automata.languages.far import FarAutomata  # noqa: PLC0415  # slow to import
        from espalier.lexicon.files import WordFiles  # noqa: PLC0415

        self.vocab = vocab
        self.words = WordFiles.standard(folders.wordlists)
        self._cache_dir = folders.cache
        self._trie: TokenTrie | None = None
        self._parts: dict[str, object] = {}
        self.cache = ConstraintCache((self, vocab, self.words))
        self._lock = WorkLock()
        self.far = FarAutomata()
        self.held_elsewhere: Callable[[Any, Any], Any] | None = None
        """The contract of a JsonSchema in a request of the engine, where it is not what is compiled here that holds it;
        None where it is."""

    @property
    def cache_dir(self) -> Path | None:
        """Where what is made once is kept between runs; None keeps nothing."""
        return self._cache_dir

    @property
    def trie(self) -> TokenTrie:
        """The flat token trie, built or read from disk when first needed."""
        with self._lock:
            if self._trie is None:
                from espalier.tokens.trie import load_trie  # noqa: PLC0415  # slow to import

                self._trie = load_trie(self.vocab, self._cache_dir)
                self.cache.share(self._trie)
            return self._trie

    def part(self, cls: type[Part]) -> Part:
        """An object that a kind's compiler shares between specs, made once as `cls(vocab, trie)`."""
        with self._lock:
            part = self._parts.get(cls.__qualname__)
            if not isinstance(part, cls):
                part = cls(self.vocab, self.trie)  # type: ignore[call-arg]  # by agreement, see the docstring
                self._parts[cls.__qualname__] = part
                self.cache.share(part)
            return part

    def compile(self, spec: Spec, *, keep: bool = False) -> Compiled:
        """The compiled spec, from the cache where it is there. keep: never drop it from the cache. Raises SpecError and
        its subclasses, UnsupportedError, VocabError, LimitExceeded, and TooManyRequests as `ConstraintCache.check`."""
        if not isinstance(spec, Spec):
            raise SpecError(
                f"a constraint is a Spec such as JsonSchema(...) or Regex(...), not {type(spec).__name__}",
                hint="wrap a schema: JsonSchema({...})",
                field="constraint",
            )
        # A word file that was edited since makes another constraint.
        key = "\n".join([spec.key(), *(f"{lang} {self.words.stamp(lang)}" for lang in spec.word_languages())])
        cached = self.cache.get(owner(), key)
        if cached is not None:
            if keep:
                self.cache.pin(key, cached)
            return cached
        self.cache.check(owner())
        from espalier.automata.masks.layout import MASKS  # noqa: PLC0415  # slow to import

        MASKS.load()  # now, and not within a text
        kind = kind_of(spec)
        with KINDS.blamed(spec.kind):
            compiled = kind.compile(spec, self)
        if keep:
            self.cache.pin(key, compiled)
        else:
            self.cache.put(owner(), key, compiled)
        return compiled

    def has(self, spec: Spec) -> bool:
        """Whether `compile` finds this spec in the cache now, for the calling owner. It waits for no lock and reads no
        file: a spec that names word files is said to be unknown."""
        if spec.word_languages():
            return False
        return self.cache.has(owner(), spec.key())

    def language(self, spec: Spec, *, wanted_by: str) -> Dfa | Network:
        """A spec's automaton over bytes. Raises UnsupportedError, naming `wanted_by`, for a kind without one."""
        kind = find_kind(spec)
        automaton = None if kind is None else kind.automaton(spec, self)
        if automaton is None:
            raise UnsupportedError(
                f"{wanted_by} cannot hold {spec.kind} yet",
                hint=f"put it beside the whole, where it holds for all of the text: AllOf(..., {spec.kind}); "
                f"inside can be: {with_automaton()}",
                field="constraint",
            )
        return automaton


def with_automaton() -> str:
    """The kinds that have an automaton, for people."""
    kinds = {name: KINDS.load(name) for name in KINDS.builtins()}
    return ", ".join(name for name, kind in kinds.items() if isinstance(kind, ConstraintKind) and kind.has_automaton)
