"""Tool calls as rules that are explored on demand: a tool's arguments are worked out when a call reaches them.

It knows neither matchers nor masks; `compile.py` says which text stands around the calls.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import partial

from espalier.automata.languages.dfa import Dfa
from espalier.automata.languages.fragment import Fragment
from espalier.automata.languages.network import Network
from espalier.automata.languages.nfa import Symbol
from espalier.automata.lazy.costs import least_bytes
from espalier.automata.lazy.explored import LazyState, LazyStates
from espalier.automata.lazy.fragments import FragmentRule
from espalier.automata.lazy.rules import Later, Start
from espalier.chat.tools import Tool
from espalier.constraints.tools.arguments import Outline, explored, outline
from espalier.constraints.tools.grammar import is_explored
from espalier.constraints.tools.spec import ToolCalls
from espalier.grammar.ast import Grammar, Node, RuleRef, TokenRef
from espalier.tokens.vocab import Vocab

Outlines = Mapping[str, Outline]
"""By the name of a tool."""


def outlines(spec: ToolCalls, vocab: Vocab) -> Outlines | None:
    """The outlines of the allowed tools; None where the calls cannot be explored on demand. Raises as `calls_grammar`
    does."""
    if not is_explored(spec) or vocab.missing_bytes():
        return None
    by_tool: dict[str, Outline] = {}
    for tool in spec.allowed:
        lowered = outline(tool, spec.whitespace, spec.order_of(tool))
        if lowered is None:
            return None
        by_tool[tool.name] = lowered
    return by_tool


class LazyAssembly:
    """The calls and the text around them under construction, as `Assembly` takes them. named: each rule has positions
    of its own that know its name, for explanations."""

    def __init__(self, spec: ToolCalls, tools: Mapping[str, Tool], known: Outlines, *, named: bool = False) -> None:
        self._named = named
        self._text: Fragment | None = None
        self._bodies: dict[str, Node] = {}
        self._symbols: dict[Symbol, Node] = {}
        self._costs: dict[str, int] = {}
        self._places: dict[str, LazyState] = {}
        self._explored = LazyStates(self, name="" if named else None)
        self._later = {
            name: Later(
                partial(explored, tool, spec.whitespace, spec.order_of(tool), named=named), known[tool.name].least
            )
            for name, tool in tools.items()
        }

    def rule(self, fragment: Fragment, name: str) -> Symbol:
        """Take the fragment of the whole text."""
        if self._text is not None:
            raise ValueError(f"the text has one fragment, and {name!r} is another one")
        self._text = fragment
        return "rule", -1  # nothing calls the text

    def token(self, ref: TokenRef) -> Symbol:
        """The symbol of a token reference."""
        return self._symbol("token", ref)

    def grammar(self, grammar: Grammar, *, plain: bool = False, called: Collection[str] = ()) -> Symbol:
        """Add a grammar; returns the symbol of its root."""
        if len(grammar.rules) == 1:
            return self._symbol("rule", grammar.rules[grammar.root].body)
        self._bodies |= {name: rule.body for name, rule in grammar.rules.items()}
        return self._symbol("rule", RuleRef(grammar.root))

    def embed(self, automaton: Dfa | Network, name: str) -> Symbol:
        """A content stands beside no calls that are explored on demand."""
        raise ValueError(f"{name} cannot be explored on demand")

    def _symbol(self, kind: str, node: Node) -> Symbol:
        symbol = kind, len(self._symbols)
        self._symbols[symbol] = node
        return symbol

    def start(self) -> LazyState:
        """The first position of the whole text."""
        if self._text is None:
            raise ValueError("there is no text yet")
        used = {symbol for row in self._text.symbols for symbol, _ in row}
        symbols = {symbol: node for symbol, node in self._symbols.items() if symbol in used}
        laid = FragmentRule(self._text, symbols, lambda node: least_bytes(node, self.cost_of))
        return self._explored.start([laid.start(self._explored.items)])

    # The rules of the calls

    def start_of(self, name: str) -> Start:
        """See `Rules`."""
        if name in self._later:
            return self._later[name]
        start = self._places.get(name)
        if start is None:
            table = LazyStates(self, name=name) if self._named else self._explored
            start = self._places[name] = table.begin([self._bodies[name]])
        return start

    def cost_of(self, name: str) -> int:
        """See `Rules`. No rule of calls is recursive."""
        cost = self._costs.get(name)
        if cost is None:
            later = self._later.get(name)
            cost = least_bytes(self._bodies[name], self.cost_of) if later is None else later.least
            self._costs[name] = cost
        return cost

    def release(self) -> None:
        """Drop all it holds: its parts hold methods of it."""
        vars(self).clear()

    def shared(self, node: Node) -> None:
        """See `Rules`."""
        return
