"""Compiled constraints are free when nobody holds them: otherwise as much would wait for a collection of garbage, which
stops every thread of a server."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from espalier import Gbnf, JsonSchema, Vocab
from espalier.constraints.base import Compiled
from espalier.constraints.compiler import Compiler
from espalier.constraints.json_schema.compile import contract_of
from espalier.constraints.spec import Spec
from espalier.errors import EspalierError
from espalier.time_limit import OutOfTime, time_limit
from espalier.tokens import mask as masks
from espalier.wiring import demo_model
from tests.joining_laws import EXAMPLES

PAIR = {
    "type": "object",
    "properties": {"a": {"enum": [1, 2, 3]}, "b": {"type": "integer"}},
    "required": ["a"],
    "additionalProperties": False,
}
SPECS: dict[str, Spec] = EXAMPLES | {
    "recursive": Gbnf('root ::= "a" root "b" | "c"'),
    "references": JsonSchema({"$ref": "#/$defs/n", "$defs": {"n": {"type": "array", "items": {"$ref": "#/$defs/n"}}}}),
    "addresses": JsonSchema({"$id": "https://a.b/c", "$ref": "#x", "$defs": {"x": {"$anchor": "x", **PAIR}}}),
    "unique strings": JsonSchema({"type": "array", "items": {"type": "string"}, "uniqueItems": True, "minItems": 2}),
    "unique objects": JsonSchema({"type": "array", "items": PAIR, "uniqueItems": True, "minItems": 2}),
}
HELD = (
    "CompiledAutomaton",
    "Expansion",
    "LazyNetwork",
    "LazyState",
    "Network",
    "PushdownMachine",
    "RegularMachine",
    "SchemaStore",
    "Stacks",
    "Subschema",
)
"""Those that hold the others, and those of which there are many."""


@contextmanager
def garbage(found: Counter[str]) -> Iterator[None]:
    """Counts the objects by class that what runs inside leaves to a collection."""
    gc.collect()
    gc.disable()
    try:
        yield
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        found.update(type(each).__name__ for each in gc.garbage)
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()


def use(spec: Spec, compiler: Compiler) -> None:
    """Ask all that a text asks."""
    compiled: Compiled = compiler.compile(spec)
    matcher = compiled.matcher()
    for _ in range(12):
        ids = masks.allowed_ids(matcher.mask(), compiled.vocab.width).tolist()
        if not ids or ids[0] in compiled.vocab.eos_ids:
            break
        for token in {0, 3, 5, 60} - {*masks.allowed_ids(matcher.mask(), compiled.vocab.width).tolist()}:
            matcher.explain(token)
        matcher.advance(ids[0])
    matcher.shortest_completion()
    if isinstance(spec, JsonSchema):
        contract_of(spec, compiler)


@pytest.fixture(scope="module")
def vocab() -> Vocab:
    return Vocab.from_tokenizer(demo_model())


@pytest.mark.parametrize("name", SPECS)
def test_what_is_compiled_is_free_when_nobody_holds_it(name: str, vocab: Vocab) -> None:
    compiler = Compiler(vocab)
    use(SPECS[name], compiler)  # what all constraints share stays
    compiler.cache.collected()
    compiler.cache = type(compiler.cache)()
    found: Counter[str] = Counter()
    with garbage(found):
        use(SPECS[name], compiler)
        compiler.cache = type(compiler.cache)()
    assert not {each: count for each, count in found.items() if each in HELD}, found.most_common(12)


def refused(compiler: Compiler) -> Any:
    compiler.compile(JsonSchema({"items": PAIR, "contains": {"required": ["b"]}, "minContains": 3000}))


def out_of_time(compiler: Compiler) -> Any:
    ticks = iter(range(10_000))
    with time_limit(300, clock=lambda: float(next(ticks))):
        compiler.compile(JsonSchema({"properties": {f"p{i}": PAIR for i in range(200)}}))


@pytest.mark.parametrize("compile_it", [refused, out_of_time], ids=lambda each: str(each.__name__))
def test_what_was_built_before_an_error_is_free_with_it(compile_it: Callable[[Compiler], Any], vocab: Vocab) -> None:
    compiler = Compiler(vocab)
    found: Counter[str] = Counter()
    raised: list[type[EspalierError]] = []
    for _ in range(2):
        found.clear()
        with garbage(found):
            try:
                compile_it(compiler)
            except EspalierError as error:
                raised.append(type(error))
    assert len(raised) == 2
    assert (OutOfTime in raised) == (compile_it is out_of_time)
    assert not {each: count for each, count in found.items() if each in HELD}, found.most_common(12)
