"""Builds automata of patterns, grammars and choices in worker processes where that takes long, so that no thread of a
server computes for seconds beside the model, nor keeps the memory that building takes.

Only work with a limit goes there (a server's), after a first try in its own thread. What comes back are tables. It
knows no `Spec` and no vocabulary.
"""

from __future__ import annotations

import marshal
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np

from espalier.automata.languages.dfa import Dfa
from espalier.automata.languages.network import Network, build_network, states_about
from espalier.confined.builds import Builds, Elsewhere, answered
from espalier.errors import LimitExceeded, RegexError
from espalier.grammar.analysis import productive
from espalier.grammar.ast import EMPTY, Grammar, Node, Position, Rule, TokenRef, alt
from espalier.grammar.ast import Literal as Text
from espalier.grammar.parser import parse
from espalier.grammar.regex import classes
from espalier.grammar.regex.parse import parse_regex

MOST_PLAIN = 100_000
"""Positions of a network for explanations; a larger one is not brought back."""
MOST_NEAR = 10_000
"""States of a grammar that is tried in the caller's thread. Each takes 10 us of CPU time or more, so a larger one would
use up `builds.NEAR_SECONDS` for nothing: sixty clients who sent one and left kept the interpreter from all streams for
half a second, and six of them took 220 MB."""
ROOT = "root"

Automaton: TypeAlias = Dfa | Network
Want: TypeAlias = Literal["machine", "language", "plain"]
"""machine: a Dfa where the network is one, else the network. language: a Dfa wherever it can be made one. plain: the
network for explanations (see `network.py`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AutomatonSource:
    """What an automaton is built of. text: a pattern, or a grammar in GBNF with its root; words: the choices."""

    form: Literal["regex", "gbnf", "words"]
    text: str = ""
    root: str = ROOT
    words: tuple[str, ...] = ()

    def grammar(self) -> Grammar:
        """Raises RegexError, GrammarError, UnsupportedError, LimitExceeded."""
        return GRAMMARS[self.form](self)

    def automaton(self, want: Want) -> Automaton:
        """Raises as `grammar`."""
        return _automaton(self.grammar(), want)

    def small(self, want: Want) -> Automaton:
        """The same. Raises as `grammar`, and Elsewhere for more than MOST_NEAR states. Choices are quick to build."""
        grammar = self.grammar()
        if self.form != "words" and states_about(grammar) > MOST_NEAR:
            raise Elsewhere
        return _automaton(grammar, want)


def _automaton(grammar: Grammar, want: Want) -> Automaton:
    network = build_network(grammar, plain=want == "plain")
    is_one = network.is_regular if want == "machine" else not (any(network.calls) or any(network.tokens))
    return Dfa.of_network(network) if is_one and want != "plain" else network


def _of_regex(source: AutomatonSource) -> Grammar:
    grammar = _one_rule(parse_regex(source.text))
    if ROOT not in productive(grammar):
        raise RegexError("no text matches this pattern", pattern=source.text)
    return grammar


def _of_gbnf(source: AutomatonSource) -> Grammar:
    return parse(source.text, root=source.root)


def _of_words(source: AutomatonSource) -> Grammar:
    return _one_rule(alt(*(Text(word) if word else EMPTY for word in source.words)))


def _one_rule(body: Node) -> Grammar:
    return Grammar.of([Rule(ROOT, body)], root=ROOT)


GRAMMARS: Mapping[str, Callable[[AutomatonSource], Grammar]] = {
    "regex": _of_regex,
    "gbnf": _of_gbnf,
    "words": _of_words,
}


class FarAutomata:
    """Builds automata of sources. builds: where the long ones are built; others may build there too. Thread-safe."""

    def __init__(self) -> None:
        self.builds = Builds(warm=(warm,))

    def start(self) -> None:
        """Start the processes, so that the first long build finds them ready. Raises ConfinedError."""
        self.builds.start()

    def build(self, source: AutomatonSource, want: Want = "machine") -> Automaton:
        """The automaton. Raises as `AutomatonSource.automaton`, and with a limit OutOfTime, Cancelled,
        ConfinedError."""
        given = {"form": source.form, "text": source.text, "root": source.root, "words": source.words, "want": want}
        return self.builds.build(
            lambda: source.automaton(want), near=lambda: source.small(want), run=built, given=given, read=_read
        )


# In a worker process.


def warm() -> None:
    """What a process does once: tables of Unicode."""
    classes.warm()


def built(given: Mapping[str, Any]) -> dict[str, Any] | None:
    """Writes the automaton to a file; returns what is wrong with the source, None if nothing is."""
    source = AutomatonSource(form=given["form"], text=given["text"], root=given["root"], words=tuple(given["words"]))

    def make() -> bytes:
        automaton = source.automaton(given["want"])
        if given["want"] == "plain" and isinstance(automaton, Network) and len(automaton.final) > MOST_PLAIN:
            raise LimitExceeded("the grammar is too large to be explained")
        return _pack_automaton(automaton)

    return answered(given, make)


# Tables as bytes: `marshal` makes plain values alone, whatever it reads.


def _pack_automaton(built: Automaton) -> bytes:
    if isinstance(built, Dfa):
        return marshal.dumps(
            (
                built.classes.tobytes(),
                built.table.shape,
                built.table.astype("<i4").tobytes(),
                built.accepting.tobytes(),
                built.start,
            )
        )
    return marshal.dumps(
        (
            built.classes.tobytes(),
            built.which.shape,
            built.which.astype("<i4").tobytes(),
            built.moves,
            built.calls,
            built.tokens,
            built.final,
            built.pure,
            built.least,
            built.rule,
            [
                None if position is None else (position.offset, position.line, position.column)
                for position in built.leaf
            ],
            [(ref.text, ref.id, ref.negated) for ref in built.refs],
            built.start,
        )
    )


def _read(data: bytes) -> Automaton:
    fields = marshal.loads(data)  # our own process wrote it
    classes_of = np.frombuffer(fields[0], dtype=np.uint8).copy()  # (256,)
    table = np.frombuffer(fields[2], dtype="<i4").reshape(fields[1]).astype(np.int32)
    if len(fields) == 5:
        accepting = np.frombuffer(fields[3], dtype=np.bool_).copy()
        return Dfa(classes=classes_of, table=table, accepting=accepting, start=fields[4])
    _, _, _, moves, calls, tokens, final, pure, least, rule, leaf, refs, start = fields
    return Network(
        classes=classes_of,
        which=table,
        moves=moves,
        calls=calls,
        tokens=tokens,
        final=final,
        pure=pure,
        least=least,
        rule=rule,
        leaf=[None if position is None else Position(*position) for position in leaf],
        refs=tuple(TokenRef(text=text, id=number, negated=negated) for text, number, negated in refs),
        start=start,
    )
