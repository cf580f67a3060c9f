"""`Ban`: forbids phrases anywhere in the text, byte for byte and across token boundaries."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, TypeAlias, get_args

from espalier.automata.languages.dfa import Dfa
from espalier.automata.masks.machine import Machine, State
from espalier.automata.phrases.occurrences import PhraseSearch, avoiding, search
from espalier.automata.reasons.describe import quoted
from espalier.automata.reasons.explain import RulePosition
from espalier.constraints.base import Compiled
from espalier.constraints.compiler import Compiler
from espalier.constraints.matching.automaton import compile_dfa
from espalier.constraints.matching.undoable import CompiledUndoable
from espalier.constraints.spec import Spec, check_text
from espalier.constraints.verdict import Verdict
from espalier.errors import SpecError
from espalier.lexicon.files import WordFiles

MAX_SHOWN = 5
BanMode: TypeAlias = Literal["mask", "rewind"]


@dataclass(frozen=True, slots=True)
class Ban(Spec):
    """Any text in which none of the phrases occurs, character for character, wherever in the text.

    A phrase that contains another one is dropped: where the shorter is forbidden, the longer cannot occur.

    mode: `mask` forbids the token that would complete a phrase, so the text continues differently after the phrase's
    beginning. `rewind` allows that token to be sampled, then undoes the tokens back to the one in which the phrase
    begins, and samples another one there. Text that may be the beginning of a phrase is not streamed until it is clear
    that it is none. `rewind` works alone or as a member of an AllOf, with the strategy `mask`; once `max_rewinds` are
    used up, it masks. phrases: a list is kept as a tuple. Raises SpecError.
    """

    kind: ClassVar[str] = "ban"
    phrases: Sequence[str]
    mode: BanMode = field(default="mask", kw_only=True)

    def __post_init__(self) -> None:
        if isinstance(self.phrases, str) or not isinstance(self.phrases, Sequence):
            raise SpecError("banned phrases are a list of strings", hint='Ban(["example.com"])', field="phrases")
        if not self.phrases:
            raise SpecError("there is nothing to ban", field="phrases")
        for number, phrase in enumerate(self.phrases):
            check_text(phrase, f"phrase {number}", "phrases")
            if not phrase:
                raise SpecError(f"phrase {number} is empty, which would leave nothing to say", field="phrases")
        if self.mode not in get_args(BanMode):
            raise SpecError(f"unknown mode {self.mode!r}", hint=", ".join(get_args(BanMode)), field="mode")
        object.__setattr__(self, "phrases", _shortest(self.phrases))

    def to_json(self) -> dict[str, Any]:
        """As `Spec.to_json`; the mode only if it is not the default."""
        values: dict[str, Any] = {"kind": self.kind, "phrases": list(self.phrases)}
        return values if self.mode == "mask" else values | {"mode": self.mode}

    @property
    def rewinds(self) -> bool:
        return self.mode == "rewind"


def _shortest(phrases: Sequence[str]) -> tuple[str, ...]:
    """The phrases without duplicates, and without those that contain another one."""
    distinct = tuple(dict.fromkeys(phrases))
    known = frozenset(distinct)
    lengths = sorted({len(phrase) for phrase in distinct})
    pieces = len(lengths) * sum(len(phrase) for phrase in distinct)
    if pieces < len(distinct) ** 2:  # looking up every piece of a phrase is less than comparing it with every other
        return tuple(
            phrase
            for phrase in distinct
            if not any(
                phrase[at : at + size] in known
                for size in lengths[: lengths.index(len(phrase))]
                for at in range(len(phrase) - size + 1)
            )
        )
    by_length = sorted(distinct, key=len)
    shortest: list[str] = []
    for phrase in by_length:
        if not any(shorter in phrase for shorter in shortest):
            shortest.append(phrase)
    left = frozenset(shortest)
    return tuple(phrase for phrase in distinct if phrase in left)


def compile_ban(spec: Ban, compiler: Compiler) -> Compiled:
    """Raises LimitExceeded for more phrases than an automaton holds, VocabError."""
    phrases = search([phrase.encode() for phrase in spec.phrases])
    compiled = compile_dfa(phrases.avoiding, spec, compiler.vocab, compiler.trie)
    compiled.explain_with(lambda machine: _PhraseReasons(machine, phrases, spec))
    return CompiledUndoable(compiled, _Phrases(phrases)) if spec.rewinds else compiled


def ban_language(spec: Ban, compiler: Compiler) -> Dfa:
    """The texts without any phrase, which are the same in either mode. Raises LimitExceeded."""
    return avoiding([phrase.encode() for phrase in spec.phrases])


class _PhraseReasons:
    """Explains a refusal by the phrase that the token would complete."""

    def __init__(self, machine: Machine, phrases: PhraseSearch, spec: Ban) -> None:
        self.machine = machine
        self._search = phrases
        self._phrases = frozenset(phrase.encode() for phrase in spec.phrases)

    def rule_position(self, state: State) -> RulePosition:
        return None, None

    def reason(self, state: State, read: bytes, refused: bytes) -> str | None:
        """As `Reasoner.reason`. None for bytes that no text can hold here at all."""
        text = self._search.begun(state) + refused[:1]
        phrase = next((text[at:] for at in range(len(text)) if text[at:] in self._phrases), None)
        if phrase is None:
            return None
        ending = read + refused[:1]
        before = phrase[: -len(ending)] if len(phrase) > len(ending) else b""
        comes = ending if before else phrase
        event = f"after {_show_bytes(before)}, {_show_bytes(comes)}" if before else _show_bytes(comes)
        return f"{event} would complete the banned {_show_bytes(phrase)}"


class _Phrases:
    """The `Reader` of phrases: a search state stands for the longest phrase prefix that the text ends with."""

    def __init__(self, phrases: PhraseSearch) -> None:
        self._search = phrases

    def begun(self, state: State, text: bytearray) -> int:
        return len(self._search.begun(state))

    def completes(self, state: State, data: bytes) -> bool:
        offset = self._search.first(state, data)
        return offset is not None and offset > 0

    def reach(self, state: State, text: bytearray, data: bytes) -> int:
        return self._search.first(state, data) or 0


def _show_bytes(data: bytes) -> str:
    return quoted(data.decode("utf-8", "replace"))


def judge_ban(spec: Ban, text: str, words: WordFiles) -> Verdict:
    """Valid if no phrase is `in` the text."""
    banned = [phrase for phrase in spec.phrases if phrase in text]
    errors = tuple(f"the banned {quoted(phrase)} occurs at character {text.index(phrase)}" for phrase in banned)
    return Verdict(valid=not banned, judge="search", errors=errors[:MAX_SHOWN])
