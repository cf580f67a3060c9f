"""`ToolCalls` as an automaton: the calls of `grammar.py`, and free text around them as the choice allows.

It knows nothing of how calls are written beyond where they begin.
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
from espalier.automata.masks.machine import Machine, State
from espalier.automata.masks.pushdown import PushdownMachine
from espalier.automata.masks.stacks import Stacks
from espalier.automata.phrases.occurrences import search
from espalier.automata.phrases.triggers import Watched, watched
from espalier.automata.reasons.explain import NetworkExplainer, RulePosition
from espalier.constraints.automaton_matcher import compile_automaton
from espalier.constraints.base import Compiled
from espalier.constraints.compiler import Compiler
from espalier.constraints.tools.grammar import CallsGrammar, calls_grammar, pieces
from espalier.constraints.tools.spec import ToolCalls
from espalier.errors import GrammarError, SpecError, UnsupportedError
from espalier.grammar.ast import EMPTY, AnyChar, CharClass, Literal, Node, Repeat, TokenRef, alt, seq
from espalier.tokens.vocab import Vocab

MAX_IN_PLACE = 1_000
"""States of calls that are made one deterministic automaton."""
MAX_CALLERS = 8
"""Rules that are looked at, each the caller of the one before, for one that is of a tool."""
BLANK = CharClass(((9, 10), (13, 13), (32, 32)))


def compile_tool_calls(spec: ToolCalls, compiler: Compiler) -> Compiled:
    """Raises what `calls_grammar` raises, UnsupportedError for a content without an automaton, VocabError for a
    vocabulary that lacks bytes, LimitExceeded."""
    vocab, trie = compiler.vocab, compiler.trie
    if spec.choice.mode == "none":
        silent = compile_automaton(_silence(spec, compiler), spec, vocab, trie)
        if spec.content is None:
            silent.explain_with(lambda: SilentExplainer(silent.machine, spec))
        return silent
    specials = _specials(spec, vocab)
    calls = calls_grammar(spec, specials)
    found = compile_automaton(_whole(_framed(spec, compiler, calls, specials)), spec, vocab, trie)

    def explainer() -> CallsExplainer:
        network = _framed(spec, compiler, calls.told(), specials, plain=True).network()
        machine = PushdownMachine(network, vocab, trie, needs_bytes=False)
        return CallsExplainer(network, machine, calls.pointers)

    found.explain_with(explainer)
    found.spelled = {token: text.encode() for text, token in specials.items()}
    return found


def tool_calls_language(spec: ToolCalls, compiler: Compiler) -> Dfa | Network:
    """As `compile_tool_calls`; UnsupportedError too where a piece of the format is a special token."""
    specials = _specials(spec, compiler.vocab)
    if specials:
        raise UnsupportedError(
            f"{', '.join(specials)} is a special token here, and ToolCalls with special tokens stands alone",
            hint="use it as the whole constraint, or choose a format of plain text",
            field="format",
        )
    if spec.choice.mode == "none":
        return _silence(spec, compiler)
    return _whole(_framed(spec, compiler, calls_grammar(spec), {}))


def _whole(made: Assembly) -> Dfa | Network:
    """One deterministic automaton, if that is soon made."""
    found = made.dfa(max_states=MAX_IN_PLACE)
    return made.network() if found is None else found


def _specials(spec: ToolCalls, vocab: Vocab) -> dict[str, int]:
    """The pieces of the format that are special tokens; none where no call may come."""
    if spec.choice.mode == "none":
        return {}
    found = {text: vocab.special_id(text) for text in pieces(spec)}
    return {text: token for text, token in found.items() if token is not None}


def _stands_behind_text(spec: ToolCalls) -> bool:
    """Whether calls come after free text, which their marker ends."""
    return spec.choice.mode == "auto" and spec.content is None and bool(spec.wire.marker)


def _framed(
    spec: ToolCalls, compiler: Compiler, calls: CallsGrammar, specials: Mapping[str, int], *, plain: bool = False
) -> Assembly:
    """The whole. Each tool's arguments are called, so that many tools take the time of one, so many times."""
    made = Assembly()
    if _stands_behind_text(spec):
        text = watched([spec.wire.marker.encode()])
        made.rule(text.fragment, "")
        _behind(text, made, made.grammar(calls.after_marker, plain=plain, called=calls.arguments), spec, specials)
        return made
    without_text = spec.choice.mode == "required" or spec.content is not None
    # Free text starts where nothing but whitespace has been read.
    start = _empty() if without_text else fragment_of_dfa(free_text(spec))
    made.rule(start, "")
    end = _state(start, final=True)
    if spec.content is not None:
        held = _content(spec, compiler.language(spec.content, wanted_by="ToolCalls"))
        start.symbols[0].append((made.embed(held, f"{spec.kind}.{spec.content.kind}"), (end,)))
    start.symbols[0].append((made.grammar(calls.grammar, plain=plain, called=calls.arguments), (end,)))
    return made


def _behind(text: Watched, made: Assembly, rest: Symbol, spec: ToolCalls, specials: Mapping[str, int]) -> None:
    """Where the marker has been met, by its bytes or as a token, the rest of the calls follows, and then the end."""
    root, (met,), marker = text.fragment, text.met, spec.wire.marker
    between = [state for state, final in enumerate(root.final) if final]
    over, closed = _state(root, final=True), _state(root, final=True)
    root.symbols[met].append((rest, (over,)))
    root.edges[over].append((1 << ord("\n"), (closed,)))
    if marker in specials:
        token = made.token(TokenRef(id=specials[marker]))
        for state in between:
            # Only where its spelling, read as text, would end in the marker as well.
            if text.after(state, marker.encode()) == met:
                root.symbols[state].append((token, (met,)))


def _empty() -> Fragment:
    return Fragment(edges=[[]], symbols=[[]], final=[False], leaf=[None])


def _state(fragment: Fragment, *, final: bool) -> int:
    """A new state without edges."""
    fragment.edges.append([])
    fragment.symbols.append([])
    fragment.final.append(final)
    fragment.leaf.append(None)
    return len(fragment) - 1


def free_text(spec: ToolCalls) -> Dfa:
    """The texts in which no call begins: without the marker, or not beginning as calls do. A text of whitespace leads
    back to the start."""
    wire = spec.wire
    if wire.marker:
        return search([wire.marker.encode()]).avoiding
    begun = alt(*(Literal(text) for text in (wire.opener, wire.lead) if text))
    found = without(every_text(), language(seq(Repeat(BLANK), begun, Repeat(AnyChar()))))
    assert found is not None  # the empty text is there
    return found.minimised()


def _content(spec: ToolCalls, held: Dfa | Network) -> Dfa | Network:
    """The content's texts that no parser takes for calls. Raises SpecError if there are none."""
    if spec.wire.marker:
        quiet: Dfa | None = search([spec.wire.marker.encode()]).avoiding
    else:
        quiet = without(every_text(), language(seq(_beginning(spec), Repeat(AnyChar()))))
    assert quiet is not None  # the empty text is there
    try:
        return intersect(held, quiet) if isinstance(held, Dfa) else intersect_network(held, quiet)
    except GrammarError as error:
        raise SpecError(
            "every text of the content would be read as a call",
            hint="choose another format for the calls",
            field="content",
        ) from error


def _beginning(spec: ToolCalls) -> Node:
    """How calls begin, with whitespace wherever a parser takes it, up to where their arguments do."""
    wire = spec.wire
    name = alt(*(Literal(tool.name) for tool in spec.allowed))
    quote = Literal('"')
    shapes: dict[str, list[Node]] = {
        "json": [Literal("{"), Literal(f'"{wire.name_key}"'), Literal(":"), seq(quote, name, quote), Literal(","),
                 Literal(f'"{wire.args_key}"'), Literal(":"), Literal("{")],
        "python": [name, Literal("(")],
        "named": [name, *([Literal(wire.middle.strip())] if wire.middle.strip() else []), Literal("{")],
    }  # fmt: skip
    blanks = Repeat(BLANK)
    lead = [alt(seq(Literal(wire.lead), blanks), EMPTY)] if wire.lead else []
    pieces_ = [*([Literal(wire.open.strip())] if wire.open.strip() else []), *shapes[wire.shape]]
    return seq(blanks, *lead, *(part for piece in pieces_ for part in (piece, blanks)))


def _silence(spec: ToolCalls, compiler: Compiler) -> Dfa | Network:
    return free_text(spec) if spec.content is None else compiler.language(spec.content, wanted_by="ToolCalls")


class CallsExplainer(NetworkExplainer):
    """Says the tool, and the JSON pointer of what could go on in its schema: `read_file/properties/path`."""

    def __init__(self, network: Network, machine: PushdownMachine, pointers: Mapping[str, str]) -> None:
        super().__init__(network, machine)
        self._pointers = pointers

    def rule_position(self, state: Stacks) -> RulePosition:
        """Of several places that could go on the innermost; of what belongs to no tool, who has called it."""
        rule = self._network.rule
        level = state.items
        for _ in range(MAX_CALLERS):
            pointers = [self._pointers[rule[place]] for place, _ in level if rule[place] in self._pointers]
            if pointers:
                return max(pointers, key=len), None
            level = tuple({item: None for _, below in level for item in below.items})
        return next((rule[place] for place, _ in state.items if rule[place]), None), None


class SilentExplainer:
    """Of free text in which no call may begin."""

    def __init__(self, machine: Machine, spec: ToolCalls) -> None:
        self.machine = machine
        self._marker = spec.wire.marker.encode()
        self._opener = spec.wire.opener.encode()
        self._begun = search([self._marker]).begun if self._marker else None

    def rule_position(self, state: State) -> RulePosition:
        return None, None

    def reason(self, state: State, read: bytes, refused: bytes) -> str | None:
        """As `Reasoner.reason`. None for bytes that no text holds here at all."""
        if self._begun is None:
            begins = state == self.machine.start and refused[:1] == self._opener
        else:
            begins = (self._begun(state) + refused[:1]).endswith(self._marker)
        return "here a tool call would begin, and the choice is none" if begins else None
