"""What an engine would make of a JSON Schema: the contract, hazards, the cost of compiling, documents held against it.

It generates nothing, and runs no engine that is not ours: what those do is looked up.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from mmap import PAGESIZE
from pathlib import Path
from typing import Any, Literal

from espalier.automata.languages.dfa import Dfa
from espalier.automata.languages.network import Network
from espalier.automata.masks.pushdown import PushdownMachine
from espalier.automata.masks.regular import RegularMachine
from espalier.constraints.automaton_matcher import AutomatonCompiled, compile_automaton
from espalier.constraints.base import Compiled
from espalier.constraints.compiler import Compiler
from espalier.constraints.json_schema.backends import SchemaRoads
from espalier.constraints.json_schema.compile import SchemaTeller
from espalier.constraints.json_schema.instances import Instance, check_instances
from espalier.constraints.json_schema.llguidance import LlgCompiled
from espalier.constraints.json_schema.unique_matcher import UniqueCompiled
from espalier.constraints.spec import Gbnf, JsonSchema, Regex
from espalier.errors import InputError, SpecError, UnknownName
from espalier.schema.contract import Contract, Entry
from espalier.schema.lint.engine_contract import OURS, engine_contract
from espalier.schema.lint.engine_limits import ENGINES
from espalier.schema.lint.hazards import Hazard, hazards
from espalier.tokens import mask as masks
from espalier.tokens.vocab import Vocab

COMPACT = (",", ":")
SMALL = Gbnf('root ::= "[" root "]" | "x"')
"""A pushdown automaton."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """road: who enforces the schema. seconds: of compiling, the vocabulary already read. states: of the automaton.
    memory: bytes, of the automaton's tables, or by how much the process grew (`measured` says which); None where that
    cannot be told. first_mask: seconds; tokens: of the vocabulary, and allowed: of these at the start."""

    road: Literal["llguidance", "automaton", "pushdown automaton"]
    seconds: float
    states: int | None
    memory: int | None
    measured: Literal["tables", "process"]
    first_mask: float
    vocab: str
    tokens: int
    allowed: int

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """engine: a key of `ENGINES`. cost: None for an engine that is not ours, and where something is refused. allow:
    whether what can only be checked is fine. hazards: all, those of other engines too."""

    engine: str
    contract: Contract
    hazards: tuple[Hazard, ...]
    cost: Cost | None = None
    instances: tuple[Instance, ...] = ()
    allow: str | None = None

    @property
    def lacking(self) -> tuple[Entry, ...]:
        """What would not be enforced, and was not allowed to be only checked."""
        return self.contract.by_verdict("refused", *(() if self.allow == "checked" else ("checked",)))

    @property
    def disputed(self) -> tuple[Instance, ...]:
        """Documents on which the constraint and the validator disagree, but for what may only be checked."""
        loose = bool(self.contract.by_verdict("checked", "refused"))
        return tuple(one for one in self.instances if one.disputed and not (one.accepted and loose))

    @property
    def ok(self) -> bool:
        return not self.lacking and not self.disputed

    def to_json(self) -> dict[str, Any]:
        return {
            "ok": self.ok,
            "engine": self.engine,
            "contract": self.contract.to_json(),
            "hazards": [asdict(hazard) | {"engines": list(hazard.engines)} for hazard in self.hazards],
            "cost": self.cost.to_json() if self.cost else None,
            "instances": [one.to_json() for one in self.instances],
        }


def check_schema(
    spec: JsonSchema,
    compiler: Compiler,
    *,
    engine: str = "transformers",
    instances: Sequence[tuple[int, str]] | None = None,
    clock: Callable[[], float] = time.perf_counter,
) -> Report:
    """The report on a schema.

    compiler: of the vocabulary that compile time and masks are measured for. instances: JSON texts with their line
    numbers. Raises SchemaError, UnsupportedError, LimitExceeded and VocabError as compiling does, but not for what can
    only be checked; UnknownName for an engine; InputError for instances where the engine is not ours.
    """
    if engine not in ENGINES:
        raise UnknownName(f"unknown engine {engine!r}", hint=f"one of: {', '.join(ENGINES)}", field="engine")
    roads = SchemaRoads(_lenient(spec))
    found = tuple(hazards(spec.schema))
    if engine not in OURS:
        if instances is not None:
            raise InputError(
                f"documents can be held against our own engines only, not {ENGINES[engine].name}",
                hint=f"--engine {', '.join(OURS)}",
                field="instances",
            )
        contract = engine_contract(roads.expansion.contract, found, engine)
        return Report(engine=engine, contract=contract, hazards=found, allow=spec.allow)
    build = _grammar if engine == "gbnf" else _best
    compiled, cost = _measured(roads, compiler, build, clock)
    report = Report(engine=engine, contract=_contract(roads, engine), hazards=found, cost=cost, allow=spec.allow)
    if instances is None:
        return report
    plain = Compiler(Vocab.bytes()) if compiler.vocab.fingerprint != Vocab.bytes().fingerprint else compiler
    over_bytes = compiled if plain is compiler else build(roads, plain)
    held = check_instances(spec, over_bytes, roads.expansion, _marks(spec, plain), instances)
    return replace(report, instances=tuple(held))


def grammar_contract(roads: SchemaRoads) -> Contract:
    """What a grammar alone keeps: nothing checks it afterwards, so what can only be checked is refused."""
    found = roads.contract
    return found.with_changes([(e.pointer, "refused", "a grammar cannot say it") for e in found.by_verdict("checked")])


def _contract(roads: SchemaRoads, engine: str) -> Contract:
    return grammar_contract(roads) if engine == "gbnf" else roads.contract


def _lenient(spec: JsonSchema) -> JsonSchema:
    """The same, compiled even where something can only be checked: the report says so."""
    found = JsonSchema.from_json(spec.to_json() | {"allow": "checked"})
    assert isinstance(found, JsonSchema)
    return found


def _best(roads: SchemaRoads, compiler: Compiler) -> Compiled:
    """As a request would have it."""
    compiled = compiler.compile(roads.spec)
    roads.through_llguidance = isinstance(compiled, LlgCompiled)
    roads.alone = not roads.through_llguidance
    return compiled


def _grammar(roads: SchemaRoads, compiler: Compiler) -> Compiled:
    """As the grammar that llama.cpp would be given."""
    vocab, trie = compiler.vocab, compiler.trie
    found = compile_automaton(roads.automaton, roads.spec, vocab, trie)
    converted = roads.converted
    found.explain_with(lambda: SchemaTeller(converted.grammar, converted.pointers, vocab, trie))
    return found


def _measured(
    roads: SchemaRoads,
    compiler: Compiler,
    build: Callable[[SchemaRoads, Compiler], Compiled],
    clock: Callable[[], float],
) -> tuple[Compiled, Cost]:
    compiler.compile(JsonSchema({"type": "null"})).matcher().mask()  # so that the vocabulary is read
    before = _resident()
    start = clock()
    compiled = build(roads, compiler)
    seconds = clock() - start
    after = _resident()
    automaton = _automaton(compiled)
    if automaton is not None:
        compiler.compile(SMALL).matcher().mask()  # so that the kernels are there
    matcher = compiled.matcher()
    start = clock()
    mask = matcher.mask()
    first_mask = clock() - start
    grown = None if before is None or after is None else max(0, after - before)
    vocab = compiler.vocab
    return compiled, Cost(
        road="llguidance" if automaton is None else "automaton" if isinstance(automaton, Dfa) else "pushdown automaton",
        seconds=seconds,
        states=None if automaton is None else states(automaton),
        memory=grown if automaton is None else table_bytes(automaton),
        measured="process" if automaton is None else "tables",
        first_mask=first_mask,
        vocab=vocab.name or "bytes",
        tokens=vocab.width,
        allowed=len(masks.allowed_ids(mask, vocab.width)),
    )


def _automaton(compiled: Compiled) -> Dfa | Network | None:
    if isinstance(compiled, UniqueCompiled):
        compiled = compiled.inner
    machine = compiled.machine if isinstance(compiled, AutomatonCompiled) else None
    if isinstance(machine, RegularMachine):
        return machine.dfa
    return machine.network if isinstance(machine, PushdownMachine) else None


def states(automaton: Dfa | Network) -> int:
    """Of a network: positions, of which stacks are made as they are met."""
    return len(automaton) if isinstance(automaton, Dfa) else len(automaton.final)


def table_bytes(automaton: Dfa | Network) -> int:
    """Of what is there before the first token; a network's lists count eight bytes a number."""
    if isinstance(automaton, Dfa):
        return automaton.classes.nbytes + automaton.table.nbytes + automaton.accepting.nbytes
    lists: Iterable[Iterable[Sequence[Any]]] = (*automaton.moves, *automaton.calls)
    return automaton.classes.nbytes + automaton.which.nbytes + 8 * sum(len(pair) for row in lists for pair in row)


def _resident() -> int | None:
    """Bytes of memory that the process holds; None where the system does not tell."""
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    except (OSError, ValueError, IndexError):
        return None
    return pages * PAGESIZE


def _marks(spec: JsonSchema, compiler: Compiler) -> tuple[str, str]:
    """A comma and a colon as the spec has them written."""
    if spec.separators is not None:
        item, key = (_shortest(text, compiler) for text in spec.separators)
        return item, key
    return (",", ": ") if spec.whitespace == "indented" else COMPACT


def _shortest(pattern: str, compiler: Compiler) -> str:
    try:
        found = compiler.compile(Regex(pattern)).matcher().shortest_completion()
    except SpecError:  # it was taken as a separator all the same
        return pattern
    return bytes(found[:-1]).decode()
