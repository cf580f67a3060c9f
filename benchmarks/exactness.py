"""How exact each engine is, on the same schemas with the same instances: what compiles, what is judged entirely right,
what is wrongly accepted, and what is wrongly refused without a word.

    python -m benchmarks exactness
    python -m benchmarks.exactness --every 5       each fifth case

The JSON Schema Test Suite, its required tests by draft (other drafts than 2020-12 need `BENCH_SCHEMA_SUITE`, the
source distribution of jsonschema), and schemas from the wild by their source. All engines read one document at a time,
byte by byte, over a vocabulary of single bytes. lm-format-enforcer reads characters. llama.cpp is its own converter to
GBNF, whose grammar our automata judge: they accept what it would let a model write. A schema that an engine refuses
while it is compiled is told, not wrong. Each engine runs in a process of its own, which may crash: a schema that ends
it counts as broken.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Literal, TypeAlias

from benchmarks.figures import OURS, note
from benchmarks.harness import Table
from benchmarks.schema.cases import DRAFTS, Case, Missing, real, suite
from benchmarks.schema.gbnf import llama
from benchmarks.schema.isolated import isolated
from benchmarks.schema.judging import Acceptor, Outcome, figures, measure
from benchmarks.schema.peers import llguidance_alone, ours
from espalier.errors import UnsupportedError

COLUMNS = {
    "engine": "<20",
    "compiled": ">10",
    "right": ">8",
    "wrongly accepted": ">18",
    "of": ">7",
    "wrongly refused": ">17",
    " of": ">7",
    "broken": ">8",
}
SECONDS = 20.0
"""The limit to compile one case, and to judge it."""
Format: TypeAlias = 'Literal["annotate", "assert"]'
Compile: TypeAlias = "Callable[[Any], Acceptor]"


def xgrammar() -> Compile:
    import xgrammar

    info = xgrammar.TokenizerInfo(
        [bytes([byte]) for byte in range(256)] + [b"</s>"], xgrammar.VocabType.RAW, vocab_size=257, stop_token_ids=[256]
    )
    compiler = xgrammar.GrammarCompiler(info, max_threads=1, cache_enabled=False)

    class Text:
        def __init__(self, compiled: Any) -> None:
            self._compiled = compiled

        def accepts(self, text: str) -> bool:
            matcher = xgrammar.GrammarMatcher(self._compiled)
            return bool(matcher.accept_string(text)) and bool(matcher.accept_token(256))

    return lambda schema: Text(_refusing(lambda: compiler.compile_json_schema(json.dumps(schema))))


def outlines_core() -> Compile:
    import outlines_core

    vocab = outlines_core.Vocabulary(256, {bytes([byte]): [byte] for byte in range(256)})

    class Text:
        def __init__(self, index: Any) -> None:
            self._index = index

        def accepts(self, text: str) -> bool:
            guide = outlines_core.Guide(self._index)
            return bool(guide.accepts_tokens([*text.encode()])) and self._ends(guide, text)

        def _ends(self, guide: Any, text: str) -> bool:
            for byte in text.encode():
                guide.advance(byte, return_tokens=False)
            return 256 in guide.get_tokens()

    def index(schema: Any) -> Any:
        return outlines_core.Index(outlines_core.json_schema.build_regex_from_schema(json.dumps(schema)), vocab)

    return lambda schema: Text(_refusing(lambda: index(schema)))


def lm_format_enforcer() -> Compile:
    from lmformatenforcer import JsonSchemaParser

    class Text:
        def __init__(self, start: Any) -> None:
            self._start = start

        def accepts(self, text: str) -> bool:
            state = self._start
            for character in text:
                if character not in state.get_allowed_characters():
                    return False
                state = state.add_character(character)
            return bool(state.can_end())

    return lambda schema: Text(_refusing(lambda: JsonSchemaParser(schema)))


ENGINES: dict[str, tuple[str, Callable[[Format, Sequence[Case]], Compile]]] = {
    OURS: ("espalier", lambda form, _: ours(format=form)),
    "llguidance": ("llguidance", lambda _, __: llguidance_alone()),
    "xgrammar": ("xgrammar", lambda _, __: xgrammar()),
    "outlines-core": ("outlines_core", lambda _, __: outlines_core()),
    "lm-format-enforcer": ("lmformatenforcer", lambda _, __: lm_format_enforcer()),
    "llama.cpp": ("xllamacpp", lambda _, cases: llama(cases)),
}
"""By name: the module that must be there, and how a schema is compiled."""


def _refusing(compile_schema: Callable[[], Any]) -> Any:
    """An engine's refusal as ours. Other engines raise what they like, so every error of theirs is one."""
    try:
        return compile_schema()
    except Exception as error:
        raise UnsupportedError(f"{type(error).__name__}: {error}") from error


class _RefusalAcceptor:
    """A text that an engine cannot judge is broken, whatever it raises."""

    def __init__(self, acceptor: Acceptor) -> None:
        self._acceptor = acceptor

    def accepts(self, text: str) -> bool:
        return bool(_refusing(lambda: self._acceptor.accepts(text)))


def outcomes(engine: str, cases: Sequence[Case], form: Format, seconds: float = SECONDS) -> list[Outcome]:
    """The outcomes of an engine, from processes of its own: a case that ends one is broken, and the next goes on."""

    import_module(ENGINES[engine][0])  # once, not in each process: xgrammar's brings torch's

    def start() -> Callable[[Case], dict[str, Any]]:
        compile_schema = ENGINES[engine][1](form, cases)
        return lambda case: _judge(case, lambda schema: _RefusalAcceptor(compile_schema(schema)), seconds)

    crashed = {"broken": ("the process ended",)}
    found = isolated(cases, start, seconds=3 * seconds)
    return [Outcome(case=case, **(one or crashed)) for case, one in zip(cases, found, strict=True)]


def _judge(case: Case, compile_schema: Compile, seconds: float) -> dict[str, Any]:
    """The fields of its outcome, without the case."""
    (outcome,) = measure([case], compile_schema, seconds=seconds)
    error = outcome.refusal
    refusal = {} if error is None else {"refusal": type(error)(str(error))}
    return {name: getattr(outcome, name) for name in ("accepted", "wrong", "spelled", "lost", "broken")} | refusal


def judged(cases: Sequence[Case], form: Format, seconds: float) -> dict[str, list[Outcome]]:
    """The outcomes of every engine that is installed."""
    there = [name for name, (module, _) in ENGINES.items() if find_spec(module) is not None]
    return {name: outcomes(name, cases, form, seconds) for name in there}


def show(title: str, outcomes_by_engine: Mapping[str, Sequence[Outcome]]) -> None:
    """One table, and what the page shows of it. outcomes_by_engine: of the same cases."""
    print(f"\n-- {title}: {len(next(iter(outcomes_by_engine.values())))} schemas")
    table = Table(COLUMNS)
    shares: dict[str, Mapping[str, float]] = {}
    for name, some in outcomes_by_engine.items():
        totals = figures(some)
        counts = (totals.compiled, totals.nearly_right, totals.wrong, totals.invalid, totals.lost, totals.valid)
        table.row(name, *counts, totals.broken)
        shares[name] = {
            "entirely right": 100 * (totals.nearly_right + totals.empty) / len(some),
            "compiled": 100 * totals.compiled / len(some),
            "wrongly accepted": 100 * totals.wrong / max(1, totals.invalid),
            "wrongly refused": 100 * totals.lost / max(1, totals.valid),
        }
    for measured in ("entirely right", "compiled", "wrongly accepted", "wrongly refused"):
        values = {name: share[measured] for name, share in shares.items()}
        note(f"Exactness: {title}", measured, "%", values, more_is_better=not measured.startswith("wrongly"))


def show_all(title: str, parts: Mapping[str, Sequence[Case]], form: Format, seconds: float) -> None:
    """A table for each part, and one for all of them. form: whether `format` is asserted."""
    everything: dict[str, list[Outcome]] = {}
    for name, cases in parts.items():
        outcomes_by_engine = judged(cases, form, seconds)
        show(f"{title}, {name}", outcomes_by_engine)
        for engine, some in outcomes_by_engine.items():
            everything.setdefault(engine, []).extend(some)
    if len(parts) > 1:
        show(f"{title}, all", everything)


def main(argv: Sequence[str] = ()) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--every", type=int, default=1, metavar="N", help="each Nth case")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="the limit to compile a case, and to judge it")
    arguments = parser.parse_args(argv)
    for name, (module, _) in ENGINES.items():
        if find_spec(module) is None:
            print(f"{name} is not installed")
    drafts: dict[str, Sequence[Case]] = {}
    for draft in DRAFTS:
        try:
            drafts[draft] = suite(None, draft)[:: arguments.every]
        except Missing as missing:
            print(f"{draft} left out: {missing}")
    show_all("test suite", drafts, "annotate", arguments.seconds)
    try:
        cases = real()[:: arguments.every]
    except Missing as missing:
        print(f"left out: {missing}")
        return
    kinds = {kind: [case for case in cases if case.kind == kind] for kind in sorted({case.kind for case in cases})}
    show_all("from the wild", kinds, "assert", arguments.seconds)


if __name__ == "__main__":
    import sys

    main(sys.argv[1:])
