"""What a text costs under a constraint never met before: to compile, each mask, each advance, all of them; and a second
text. Espalier beside llguidance, and xgrammar where it is installed, over the same texts, in one run.

    python -m benchmarks.cold                     every kind, Tekken's 131,072 ids
    python -m benchmarks.cold schemas --width 32000 131072 262144   `python -m benchmarks schemas` runs this

Microseconds of CPU time, one core. As in a server, kernels are loaded and the tables of the vocabulary are made before
it starts, by other constraints of each kind, and Python never stops to collect all garbage; each text is then walked
once by each engine, and again as a second sequence. Ratio: of means, to llguidance's. A text that an engine refuses
does not count for it, and is counted below the table. llguidance runs with forcing off, since with it a mask holds one
token where others are allowed. 32,000 ids are the first of Tekken's; 262,144 are Tekken's and pairs of its tokens,
which no text here uses.
"""

from __future__ import annotations

import argparse
import gc
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from random import Random
from statistics import fmean
from typing import Protocol

import numpy as np
from llguidance.gbnf_to_lark import gbnf_to_lark
from llguidance.numpy import fill_next_token_bitmask

from benchmarks.constraints.grammars import sampled, sources
from benchmarks.constraints.tools import calls, tools
from benchmarks.constraints.wordlists import LIMITS, lark_of, spanish, text_of
from benchmarks.figures import note
from benchmarks.harness import Steps, TextTimes, one_core, print_times, time_text
from benchmarks.schema.cases import Case, Missing, real
from benchmarks.schema.judging import Slow, limited
from benchmarks.schema.llguidance_peer import WHITESPACE
from benchmarks.schema.spelling import compact, in_order
from benchmarks.tekken import Tekken, tekken
from espalier.constraints.compose.all_of import AllOf
from espalier.constraints.json_schema.compile import warm_schemas
from espalier.constraints.safety.spec import Safety
from espalier.constraints.spec import Gbnf, JsonSchema, Regex, Spec
from espalier.constraints.tools.schemas import multi_tool_call_schema
from espalier.constraints.tools.spec import ToolCalls
from espalier.constraints.words.spec import Wordlist
from espalier.errors import EspalierError
from espalier.server.process.garbage import short_collections
from espalier.tokens import mask as masks
from espalier.tokens.vocab import Vocab

WIDTHS = (32_000, 131_072, 262_144)
SECONDS = 20.0  # for one text and one engine
PROSE = "The quick brown fox jumps over the lazy dog while the old clock in the hall strikes nine "
PATTERNS = {
    r"\d{4}-\d{2}-\d{2}": "2026-11-21",
    r"[A-Za-z0-9._%+-]+@[A-Za-z0-9.-]+\.[A-Za-z]{2,}": "rosa.parker@mail.example.org",
    r"[A-Z][a-z]+( [a-z]+)*[.!?]": PROSE.strip().capitalize() + ".",
    r"(\w+\s)+": PROSE * 3,
    r".{1,400}": (PROSE * 4)[:390],
    r"[a-z]{1,500}": "abcdefghij" * 40,
    r"\p{L}+( \p{L}+)*": "Zoë läuft über die Straße nach Hause " * 4 + "heim",
    "|".join(f"word{i}" for i in range(500)): "word321",
    r'"([^"\\]|\\.)*"': '"' + PROSE * 3 + '"',
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Text:
    """One text and the constraint that it satisfies: ours, in llguidance's Lark, and as xgrammar takes it (the name of
    a method of its compiler, and the argument); None where there is no such form."""

    spec: Spec
    tokens: Sequence[int]
    lark: str | None = None
    xgrammar: tuple[str, str] | None = None


class Refused(Exception):
    """An engine refuses a constraint, or a token of a text that satisfies it."""


class Engine(Protocol):
    def compiled(self, text: Text) -> Callable[[], Steps]:
        """Compile the constraint of a text. Raises Refused, and what the engine raises."""
        ...


class Espalier:
    def __init__(self, made: Tekken) -> None:
        self._compiler = made.compiler()
        warm_schemas(self._compiler)

    def compiled(self, text: Text) -> Callable[[], Steps]:
        compiled = self._compiler.compile(text.spec)

        def start() -> Steps:
            matcher = compiled.matcher()
            return matcher.mask, matcher.advance

        return start


class Llguidance:
    def __init__(self, made: Tekken) -> None:
        self._made, self._words = made, masks.words(made.vocab.width)
        made.llguidance  # noqa: B018  # its tokenizer is made once

    def compiled(self, text: Text) -> Callable[[], Steps]:
        if text.lark is None:
            raise Refused
        compiled = self._made.llguidance_start(text.lark, LIMITS)

        def start() -> Steps:
            matcher = compiled.deep_copy()

            def mask() -> None:
                fill_next_token_bitmask(matcher, np.zeros((1, self._words), dtype=np.int32), 0)

            return mask, _taking(matcher.consume_token)

        return start


class Xgrammar:
    def __init__(self, made: Tekken) -> None:
        import xgrammar

        vocab = made.vocab
        self._xgrammar, self._words = xgrammar, masks.words(vocab.width)
        info = xgrammar.TokenizerInfo(
            list(vocab.tokens), xgrammar.VocabType.RAW, vocab_size=vocab.width, stop_token_ids=list(vocab.eos_ids)
        )
        self._compiler = xgrammar.GrammarCompiler(info, max_threads=1, cache_enabled=False)

    def compiled(self, text: Text) -> Callable[[], Steps]:
        if text.xgrammar is None:
            raise Refused
        method, source = text.xgrammar
        compiled = getattr(self._compiler, method)(source)

        def start() -> Steps:
            matcher = self._xgrammar.GrammarMatcher(compiled)

            def mask() -> None:
                matcher.fill_next_token_bitmask(np.zeros((1, self._words), dtype=np.int32))

            return mask, _taking(matcher.accept_token)

        return start


ENGINES: dict[str, tuple[Callable[[], bool], Callable[[Tekken], Engine]]] = {
    "Espalier": (lambda: True, Espalier),
    "llguidance": (lambda: True, Llguidance),
    "xgrammar": (lambda: find_spec("xgrammar") is not None, Xgrammar),
}
"""By name: whether it is installed, and what makes it over a vocabulary."""


def engines_over(made: Tekken) -> dict[str, Engine]:
    """Those that are installed."""
    return {name: make(made) for name, (is_there, make) in ENGINES.items() if is_there()}


def _taking(take: Callable[[int], bool]) -> Callable[[int], None]:
    def advance(token: int) -> None:
        if not take(token):
            raise Refused

    return advance


def widened(made: Tekken, width: int) -> Tekken:
    """The vocabulary with so many ids, see the head of this module."""
    vocab = made.vocab
    if width == vocab.width:
        return made
    tokens, rng = list(vocab.tokens[:width]), Random(0)
    known = set(tokens)
    while len(tokens) < width:
        pair = rng.choice(vocab.tokens[1256:]) + rng.choice(vocab.tokens[1256:])
        if pair not in known:
            known.add(pair)
            tokens.append(pair)
    encoder = vocab.encoder if width > vocab.width else None
    special = {token: text for token, text in vocab.special_texts.items() if token < width}
    return Tekken(
        Vocab(tokens=tuple(tokens), eos_ids=vocab.eos_ids, special_texts=special, width=width, encoder=encoder)
    )


def schema_texts(made: Tekken, cases: Sequence[Case]) -> Iterator[Text]:
    """Real schemas, each with its first valid instance that llguidance accepts."""
    engine = Llguidance(made)
    for case in cases:
        body = case.schema | {"x-guidance": WHITESPACE["natural"]} if isinstance(case.schema, dict) else case.schema
        for instance in case.instances:
            text = Text(
                spec=JsonSchema(case.schema),
                tokens=made.encode(compact(in_order(instance.data, case.schema))),
                lark="start: %json " + json.dumps(body),
                xgrammar=("compile_json_schema", json.dumps(case.schema)),
            )
            if instance.valid and measured(engine, text) is not None:
                yield text
                break


def grammar_texts(made: Tekken) -> Iterator[Text]:
    for name, source in sources().items():
        tokens = sampled(made, name, source, 500)
        yield Text(spec=Gbnf(source), tokens=tokens, lark=gbnf_to_lark(source), xgrammar=("compile_grammar", source))


def regex_texts(made: Tekken) -> Iterator[Text]:
    for pattern, text in PATTERNS.items():
        body = re.sub(r"(?<!\\)((?:\\\\)*)/", r"\1\\/", pattern)
        tokens = made.encode(text)
        yield Text(
            spec=Regex(pattern), tokens=tokens, lark=f"start: /{body}/", xgrammar=("compile_regex", f"^(?:{pattern})$")
        )


def word_texts(made: Tekken) -> Iterator[Text]:
    words = spanish()
    for size in (300, 3_000, 10_000):
        spec = Wordlist(words[:size], lang="es", capitals="anywhere", max_run=3)
        yield Text(spec=spec, tokens=text_of(made, words[:size], 1), lark=lark_of(spec))


def tool_texts(made: Tekken) -> Iterator[Text]:
    for count in (1, 10, 100):
        schemas = tools(count)
        spec = ToolCalls(schemas, format="openai", choice="required", whitespace="compact", max_calls=1)
        schema = multi_tool_call_schema(schemas, args_key="arguments")
        for text in calls(list(schemas)):
            lark = "start: %json " + json.dumps(schema | {"x-guidance": WHITESPACE["compact"]})
            source = ("compile_json_schema", json.dumps(schema))
            yield Text(spec=spec, tokens=made.encode(text), lark=lark, xgrammar=source)


def safe_texts(made: Tekken, cases: Sequence[Case]) -> Iterator[Text]:
    """No other engine has such a filter."""
    for text in schema_texts(made, cases):
        yield Text(spec=AllOf(text.spec, Safety("standard")), tokens=text.tokens)


KINDS: dict[str, Callable[[Tekken, int], Iterator[Text]]] = {
    "schemas": lambda made, every: schema_texts(made, real()[:: 4 * every]),
    "GBNF": lambda made, _: grammar_texts(made),
    "regexes": lambda made, _: regex_texts(made),
    "word lists": lambda made, _: word_texts(made),
    "tool calls": lambda made, _: tool_texts(made),
    "schema and safety": lambda made, every: safe_texts(made, real()[:: 24 * every]),
}
"""By name, the texts. The number: of the schemas from the wild, each so many-th of those that are taken."""


def measured(engine: Engine, text: Text, seconds: float = SECONDS) -> TextTimes | None:
    """The times of one text; None where the engine refuses it or takes longer than `seconds`."""
    try:
        with limited(seconds):
            return time_text(partial(engine.compiled, text), text.tokens)
    except (Refused, Slow, EspalierError, ValueError, RuntimeError):  # the last two are how the others refuse
        return None


def show(kind: str, made: Tekken, engines: Mapping[str, Engine], every: int) -> None:
    """Print the table of one kind, and note its means."""
    texts = list(KINDS[kind](made, every))
    print(
        f"\n-- {kind}: {len(texts)} texts, {sum(len(text.tokens) for text in texts):,} tokens, V = {made.vocab.width:,}"
    )
    gc.collect()
    gc.freeze()
    times: dict[str, list[TextTimes]] = {}
    refused: Counter[str] = Counter()
    for name, engine in engines.items():
        rows = [measured(engine, text) for text in texts]
        times[name] = [row for row in rows if row is not None]
        refused[name] = len(rows) - len(times[name])
    print_times(times)
    print("refused: " + ", ".join(f"{name} {count}" for name, count in refused.items()), flush=True)
    means = {name: summary(rows) for name, rows in times.items() if rows}
    for measure in next(iter(means.values()), {}):
        values = {name: mean[measure] / 1e3 for name, mean in means.items()}
        note(f"New constraints, {made.vocab.width:,} ids", f"{kind}: {measure}", "ms", values)


def summary(rows: Sequence[TextTimes]) -> dict[str, float]:
    """Means over the texts of one engine. A step is a mask and an advance."""
    return {
        "to first mask": fmean(row.compile + row.first for row in rows),
        "mask": fmean(mask for row in rows for mask in row.masks),
        "advance": fmean(advance for row in rows for advance in row.advances),
        "step of a new constraint": fmean((sum(row.masks) + sum(row.advances)) / len(row.masks) for row in rows),
        "step of a known constraint": fmean(row.again / len(row.masks) for row in rows),
        "whole text": fmean(row.whole for row in rows),
        "second text": fmean(row.again for row in rows),
    }


def main(argv: Sequence[str] = ()) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("kinds", nargs="*", default=[*KINDS], metavar="KIND", help=f"of {', '.join(KINDS)}")
    parser.add_argument("--width", type=int, nargs="+", default=[WIDTHS[1]], help="vocabularies, by their ids")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="each Nth schema")
    arguments = parser.parse_args(argv)
    with one_core(), short_collections():
        for width in arguments.width:
            made = widened(tekken(), width)
            engines = engines_over(made)
            try:
                for text in schema_texts(made, real()[1::40]):
                    for engine in engines.values():
                        measured(engine, text)
                for kind in arguments.kinds:
                    show(kind, made, engines, arguments.every)
            except Missing as missing:
                print(f"left out: {missing}")


if __name__ == "__main__":
    import sys

    main(sys.argv[1:])
