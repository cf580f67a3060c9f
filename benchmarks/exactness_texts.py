"""How exact each engine is on grammars and patterns: what compiles, and what judges every text as the oracle does.

    python -m benchmarks "exactness of grammars"

Grammars: cases of the syntax with texts that are in the language and texts that are not, and grammars drawn with a
fixed seed, judged by an Earley recogniser. Patterns: drawn with a fixed seed, in the syntax that ECMA-262 and Python
share, judged by Python's `re` over whole texts. Texts are drawn from the language, changed in a place, and drawn
anywhere. All engines read bytes, lm-format-enforcer characters. llguidance reads a grammar through its own converter
to Lark. llama.cpp is asked only where its memory is safe: what recurs to the left it refuses, and is not asked.
"""

from __future__ import annotations

import argparse
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from random import Random
from typing import Any, TypeAlias

from benchmarks.figures import OURS, note
from benchmarks.harness import Table
from benchmarks.schema.isolated import isolated
from benchmarks.schema.judging import limited
from espalier.constraints.compiler import Compiler
from espalier.constraints.spec import Gbnf, Regex, Spec
from espalier.errors import EspalierError
from espalier.grammar.ast import Grammar, Rule
from espalier.grammar.check import check
from espalier.grammar.parser import parse
from espalier.grammar.regex.parse import parse_regex
from espalier.grammar.sample import SentenceSampler
from espalier.tokens.vocab import Vocab

COUNT, SEED = 200, 1
SECONDS = 10.0
"""The limit of one case."""
LONGEST = 24
CHANGED = ("a", "b", "z", "0", " ", ",", "-", "]", '"', "\\", "\n", "é", "😀")
Accepts: TypeAlias = Callable[[str], bool]
Compile: TypeAlias = Callable[[str], Accepts]


@dataclass(frozen=True, slots=True, kw_only=True)
class TextCase:
    """A grammar or a pattern, with what the oracle says of each text."""

    source: str
    texts: Mapping[str, bool]
    is_for_llama: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """What an engine made of one case. lost: valid and refused; wrong: invalid and accepted."""

    compiled: bool = False
    lost: int = 0
    wrong: int = 0
    broken: bool = False


def ours(kind: Callable[[str], Spec]) -> Compile:
    compiler = Compiler(Vocab.bytes())
    return lambda source: compiler.compile(kind(source)).accepts


def llguidance(written: Callable[[str], str]) -> Compile:
    from benchmarks.schema.llguidance_peer import LlgBackend, LlgCompiled

    backend = Compiler(Vocab.bytes()).part(LlgBackend)
    head = '%llguidance {"no_forcing": true}\n'
    return lambda source: LlgCompiled(Regex("a"), backend, head + written(source)).accepts


def lark_of_pattern(pattern: str) -> str:
    return "start: /" + re.sub(r"(?<!\\)((?:\\\\)*)/", r"\1\\/", pattern) + "/"


def lark_of_grammar(source: str) -> str:
    from llguidance.gbnf_to_lark import gbnf_to_lark

    return str(gbnf_to_lark(source))


def xgrammar(method: str, written: Callable[[str], str]) -> Compile:
    import xgrammar

    info = xgrammar.TokenizerInfo(
        [bytes([byte]) for byte in range(256)] + [b"</s>"], xgrammar.VocabType.RAW, vocab_size=257, stop_token_ids=[256]
    )
    compiler = xgrammar.GrammarCompiler(info, max_threads=1, cache_enabled=False)

    def compiled(source: str) -> Accepts:
        grammar = getattr(compiler, method)(written(source))

        def accepts(text: str) -> bool:
            matcher = xgrammar.GrammarMatcher(grammar)
            return bool(matcher.accept_string(text)) and bool(matcher.accept_token(256))

        return accepts

    return compiled


def outlines_core() -> Compile:
    import outlines_core

    vocab = outlines_core.Vocabulary(256, {bytes([byte]): [byte] for byte in range(256)})

    def compiled(pattern: str) -> Accepts:
        index = outlines_core.Index(pattern, vocab)

        def accepts(text: str) -> bool:
            guide = outlines_core.Guide(index)
            for byte in text.encode():
                if byte not in guide.get_tokens():
                    return False
                guide.advance(byte, return_tokens=False)
            return 256 in guide.get_tokens()

        return accepts

    return compiled


def lm_format_enforcer() -> Compile:
    from lmformatenforcer import RegexParser

    def compiled(pattern: str) -> Accepts:
        start = RegexParser(pattern)

        def accepts(text: str) -> bool:
            state: Any = start
            for character in text:
                if character not in state.get_allowed_characters():
                    return False
                state = state.add_character(character)
            return bool(state.can_end())

        return accepts

    return compiled


def llama_cpp() -> Compile:
    from tests.llama_grammar import LlamaGrammar, llama_bytes

    vocab = llama_bytes()

    def compiled(source: str) -> Accepts:
        LlamaGrammar(vocab, source).close()

        def accepts(text: str) -> bool:
            grammar = LlamaGrammar(vocab, source)
            try:
                for token in (*text.encode(), 256):
                    if not grammar.mask()[token]:
                        return False
                    grammar.accept(token)
                return True
            finally:
                grammar.close()

        return accepts

    return compiled


GRAMMAR_ENGINES: dict[str, tuple[str, Callable[[], Compile]]] = {
    OURS: ("espalier", lambda: ours(Gbnf)),
    "llguidance": ("llguidance", lambda: llguidance(lark_of_grammar)),
    "xgrammar": ("xgrammar", lambda: xgrammar("compile_grammar", str)),
    "llama.cpp": ("xllamacpp", llama_cpp),
}
PATTERN_ENGINES: dict[str, tuple[str, Callable[[], Compile]]] = {
    OURS: ("espalier", lambda: ours(Regex)),
    "llguidance": ("llguidance", lambda: llguidance(lark_of_pattern)),
    "xgrammar": ("xgrammar", lambda: xgrammar("compile_regex", lambda pattern: f"^(?:{pattern})$")),
    "outlines-core": ("outlines_core", outlines_core),
    "lm-format-enforcer": ("lmformatenforcer", lm_format_enforcer),
}
"""By name: the module that must be there, and how it compiles a source."""


def stated_grammars() -> Iterator[TextCase]:
    from tests.unit.grammar.test_grammar_semantics import CASES

    for name, (source, good, bad) in CASES.items():
        if not name.startswith("token "):  # tokens are no text
            yield grammar_case(source, dict.fromkeys(good, True) | dict.fromkeys(bad, False))


def grammar_case(source: str, texts: Mapping[str, bool]) -> TextCase:
    from tests.fuzz.grammars import NOT_FOR_LLAMA, is_tame

    grammar = parse(source)
    is_safe = is_tame(grammar) and NOT_FOR_LLAMA.isdisjoint(finding.code for finding in check(grammar))
    return TextCase(source=source, texts=texts, is_for_llama=is_safe)


def drawn_grammars(count: int) -> Iterator[TextCase]:
    from tests.fuzz.grammars import GrammarTexts
    from tests.unit.grammar.oracle import Recogniser

    random = Random(SEED)
    while count:
        source, root = GrammarTexts(random, is_flat=True).grammar()
        try:
            grammar = parse(source, root=root)
            if root != "root" or any(finding.severity == "error" for finding in check(grammar)):
                continue
            sampler = SentenceSampler(grammar)
            near = [sampler.draw(random, max_size=LONGEST) for _ in range(8)]
        except EspalierError:
            continue
        count -= 1
        yield grammar_case(source, judged_texts(random, near, Recogniser(grammar).accepts))


def drawn_patterns(count: int) -> Iterator[TextCase]:
    from tests.fuzz.patterns import Patterns

    random = Random(SEED)
    while count:
        pattern = Patterns(random).pattern()
        if pattern.startswith("^") or pattern.endswith("$") or not pattern.isascii():
            continue
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error", FutureWarning)
                judge = re.compile(pattern)
            sampler = SentenceSampler(Grammar(rules={"root": Rule(name="root", body=parse_regex(pattern))}))
            near = [sampler.draw(random, max_size=LONGEST) for _ in range(8)]
        except (re.error, FutureWarning, EspalierError):
            continue
        count -= 1
        yield TextCase(
            source=pattern, texts=judged_texts(random, near, lambda text, judge=judge: bool(judge.fullmatch(text)))
        )


def judged_texts(random: Random, near: Sequence[str], accepts: Accepts) -> dict[str, bool]:
    """The texts, each once more with one place changed, and some others, with the oracle's verdict."""
    texts = [text for text in near if len(text) <= LONGEST]
    for text in tuple(texts):
        place = random.randint(0, len(text))
        texts.append(text[:place] + random.choice(CHANGED) + text[place + random.randint(0, 1) :])
    texts += ["".join(random.choices(CHANGED, k=random.randint(0, 4))) for _ in range(8)]
    return {text: accepts(text) for text in texts if "\0" not in text}


def judge(case: TextCase, compile_source: Compile) -> Judged:
    """An engine's errors are of any kind: each is a refusal where it compiles, and broken where it judges."""
    try:
        with limited(SECONDS):
            accepts = compile_source(case.source)
    except Exception:  # noqa: BLE001  # other engines raise what they like; Slow is one
        return Judged()
    lost = wrong = 0
    for text, is_valid in case.texts.items():
        try:
            with limited(SECONDS):
                is_accepted = accepts(text)
        except Exception:  # noqa: BLE001
            return Judged(compiled=True, lost=lost, wrong=wrong, broken=True)
        lost += is_valid and not is_accepted
        wrong += is_accepted and not is_valid
    return Judged(compiled=True, lost=lost, wrong=wrong)


def outcomes(name: str, make: Callable[[], Compile], cases: Sequence[TextCase]) -> list[Judged]:
    def start() -> Callable[[TextCase], Judged]:
        compile_source = make()
        return lambda case: judge(case, compile_source) if case.is_for_llama or name != "llama.cpp" else Judged()

    crashed = Judged(compiled=True, broken=True)
    return [found or crashed for found in isolated(cases, start, seconds=3 * SECONDS)]


def show(title: str, engines: Mapping[str, tuple[str, Callable[[], Compile]]], cases: Sequence[TextCase]) -> None:
    """Print and note one table."""
    print(f"\n-- {title}: {len(cases)}")
    table = Table(
        {"engine": "<20"} | dict.fromkeys(("compiled", "right", "wrong", "of", "lost", " of", "broken"), ">10")
    )
    shares: dict[str, dict[str, float]] = {}
    for name, (module, make) in engines.items():
        if find_spec(module) is None:
            print(f"{name} is not installed")
            continue
        found = outcomes(name, make, cases)
        pairs = [(case, one) for case, one in zip(cases, found, strict=True) if one.compiled]
        valid = sum(sum(case.texts.values()) for case, _ in pairs)
        invalid = sum(len(case.texts) for case, _ in pairs) - valid
        right = sum(not (one.lost or one.wrong or one.broken) for _, one in pairs)
        lost, wrong = sum(one.lost for one in found), sum(one.wrong for one in found)
        table.row(name, len(pairs), right, wrong, invalid, lost, valid, sum(one.broken for one in found))
        shares[name] = {
            "entirely right": 100 * right / len(cases),
            "compiled": 100 * len(pairs) / len(cases),
            "wrongly accepted": 100 * wrong / max(1, invalid),
            "wrongly refused": 100 * lost / max(1, valid),
        }
    for measured in shares[OURS]:
        values = {name: share[measured] for name, share in shares.items()}
        note(f"Exactness: {title}", measured, "%", values, more_is_better=not measured.startswith("wrongly"))


def main(argv: Sequence[str] = ()) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--count", type=int, default=COUNT, help="how many grammars, and patterns, are drawn")
    count = parser.parse_args(argv).count
    show("grammars, cases of the syntax", GRAMMAR_ENGINES, list(stated_grammars()))
    show("grammars, drawn", GRAMMAR_ENGINES, list(drawn_grammars(count)))
    show("patterns, drawn", PATTERN_ENGINES, list(drawn_patterns(count)))


if __name__ == "__main__":
    import sys

    main(sys.argv[1:])
