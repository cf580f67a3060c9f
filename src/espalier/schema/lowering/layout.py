"""Whitespace of a JSON document as expressions: the text around brackets, commas and colons, by depth.

It does not know values or schemas.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from espalier.automata.languages.algebra import language, without
from espalier.errors import EspalierError, SpecError
from espalier.grammar.ast import EMPTY, CharClass, Literal, Node, Repeat, seq
from espalier.grammar.json_mode import FLEXIBLE_RUN, MAX_INDENT, WHITESPACE
from espalier.grammar.regex.parse import parse_regex
from espalier.owners import owned_cache
from espalier.schema.lowering.linear import join

RUN = Repeat(CharClass(((9, 10), (13, 13), (32, 32))), 0, FLEXIBLE_RUN)


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Separators by depth. by_depth: they differ from depth to depth. first, between, last: the text before the first
    item of a container at a depth, between two items, after the last. colon: after a key. blank: in an empty
    container."""

    by_depth: bool
    colon: Node
    blank: Node
    first: Callable[[int], Node]
    between: Callable[[int], Node]
    last: Callable[[int], Node]

    def deeper(self, depth: int) -> int:
        """The depth inside a container; unchanged where the layout does not depend on depth."""
        return depth + 1 if self.by_depth else depth


@owned_cache(64)
def layout(whitespace: str, *, indent: int = 2, separators: tuple[str, str] | None = None, run: Node = RUN) -> Layout:
    """The layout of a `JsonWhitespace`, or of separators (item, key): regular expressions of bounded length.

    run: the expression for a run of whitespace in `flexible`. Raises SpecError naming the field.
    """
    if separators is not None:
        item, key = (_separator(text, mark) for text, mark in zip(separators, ",:", strict=True))
        return _flat(item, key)
    if whitespace == "indented":
        if not 0 <= indent <= MAX_INDENT:
            raise SpecError(f"indent: {indent} must be at least 0 and at most {MAX_INDENT}", field="indent")
        return Layout(
            by_depth=True,
            colon=Literal(": "),
            blank=EMPTY,
            first=lambda depth: Literal("\n" + " " * indent * (depth + 1)),
            between=lambda depth: Literal(",\n" + " " * indent * (depth + 1)),
            last=lambda depth: Literal("\n" + " " * indent * depth),
        )
    if whitespace == "flexible":
        return _flat(seq(run, Literal(","), run), seq(run, Literal(":"), run), run)
    if whitespace == "natural":
        space = Repeat(Literal(" "), 0, 1)
        return _flat(seq(Literal(","), space), seq(Literal(":"), space))
    if whitespace == "compact":
        return _flat(Literal(","), Literal(":"))
    raise SpecError(f"unknown whitespace {whitespace!r}", hint=f"one of: {', '.join(WHITESPACE)}", field="whitespace")


def _flat(item: Node, key: Node, run: Node = EMPTY) -> Layout:
    return Layout(by_depth=False, colon=key, blank=run, first=lambda _: run, between=lambda _: item, last=lambda _: run)


def _separator(text: str, mark: str) -> Node:
    try:
        node = parse_regex(text)
        texts = language(node)
        blanks = r"[ \t\r\n]{0,1000}"
        if texts is not None and without(texts, language(parse_regex(f"{blanks}{mark}{blanks}"))) is None:
            return node
    except EspalierError as error:
        raise SpecError(f"separators: {error}", field="separators") from error
    hint = f"`{mark}` with whitespace around it, of bounded length"
    raise SpecError(f"separators: {text!r} can match other text than a separator", hint=hint, field="separators")


def around(inner: Node, opening: str, closing: str, before: Node, after: Node) -> Node:
    """`inner` between brackets, with `before` and `after` inside them."""
    return join(join(Literal(opening), before), join(inner, join(after, Literal(closing))))
