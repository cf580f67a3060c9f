"""`read_lark`: a Lark grammar as a `Grammar` of the same texts, those that Lark's Earley parser accepts with the lexer
`dynamic_complete`: a terminal is what `re.match` prefers as a whole (`preferred.py`), and ignored terminals may stand
around each terminal of a rule. Lark takes the longest ignored text only; here it may end sooner.

What has no exact counterpart is refused by its construct. It builds no tree, so aliases and the marks `?` and `!` do
nothing. Of llguidance's dialect it reads `%llguidance` and the attributes of a rule that is one terminal.
"""

from __future__ import annotations

import ast as python
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

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
    alt,
    fold,
    seq,
)
from espalier.grammar.check import validate
from espalier.grammar.lark.imported import COMMON
from espalier.grammar.lark.preferred import preferred, widths
from espalier.grammar.regex.parse import parse_regex
from espalier.time_limit import check as check_time
from espalier.wording import NO_VALUE, OptionText, Setting

START = "start"
MAX_DEPTH = 200
"""How deep groups may nest."""
MAX_TIMES = 1000
"""The largest count of `~`."""
_TOKEN = re.compile(
    r"""(?P<space>(?:[ \t\f\r]|\\\n|//[^\n]*|\#[^\n]*)+)|(?P<line>\n(?:[ \t\f\r\n]|//[^\n]*|\#[^\n]*)*)
    |(?P<directive>%[a-z]+)|(?P<string>"(?:\\.|[^"\\\n])*"i?)|(?P<regex>/(?!/)(?:\\.|[^/\\\n])+/[imslux]*)
    |(?P<rule>[?!]{0,2}_?[a-z][_a-z0-9]*)|(?P<terminal>!?_?[A-Z][_A-Z0-9]*)|(?P<number>[0-9]+)
    |(?P<mark>->|\.\.|[:|()\[\]?*+~.,{}<>=])""",
    re.VERBOSE,
)


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str
    offset: int


def read_lark(source: str) -> Grammar:
    """The grammar, its start rule `root`. Raises GrammarError for text that is no Lark grammar, UnsupportedError naming
    a construct that cannot be translated exactly, each with the line."""
    return _LarkReader(source).grammar()


class _LarkReader:
    def __init__(self, source: str) -> None:
        self._source = source
        self._tokens = self._split()
        self._place = 0
        self._rules: dict[str, Node] = {}
        self._terminals: dict[str, Node] = {}
        self._ignored: list[Node] = []
        self._lazy: set[str] = set()  # names of rules for terminals that end at their first match
        self._anonymous: dict[str, Node] = {}  # strings and regular expressions in rules, by the name of their rule
        self._lexed: dict[str, str] = {}  # by the name of a rule for what Lark takes: the terminal
        self._lengths: dict[int, tuple[Node, int]] = {}  # by id: a regular expression, and the length of its source
        self._in_terminal = False
        self._depth = 0

    def grammar(self) -> Grammar:
        while self._place < len(self._tokens):
            check_time()
            if not self._take("line"):
                self._statement()
        if START not in self._rules:
            raise GrammarError(f"the grammar has no rule {START!r}")
        for name in self._list_used:
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
        rules.append(Rule(IGNORED, between))
        made = Grammar.of(rules)
        validate(made)
        return made

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

    @property
    def _list_used(self) -> list[str]:
        return list(self._mentioned)

    _mentioned: dict[str, None]

    # Statements

    def _statement(self) -> None:
        token = self._next()
        if token.kind == "directive":
            self._directive(token)
        elif token.kind in ("rule", "terminal"):
            self._definition(token)
        else:
            raise self._wrong(token, "a rule, a terminal or a directive is expected")

    def _definition(self, token: _Token) -> None:
        name = token.text.lstrip("?!")
        is_terminal = token.kind == "terminal"
        for mark, construct in (("{", "a template"), (".", "a priority")):
            if self._peek(mark):
                raise self._refuse(self._tokens[self._place], construct)
        defined = self._terminals if is_terminal else self._rules
        if name in defined:
            raise self._wrong(token, f"{name} is defined twice")
        ending = self._attributes() if self._take("mark", "[") else None
        self._expect(":")
        self._in_terminal = is_terminal or ending is not None
        defined[name] = self._options()
        self._in_terminal = False
        if ending is not None:
            defined[name] = seq(defined[name], *ending)
            if is_terminal:
                self._lazy.add(f"lexed-{_terminal(name)}")
            else:
                defined[name] = self._token(defined[name])
                self._lazy.add(next(reversed(self._anonymous)))
        self._end_of_line()

    def _attributes(self) -> tuple[Node, ...] | None:
        """llguidance's attributes of a rule, and of a terminal: what ends it at its first match, behind its own text;
        None where none of them changes the text. Raises UnsupportedError for one that no grammar can hold."""
        ending: tuple[Node, ...] | None = None
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
            elif attribute.text not in ("capture", "stop_capture"):  # which name parts of the text for the client
                refusal = self._refuse(attribute, f"{attribute.text} of a rule")
                refusal.hint = _attribute_hint(attribute.text, value)
                raise refusal
            self._take("mark", ",")
        return ending

    def _directive(self, token: _Token) -> None:
        if token.text == "%ignore":
            self._in_terminal = True
            self._ignored.append(self._options())
            self._in_terminal = False
        elif token.text == "%import":
            self._import(token)
        elif token.text == "%llguidance":
            self._llguidance_options(token)
        else:
            raise self._refuse(token, token.text)
        self._end_of_line()

    def _llguidance_options(self, token: _Token) -> None:
        """Options in braces, which change no text: how forced texts are tokenized, and whether ignored text may come
        first, as it may here."""
        self._expect("{")
        while not self._take("mark", "}"):
            name = self._next()
            self._expect(":")
            value = self._next()
            if name.text.strip('"') not in LLGUIDANCE and value.text != "false":
                raise self._refuse(token, f"the option {name.text} of %llguidance")
            self._take("mark", ",")

    def _import(self, token: _Token) -> None:
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
            raise self._refuse(token, f"%import {'.'.join(path)}")
        renamed = names[0]
        if self._take("mark", "->"):
            renamed = self._next().text
        for name in names:
            if name not in COMMON:
                raise self._refuse(token, f"%import common.{name}")
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
        if token.kind != "number" or len(token.text) > 6 or int(token.text) > MAX_TIMES:
            raise self._wrong(token, f"a count up to {MAX_TIMES} is expected")
        return int(token.text)

    def _group(self, token: _Token) -> Node:
        inner = self._options()
        while self._take("line"):
            pass
        self._expect(")" if token.text == "(" else "]")
        return inner if token.text == "(" else Repeat(inner, 0, 1)

    def _string(self, token: _Token) -> Node:
        first = self._text_of(token)
        if self._take("mark", ".."):
            last = self._text_of(self._next())
            if len(first) != 1 or len(last) != 1 or first > last:
                raise self._wrong(token, "a range is from one character to a later one")
            return self._token(CharClass(((ord(first), ord(last)),)))
        if not first:
            raise self._wrong(token, "a string is not empty")
        return self._token(parse_regex(re.escape(first), flags="i") if token.text.endswith("i") else Literal(first))

    def _text_of(self, token: _Token) -> str:
        if token.kind != "string":
            raise self._wrong(token, "a string is expected")
        try:
            text = python.literal_eval(token.text.removesuffix("i"))
        except (ValueError, SyntaxError) as error:
            raise self._wrong(token, "the string has a wrong escape") from error
        if not isinstance(text, str) or any(0xD800 <= ord(char) <= 0xDFFF for char in text):
            raise self._wrong(token, "the string is not Unicode")
        return text

    def _regex(self, token: _Token) -> Node:
        pattern, _, flags = token.text[1:].rpartition("/")
        if "l" in flags:
            raise self._refuse(token, "the flag l")
        if ANCHOR.search(re.sub(r"\\[^AZzbB]|\[(?:\\.|[^\]\\])*\]", "", pattern)):
            raise self._refuse(token, "an anchor")
        try:
            return self._token(self._expression(pattern.replace("\\/", "/"), "".join(sorted(set(flags)))))
        except (RegexError, UnsupportedError) as error:
            raise type(error)(f"{self._where(token)}: {error.message}", hint=error.hint) from error

    def _expression(self, pattern: str, flags: str) -> Node:
        node = parse_regex(pattern, flags=flags, keeps_lazy=True)
        self._lengths[id(node)] = node, len(pattern)
        return node

    def _rule(self, token: _Token) -> Node:
        if self._in_terminal:
            raise self._wrong(token, "a terminal cannot contain a rule")
        if self._peek("{"):
            raise self._refuse(token, "a template")
        self._mentioned[token.text] = None
        return RuleRef(_rule(token.text))

    def _terminal(self, token: _Token) -> Node:
        name = token.text.lstrip("!")
        self._mentioned[name] = None
        if self._in_terminal:
            return RuleRef(_terminal(name))
        self._lexed[f"lexed-{_terminal(name)}"] = name
        return seq(RuleRef(IGNORED), RuleRef(f"lexed-{_terminal(name)}"))

    def _special(self, token: _Token) -> Node:
        raise self._refuse(token, "a special token")

    def _token(self, node: Node) -> Node:
        """A string or an expression; in a rule it is a terminal without a name, with what is ignored before it."""
        if self._in_terminal:
            return node
        name = f"lexed-{len(self._anonymous)}"
        self._anonymous[name] = node
        return seq(RuleRef(IGNORED), RuleRef(name))

    _atoms: dict[str, Callable[[_LarkReader, _Token], Node]]

    # Tokens

    def _split(self) -> Sequence[_Token]:
        self._mentioned = {}
        tokens, place = [], 0
        while place < len(self._source):
            check_time()
            match = _TOKEN.match(self._source, place)
            if match is None:
                raise GrammarError(f"line {self._line(place)}: this is not Lark: {self._source[place : place + 20]!r}")
            kind = match.lastgroup or ""
            if kind != "space":
                tokens.append(_Token(kind, match[0], place))
            place = match.end()
        return tokens

    def _next(self) -> _Token:
        if self._place >= len(self._tokens):
            raise GrammarError("the grammar ends too early")
        self._place += 1
        return self._tokens[self._place - 1]

    def _peek(self, mark: str) -> bool:
        return self._place < len(self._tokens) and self._tokens[self._place].text == mark

    def _take(self, kind: str, text: str | None = None) -> bool:
        token = self._tokens[self._place] if self._place < len(self._tokens) else None
        if token is None or token.kind != kind or text not in (None, token.text):
            return False
        self._place += 1
        return True

    def _expect(self, mark: str) -> None:
        token = self._next()
        if token.text != mark:
            raise self._wrong(token, f"{mark!r} is expected")

    def _end_of_line(self) -> None:
        if self._place < len(self._tokens) and not self._take("line"):
            token = self._tokens[self._place]
            if token.kind == "directive":  # llguidance's `%json` and `%regex` stand within a rule
                raise self._refuse(token, token.text)
            raise self._wrong(token, "the end of the line is expected")

    def _wrong(self, token: _Token, message: str) -> GrammarError:
        return GrammarError(f"{self._where(token)}: {message}")

    def _refuse(self, token: _Token, construct: str) -> UnsupportedError:
        return UnsupportedError(f"{self._where(token)}: {construct} of a Lark grammar cannot be translated exactly")

    def _where(self, token: _Token) -> str:
        return f"line {self._line(token.offset)}, at {token.text[:30]!r}"

    def _line(self, offset: int) -> int:
        return self._source.count("\n", 0, offset) + 1


_LarkReader._atoms = {
    "(": _LarkReader._group,
    "[": _LarkReader._group,
    "string": _LarkReader._string,
    "regex": _LarkReader._regex,
    "rule": _LarkReader._rule,
    "terminal": _LarkReader._terminal,
    "<": _LarkReader._special,
}
IGNORED = "lark-ignored"
LLGUIDANCE = frozenset({"no_forcing", "allow_initial_skip"})
ANCHOR = re.compile(r"[\^$]|\\[AZzbB]")


def _attribute_hint(name: str, value: _Token | None) -> str | None:
    """What does the work of an attribute that no grammar can hold: an option of the whole request."""
    number = int(value.text) if value is not None and value.kind == "number" else NO_VALUE
    if name == "max_tokens":
        return OptionText(
            "a grammar counts no tokens: limit the whole text with ",
            Setting("max_tokens", number),
            ", its reasoning with ",
            Setting("max_reasoning", number),
            ", or count characters, such as /.{0,40}/",
        )
    return OptionText("give the whole text one ", Setting("temperature")) if name == "temperature" else None


def _rule(name: str) -> str:
    return f"rule-{name.replace('_', '-').lower()}-{name.count('_')}" if "_" in name else f"rule-{name}"


def _terminal(name: str) -> str:
    return f"terminal-{name.replace('_', '-')}-{name.count('_')}" if "_" in name else f"terminal-{name}"
