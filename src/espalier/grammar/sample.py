"""Draws random sentences of a grammar, of bounded size, from a given random generator.

Options that still fit are chosen with equal probability, without any model, so the sentences are for tests, examples
and demonstrations. A token reference has no text of its own: it is written as the grammar spells it, or avoided.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Literal as OneOf
from typing import assert_never

from espalier.errors import LimitExceeded, UnsupportedError
from espalier.grammar.analysis import Costs, Terminal, is_void
from espalier.grammar.ast import (
    Alternative,
    AnyChar,
    CharClass,
    Grammar,
    Literal,
    Node,
    Repeat,
    RuleRef,
    Sequence,
    TokenRef,
)
from espalier.grammar.ranges import Ranges, complement, merge, subtract
from espalier.grammar.rewrite import remove_nullable_loops, trim
from espalier.time_limit import check as check_time

Tokens = OneOf["spell", "avoid"]

CHAR_COST = 8
"""Cost of a code point, where a use of a rule costs 1: so a chain of rules without text is bounded too."""
MAX_SIZE = 1_000_000
"""Code points of the shortest sentence, at most."""
GO_ON = 0.75
"""Probability of one more repetition."""
PLAIN = 0.85
"""Probability that a class which contains printable ASCII yields printable ASCII."""
_PRINTABLE: Ranges = ((0x20, 0x7E),)


def sample(grammar: Grammar, random: Random, *, max_size: int = 200, tokens: Tokens = "spell") -> str:
    """One random sentence of at most `max_size` code points, or of the minimum size if that is more.

    tokens: whether token references are spelled or avoided. Raises GrammarError if there is no sentence,
    UnsupportedError if token references cannot be avoided, and LimitExceeded if even the shortest sentence has more
    than MAX_SIZE code points.
    """
    return SentenceSampler(grammar, tokens=tokens).draw(random, max_size=max_size)


@dataclass(frozen=True, slots=True)
class _Round:
    """A repetition after `done` rounds."""

    node: Repeat
    done: int


class SentenceSampler:
    """A grammar prepared once for many sentences; immutable afterwards."""

    def __init__(self, grammar: Grammar, *, tokens: Tokens = "spell") -> None:
        alive = trim(grammar)
        plain = remove_nullable_loops(alive)
        self._grammar = alive if plain is alive else trim(plain)
        self._tokens = tokens
        self._costs = Costs(self._grammar, self._price, call=1)
        self._chars: dict[int, tuple[Ranges, Ranges]] = {}  # by id(node): all ranges, and the printable ASCII in them
        least = self._costs.rule(self._grammar.root)
        if least is None:
            raise UnsupportedError("every sentence of the grammar holds a token reference")
        if least > MAX_SIZE * CHAR_COST:
            raise LimitExceeded(f"the shortest sentence has more than {MAX_SIZE} code points")
        self.least = least

    def draw(self, random: Random, *, max_size: int = 200) -> str:
        """One random sentence: see `sample`."""
        # Invariant: `left` is the size that may still be spent beyond the minimum cost of everything in `todo`.
        left = max(max_size * CHAR_COST, self.least) - self.least
        written: list[str] = []
        todo: list[Node | _Round] = [self._grammar.rules[self._grammar.root].body]
        while todo:
            check_time()
            match todo.pop():
                case Sequence(items):
                    todo.extend(reversed(items))
                case Alternative(options) as node:
                    extras = ((option, self._extra(option, node)) for option in options)
                    fitting = [(option, extra) for option, extra in extras if extra is not None and extra <= left]
                    option, extra = random.choice(fitting)
                    left -= extra
                    todo.append(option)
                case Repeat() as node:
                    todo.append(_Round(node, 0))
                case _Round(node, done) as here:
                    owed = done < node.min
                    price = self._cost(node.item)
                    if not owed and (done == node.max or price is None or price > left or random.random() > GO_ON):
                        continue
                    left -= 0 if owed or price is None else price
                    todo += [_Round(here.node, done + 1), node.item]
                case RuleRef(name):
                    todo.append(self._grammar.rules[name].body)
                case Literal(text):
                    written.append(text)
                case CharClass() | AnyChar() as node:
                    written.append(chr(self._pick(node, random)))
                case TokenRef() as node:
                    written.append(node.spelling)
                case nothing:
                    assert_never(nothing)
        return "".join(written)

    def _price(self, node: Terminal) -> int | None:
        match node:
            case Literal(text):
                return CHAR_COST * len(text)
            case TokenRef():
                return CHAR_COST * len(node.spelling) if self._tokens == "spell" else None
            case _:
                return None if is_void(node) else CHAR_COST

    def _cost(self, node: Node) -> int | None:
        return self._costs.node(node)

    def _extra(self, option: Node, node: Alternative) -> int | None:
        """The minimum cost of an option beyond that of the cheapest one; None if it must be avoided."""
        cost, least = self._cost(option), self._cost(node)
        return None if cost is None or least is None else cost - least

    def _pick(self, node: CharClass | AnyChar, random: Random) -> int:
        if id(node) not in self._chars:
            ranges = node.scalars()
            self._chars[id(node)] = (ranges, subtract(ranges, complement(merge(_PRINTABLE))))
        ranges, plain = self._chars[id(node)]
        lo, hi = random.choice(plain if plain and random.random() < PLAIN else ranges)
        return random.randint(lo, hi)
