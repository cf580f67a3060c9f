"""A constraint as GBNF text that llama.cpp takes, for whoever samples with llama.cpp's own grammar.

Each kind has a function that gives its grammar; what cannot be said in one is refused, never narrowed in silence. It
knows no engine. llama.cpp reads a special token as the text of its name, so no grammar here names one by itself.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

from espalier.automata.languages.dfa import Dfa
from espalier.automata.phrases.occurrences import until
from espalier.constraints.after.border import GAP, WHITESPACE
from espalier.constraints.after.spec import After
from espalier.constraints.after.thinking import Thinking
from espalier.constraints.compiler import Compiler
from espalier.constraints.compose.any_of import AnyOf
from espalier.constraints.json_schema.backends import LoweredSchema
from espalier.constraints.json_schema.check import grammar_contract
from espalier.constraints.rewinding import check_only_masks
from espalier.constraints.spec import Gbnf, JsonObject, JsonSchema, Regex, Spec
from espalier.constraints.text import object_grammar, regex_grammar
from espalier.constraints.tools.compile import BLANK, free_text
from espalier.constraints.tools.grammar import calls_grammar
from espalier.constraints.tools.spec import ToolCalls
from espalier.errors import CapabilityError, GrammarError, LimitExceeded, UnsupportedError
from espalier.grammar.ast import CharClass, Grammar, Literal, Node, Repeat, Rule, RuleRef, alt, fold, seq
from espalier.grammar.llama_limits import within_limits
from espalier.grammar.parser import parse
from espalier.grammar.printer import print_grammar
from espalier.grammar.ranges import merge
from espalier.grammar.rewrite import portable as rewritten
from espalier.grammar.rewrite import trim
from espalier.schema.gbnf.dfa_rules import dfa_rules
from espalier.schema.gbnf.rulebook import one_of
from espalier.tokens.vocab import Vocab

_READER = Compiler(Vocab.bytes())  # a cache of grammars, one byte a token


NO_COUNTING = "a grammar counts no tokens"


def portable(spec: Spec, compiler: Compiler, *, before: str = "") -> str:
    """The same texts as the spec's matcher of `compiler.by_grammar` accepts, as GBNF whose start is `root`.

    before: what the prompt already holds of the model's turn, as for `Compiled.matcher`. Raises CapabilityError naming
    why for what has no such text, and what is wrong with the spec itself as its compiler does.
    """
    check_only_masks(spec, "a grammar", field="constraint")
    try:
        return print_grammar(within_limits(rewritten(trim(_grammar(spec, compiler, before)))))
    except CapabilityError:
        raise
    except (UnsupportedError, LimitExceeded, GrammarError) as error:
        raise _refused(spec, error.message, error.hint) from error


def _refused(spec: Spec, why: str, hint: str | None = None) -> CapabilityError:
    return CapabilityError(f"{spec.kind} cannot be written as a grammar for llama.cpp: {why}", hint=hint,
                           field="constraint")  # fmt: skip


def _grammar(spec: Spec, compiler: Compiler, before: str) -> Grammar:
    make = KINDS.get(spec.kind, _of_language)
    return make(spec, compiler, before)


def _of_language(spec: Spec, compiler: Compiler, _before: str) -> Grammar:
    """Whatever is one finite automaton; a kind of a plugin too."""
    found = compiler.language(spec, wanted_by="a grammar for llama.cpp")
    if not isinstance(found, Dfa):
        raise _refused(
            spec, "its parts are not regular, and only together they say what is allowed",
            "leave out a part, or use a sampler of our own",
        )  # fmt: skip
    return of_dfa(found)


def of_dfa(dfa: Dfa) -> Grammar:
    """The texts of an automaton. Raises LimitExceeded."""
    count = 0

    def fresh() -> str:
        nonlocal count
        count += 1
        return f"part-{count}"

    body, rules = dfa_rules(dfa, one_of, fresh)
    return Grammar.of([Rule("root", body), *rules])


def _gbnf(spec: Spec, _compiler: Compiler, _before: str) -> Grammar:
    assert isinstance(spec, Gbnf)
    return parse(spec.grammar, root=spec.root)


def _regex(spec: Spec, _compiler: Compiler, _before: str) -> Grammar:
    assert isinstance(spec, Regex)
    return regex_grammar(spec)


def _json_object(spec: Spec, _compiler: Compiler, _before: str) -> Grammar:
    assert isinstance(spec, JsonObject)
    return object_grammar(spec)


def _json_schema(spec: Spec, _compiler: Compiler, _before: str) -> Grammar:
    assert isinstance(spec, JsonSchema)
    lowered = LoweredSchema(spec)
    # A matcher can also forbid equal items, which a grammar cannot.
    may_check = spec.allow == "checked" and lowered.unique is None
    if may_check:
        lowered.contract("grammar").check("checked")
    else:
        grammar_contract(lowered).check()
    return lowered.converted.grammar


def _any_of(spec: Spec, compiler: Compiler, before: str) -> Grammar:
    assert isinstance(spec, AnyOf)
    book = _Book()
    return book.grammar(alt(*(book.add(_grammar(member, compiler, before)) for member in spec.members)))


def _tool_calls(spec: Spec, compiler: Compiler, _before: str) -> Grammar:
    assert isinstance(spec, ToolCalls)
    if spec.choice.mode == "none" or spec.content is not None:
        return _of_language(spec, compiler, "")
    calls = calls_grammar(spec)
    if spec.choice.mode == "required":
        return calls.grammar
    book = _Book()
    text = book.add(of_dfa(free_text(spec)))
    marker = spec.wire.marker
    if not marker:
        # Where nothing but whitespace has come, calls may still begin.
        return book.grammar(alt(text, seq(Repeat(BLANK), book.add(calls.grammar))))
    behind = seq(book.add(of_dfa(until([marker.encode()]))), book.add(calls.after_marker), _optional(Literal("\n")))
    return book.grammar(alt(text, behind))


def _after(spec: Spec, compiler: Compiler, before: str) -> Grammar:
    assert isinstance(spec, After)
    if spec.max_before is not None:
        raise _refused(spec, NO_COUNTING, "leave the limit out")
    if spec.opens is not None and spec.opens[0] in WHITESPACE.decode():
        raise _refused(spec, "its opening begins with whitespace")
    answer = spec.answer_in(before)
    if answer:
        raise _refused(spec, "the prompt holds a part of the answer already")
    book = _Book()
    inner = _grammar(spec.spec, compiler, before)
    rest = seq(_gap(inner), book.add(inner)) if spec.gap else book.add(inner)
    if answer is not None:
        return book.grammar(rest)
    waiting: list[Node] = [book.add(of_dfa(until([spec.marker.encode()])))]
    if spec.opens is not None and not spec.opened_in(before):
        waiting = [Repeat(_blanks(WHITESPACE), 0, GAP), Literal(spec.opens), *waiting]
    return book.grammar(seq(*waiting, rest))


def _thinking(spec: Spec, compiler: Compiler, before: str) -> Grammar:
    assert isinstance(spec, Thinking)
    if spec.max_tokens is not None:
        raise _refused(spec, NO_COUNTING, "leave the limit out")
    thought = _grammar(spec.thought, compiler, before)
    if spec.begun(before):
        return thought
    answer = _grammar(spec.spec, compiler, before)
    start = spec.start.encode()
    if any(
        _can_begin(answer, bytes(blanks) + start) for n in range(GAP + 1) for blanks in product(WHITESPACE, repeat=n)
    ):
        raise _refused(spec, f"the answer itself can begin with {spec.start!r}")
    book = _Book()
    return book.grammar(alt(book.add(thought), book.add(answer)))


def _gap(inner: Grammar) -> Node:
    """Whitespace with which the inner texts can begin belongs to them, any other may stand before."""
    others = bytes(blank for blank in WHITESPACE if not _can_begin(inner, bytes([blank])))
    return Repeat(_blanks(others), 0, GAP) if others else seq()


def _can_begin(grammar: Grammar, data: bytes) -> bool:
    """Whether any text of the grammar begins with these bytes."""
    matcher = _READER.compile(Gbnf(print_grammar(grammar), root=grammar.root)).matcher()
    for byte in data:
        if not matcher.allows(byte):
            return False
        matcher.advance(byte)
    return True


def _blanks(members: bytes) -> Node:
    return CharClass(merge((blank, blank) for blank in members))


def _optional(node: Node) -> Node:
    return Repeat(node, 0, 1)


class _Book:
    """Rules of several grammars, each under names of its own."""

    def __init__(self) -> None:
        self._rules: dict[str, Rule] = {}
        self._count = 0

    def add(self, grammar: Grammar) -> RuleRef:
        """The rules, and a mention of their root."""
        self._count += 1
        names = {name: f"p{self._count}-{name}" for name in grammar.rules}

        def visit(node: Node, parts: list[Node]) -> Node:
            if isinstance(node, RuleRef):
                return RuleRef(names[node.name])
            return node.with_children(parts) if parts else node

        for name, rule in grammar.rules.items():
            self._rules[names[name]] = Rule(names[name], fold(rule.body, visit))
        return RuleRef(names[grammar.root])

    def grammar(self, root: Node) -> Grammar:
        return Grammar.of([Rule("root", root), *self._rules.values()])


KINDS: dict[str, Callable[[Spec, Compiler, str], Grammar]] = {
    "gbnf": _gbnf,
    "regex": _regex,
    "json_object": _json_object,
    "json_schema": _json_schema,
    "any_of": _any_of,
    "tool_calls": _tool_calls,
    "after": _after,
    "thinking": _thinking,
}
"""Those whose grammar says more of them than an automaton would; all others are written from their automaton."""
