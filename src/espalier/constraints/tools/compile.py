"""Compiles `ToolCalls`: the grammar of the calls (`grammar.py`) with the free text around it that the choice allows.

It knows only one thing about the wire format: how calls start.
"""

from __future__ import annotations

from collections.abc import Mapping

from espalier.automata.languages.algebra import every_text, language, without
from espalier.automata.languages.dfa import Dfa, fragment_of_dfa, intersect
from espalier.automata.languages.embed import Assembly
from espalier.automata.languages.fragment import Fragment
from espalier.automata.languages.network import Network
from espalier.automata.languages.nfa import Symbol
from espalier.automata.languages.product import intersect_network
from espalier.automata.lazy.network import LazyNetwork
from espalier.automata.masks.machine import Machine, State
from espalier.automata.masks.pushdown import PushdownMachine
from espalier.automata.masks.shared import SharedParts
from espalier.automata.masks.states import Stacks
from espalier.automata.phrases.occurrences import search
from espalier.automata.phrases.triggers import TriggerText, watched
from espalier.automata.reasons.explain import NetworkExplainer, RulePosition
from espalier.constraints.base import Compiled
from espalier.constraints.compiler import Compiler
from espalier.constraints.matching.automaton import compile_automaton, compile_lazily
from espalier.constraints.tools.grammar import (
    CallsGrammar,
    calls_grammar,
    calls_outline,
    calls_tracker,
    delimiters,
    with_specials,
)
from espalier.constraints.tools.lazy_calls import LazyAssembly, Outlines, outlines
from espalier.constraints.tools.mentions import with_mentions
from espalier.constraints.tools.spec import ToolCalls
from espalier.constraints.unique.places import with_tracker
from espalier.constraints.watching import WatchedLanguage, WatchedMachine
from espalier.errors import GrammarError, SpecError, UnsupportedError
from espalier.grammar.ast import EMPTY, AnyChar, CharClass, Grammar, Literal, Node, Repeat, Rule, TokenRef, alt, seq
from espalier.tokens.trie import TokenTrie
from espalier.tokens.vocab import Vocab

MAX_IN_PLACE = 1_000
"""The most states of a constraint that is made one DFA; larger ones stay networks."""
MAX_CALLERS = 8
"""How many levels of callers are searched for a rule that belongs to a tool."""
BLANK = CharClass(((9, 10), (13, 13), (32, 32)))


def compile_tool_calls(spec: ToolCalls, compiler: Compiler) -> Compiled:
    """The constraint for one vocabulary. Raises as `calls_grammar` does, UnsupportedError for a content without an
    automaton, VocabError for a vocabulary without some needed bytes, LimitExceeded."""
    vocab, trie = compiler.vocab, compiler.trie
    if spec.choice.mode == "none":
        silent = compile_automaton(_without_calls(spec, compiler), spec, vocab, trie)
        if spec.content is None:
            silent.explain_with(lambda machine: NoCallExplainer(machine, spec))
        return silent
    specials = _specials(spec, vocab)
    known = outlines(spec, vocab)
    if known is not None:
        return _compile_lazily(spec, compiler, known, specials)
    tracker, is_easy = calls_tracker(spec)
    calls = calls_grammar(spec, specials, has_tracker=tracker is not None)
    compiled = compile_automaton(_automaton(_assembly(spec, compiler, calls, specials)), spec, vocab, trie)

    def explainer(_: Machine) -> CallsExplainer:
        network = _assembly(spec, compiler, calls.for_explanations(), specials, plain=True).network()
        return CallsExplainer(network, PushdownMachine(network, vocab, trie, needs_bytes=False), calls.pointers)

    compiled.explain_with(explainer)
    compiled.spelled = {token: text.encode() for text, token in specials.items()}
    return with_tracker(compiled, tracker, compiler, is_easy=is_easy)


def _compile_lazily(spec: ToolCalls, compiler: Compiler, known: Outlines, specials: Mapping[str, int]) -> Compiled:
    """The constraint, its arguments explored when a call reaches them."""
    vocab, trie = compiler.vocab, compiler.trie
    refs = tuple(TokenRef(id=token) for token in specials.values())

    def network(*, named: bool = False) -> LazyNetwork:
        rules = _lazily(spec, compiler, known, specials, named=named)
        return LazyNetwork(rules.start(), refs=refs, owns_tables=True)

    compiled = compile_lazily(network(), spec, vocab, trie, compiler.part(SharedParts))
    compiled.explain_with(lambda _: LazyCallsExplainer(network(named=True), vocab, trie))
    compiled.spelled = {token: text.encode() for text, token in specials.items()}
    tracker, is_easy = calls_tracker(spec, known)
    return with_tracker(compiled, tracker, compiler, is_easy=is_easy)


def _lazily(
    spec: ToolCalls, compiler: Compiler, known: Outlines, specials: Mapping[str, int], *, named: bool = False
) -> LazyAssembly:
    calls, tools = calls_outline(spec, specials)
    assembly = LazyAssembly(spec, tools, known, named=named)
    _fill(assembly, spec, compiler, calls, specials)
    return assembly


def tool_calls_machine(spec: ToolCalls, compiler: Compiler) -> WatchedMachine | None:
    """The same as a machine that is explored on demand, for compositions; None where it cannot be, and where a
    delimiter of the format is a special token. Raises as `calls_grammar` does."""
    known = None if spec.choice.mode == "none" else outlines(spec, compiler.vocab)
    if known is None or _specials(spec, compiler.vocab):
        return None
    network = LazyNetwork(_lazily(spec, compiler, known, {}).start())
    tracker, is_easy = calls_tracker(spec, known)
    machine = PushdownMachine(network, compiler.vocab, compiler.trie)
    return WatchedMachine(machine=machine, tracker=tracker, is_easy=is_easy)


def tool_calls_language(spec: ToolCalls, compiler: Compiler) -> Dfa | Network:
    """The automaton of the texts, for compositions. Raises as `compile_tool_calls` does, and UnsupportedError for
    calls in channels, and if a delimiter of the format is a special token of the vocabulary."""
    _refuse_within(spec, compiler.vocab)
    if spec.choice.mode == "none":
        return _without_calls(spec, compiler)
    return _automaton(_assembly(spec, compiler, calls_grammar(spec), {}))


def tool_calls_watched(spec: ToolCalls, compiler: Compiler) -> WatchedLanguage:
    """The same with the tracker of arrays with unique items. Raises as `tool_calls_language`."""
    _refuse_within(spec, compiler.vocab)
    tracker, is_easy = (None, True) if spec.choice.mode == "none" else calls_tracker(spec)
    if tracker is None:
        return WatchedLanguage(automaton=tool_calls_language(spec, compiler))
    assembly = _assembly(spec, compiler, calls_grammar(spec, has_tracker=True), {})
    return WatchedLanguage(automaton=_automaton(assembly), tracker=tracker, is_easy=is_easy)


def _refuse_within(spec: ToolCalls, vocab: Vocab) -> None:
    """Raises UnsupportedError for calls that stand in no composition: those in channels, and those with a
    delimiter that is a special token."""
    if spec.wire.in_channels:
        raise UnsupportedError(
            f"calls in the format {spec.format!r} have no automaton",
            hint="use them as the whole constraint, or choose another format",
            field="format",
        )
    if specials := _specials(spec, vocab):
        raise UnsupportedError(
            f"{', '.join(specials)} is a special token here, and ToolCalls with special tokens stands alone",
            hint="use it as the whole constraint, or choose a format of plain text",
            field="format",
        )


def _automaton(assembly: Assembly) -> Dfa | Network:
    """A DFA if it stays small, otherwise the network."""
    dfa = assembly.dfa(max_states=MAX_IN_PLACE)
    return assembly.network() if dfa is None else dfa


def _specials(spec: ToolCalls, vocab: Vocab) -> dict[str, int]:
    """The ids of the format's delimiters that are special tokens; empty if no call may come."""
    if spec.choice.mode == "none":
        return {}
    tokens = {text: vocab.special_id(text) for text in delimiters(spec)}
    # A token that ends the turn is no delimiter: the engine stops at it.
    return {text: token for text, token in tokens.items() if token is not None and token not in vocab.eos_ids}


def _follows_text(spec: ToolCalls) -> bool:
    """Whether calls come after free text that ends with their marker."""
    return spec.choice.mode == "auto" and spec.content is None and bool(spec.wire.marker)


def _assembly(
    spec: ToolCalls, compiler: Compiler, calls: CallsGrammar, specials: Mapping[str, int], *, plain: bool = False
) -> Assembly:
    """The calls and the text around them. Each tool's arguments stay a rule of their own, so the build time grows
    linearly with the number of tools. plain: for explanations."""
    assembly = Assembly()
    _fill(assembly, spec, compiler, calls, specials, plain=plain)
    return assembly


def _fill(
    assembly: Assembly | LazyAssembly,
    spec: ToolCalls,
    compiler: Compiler,
    calls: CallsGrammar,
    specials: Mapping[str, int],
    *,
    plain: bool = False,
) -> None:
    if _follows_text(spec):
        text = watched([spec.wire.marker.encode()])
        if not spec.wire.in_channels:
            text = with_mentions(text, spec.wire)
        assembly.rule(text.fragment, "")
        _attach_calls(
            text, assembly, assembly.grammar(calls.after_marker, plain=plain, called=calls.arguments), spec, specials
        )
        return
    without_text = spec.choice.mode == "required" or spec.content is not None
    # In free text, calls may start as long as only whitespace has been read, which leads back to the start.
    start = _empty() if without_text else fragment_of_dfa(free_text(spec))
    assembly.rule(start, "")
    end = _state(start, final=True)
    if spec.content is not None:
        held = _content(spec, compiler.language(spec.content, wanted_by="ToolCalls"))
        start.symbols[0].append((assembly.embed(held, f"{spec.kind}.{spec.content.kind}"), (end,)))
    start.symbols[0].append((assembly.grammar(calls.grammar, plain=plain, called=calls.arguments), (end,)))


def _attach_calls(
    text: TriggerText, assembly: Assembly | LazyAssembly, rest: Symbol, spec: ToolCalls, specials: Mapping[str, int]
) -> None:
    """After the marker, spelled by its bytes or with special tokens, the rest of the calls follows, and then the
    end."""
    root, marker = text.fragment, spec.wire.marker
    between = [state for state, final in enumerate(root.final) if final]
    over, closed = _state(root, final=True), _state(root, final=True)
    for met in text.met:
        root.symbols[met].append((rest, (over,)))
    root.edges[over].append((1 << ord("\n"), (closed,)))
    if any(text in marker for text in specials):
        token = _spell(marker, assembly, specials)
        for state in between:
            # Only where the marker's bytes, read as text, would complete the marker as well.
            if (met := text.after(state, marker.encode())) in text.met:
                root.symbols[state].append((token, (met,)))


def _spell(text: str, assembly: Assembly | LazyAssembly, specials: Mapping[str, int]) -> Symbol:
    """The symbol of a delimiter with special tokens in it."""
    if text in specials:
        return assembly.token(TokenRef(id=specials[text]))
    return assembly.grammar(Grammar.of([Rule("root", with_specials(text, specials))]))


def _empty() -> Fragment:
    return Fragment(edges=[[]], symbols=[[]], final=[False], leaf=[None])


def _state(fragment: Fragment, *, final: bool) -> int:
    """Add a state without edges; returns its number."""
    fragment.edges.append([])
    fragment.symbols.append([])
    fragment.final.append(final)
    fragment.leaf.append(None)
    return len(fragment) - 1


def free_text(spec: ToolCalls) -> Dfa:
    """The DFA of the texts in which no call starts: without the marker, or, for a format without one, texts that do not
    start like a call. Whitespace at the start leads back to the start state."""
    wire = spec.wire
    if wire.marker:
        return search([wire.marker.encode()]).avoiding
    begun = alt(*(Literal(text) for text in (wire.opener, wire.lead) if text))
    callless = without(every_text(), language(seq(Repeat(BLANK), begun, Repeat(AnyChar()))))
    assert callless is not None  # it holds the empty text
    return callless.minimised()


def _content(spec: ToolCalls, held: Dfa | Network) -> Dfa | Network:
    """The content's texts that no parser reads as calls. Raises SpecError if there are none."""
    if spec.wire.marker:
        quiet: Dfa | None = search([spec.wire.marker.encode()]).avoiding
    else:
        quiet = without(every_text(), language(seq(_beginning(spec), Repeat(AnyChar()))))
    assert quiet is not None  # it holds the empty text
    try:
        return intersect(held, quiet) if isinstance(held, Dfa) else intersect_network(held, quiet)
    except GrammarError as error:
        raise SpecError(
            "every text of the content would be read as a call",
            hint="choose another format for the calls",
            field="content",
        ) from error


def _beginning(spec: ToolCalls) -> Node:
    """The start of a call up to its arguments, with whitespace wherever a parser accepts it."""
    wire = spec.wire
    name = alt(*(Literal(tool.name) for tool in spec.allowed))
    quote = Literal('"')
    shapes: dict[str, list[Node]] = {
        "json": [
            Literal("{"),
            Literal(f'"{wire.name_key}"'),
            Literal(":"),
            seq(quote, name, quote),
            Literal(","),
            Literal(f'"{wire.args_key}"'),
            Literal(":"),
            Literal("{"),
        ],
        "python": [name, Literal("(")],
        "named": [name, *([Literal(wire.middle.strip())] if wire.middle.strip() else []), Literal("{")],
    }
    blanks = Repeat(BLANK)
    lead = [alt(seq(Literal(wire.lead), blanks), EMPTY)] if wire.lead else []
    pieces = [*([Literal(wire.open.strip())] if wire.open.strip() else []), *shapes[wire.shape]]
    return seq(blanks, *lead, *(part for piece in pieces for part in (piece, blanks)))


def _without_calls(spec: ToolCalls, compiler: Compiler) -> Dfa | Network:
    return free_text(spec) if spec.content is None else compiler.language(spec.content, wanted_by="ToolCalls")


class CallsExplainer(NetworkExplainer):
    """Names the tool, and the JSON pointer in its schema of what can come next: `read_file/properties/path`."""

    def __init__(self, network: Network, machine: PushdownMachine, pointers: Mapping[str, str]) -> None:
        super().__init__(network, machine)
        self._pointers = pointers

    def rule_position(self, state: Stacks) -> RulePosition:
        """The innermost sub-schema of several that can continue. For a rule of no tool, the tool's rule that called
        it."""
        rule = self._network.rule
        level = state.items
        for _ in range(MAX_CALLERS):
            pointers = [self._pointers[rule[place]] for place, _ in level if rule[place] in self._pointers]
            if pointers:
                return max(pointers, key=len), None
            level = tuple({item: None for _, below in level for item in below.items})
        return next((rule[place] for place, _ in state.items if rule[place]), None), None


class LazyCallsExplainer:
    """The same for calls that are explored on demand. network: its positions know their rules."""

    def __init__(self, network: LazyNetwork, vocab: Vocab, trie: TokenTrie) -> None:
        self._network = network
        self.machine: Machine = PushdownMachine(network, vocab, trie, needs_bytes=False)

    def rule_position(self, state: Stacks) -> RulePosition:
        """As `CallsExplainer.rule_position`."""
        names = [name for item in state.items if (name := self._name(item))]
        # Sub-schemas are named by a pointer, rules of no tool by a word.
        return max(names, key=lambda name: ("/" in name, len(name)), default=None), None

    def _name(self, item: tuple[int, Stacks]) -> str | None:
        """The rule of a position; of what it returns to where several tools share it."""
        position, below = item
        while (name := self._network.places[position].explored.name) is None and below.items:
            position, below = below.items[0]
        return name


class NoCallExplainer:
    """For free text in which no call may start."""

    def __init__(self, machine: Machine, spec: ToolCalls) -> None:
        self.machine = machine
        self._marker = spec.wire.marker.encode()
        self._opener = spec.wire.opener.encode()
        self._begun = search([self._marker]).begun if self._marker else None

    def rule_position(self, state: State) -> RulePosition:
        return None, None

    def reason(self, state: State, read: bytes, refused: bytes) -> str | None:
        """See `Reasoner.reason`. None for bytes that are not valid UTF-8 here."""
        if self._begun is None:
            begins = state == self.machine.start and refused[:1] == self._opener
        else:
            begins = (self._begun(state) + refused[:1]).endswith(self._marker)
        return "a tool call would start here, and the choice is none" if begins else None
