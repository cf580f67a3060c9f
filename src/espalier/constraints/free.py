"""`Free`: free text in which each trigger starts a region that must satisfy a constraint, any number of times.

Free text and regions become one network: it starts in the free text, and a trigger calls its region as a rule. If all
regions are regular, the network becomes one deterministic automaton. It knows no kind: a region holds any constraint
that has an automaton (`ConstraintKind.automaton`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import permutations
from typing import Any, ClassVar

from espalier.automata.languages.dfa import Dfa
from espalier.automata.languages.embed import Assembly
from espalier.automata.languages.fragment import Fragment
from espalier.automata.languages.network import Network
from espalier.automata.languages.nfa import Symbol
from espalier.automata.masks.pushdown import PushdownMachine
from espalier.automata.phrases import triggers
from espalier.automata.reasons.explain import NetworkExplainer
from espalier.constraints.base import Compiled
from espalier.constraints.compiler import Compiler
from espalier.constraints.matching.automaton import compile_automaton
from espalier.constraints.spec import Spec, check_text
from espalier.constraints.unique.places import RegionTracker, watched_language, with_tracker
from espalier.constraints.unique.spots import NOTHING
from espalier.constraints.unique.tracker import DocumentTracker
from espalier.constraints.verdict import Promise, Unjudgeable, Verdict, judge_in_grammar
from espalier.constraints.watching import Tracker, WatchedLanguage
from espalier.errors import GrammarError, SpecError, UnsupportedError
from espalier.grammar.ast import TokenRef
from espalier.lexicon.files import WordFiles
from espalier.time_limit import check as check_time
from espalier.tokens.vocab import Vocab
from espalier.wording import ALLOW_CHECKED, OptionText


@dataclass(frozen=True, slots=True)
class Region:
    """The literal text `begin`, a text that `spec` accepts, and the literal text `end`."""

    spec: Spec
    end: str = field(default="", kw_only=True)
    begin: str = field(default="", kw_only=True)

    def __post_init__(self) -> None:
        if not isinstance(self.spec, Spec):
            raise SpecError(
                f"a region holds a Spec such as JsonObject(), not {type(self.spec).__name__}", field="triggers"
            )
        check_text(self.end, "the end of a region", "triggers")
        check_text(self.begin, "the begin of a region", "triggers")

    def to_json(self) -> dict[str, Any]:
        values = {"spec": self.spec.to_json(), "end": self.end}
        return values | ({"begin": self.begin} if self.begin else {})

    @staticmethod
    def from_json(data: Any) -> Region:
        """The inverse of `to_json`; a constraint alone is a region without an end. Raises SpecError."""
        if not isinstance(data, Mapping):
            raise SpecError('a region is {"spec": ..., "end": ...}', field="triggers")
        if "kind" in data:
            return Region(Spec.from_json(data))
        unknown = [name for name in data if name not in REGION]
        if unknown or "spec" not in data:
            what = f"has no field {unknown[0]!r}" if unknown else "needs a `spec`"
            raise SpecError(f"a region {what}", hint=f"fields: {', '.join(REGION)}", field="triggers")
        return Region(Spec.from_json(data["spec"]), end=data.get("end", ""), begin=data.get("begin", ""))


REGION = ("spec", "end", "begin")


@dataclass(frozen=True, slots=True, init=False)
class Free(Spec):
    """Free text; where a trigger occurs, its region must follow, and then the text is free again.

    A Spec instead of a Region is a region without an end. Of a list of regions, any may follow. If a trigger, a begin
    or an end is spelled like a special token of the vocabulary, that token counts too, and its spelling is part of the
    text. No trigger may be part of another. Raises SpecError.
    """

    kind: ClassVar[str] = "free"
    regions: tuple[tuple[str, Region], ...]

    def __init__(self, triggers: Mapping[str, Spec | Region | Sequence[Spec | Region]]) -> None:
        if not isinstance(triggers, Mapping):
            raise SpecError(
                "triggers are a mapping from texts to regions", hint='{"<tool>": JsonObject()}', field="triggers"
            )
        if not triggers:
            raise SpecError("there is no trigger: without one the text needs no constraint", field="triggers")
        for trigger in triggers:
            check_text(trigger, "a trigger", "triggers")
            if not trigger:
                raise SpecError("a trigger is empty", field="triggers")
        for one, other in permutations(triggers, 2):
            if one in other:
                raise SpecError(
                    f"the trigger {other!r} could never be met: {one!r} occurs in it",
                    hint="keep one of them, or make them differ earlier",
                    field="triggers",
                )
        lists: dict[str, list[Any]] = {k: list(v) if isinstance(v, list | tuple) else [v] for k, v in triggers.items()}
        if not all(lists.values()):
            raise SpecError("a trigger has no region", field="triggers")
        pairs = (
            (k, region if isinstance(region, Region) else Region(region))
            for k, several in lists.items()
            for region in several
        )
        object.__setattr__(self, "regions", tuple(pairs))

    @property
    def triggers(self) -> dict[str, tuple[Region, ...]]:
        """The regions of each trigger."""
        triggers: dict[str, tuple[Region, ...]] = {}
        for trigger, region in self.regions:
            triggers[trigger] = (*triggers.get(trigger, ()), region)
        return triggers

    def to_json(self) -> dict[str, Any]:
        triggers = {k: [region.to_json() for region in several] for k, several in self.triggers.items()}
        return {"kind": self.kind, "triggers": {k: v[0] if len(v) == 1 else v for k, v in triggers.items()}}

    @classmethod
    def json_fields(cls) -> tuple[str, ...]:
        return ("triggers",)

    @classmethod
    def from_fields(cls, values: dict[str, Any]) -> Free:
        triggers = values.get("triggers", {})
        if not isinstance(triggers, Mapping):
            raise SpecError("triggers are an object of regions", field="triggers")
        try:
            return cls(
                {
                    trigger: [Region.from_json(value) for value in (listed if isinstance(listed, list) else [listed])]
                    for trigger, listed in triggers.items()
                }
            )
        except RecursionError:
            raise SpecError("the constraints are nested too deeply", field="triggers") from None


def compile_free(spec: Free, compiler: Compiler) -> Compiled:
    """Raises UnsupportedError for a region without an automaton, what the regions' own compilers raise, VocabError for
    a vocabulary that lacks bytes, LimitExceeded."""
    specials = _specials(spec, compiler.vocab)
    vocab, trie = compiler.vocab, compiler.trie
    regions = [watched_language(region.spec, compiler, wanted_by="Free") for _, region in spec.regions]
    assembly = _assemble(spec, regions, specials)
    network, whole = assembly.network(), assembly.dfa()
    compiled = compile_automaton(network if whole is None else whole, spec, vocab, trie)
    # Only the network knows whose region a text is in.
    compiled.explain_with(lambda _: NetworkExplainer(network, PushdownMachine(network, vocab, trie, needs_bytes=False)))
    compiled.spelled = {token: text.encode() for text, token in specials.items()}
    is_easy = all(language.tracker is None or language.is_easy for language in regions)
    return with_tracker(compiled, _tracker(spec, regions), compiler, is_easy=is_easy)


def _tracker(spec: Free, regions: Sequence[WatchedLanguage]) -> Tracker | None:
    """The tracker of the whole text, None if no region needs one. Raises UnsupportedError where it could not tell where
    a region ends."""
    if all(language.tracker is None for language in regions):
        return None
    if len(spec.triggers) < len(spec.regions) or any(region.begin for _, region in spec.regions):
        raise UnsupportedError(
            "uniqueItems is enforced in Free only where each trigger has one region, without a begin",
            hint=OptionText("have it checked afterwards: ", ALLOW_CHECKED),
            field="triggers",
        )
    trackers: dict[bytes, tuple[DocumentTracker, bytes]] = {}
    for (trigger, region), language in zip(spec.regions, regions, strict=True):
        tracker = DocumentTracker(NOTHING) if language.tracker is None else language.tracker
        if not language.is_document or not isinstance(tracker, DocumentTracker):
            raise UnsupportedError(
                f"uniqueItems is enforced in Free only where each region is one JSON object or array, and that after "
                f"{trigger!r} need not be one",
                hint=OptionText("have it checked afterwards: ", ALLOW_CHECKED),
                field="triggers",
            )
        trackers[trigger.encode()] = tracker, region.end.encode()
    return RegionTracker(trackers)


def free_language(spec: Free, compiler: Compiler) -> Dfa | Network:
    """Raises as `compile_free`, and UnsupportedError where a trigger or an end is a special token."""
    specials = _specials(spec, compiler.vocab)
    if specials:
        raise UnsupportedError(
            f"{', '.join(specials)} is a special token here, and Free with special tokens stands alone",
            hint="use it as the whole constraint, or choose triggers that are plain text",
            field="triggers",
        )
    regions = [
        WatchedLanguage(automaton=compiler.language(region.spec, wanted_by="Free")) for _, region in spec.regions
    ]
    assembly = _assemble(spec, regions, {})
    whole = assembly.dfa()
    return assembly.network() if whole is None else whole


def _specials(spec: Free, vocab: Vocab) -> dict[str, int]:
    """The ids of triggers and ends that are special tokens."""
    texts = dict.fromkeys(text for trigger, region in spec.regions for text in (trigger, region.begin, region.end))
    tokens = {text: vocab.special_id(text) for text in texts if text}
    return {text: token for text, token in tokens.items() if token is not None}


def _assemble(spec: Free, regions: Sequence[WatchedLanguage], specials: Mapping[str, int]) -> Assembly:
    assembly = Assembly()
    phrases = list(spec.triggers)
    text = triggers.watched([trigger.encode() for trigger in phrases])
    met = dict(zip(phrases, text.met, strict=True))
    root = text.fragment
    assembly.rule(root, "")
    tokens = {spelling: assembly.token(_reference(spelling, token)) for spelling, token in specials.items()}
    between = [state for state, final in enumerate(root.final) if final]
    for (trigger, region), held in zip(spec.regions, regions, strict=True):
        name = f"{spec.kind}[{trigger}{region.begin}].{region.spec.kind}"
        # The rule of the region comes first: what it calls is numbered when it is there.
        body = Fragment(edges=[], symbols=[], final=[], leaf=[])
        is_literal = bool(region.begin or region.end)
        called = assembly.rule(body, name) if is_literal else assembly.embed(held.automaton, name)
        if is_literal:
            inner = assembly.embed(held.automaton, name)
            _fill(body, region.begin.encode(), inner, region.end.encode(), tokens)
        root.symbols[met[trigger]].append((called, (0,)))
    for trigger, token in ((spelling, tokens[spelling]) for spelling in phrases if spelling in tokens):
        for state in between:
            # Only where its spelling, read as text, would end in this trigger as well.
            if text.after(state, trigger.encode()) == met[trigger]:
                root.symbols[state].append((token, (met[trigger],)))
    return assembly


def _fill(body: Fragment, begin: bytes, held: Symbol, end: bytes, tokens: Mapping[str, Symbol]) -> None:
    """The body of a region's rule: its begin, its constraint, then its end; both in bytes or as one token."""
    inside = len(begin) + 1
    rows = [*_literal(begin, 0, tokens), ([], [(held, (inside,))]), *_literal(end, inside, tokens), ([], [])]
    for edges, symbols in rows:
        body.edges.append(edges)
        body.symbols.append(symbols)
    body.final.extend(place == len(rows) - 1 for place in range(len(rows)))
    body.leaf.extend(None for _ in rows)


def _literal(text: bytes, start: int, tokens: Mapping[str, Symbol]) -> Iterator[tuple[list[Any], list[Any]]]:
    """The edges and symbols of the states from `start` on, that read a text."""
    token = tokens.get(text.decode())
    for place, byte in enumerate(text, start):
        whole = [(token, (start + len(text),))] if place == start and token is not None else []
        yield [(1 << byte, (place + 1,))], whole


def _reference(spelling: str, token: int) -> TokenRef:
    try:
        return TokenRef(text=spelling)
    except GrammarError:  # not in angle brackets
        return TokenRef(id=token)


def judge_free(spec: Free, text: str, words: WordFiles) -> Verdict:
    """Valid if the text can be split so that the judge of each region's constraint accepts it."""
    return _Judging(spec, text, words).verdict()


class _Judging:
    """Searches for one valid split of a text into free text and regions. Each offset where free text starts is visited
    once, because what follows does not depend on what came before."""

    def __init__(self, spec: Free, text: str, words: WordFiles) -> None:
        self._spec, self._text, self._words = spec, text, words
        self._pieces = 0
        self._unknown = 0
        self._judges: set[str] = set()
        self._faults: dict[str, int] = {}  # and where the region begins
        self._unsure: dict[str, int] = {}
        self._is_loose = False  # a region breaks only what is checked afterwards

    def verdict(self) -> Verdict:
        seen = {0}
        todo = [self._after(0)]
        try:
            while todo:
                check_time()
                start = next(todo[-1], None)
                if start is None:
                    todo.pop()
                elif start < 0:
                    return self._verdict(True, ())
                elif start not in seen:
                    seen.add(start)
                    todo.append(self._after(start))
        except Unjudgeable as error:
            return self._verdict(None, (str(error),))
        faults = self._unsure or self._faults
        far = max(faults.values())  # an error before the last may come from a region that was ended too early
        return self._verdict(None if self._unsure else False, [fault for fault, at in faults.items() if at == far])

    def _verdict(self, valid: bool | None, errors: Iterable[str]) -> Verdict:
        breaks: Promise = "checked" if self._is_loose else "enforced"
        return Verdict(
            valid=valid,
            judge=" and ".join(["search", *sorted(self._judges - {"none"})]),
            errors=tuple(errors)[:5],
            breaks=breaks if valid is False else None,
        )

    def _after(self, start: int) -> Iterator[int]:
        """Offsets where free text may resume after the first region from `start` on; -1 if there is no region."""
        met = [(at, trigger) for trigger, _ in self._spec.regions if (at := self._text.find(trigger, start)) >= 0]
        if not met:
            yield -1
            return
        at, trigger = min(met)
        for region in self._spec.triggers[trigger]:
            behind = at + len(trigger)
            if self._text.startswith(region.begin, behind):
                yield from self._through(trigger + region.begin, region, behind + len(region.begin))
            else:
                self._faults[f"free[{trigger}] at character {behind}: {region.begin!r} does not come after it"] = behind

    def _through(self, trigger: str, region: Region, first: int) -> Iterator[int]:
        """Offsets where free text may resume after a region whose constraint begins at `first`."""
        name = f"free[{trigger}].{region.spec.kind} at character {first}"
        ends = self._ends(first, region.end)
        if not ends:
            self._faults[f"{name}: {region.end!r} does not come after it"] = first
        for end in ends:
            self._pieces += 1
            if self._pieces > MAX_PIECES:
                raise Unjudgeable(f"there are more than {MAX_PIECES} places where a region could end")
            verdict = judge_in_grammar(region.spec, self._text[first:end], self._words)
            self._judges.add(verdict.judge)
            if verdict.valid:
                yield end + len(region.end)
            else:
                faults = self._unsure if verdict.valid is None else self._faults
                errors = verdict.errors or ("nobody can judge this" if verdict.valid is None else "not valid",)
                faults.update(dict.fromkeys((f"{name}: {error}" for error in errors), first))
                self._unknown += verdict.valid is None
                self._is_loose = self._is_loose or verdict.breaks == "checked"
                if self._unknown == MAX_UNKNOWN:
                    raise Unjudgeable(next(iter(self._unsure)))

    def _ends(self, first: int, end: str) -> Sequence[int]:
        """Offsets where a region that starts at `first` could end: before each `end`, or without one anywhere, the end
        of a JSON document first."""
        if end:
            return [match.start() for match in re.compile(f"(?={re.escape(end)})").finditer(self._text, first)]
        try:
            likely = [json.JSONDecoder().raw_decode(self._text, first)[1]]
        except (ValueError, RecursionError):
            likely = []
        return [*likely, *range(first, min(len(self._text), first + MAX_PIECES) + 1)]


MAX_UNKNOWN = 3
"""Regions that could not be judged, after which judging stops: each may take seconds."""
MAX_PIECES = 500
"""The limit on regions judged in one text, over all splits: some judges start another process."""
