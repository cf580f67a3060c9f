"""A kind of constraint is one class and one line in the table: a toy kind works everywhere without another edit."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest

from espalier import After, AllOf, AnyOf, Free, JsonSchema, Regex, Thinking, ToolCalls, Vocab, Wordlist
from espalier.automata.languages.network import Network, build_network
from espalier.constraints import kinds
from espalier.constraints.base import Compiled
from espalier.constraints.cache import CACHE_LIMIT, CACHE_LIMIT_OF_ALL
from espalier.constraints.compiler import Compiler, ConstraintKind
from espalier.constraints.kinds import KINDS, Kind
from espalier.constraints.matching.automaton import compile_network
from espalier.constraints.matching.rewinding import rewinding_parts
from espalier.constraints.spec import Spec
from espalier.constraints.to_gbnf import portable
from espalier.constraints.verdict import Verdict, judge, parse
from espalier.errors import CapabilityError, SpecError, UnknownName, UnsupportedError
from espalier.grammar.parser import parse as parse_grammar
from espalier.owners import working_for
from tests.laws import check_matcher
from tests.plugins import declare, on_path


@dataclass(frozen=True, slots=True)
class Brackets(Spec):
    """Balanced brackets, at least one pair: not regular, so no grammar is written from an automaton of it."""

    kind: ClassVar[str] = "brackets"
    opening: str = "("
    closing: str = ")"


def compile_brackets(spec: Brackets, compiler: Compiler) -> Compiled:
    return compile_network(brackets_automaton(spec, compiler), spec, compiler.vocab, compiler.trie)


def brackets_automaton(spec: Brackets, _: Compiler) -> Network:
    return build_network(parse_grammar(f'root ::= "{spec.opening}" root? "{spec.closing}"'))


def judge_brackets(spec: Brackets, text: str, _: object) -> Verdict:
    half = len(text) // 2
    return Verdict(valid=bool(text) and text == spec.opening * half + spec.closing * half, judge="count")


class BareKind(ConstraintKind[Brackets]):
    spec = Brackets

    def compile(self, spec: Brackets, compiler: Compiler) -> Compiled:
        return compile_brackets(spec, compiler)


class BracketsKind(BareKind):
    def automaton(self, spec: Brackets, compiler: Compiler) -> Network:
        return brackets_automaton(spec, compiler)

    def judge(self, spec: Brackets, text: str, words: object) -> Verdict:
        return judge_brackets(spec, text, words)

    def parse(self, spec: Brackets, text: str) -> int:
        return len(text) // 2


BRACKETS = BracketsKind()
OF_FUNCTIONS = Kind(
    spec=Brackets,
    compile=compile_brackets,
    automaton=f"{__name__}:brackets_automaton",
    judge=judge_brackets,
    parse=lambda spec, text: len(text) // 2,
)
"""As plug-ins were written before there was `ConstraintKind`."""


@pytest.fixture(params=[BRACKETS, OF_FUNCTIONS], ids=["methods", "functions"])
def brackets(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Spec:
    monkeypatch.setitem(KINDS._builtin, "brackets", request.param)
    spec = Spec.from_json({"kind": "brackets"})
    assert spec == Brackets()
    return spec


def test_a_toy_kind_is_parsed_compiled_judged_and_refused_as_a_grammar(brackets: Spec) -> None:
    compiler = Compiler(Vocab.bytes())
    check_matcher(compiler.compile(brackets), trie=compiler.trie, accepted=["()", "((()))"], rejected=["", "(", "())"])
    assert (judge(brackets, "(())").valid, judge(brackets, "(()").valid) == (True, False)
    assert parse(brackets, "(())") == 2
    with pytest.raises(CapabilityError, match="brackets cannot be written as a grammar"):
        portable(brackets, compiler)


def test_a_toy_kind_goes_into_compositions(brackets: Spec) -> None:
    compiler = Compiler(Vocab.bytes())
    for whole, text in [
        (AllOf(brackets, Regex(".{4}")), "(())"),
        (AnyOf(brackets, Regex("x")), "()"),
        (Free({"!": brackets}), "a!()b"),
        (After("!", brackets), "a!()"),
        (Thinking(brackets), "()"),
    ]:
        assert Spec.from_json(whole.to_json()) == whole
        assert compiler.compile(whole).accepts(text)
        assert judge(whole, text).valid is True


@pytest.mark.parametrize(
    "bare", [BareKind(), Kind(spec=Brackets, compile=compile_brackets)], ids=["methods", "functions"]
)
def test_a_kind_without_a_function_says_so(bare: ConstraintKind[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(KINDS._builtin, "brackets", bare)
    compiler = Compiler(Vocab.bytes())
    assert judge(Brackets(), "()") == Verdict(valid=None, judge="none")
    assert parse(Brackets(), "()") == "()"
    with pytest.raises(UnsupportedError, match="Free cannot hold brackets"):
        compiler.compile(Free({"!": Brackets()}))
    assert compiler.compile(AllOf(Brackets(), Regex(".{4}"))).accepts(
        "(())"
    )  # its matcher is an automaton all the same
    with pytest.raises(CapabilityError, match="cannot hold brackets"):
        portable(Brackets(), compiler)


def test_a_kind_that_nobody_declared_is_refused() -> None:
    with pytest.raises(UnknownName, match="brackets"):
        Compiler(Vocab.bytes()).compile(Brackets())
    with pytest.raises(SpecError, match="unknown constraint"):
        Spec.from_json({"kind": "brackets"})


def test_a_plugin_declares_a_kind(tmp_path: Path) -> None:
    declare(tmp_path, "toy", {"constraints": {"brackets": f"{__name__}:BRACKETS"}}, {})
    with on_path(tmp_path):
        assert KINDS.names()[-1] == "brackets"
        assert KINDS.spec_of("brackets") is Brackets
        assert Compiler(Vocab.bytes()).compile(Brackets()).accepts("(())")
        assert judge(Brackets(), "(())").valid is True
    assert "brackets" not in KINDS.names()


def test_the_parts_of_every_composition_are_found() -> None:
    words, schema = Wordlist(["a"], lang="es"), JsonSchema({"type": "object"})
    listed = Wordlist(lang="es", top=10)
    for spec, parts in [
        (words, ()),
        (AllOf(words, schema), (words, schema)),
        (AnyOf(words, schema), (words, schema)),
        (Free({"!": words, "?": schema}), (words, schema)),
        (After("!", schema), (schema,)),
        (Thinking(schema), (schema,)),
        (ToolCalls({"f": {"type": "object"}}, content=words), (words,)),
    ]:
        assert spec.parts() == parts
        assert [*spec.walk()] == [spec, *parts]
    deep = Thinking(After("!", AllOf(AnyOf(words, listed), schema)))
    assert [one.kind for one in deep.walk()] == [
        "thinking",
        "after",
        "all_of",
        "any_of",
        "wordlist",
        "wordlist",
        "json_schema",
    ]
    assert deep.word_languages() == ("es",)
    assert rewinding_parts(deep) == ()


def test_parsing_a_spec_imports_neither_kernels_nor_validators() -> None:
    code = """import sys
from espalier.constraints.kinds import KINDS
for kind in KINDS:
    KINDS.load(kind).spec
heavy = {"numba", "llguidance", "jsonschema", "torch"} & set(sys.modules)
assert not heavy, heavy"""
    subprocess.run([sys.executable, "-c", code], check=True, env={"PYTHONPATH": str(SOURCES)})


SOURCES = Path(kinds.__file__).parents[2]


def test_no_owner_meets_what_was_compiled_for_another() -> None:
    """Otherwise the time of a first token would tell what other keys use, and one key could displace all others'."""
    compiler = Compiler(Vocab.bytes())
    spec = Regex("[a-z]{3}")
    with working_for("anna"):
        first = compiler.compile(spec)
        assert compiler.compile(spec) is first
    with working_for("ben"):
        own = compiler.compile(spec)
        assert own is not first
        for number in range(3 * CACHE_LIMIT):
            compiler.compile(Regex(f"b{{{number + 1}}}"))
    for number in range(10):
        with working_for(f"other {number}"):
            for length in range(9):
                compiler.compile(Regex(f"c{{{length + 1}}}"))
    with working_for("anna"):
        assert compiler.compile(spec) is first
    assert len(compiler.cache) <= CACHE_LIMIT_OF_ALL
