"""The ceiling on compiled constraints: what is dropped, what counts as garbage, who is refused, and what is freed."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from espalier.automata.lazy.explored import LazyState
from espalier.constraints import cache
from espalier.constraints.base import Compiled
from espalier.constraints.cache import CACHE_LIMIT, ConstraintBytes, ConstraintCache
from espalier.constraints.compiler import Compiler
from espalier.constraints.spec import JsonSchema, Regex, Spec
from espalier.errors import TooManyRequests
from espalier.owners import working_for
from espalier.tokens.vocab import Vocab


@pytest.fixture
def compiler() -> Compiler:
    return Compiler(Vocab.bytes())


def schema(number: int) -> JsonSchema:
    names = [f"a{number}", f"b{number}"]
    return JsonSchema({"type": "object", "properties": {name: {"type": "string"} for name in names}, "required": names})


def compile_for(compiler: Compiler, owner: str, *specs: Spec, held: list[Compiled] | None = None) -> None:
    """held: gets what was compiled, as texts hold it that go on."""
    with working_for(owner):
        for spec in specs:
            compiled = compiler.compile(spec)
            if held is not None:
                held.append(compiled)


def size_of_one(compiler: Compiler) -> int:
    compiler.cache.ceiling = 10**12
    compile_for(compiler, "size", schema(0))
    return compiler.cache.held().kept


def test_without_a_ceiling_nothing_is_measured_or_refused(compiler: Compiler) -> None:
    compile_for(compiler, "anna", *map(schema, range(CACHE_LIMIT + 5)))
    assert compiler.cache.held() == ConstraintBytes()


def test_the_size_of_one_leaves_out_what_all_share(compiler: Compiler) -> None:
    small = size_of_one(compiler)
    assert 5_000 < small < 1_000_000, "its objects, and not the vocabulary, the trie or the program"
    compile_for(compiler, "size", Regex("[a-z]{3}x{500}"))
    assert compiler.cache.held().kept > small + 500


def test_what_is_kept_stays_under_half_of_the_ceiling_and_the_rest_is_garbage(compiler: Compiler) -> None:
    one = size_of_one(compiler)
    compiler.cache.ceiling = 8 * one
    texts: list[Compiled] = []
    compile_for(compiler, "anna", *map(schema, range(1, 7)), held=texts)
    held = compiler.cache.held()
    assert held.kept <= 4 * one
    assert held.garbage > one
    assert compiler.cache.has_much_garbage
    compiler.cache.collected()
    assert compiler.cache.held() == ConstraintBytes(kept=held.kept)
    assert not compiler.cache.has_much_garbage


def test_what_is_free_when_it_is_dropped_is_no_garbage(compiler: Compiler) -> None:
    """A flood of small schemas, each used once, had all garbage collected again and again, for a second each."""
    one = size_of_one(compiler)
    compiler.cache.ceiling = 8 * one
    texts: list[Compiled] = []
    compile_for(compiler, "anna", schema(1), held=texts)
    compile_for(compiler, "anna", *map(schema, range(2, 40)))
    held = compiler.cache.held()
    assert held.kept <= 4 * one
    assert 0 < held.garbage < 2 * one, "of the one that a text holds"
    texts.clear()
    assert not compiler.cache.held().garbage


def test_past_the_ceiling_who_holds_the_most_is_refused_and_nobody_else(compiler: Compiler) -> None:
    one = size_of_one(compiler)
    compiler.cache.ceiling = 6 * one
    compile_for(compiler, "ben", schema(1000))
    flood, texts = [schema(number) for number in range(1, 50)], list[Compiled]()
    with pytest.raises(TooManyRequests, match="compiled constraints of this key") as refused:
        compile_for(compiler, "anna", *flood, held=texts)
    assert refused.value.retry_after >= 1
    assert refused.value.http_status == 429
    compile_for(compiler, "ben", schema(1000), schema(1001))
    compile_for(compiler, "carl", schema(1002))
    compile_for(compiler, "anna", next(spec for spec in flood if is_kept(compiler, "anna", spec)))
    compiler.cache.collected()
    compile_for(compiler, "anna", schema(60))


def is_kept(compiler: Compiler, owner: str, spec: Spec) -> bool:
    with working_for(owner):
        return compiler.has(spec)


def test_masks_that_are_made_later_are_counted(compiler: Compiler) -> None:
    one = size_of_one(compiler)
    with working_for("size"):
        matcher = compiler.compile(schema(0)).matcher()
        for token in b'{"a0": "and so on':
            matcher.mask()
            matcher.advance(token)
    assert compiler.cache.held().kept == one
    compiler.cache.measure()
    assert compiler.cache.held().kept > one


def test_a_constraint_of_very_many_objects_counted_as_its_first_50_000(
    compiler: Compiler, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A schema of 7.7 MB counted as 4.9; ten times the schema would have counted as much."""
    one = size_of_one(compiler)
    monkeypatch.setattr(cache, "OBJECTS_EACH_TIME", 20)
    again = ConstraintCache()
    again.ceiling = 10**12
    measured: list[Compiled] = []
    size = ConstraintCache._size

    def count(self: ConstraintCache, compiled: Compiled) -> tuple[int, int]:
        measured.append(compiled)
        return size(self, compiled)

    monkeypatch.setattr(ConstraintCache, "_size", count)
    compiler.cache = again
    for part in (compiler.vocab, compiler.trie):
        again.share(part)
    compile_for(compiler, "anna", schema(0))
    objects = size(again, measured[0])[1]
    assert objects > 100
    assert again.held().kept > one / 2, "all of its objects, not the first twenty"
    for _ in range(objects // 20):
        assert is_kept(compiler, "anna", schema(0))
        again.get("anna", next(iter(again._owners["anna"].entries)))
        again.measure()
    assert len(measured) == 1, "so large a one is measured again later"
    again.measure()
    assert len(measured) == 2


def test_the_last_spec_of_an_owner_is_kept_however_large_it_is(compiler: Compiler) -> None:
    compiler.cache.ceiling = 100
    compile_for(compiler, "anna", schema(1))
    assert is_kept(compiler, "anna", schema(1))


def test_what_is_pinned_is_kept_for_all_owners() -> None:
    compiler, cache = Compiler(Vocab.bytes()), ConstraintCache()
    compiled = compiler.compile(Regex("a"))
    cache.put("anna", "key", compiled)
    cache.pin("key", compiled)
    cache.put("ben", "key", compiled)
    assert cache.get("carl", "key") is compiled
    assert len(cache) == 1


@pytest.fixture
def without_collections() -> Iterator[None]:
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def own_positions() -> set[int]:
    """The addresses of what single schemas have worked out, in this process."""
    return {id(thing) for thing in gc.get_objects() if type(thing) is LazyState and not thing.is_shared}


@pytest.mark.usefixtures("without_collections")
@pytest.mark.parametrize("explains", [False, True], ids=["masks", "reasons"])
def test_a_schema_that_nobody_has_is_free_without_a_collection(compiler: Compiler, explains: bool) -> None:
    """Reasons of refusals were explored in positions that held each other: 640 objects of a small schema stayed until a
    collection, which a busy server puts off."""
    before = own_positions()
    compiled = compiler.compile(schema(0))
    matcher = compiled.matcher()
    for token in b'{"a0": "x':
        matcher.mask()
        matcher.advance(token)
    if explains:
        matcher.explain(ord("\n"))
    positions = own_positions() - before
    assert positions
    compiler.cache = ConstraintCache()
    del compiled, matcher
    assert own_positions() & positions == set()
