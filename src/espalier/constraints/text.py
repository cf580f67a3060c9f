"""Compiles expressions, choices, GBNF grammars and JSON mode: each becomes a grammar, and the grammar an automaton.

GBNF is compiled as written, without the checks of `grammar/check.py`. JSON Schema is in `json_schema/`.
"""

from __future__ import annotations

import re
import subprocess
import warnings
from collections.abc import Iterable

from espalier.automata.languages.dfa import Dfa
from espalier.automata.languages.far import ROOT, AutomatonSource
from espalier.automata.languages.network import Network
from espalier.automata.lazy.explored import LazyState, LazyStates
from espalier.automata.lazy.network import LazyNetwork
from espalier.automata.lazy.rules import NoRules, OwnedRule
from espalier.automata.lazy.words import one_of_texts
from espalier.automata.masks.shared import SharedParts
from espalier.constraints import slow_patterns
from espalier.constraints.base import Compiled
from espalier.constraints.compiler import Compiler
from espalier.constraints.matching.automaton import (
    CompiledAutomaton,
    automaton_of,
    compile_grammar,
    compile_lazily,
    compile_source,
    explain_source,
)
from espalier.constraints.matching.spelling import check_grammar, check_spelled
from espalier.constraints.matching.token_limits import compile_limited
from espalier.constraints.spec import Choice, Gbnf, JsonObject, Regex, Spec
from espalier.constraints.to_gbnf import NO_COUNTING, refused
from espalier.constraints.verdict import Verdict
from espalier.constraints.watching import WatchedMachine
from espalier.errors import SpecError, UnsupportedError
from espalier.grammar.ambiguity import is_narrow
from espalier.grammar.ast import Alternative, Grammar, Literal, Node, RuleRef
from espalier.grammar.json_mode import json_grammar
from espalier.lexicon.files import WordFiles

MOST_EXPLORED = 10_000
"""Characters of a pattern that is explored on demand; a longer one is built where it can be ended."""


def compile_regex(spec: Regex, compiler: Compiler) -> Compiled:
    """Raises RegexError with an offset, UnsupportedError for a pattern that is not regular (such as back references),
    LimitExceeded for one whose automaton is too large."""
    source = _regex(spec)
    if len(spec.pattern) <= MOST_EXPLORED and not compiler.vocab.missing_bytes():
        expression = regex_grammar(spec).rules[source.root].body
        words = words_of(expression)
        start = words_start(words) if words else expression_start(expression) if is_narrow(expression) else None
        if start is not None:
            return compile_explored(start, source, spec, compiler)
    return _compile(source, spec, compiler, "pattern")


def words_of(expression: Node) -> tuple[str, ...]:
    """The words of an expression that is a choice of some; none for others."""
    options = expression.options if isinstance(expression, Alternative) else ()
    words = [option.text for option in options if isinstance(option, Literal)]
    return tuple(words) if len(words) == len(options) else ()


def expression_start(expression: Node) -> LazyState:
    """The first position of an expression that is explored as its texts reach it, as the strings of a schema are. What
    one is found to allow is not told to another, since it may be somebody else's."""
    start = LazyStates(NoRules(), is_shared=True).begin([expression])
    return LazyStates(OwnedRule(start)).begin([RuleRef(ROOT)])


def words_start(words: Iterable[str]) -> LazyState:
    """The first position of a choice of words, which are looked up."""
    return LazyStates(NoRules()).begin(one_of_texts([*dict.fromkeys(words)]))


def compile_explored(start: LazyState, source: AutomatonSource, spec: Spec, compiler: Compiler) -> CompiledAutomaton:
    """Compile what is explored on demand from a position on, all of whose tables are its own. source: what it was read
    from, for explanations."""
    network = LazyNetwork(start, owns_tables=True)
    compiled = compile_lazily(network, spec, compiler.vocab, compiler.trie, compiler.part(SharedParts))
    explain_source(compiled, source, compiler.far)
    return compiled


def regex_language(spec: Regex, compiler: Compiler) -> Dfa | Network:
    """The automaton of the pattern. Raises as `compile_regex`."""
    return compiler.far.build(_regex(spec), "language")


def regex_machine(spec: Regex, compiler: Compiler) -> WatchedMachine | None:
    """The automaton of the pattern built as a whole, for compositions: small ones become one automaton with those of
    other members. None for a vocabulary that lacks bytes. Raises as `compile_regex`."""
    return _built_machine(_regex(spec), spec, compiler)


def _built_machine(source: AutomatonSource, spec: Spec, compiler: Compiler) -> WatchedMachine | None:
    if compiler.vocab.missing_bytes():
        return None
    return WatchedMachine(machine=compile_source(source, spec, compiler.far, compiler.vocab, compiler.trie).machine)


def regex_grammar(spec: Regex) -> Grammar:
    """Raises as `compile_regex`."""
    return _regex(spec).grammar()


def _regex(spec: Regex) -> AutomatonSource:
    return AutomatonSource(form="regex", text=spec.pattern)


def compile_choice(spec: Choice, compiler: Compiler) -> Compiled:
    """Raises SpecError for a text that is not valid Unicode, VocabError for one that no tokens spell, LimitExceeded for
    more choices than an automaton holds."""
    _check_options(spec)
    check_spelled(spec.options, "choices", "options", compiler.vocab, compiler.trie)
    source = _words(spec)
    if not compiler.vocab.missing_bytes():
        return compile_explored(words_start(spec.options), source, spec, compiler)
    return compile_source(source, spec, compiler.far, compiler.vocab, compiler.trie)


def _words(spec: Choice) -> AutomatonSource:
    return AutomatonSource(form="words", words=tuple(spec.options))


def choice_machine(spec: Choice, compiler: Compiler) -> WatchedMachine | None:
    """The automaton of the choices built as a whole, as `regex_machine` builds that of a pattern. Raises as
    `compile_choice`."""
    _check_options(spec)
    return _built_machine(_words(spec), spec, compiler)


def choice_language(spec: Choice, compiler: Compiler) -> Dfa:
    """The automaton of the choices. Raises as `compile_choice`."""
    _check_options(spec)
    return Dfa.of_words(spec.options)


def compile_gbnf(spec: Gbnf, compiler: Compiler) -> Compiled:
    """Raises GrammarError with line and column, VocabError for bytes or tokens that the vocabulary lacks,
    LimitExceeded for a grammar that is too large."""
    if spec.token_limits:
        return compile_limited(gbnf_rules(spec), dict(spec.token_limits), spec, compiler.vocab, compiler.trie)
    return _compile(_gbnf(spec), spec, compiler, "grammar")


def gbnf_rules(spec: Gbnf) -> Grammar:
    """The grammar without its limits of tokens. Raises GrammarError."""
    return _gbnf(spec).grammar()


def gbnf_grammar(spec: Gbnf) -> Grammar:
    """Raises GrammarError, and CapabilityError for limits of tokens."""
    if spec.token_limits:
        raise refused(spec, NO_COUNTING, "leave the limit of the rule out, or count characters, such as {0,40}")
    return gbnf_rules(spec)


def _gbnf(spec: Gbnf) -> AutomatonSource:
    return AutomatonSource(form="gbnf", text=spec.grammar, root=spec.root)


def gbnf_language(spec: Gbnf, compiler: Compiler) -> Dfa | Network:
    """Raises GrammarError, LimitExceeded, and UnsupportedError for limits of tokens."""
    if spec.token_limits:
        raise UnsupportedError(
            "a grammar with limits of tokens cannot stand within another constraint",
            hint="put it beside the whole: AllOf(...)",
            field="constraint",
        )
    return compiler.far.build(_gbnf(spec), "language")


def _compile(source: AutomatonSource, spec: Spec, compiler: Compiler, field: str) -> Compiled:
    if compiler.vocab.missing_bytes():  # no common case: most vocabularies spell every text
        automaton = compiler.far.build(source, "language")
        check_grammar(source.grammar(), automaton, field, compiler.vocab, compiler.trie)
    return compile_source(source, spec, compiler.far, compiler.vocab, compiler.trie)


def compile_object(spec: JsonObject, compiler: Compiler) -> Compiled:
    """Compile JSON mode from our own JSON grammar. Raises VocabError."""
    return compile_grammar(object_grammar(spec), spec, compiler.vocab, compiler.trie)


def object_language(spec: JsonObject, compiler: Compiler) -> Dfa | Network:
    return automaton_of(object_grammar(spec))


def object_grammar(spec: JsonObject) -> Grammar:
    return json_grammar(kinds=spec.kinds, whitespace=spec.whitespace, indent=spec.indent, max_depth=spec.max_depth)


def _check_options(spec: Choice) -> None:
    for number, option in enumerate(spec.options):
        if any(0xD800 <= ord(c) < 0xE000 for c in option):
            raise SpecError(f"choice {number} holds half a character (a surrogate)", field="options")


def judge_regex(spec: Regex, text: str, words: WordFiles) -> Verdict:
    """Judge with Python's `re`, whose dialect ours is. Patterns that `re` does not read (`\\p{L}`) are not judged."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # `[[` may come to mean something else; today it does not
            ok = slow_patterns.full_match(spec.pattern, text)
    except (re.error, RecursionError, OverflowError) as error:
        return Verdict(valid=None, judge="re", errors=(f"re does not read this pattern: {error}"[:200],))
    except subprocess.SubprocessError:
        return Verdict(valid=None, judge="re", errors=(f"re did not finish in {slow_patterns.JUDGE_SECONDS:g} s",))
    return Verdict(valid=ok, judge="re", errors=() if ok else ("the pattern does not match the whole text",))


def judge_choice(spec: Choice, text: str, words: WordFiles) -> Verdict:
    ok = text in spec.options
    return Verdict(valid=ok, judge="list", errors=() if ok else ("not one of the choices",))
