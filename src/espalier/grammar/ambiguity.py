"""Whether an expression tells by the next character alone where in it a text stands.

    [a-z]{1,30}( [a-z]{1,30})*     yes: a letter belongs to the word, a space begins the next one
    .*a.{300}                      no: an `a` may be one of the first characters, or begin the last 301

The former is one-unambiguous (Brüggemann-Klein and Wood, "One-unambiguous regular languages", 1998): a text stands at
one place of it, with one count of each repetition. Sets of code points are compared; no automaton is built.
"""

from __future__ import annotations

from typing import NamedTuple

from espalier.grammar.ast import (
    Alternative,
    AnyChar,
    CharClass,
    Literal,
    Node,
    Repeat,
    RuleRef,
    Sequence,
    TokenRef,
    fold,
)
from espalier.grammar.ranges import Ranges, are_disjoint, merge
from espalier.time_limit import check as check_time

FEW_PLACES = 300
"""Characters of an expression at which a text may stand at once, if need be."""
FEW_TIMES = 4
"""A repetition that counts no further is taken for so many copies."""


def is_narrow(node: Node) -> bool:
    """Whether a text stands at few places of an expression at a time. False where that cannot be shown, and for
    expressions that name rules or tokens."""
    places = fold(node, _places)
    return (places is not None and places <= FEW_PLACES) or is_one_unambiguous(node)


def _places(node: Node, parts: list[int | None]) -> int | None:
    """How many characters an expression has; None where it counts."""
    if None in parts:
        return None
    total = sum(part for part in parts if part is not None)
    match node:
        case Literal(text):
            return len(text)
        case CharClass() | AnyChar():
            return 1
        case Repeat(_, low, high):
            times = max(low, high or 1)
            return total * times if times <= FEW_TIMES else None
        case RuleRef() | TokenRef():
            return None
        case _:
            return total


class _Beginning(NamedTuple):
    """What an expression may begin with."""

    #: Whether it reads the empty text.
    is_nullable: bool
    first: Ranges


def is_one_unambiguous(node: Node) -> bool:
    """Whether the next character alone tells where a text stands, at every place. False for expressions that name rules
    or tokens."""
    known: dict[int, _Beginning] = {}

    def visit(inner: Node, parts: list[_Beginning]) -> _Beginning:
        known[id(inner)] = beginning = _beginning(inner, parts)
        return beginning

    fold(node, visit)
    todo: list[tuple[Node, Ranges]] = [(node, ())]  # with the characters that may come after it
    while todo:
        check_time()
        inner, after = todo.pop()
        match inner:
            case Sequence(items):
                for item in reversed(items):
                    todo.append((item, after))
                    is_nullable, first = known[id(item)]
                    if not is_nullable:
                        after = first
                    elif are_disjoint(first, after):
                        after = merge((*first, *after))
                    else:
                        return False
            case Alternative(options):
                beginnings = [known[id(option)] for option in options]
                may_skip = any(beginning.is_nullable for beginning in beginnings)
                if not are_disjoint(*[beginning.first for beginning in beginnings], after if may_skip else ()):
                    return False
                todo += [(option, after) for option in options]
            case Repeat(item, low, high):
                is_nullable, first = known[id(item)]
                goes_on = high is None or high > 1
                if goes_on and is_nullable:  # any number of rounds may have been empty
                    return False
                if low != high and not are_disjoint(first, after):  # one more round, or what comes after it
                    return False
                todo.append((item, merge((*first, *after)) if goes_on else after))
            case RuleRef() | TokenRef():
                return False
            case _:
                pass
    return True


def _beginning(node: Node, parts: list[_Beginning]) -> _Beginning:
    match node:
        case Literal(text):
            return _Beginning(False, ((ord(text[0]), ord(text[0])),))
        case CharClass() | AnyChar():
            return _Beginning(False, node.scalars())
        case Sequence():
            first: list[tuple[int, int]] = []
            for part in parts:
                first += part.first
                if not part.is_nullable:
                    return _Beginning(False, merge(first))
            return _Beginning(True, merge(first))
        case Alternative():
            return _Beginning(
                any(part.is_nullable for part in parts), merge(pair for part in parts for pair in part.first)
            )
        case Repeat(_, low, high):
            (item,) = parts
            return _Beginning(low == 0 or item.is_nullable, () if high == 0 else item.first)
        case _:
            return _Beginning(False, ())
