"""Reports what an engine would do with a JSON Schema: contract, hazards, compile cost, and verdicts on documents.

It generates nothing, and runs no other engine: what other engines do is looked up in a table.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal, TypeAlias

from espalier.automata.languages.dfa import Dfa
from espalier.automata.languages.network import Network
from espalier.automata.lazy.network import LazyNetwork
from espalier.automata.masks.pushdown import PushdownMachine
from espalier.automata.masks.regular import RegularMachine
from espalier.constraints.base import Compiled
from espalier.constraints.compiler import Compiler
from espalier.constraints.json_schema.compile import automaton_compiled
from espalier.constraints.json_schema.instances import Instance, check_instances
from espalier.constraints.json_schema.lowered import LoweredSchema
from espalier.constraints.matching.automaton import CompiledAutomaton
from espalier.constraints.spec import Gbnf, JsonSchema, Regex
from espalier.constraints.unique.matcher import CompiledUniqueItems
from espalier.constraints.unique.string_matcher import CompiledUniqueStrings
from espalier.errors import InputError, SpecError, UnknownName
from espalier.grammar.ast import Grammar
from espalier.json_record import FIRST, INTERNAL, JsonRecord, in_json
from espalier.memory import resident_bytes
from espalier.schema.contract import Contract, ContractEntry
from espalier.schema.lint.engine_contract import OURS, engine_contract
from espalier.schema.lint.engine_limits import ENGINES
from espalier.schema.lint.hazards import Hazard, hazards
from espalier.schema.read.unknown import Unknown, unknown_keywords
from espalier.tokens import mask as masks
from espalier.tokens.vocab import Vocab

COMPACT = (",", ":")
Backend: TypeAlias = Literal["automaton", "pushdown automaton"]
SMALL = Gbnf('root ::= "[" root "]" | "x"')
"""The smallest grammar that needs a pushdown automaton."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompileCost(JsonRecord):
    """The cost of compiling a schema.

    backend: what enforces it. seconds: compile time, with the vocabulary already read. states: the number
    of states of the automaton. memory: bytes of the automaton's tables, or by which the process grew (`measured` says
    which); None if unknown. first_mask: seconds for the first token mask. tokens: the vocabulary's size. allowed: the
    number of tokens that the first mask allows.
    """

    backend: Backend
    seconds: float
    states: int | None
    memory: int | None
    measured: Literal["tables", "process"]
    first_mask: float
    vocab: str
    tokens: int
    allowed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaReport(JsonRecord):
    """The report on one schema.

    engine: a key of `ENGINES`. hazards: all that were found, those of other engines included. cost: None for an engine
    that is not ours. allow: the spec's own `allow`, "checked" if keywords may be only checked afterwards. unknown:
    keywords that nobody knows; allow_unknown: they are no fault.
    """

    engine: str
    contract: Contract
    unknown: tuple[Unknown, ...] = ()
    hazards: tuple[Hazard, ...]
    cost: CompileCost | None = None
    instances: tuple[Instance, ...] = ()
    allow: Annotated[str | None, INTERNAL] = None
    allow_unknown: Annotated[bool, INTERNAL] = False

    @property
    def lacking(self) -> tuple[ContractEntry, ...]:
        """The keywords that would not be enforced and are not allowed to be only checked."""
        return self.contract.by_verdict("refused", *(() if self.allow == "checked" else ("checked",)))

    @property
    def disputed(self) -> tuple[Instance, ...]:
        """The documents on which the constraint and the validator disagree. A constraint that accepts more is not
        counted where keywords are only checked."""
        loose = bool(self.contract.by_verdict("checked", "refused"))
        return tuple(instance for instance in self.instances if instance.disputed and not (instance.accepted and loose))

    @property
    @in_json(after=FIRST)
    def ok(self) -> bool:
        return not self.lacking and not self.disputed and (self.allow_unknown or not self.unknown)


def check_schema(
    spec: JsonSchema,
    compiler: Compiler,
    *,
    engine: str = "transformers",
    allow_unknown: bool = False,
    instances: Sequence[tuple[int, str]] | None = None,
    clock: Callable[[], float] = time.perf_counter,
) -> SchemaReport:
    """The report on a schema.

    compiler: holds the vocabulary that compile time and masks are measured for. instances: JSON texts with their line
    numbers. allow_unknown: unknown keywords are told, and are no fault. Raises SchemaError, UnsupportedError,
    LimitExceeded and VocabError as compiling does, but not for keywords that can only be checked; UnknownName for an
    unknown engine; InputError for instances if the engine is not ours.
    """
    if engine not in ENGINES:
        raise UnknownName(f"unknown engine {engine!r}", hint=f"one of: {', '.join(ENGINES)}", field="engine")
    if engine not in OURS:
        spec = spec.explicit()
    lowered = LoweredSchema(_lenient(spec))
    listed_hazards = tuple(hazards(spec.schema))
    said: dict[str, Any] = {
        "allow": spec.allow,
        "unknown": unknown_keywords(spec.schema),
        "allow_unknown": allow_unknown,
    }
    if engine not in OURS:
        if instances is not None:
            raise InputError(
                f"documents can be held against our own engines only, not {ENGINES[engine].name}",
                hint=f"--engine {', '.join(OURS)}",
                field="instances",
            )
        contract = engine_contract(lowered.expansion.contract, listed_hazards, engine)
        return SchemaReport(engine=engine, contract=contract, hazards=listed_hazards, **said)
    build = _as_grammar if engine == "gbnf" else _as_requested
    compiled, cost = _measure(lowered, compiler, build, clock)
    if engine == "gbnf":
        contract = grammar_contract(lowered)
    else:
        contract = lowered.contract("alone")
    report = SchemaReport(engine=engine, contract=contract, hazards=listed_hazards, cost=cost, **said)
    if instances is None:
        return report
    plain = Compiler(Vocab.bytes()) if compiler.vocab.fingerprint != Vocab.bytes().fingerprint else compiler
    over_bytes = compiled if plain is compiler else build(lowered, plain)
    held = check_instances(spec, over_bytes, lowered.expansion, _marks(spec, plain), instances)
    return replace(report, instances=tuple(held))


def schema_grammar(spec: JsonSchema) -> Grammar:
    """See `to_gbnf.grammar_of`. Raises as `compile_schema` does, and UnsupportedError for keywords that only a matcher
    can enforce."""
    lowered = LoweredSchema(spec)
    # A matcher can also forbid equal items, which a grammar cannot.
    may_check = spec.allow == "checked" and lowered.unique is None
    if may_check:
        lowered.contract("grammar").check("checked")
    else:
        grammar_contract(lowered).check()
    return lowered.converted.grammar


def grammar_contract(lowered: LoweredSchema) -> Contract:
    """The contract of the schema as a GBNF grammar: nothing checks the text afterwards, so keywords that could only be
    checked are refused."""
    contract = lowered.contract("grammar")
    return contract.with_changes(
        [(e.pointer, "refused", "a grammar cannot say it") for e in contract.by_verdict("checked")]
    )


def _lenient(spec: JsonSchema) -> JsonSchema:
    """The spec with `allow="checked"`: it compiles even if keywords can only be checked, which the report says."""
    lenient = JsonSchema.from_json(spec.to_json() | {"allow": "checked"})
    assert isinstance(lenient, JsonSchema)
    return lenient


def _as_requested(lowered: LoweredSchema, compiler: Compiler) -> Compiled:
    """The schema as a request would compile it."""
    return compiler.compile(lowered.spec)


def _as_grammar(lowered: LoweredSchema, compiler: Compiler) -> Compiled:
    """The schema as the grammar that llama.cpp would be given."""
    return automaton_compiled(lowered, "grammar", compiler.vocab, compiler.trie)


def _measure(
    lowered: LoweredSchema,
    compiler: Compiler,
    build: Callable[[LoweredSchema, Compiler], Compiled],
    clock: Callable[[], float],
) -> tuple[Compiled, CompileCost]:
    compiler.compile(JsonSchema({"type": "null"})).matcher().mask()  # reads the vocabulary
    before = resident_bytes()
    start = clock()
    compiled = build(lowered, compiler)
    seconds = clock() - start
    after = resident_bytes()
    automaton = _automaton(compiled)
    if automaton is not None:
        compiler.compile(SMALL).matcher().mask()  # compiles the kernels
    matcher = compiled.matcher()
    start = clock()
    mask = matcher.mask()
    first_mask = clock() - start
    grown = None if before is None or after is None else max(0, after - before)
    vocab = compiler.vocab
    return compiled, CompileCost(
        backend=_backend_of(automaton),
        seconds=seconds,
        states=None if automaton is None else states(automaton),
        memory=table_bytes(automaton) if isinstance(automaton, Dfa | Network) else grown,
        measured="tables" if isinstance(automaton, Dfa | Network) else "process",
        first_mask=first_mask,
        vocab=vocab.name or "bytes",
        tokens=vocab.width,
        allowed=len(masks.allowed_ids(mask, vocab.width)),
    )


def _backend_of(automaton: Dfa | Network | LazyNetwork | None) -> Backend:
    return "pushdown automaton" if isinstance(automaton, Network) else "automaton"


def _automaton(compiled: Compiled) -> Dfa | Network | LazyNetwork | None:
    if isinstance(compiled, CompiledUniqueStrings | CompiledUniqueItems):
        compiled = compiled.inner
    machine = compiled.machine if isinstance(compiled, CompiledAutomaton) else None
    if isinstance(machine, RegularMachine):
        return machine.dfa
    network = machine.network if isinstance(machine, PushdownMachine) else None
    return network if isinstance(network, Network | LazyNetwork) else None


def states(automaton: Dfa | Network | LazyNetwork) -> int:
    """The number of states; for a network the number of positions, since its stacks are built lazily; for one that is
    explored on demand, those met so far."""
    return len(automaton) if isinstance(automaton, Dfa) else len(automaton.final)


def table_bytes(automaton: Dfa | Network) -> int:
    """Bytes of the automaton's tables before the first token. A network's lists count eight bytes for each number."""
    if isinstance(automaton, Dfa):
        return automaton.classes.nbytes + automaton.table.nbytes + automaton.accepting.nbytes
    lists: Iterable[Iterable[Sequence[Any]]] = (*automaton.moves, *automaton.calls)
    return automaton.classes.nbytes + automaton.which.nbytes + 8 * sum(len(pair) for row in lists for pair in row)


def _marks(spec: JsonSchema, compiler: Compiler) -> tuple[str, str]:
    """The item and key separators that the spec asks for, in their shortest spelling."""
    if spec.separators is not None:
        item, key = (_shortest(text, compiler) for text in spec.separators)
        return item, key
    return (",", ": ") if spec.whitespace == "indented" else COMPACT


def _shortest(pattern: str, compiler: Compiler) -> str:
    try:
        completion = compiler.compile(Regex(pattern)).matcher().shortest_completion()
    except SpecError:  # not a valid regex, but accepted as a separator
        return pattern
    return bytes(completion[:-1]).decode()
