"""`read_lark`: a Lark grammar as a `Grammar` of the same texts, those that Lark's Earley parser accepts with the lexer
`dynamic_complete`: a terminal is what `re.match` prefers as a whole (`preferred.py`), and ignored terminals may stand
around each terminal of a rule. Lark takes the longest ignored text only; here it may end sooner.

What has no exact counterpart is refused by its construct. It builds no tree, so aliases and the marks `?` and `!` do
nothing. Of llguidance's dialect it reads `%llguidance`, `%json` and `%regex` within rules (`literals.py`), and the
attributes of a rule that is one terminal or one `%json`.
"""

from __future__ import annotations

import ast as python
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from espalier.errors import GrammarError, RegexError, UnsupportedError
from espalier.grammar.ast import (
    EMPTY,
    Alternative,
    CharClass,
    Grammar,
    Literal,
    Node,
    Repeat,
    Rule,
    RuleRef,
    Sequence,
    alt,
    fold,
    seq,
)
from espalier.grammar.check import validate
from espalier.grammar.lark.imported import COMMON
from espalier.grammar.lark.literals import SchemaConverter, schema_rules, substring_expression, substring_rules
from espalier.grammar.lark.preferred import preferred, widths
from espalier.grammar.lark.tokens import LarkToken, split_tokens
from espalier.grammar.regex.parse import parse_regex
from espalier.time_limit import check as check_time

START = "start"
MAX_DEPTH = 200
"""How deep groups may nest."""
MAX_TIMES = 1000
"""The largest count of `~`."""
MAX_DIGITS = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class LarkGrammar:
    """What a Lark grammar says."""

    #: Its texts, with the start rule `root`.
    grammar: Grammar
    #: By the name of a rule: the most tokens of one text of it (`max_tokens`).
    token_limits: Mapping[str, int] = field(default_factory=dict)
    #: Attributes that change no text and are not used here, with the line: the temperature of a rule.
    unused: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _RuleAttributes:
    """llguidance's attributes of a rule. `ending`: what ends it at its first match, behind its own text; None where it
    ends as it is written."""

    ending: tuple[Node, ...] | None = None
    max_tokens: int | None = None


def read_lark(source: str, schema_grammar: SchemaConverter | None = None) -> LarkGrammar:
    """Reads a Lark grammar. `schema_grammar` makes the grammar of a schema in `%json`, which is refused without it.
    Raises GrammarError for text that is no Lark grammar, UnsupportedError naming a construct that cannot be translated
    exactly, each with the line; and what `schema_grammar` raises."""
    return _LarkReader(source, schema_grammar).grammar()


class _LarkReader:
    def __init__(self, source: str, schema_grammar: SchemaConverter | None) -> None:
        self._schema_grammar = schema_grammar
        self._mentioned: dict[str, None] = {}
        self._tokens = split_tokens(source)
        self._place = 0
        self._rules: dict[str, Node] = {}
        self._terminals: dict[str, Node] = {}
        self._ignored: list[Node] = []
        self._lazy: set[str] = set()  # names of rules for terminals that end at their first match
        self._anonymous: dict[str, Node] = {}  # strings and regular expressions in rules, by the name of their rule
        self._literals: dict[str, list[Rule]] = {}  # of `%json` and `%regex`, by the name of the first rule
        self._token_limits: dict[str, int] = {}  # by the name of a rule
        self._unused: list[str] = []
        self._lexed: dict[str, str] = {}  # by the name of a rule for what Lark takes: the terminal
        self._lengths: dict[int, tuple[Node, int]] = {}  # by id: a regular expression, and the length of its source
        self._in_terminal = False
        self._depth = 0

    def grammar(self) -> LarkGrammar:
        while self._place < len(self._tokens):
            check_time()
            if not self._take("line"):
                self._statement()
        if START not in self._rules:
            raise GrammarError(f"the grammar has no rule {START!r}")
        for name in self._mentioned:
            if name not in (self._terminals if name.isupper() else self._rules):
                raise GrammarError(f"there is no {'terminal' if name.isupper() else 'rule'} {name!r}")
        rules: list[Rule] = []
        ignored = [f"{IGNORED}-{i}" for i in range(len(self._ignored))]
        for name, node in (*zip(ignored, self._ignored, strict=True), *self._anonymous.items()):
            rules += self._write_terminal(node, name)
        for name, terminal in self._lexed.items():
            rules += self._write_terminal(self._terminals[terminal], name)
        between: Node = Repeat(alt(*map(RuleRef, ignored))) if ignored else EMPTY
        rules += [Rule("root", seq(RuleRef(_rule(START)), between) if self._ignored else RuleRef(_rule(START)))]
        rules += [Rule(_rule(name), node) for name, node in self._rules.items()]
        rules += [Rule(IGNORED, between), *(rule for group in self._literals.values() for rule in group)]
        grammar = Grammar.of(rules)
        validate(grammar)
        limits = {name: limit for name, limit in self._token_limits.items() if name in grammar.rules}
        return LarkGrammar(grammar=grammar, token_limits=limits, unused=tuple(self._unused))

    def _write_terminal(self, node: Node, name: str) -> list[Rule]:
        """Rules for what Lark takes for a terminal. One that may be empty, which Lark's own parsers refuse, may be left
        out, as OpenAI and llguidance read it. Raises GrammarError for one to ignore: it would ignore nothing."""
        whole = self._inline_references(node, ())
        if widths(whole).low == 0 and name.startswith(IGNORED):
            raise GrammarError("a terminal to ignore matches the empty text")
        return preferred(whole, name, shortest=name in self._lazy)

    def _inline_references(self, node: Node, within: tuple[str, ...]) -> Node:
        """A terminal without references, the options that Lark writes itself in its order: the longest first."""
        if id(node) in self._lengths:
            return node
        match node:
            case RuleRef(name):
                terminal = self._by_rule[name]
                if f"lexed-{_terminal(terminal)}" in self._lazy:
                    raise GrammarError(f"the terminal {terminal} ends at its first match: no terminal can contain it")
                if f"lexed-{_terminal(terminal)}" in self._token_limits:
                    raise GrammarError(f"the terminal {terminal} has a limit of tokens: no terminal can contain it")
                if terminal in within:
                    raise GrammarError(f"the terminal {terminal} contains itself")
                return self._inline_references(self._terminals[terminal], (*within, terminal))
            case Alternative(options):
                order: list[tuple[float, int, int, int, Node]] = []
                for option in options:
                    inner = self._inline_references(option, within)
                    width = widths(inner)
                    high = -math.inf if width.high is None else -width.high
                    order.append((high, -width.low, -self._length(option), len(order), inner))
                return alt(*(inner for *_, inner in sorted(order, key=lambda key: key[:4])))
            case _ if node.children():
                return node.with_children([self._inline_references(child, within) for child in node.children()])
            case _:
                return node

    def _length(self, node: Node) -> int:
        """The length of the source that Lark makes of a terminal, about: it decides between options of equal width."""

        def visit(node: Node, parts: list[int]) -> int:
            if id(node) in self._lengths:
                return self._lengths[id(node)][1]
            if isinstance(node, RuleRef):
                return self._length(self._terminals[self._by_rule[node.name]])
            return len(re.escape(node.text)) if isinstance(node, Literal) else sum(parts) + 4

        return len(node.text) if isinstance(node, Literal) else fold(node, visit)

    @property
    def _by_rule(self) -> dict[str, str]:
        return {_terminal(name): name for name in self._terminals}

    # Statements

    def _statement(self) -> None:
        token = self._next()
        if token.kind == "directive":
            self._directive(token)
        elif token.kind in ("rule", "terminal"):
            self._definition(token)
        else:
            raise token.wrong("a rule, a terminal or a directive is expected")

    def _definition(self, token: LarkToken) -> None:
        name = token.text.lstrip("?!")
        is_terminal = token.kind == "terminal"
        for mark, construct in (("{", "a template"), (".", "a priority")):
            if self._peek(mark):
                raise self._tokens[self._place].refuse(construct)
        defined = self._terminals if is_terminal else self._rules
        if name in defined:
            raise token.wrong(f"{name} is defined twice")
        attributes = self._attributes() if self._take("mark", "[") else _RuleAttributes()
        self._expect(":")
        is_lazy, is_limited = attributes.ending is not None, attributes.max_tokens is not None
        is_one_terminal = is_lazy or (is_limited and not self._is_at("json", "%json"))
        self._in_terminal = is_terminal or is_one_terminal
        body = self._options()
        self._in_terminal = False
        lexed = f"lexed-{_terminal(name)}"
        body = seq(body, *(attributes.ending or ()))
        if is_one_terminal and not is_terminal:
            body = self._token(body)
            lexed = next(reversed(self._anonymous))
        elif is_limited and not is_terminal:
            lexed = self._literal_name(body, token)
        if is_lazy:
            self._lazy.add(lexed)
        if attributes.max_tokens is not None:
            self._token_limits[lexed] = attributes.max_tokens
        defined[name] = body
        self._end_of_line()

    def _literal_name(self, body: Node, token: LarkToken) -> str:
        """The rule of a body that is one `%json`."""
        match body:
            case Sequence((RuleRef(), RuleRef(name))) if name in self._literals:
                return name
        raise token.refuse("max_tokens of a rule that is more than one terminal or one %json")

    def _attributes(self) -> _RuleAttributes:
        """llguidance's attributes of a rule, and of a terminal. Raises UnsupportedError for an unknown one."""
        ending: tuple[Node, ...] | None = None
        max_tokens = None
        while not self._take("mark", "]"):
            attribute = self._next()
            value = self._next() if self._take("mark", "=") else None
            if attribute.text == "lazy" and value is None:
                ending = ()
            elif attribute.text in ("stop", "suffix") and value is not None:
                self._in_terminal = True
                if value.text not in ('""', "''"):
                    ending = (self._regex(value) if value.kind == "regex" else self._string(value),)
                self._in_terminal = False
            elif attribute.text == "max_tokens" and value is not None:
                if not value.text.isdigit() or len(value.text) > MAX_DIGITS:
                    raise value.wrong("a number of tokens is expected")
                max_tokens = int(value.text)
            elif attribute.text == "temperature" and value is not None and value.kind == "number":
                self._unused.append(f"line {attribute.line}: temperature={value.text}")
            elif attribute.text not in ("capture", "stop_capture"):  # which name parts of the text for the client
                raise attribute.refuse(f"{attribute.text} of a rule")
            self._take("mark", ",")
        return _RuleAttributes(ending, max_tokens)

    def _directive(self, token: LarkToken) -> None:
        if token.text == "%ignore":
            self._in_terminal = True
            self._ignored.append(self._options())
            self._in_terminal = False
        elif token.text == "%import":
            self._import(token)
        elif token.text == "%llguidance":
            self._llguidance_options(token)
        else:
            raise token.refuse(token.text)
        self._end_of_line()

    def _llguidance_options(self, token: LarkToken) -> None:
        """Options in braces, which change no text: how forced texts are tokenized, and whether ignored text may come
        first, as it may here."""
        self._expect("{")
        while not self._take("mark", "}"):
            name = self._next()
            self._expect(":")
            value = self._next()
            if name.text.strip('"') not in LLGUIDANCE and value.text != "false":
                raise token.refuse(f"the option {name.text} of %llguidance")
            self._take("mark", ",")

    def _import(self, token: LarkToken) -> None:
        self._take("mark", ".")
        path = [self._next().text]
        while self._take("mark", "."):
            path.append(self._next().text)
        names = [path[-1]]
        if self._take("mark", "("):
            names = [self._next().text]
            while self._take("mark", ","):
                names.append(self._next().text)
            self._expect(")")
        elif len(path) > 1:
            path.pop()
        if path != ["common"]:
            raise token.refuse(f"%import {'.'.join(path)}")
        renamed = names[0]
        if self._take("mark", "->"):
            renamed = self._next().text
        for name in names:
            if name not in COMMON:
                raise token.refuse(f"%import common.{name}")
            self._terminals[renamed if len(names) == 1 else name] = self._expression(COMMON[name], "")

    # Expressions

    def _options(self) -> Node:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise GrammarError(f"groups are nested more than {MAX_DEPTH} deep")
        options = [self._sequence()]
        while self._bar():
            options.append(self._sequence())
        self._depth -= 1
        return alt(*options)

    def _bar(self) -> bool:
        """Whether `|` comes next, which may stand on a line of its own."""
        place = self._place
        while self._take("line"):
            pass
        if self._take("mark", "|"):
            return True
        self._place = place
        return False

    def _sequence(self) -> Node:
        items: list[Node] = []
        while (node := self._item()) is not None:
            check_time()
            items.append(node)
        if self._take("mark", "->"):
            self._next()  # an alias names a branch of the tree
        return seq(*items)

    def _item(self) -> Node | None:
        token = self._tokens[self._place] if self._place < len(self._tokens) else None
        if token is None or token.kind in ("line", "directive", "number"):
            return None
        reader = self._atoms.get(token.text if token.kind == "mark" else token.kind)
        if reader is None:
            return None
        self._place += 1
        return self._read_repeat(reader(self, token))

    def _read_repeat(self, node: Node) -> Node:
        """An item with what follows it: ?, *, + or ~."""
        if self._take("mark", "?"):
            return Repeat(node, 0, 1)
        if self._take("mark", "*"):
            return Repeat(node)
        if self._take("mark", "+"):
            return Repeat(node, 1)
        if self._take("mark", "~"):
            low = self._number()
            high = self._number() if self._take("mark", "..") else low
            if high < low:
                raise GrammarError(f"cannot repeat at least {low} and at most {high} times")
            return Repeat(node, low, high)
        return node

    def _number(self) -> int:
        token = self._next()
        if not token.text.isdigit() or len(token.text) > MAX_DIGITS or int(token.text) > MAX_TIMES:
            raise token.wrong(f"a count up to {MAX_TIMES} is expected")
        return int(token.text)

    def _group(self, token: LarkToken) -> Node:
        inner = self._options()
        while self._take("line"):
            pass
        self._expect(")" if token.text == "(" else "]")
        return inner if token.text == "(" else Repeat(inner, 0, 1)

    def _string(self, token: LarkToken) -> Node:
        first = self._text_of(token)
        if self._take("mark", ".."):
            last = self._text_of(self._next())
            if len(first) != 1 or len(last) != 1 or first > last:
                raise token.wrong("a range is from one character to a later one")
            return self._token(CharClass(((ord(first), ord(last)),)))
        if not first:
            raise token.wrong("a string is not empty")
        return self._token(parse_regex(re.escape(first), flags="i") if token.text.endswith("i") else Literal(first))

    def _text_of(self, token: LarkToken) -> str:
        if token.kind != "string":
            raise token.wrong("a string is expected")
        try:
            text = python.literal_eval(token.text.removesuffix("i"))
        except (ValueError, SyntaxError) as error:
            raise token.wrong("the string has a wrong escape") from error
        if not isinstance(text, str) or any(0xD800 <= ord(char) <= 0xDFFF for char in text):
            raise token.wrong("the string is not Unicode")
        return text

    def _regex(self, token: LarkToken) -> Node:
        pattern, _, flags = token.text[1:].rpartition("/")
        if "l" in flags:
            raise token.refuse("the flag l")
        if ANCHOR.search(re.sub(r"\\[^AZzbB]|\[(?:\\.|[^\]\\])*\]", "", pattern)):
            raise token.refuse("an anchor")
        try:
            return self._token(self._expression(pattern.replace("\\/", "/"), "".join(sorted(set(flags)))))
        except (RegexError, UnsupportedError) as error:
            raise type(error)(f"{token.where}: {error.message}", hint=error.hint) from error

    def _expression(self, pattern: str, flags: str) -> Node:
        node = parse_regex(pattern, flags=flags, keeps_lazy=True)
        self._lengths[id(node)] = node, len(pattern)
        return node

    def _rule(self, token: LarkToken) -> Node:
        if self._in_terminal:
            raise token.wrong("a terminal cannot contain a rule")
        if self._peek("{"):
            raise token.refuse("a template")
        self._mentioned[token.text] = None
        return RuleRef(_rule(token.text))

    def _terminal(self, token: LarkToken) -> Node:
        name = token.text.lstrip("!")
        self._mentioned[name] = None
        if self._in_terminal:
            return RuleRef(_terminal(name))
        self._lexed[f"lexed-{_terminal(name)}"] = name
        return seq(RuleRef(IGNORED), RuleRef(f"lexed-{_terminal(name)}"))

    def _json(self, token: LarkToken) -> Node:
        """`%json` or `%regex`, with what is ignored before it; in a terminal the parts of a text are one expression."""
        if token.text == "%json" and self._in_terminal:
            raise token.wrong("%json cannot stand in a terminal")
        if self._in_terminal:
            return substring_expression(token)
        name = f"literal-{len(self._literals)}"
        is_schema = token.text == "%json"
        self._literals[name] = (
            schema_rules(token, self._schema_grammar, name) if is_schema else substring_rules(token, name)
        )
        return seq(RuleRef(IGNORED), RuleRef(name))

    def _special(self, token: LarkToken) -> Node:
        raise token.refuse("a special token")

    def _token(self, node: Node) -> Node:
        """A string or an expression; in a rule it is a terminal without a name, with what is ignored before it."""
        if self._in_terminal:
            return node
        name = f"lexed-{len(self._anonymous)}"
        self._anonymous[name] = node
        return seq(RuleRef(IGNORED), RuleRef(name))

    _atoms: dict[str, Callable[[_LarkReader, LarkToken], Node]]

    # Tokens

    def _next(self) -> LarkToken:
        if self._place >= len(self._tokens):
            raise GrammarError("the grammar ends too early")
        self._place += 1
        return self._tokens[self._place - 1]

    def _peek(self, mark: str) -> bool:
        return self._place < len(self._tokens) and self._tokens[self._place].text == mark

    def _is_at(self, kind: str, text: str) -> bool:
        token = self._tokens[self._place] if self._place < len(self._tokens) else None
        return token is not None and (token.kind, token.text) == (kind, text)

    def _take(self, kind: str, text: str | None = None) -> bool:
        token = self._tokens[self._place] if self._place < len(self._tokens) else None
        if token is None or token.kind != kind or text not in (None, token.text):
            return False
        self._place += 1
        return True

    def _expect(self, mark: str) -> None:
        token = self._next()
        if token.text != mark:
            raise token.wrong(f"{mark!r} is expected")

    def _end_of_line(self) -> None:
        if self._place < len(self._tokens) and not self._take("line"):
            token = self._tokens[self._place]
            raise token.wrong("the end of the line is expected")


_LarkReader._atoms = {
    "(": _LarkReader._group,
    "[": _LarkReader._group,
    "string": _LarkReader._string,
    "json": _LarkReader._json,
    "regex": _LarkReader._regex,
    "rule": _LarkReader._rule,
    "terminal": _LarkReader._terminal,
    "<": _LarkReader._special,
}
IGNORED = "lark-ignored"
LLGUIDANCE = frozenset({"no_forcing", "allow_initial_skip"})
ANCHOR = re.compile(r"[\^$]|\\[AZzbB]")


def _rule(name: str) -> str:
    return f"rule-{name.replace('_', '-').lower()}-{name.count('_')}" if "_" in name else f"rule-{name}"


def _terminal(name: str) -> str:
    return f"terminal-{name.replace('_', '-')}-{name.count('_')}" if "_" in name else f"terminal-{name}"
