"""Prints a grammar as GBNF text that parses back to the same tree, in syntax that every llama.cpp since 2024 reads.

It changes nothing: names with `_` and left recursion are printed as they are, and llama.cpp refuses both
(`rewrite.portable` removes them).
"""

from __future__ import annotations

from typing import assert_never

from espalier.grammar.ast import (
    Alternative,
    AnyChar,
    CharClass,
    Grammar,
    Literal,
    Node,
    Repeat,
    Rule,
    RuleRef,
    Sequence,
    TokenRef,
)
from espalier.time_limit import check as check_time

WIDTH = 110
"""A longer rule with alternatives is printed on several lines that end with `|`."""

_SHORT = {"\n": r"\n", "\r": r"\r", "\t": r"\t", "\\": "\\\\"}
_COUNTS: dict[tuple[int, int | None], str] = {(0, None): "*", (1, None): "+", (0, 1): "?"}


def print_grammar(grammar: Grammar) -> str:
    """All rules in order. `parse(print_grammar(g), root=g.root) == g`."""
    return "".join(f"{print_rule(rule)}\n" for rule in grammar.rules.values())


def print_rule(rule: Rule) -> str:
    line = f"{rule.name} ::= {print_node(rule.body)}"
    if len(line) <= WIDTH or not isinstance(rule.body, Alternative):
        return line
    return f"{rule.name} ::=\n  " + " |\n  ".join(_option(option) for option in rule.body.options)


def print_node(node: Node) -> str:
    """An expression, as on the right of `::=`."""
    written: list[str] = []
    todo: list[Node | str] = [node]
    while todo:
        check_time()
        match todo.pop():
            case str(text):
                written.append(text)
            case Sequence() | Alternative() | Repeat() as inner:
                todo.extend(reversed(_parts(inner)))
            case leaf:
                written.append(_leaf(leaf))
    return "".join(written)


def print_ranges(node: CharClass) -> str:
    """A class such as `[a-z_]`. `-` and `^` are always escaped, so that their position in the class does not matter."""
    written = []
    for lo, hi in node.ranges:
        dash = "-" if hi > lo + 1 else ""
        written.append(_escape(chr(lo), "]^-") + (dash + _escape(chr(hi), "]^-") if hi > lo else ""))
    return f"[{'^' if node.negated else ''}{''.join(written)}]"


def _option(node: Node) -> str:
    text = print_node(node)
    return f"({text})" if isinstance(node, Alternative) else text


def _parts(node: Sequence | Alternative | Repeat) -> list[Node | str]:
    """The parts of a node in order: text, and nodes still to be printed."""
    parts: list[Node | str] = []
    match node:
        case Sequence(items):
            for item in items:
                parts += [" ", *_group_parts(item, grouped=isinstance(item, Alternative) or _is_group(item))]
            parts[:1] = [] if items else ['""']
        case Alternative(options):
            for option in options:
                parts += [" | ", *_group_parts(option, grouped=isinstance(option, Alternative))]
            del parts[:1]
        case Repeat(item, low, high):
            # A repetition of a repetition needs parentheses too: not every parser accepts x{2}{2}.
            parts = [*_group_parts(item, grouped=isinstance(item, Alternative | Sequence | Repeat)), _count(low, high)]
        case _:
            assert_never(node)
    return parts


def _is_group(node: Node) -> bool:
    return isinstance(node, Sequence) and bool(node.items)


def _group_parts(node: Node, *, grouped: bool) -> list[Node | str]:
    if isinstance(node, Sequence) and not node.items and grouped:
        return ["()"]
    return ["(", node, ")"] if grouped else [node]


def _count(low: int, high: int | None) -> str:
    if (low, high) in _COUNTS:
        return _COUNTS[low, high]
    return f"{{{low}}}" if low == high else f"{{{low},{'' if high is None else high}}}"


def _leaf(node: Literal | CharClass | AnyChar | RuleRef | TokenRef) -> str:
    match node:
        case Literal(text):
            return f'"{_escape(text, _QUOTE)}"'
        case CharClass():
            return print_ranges(node)
        case AnyChar():
            return "."
        case RuleRef(name):
            return name
        case TokenRef():
            return node.spelling
        case _:
            assert_never(node)


_QUOTE = '"'


def _escape(text: str, special: str) -> str:
    return "".join(_SHORT.get(c) or (_code(c) if c in special or not c.isprintable() else c) for c in text)


def _code(char: str) -> str:
    """Brackets and quotes with a backslash; `^` and `-` by number, as only the newest llama.cpp accepts `\\-`."""
    point = ord(char)
    if char in '"]':
        return f"\\{char}"
    if point < 0x100:
        return f"\\x{point:02X}"
    return f"\\u{point:04X}" if point < 0x10000 else f"\\U{point:08X}"
