"""Stored traces: read back unchanged, by their caller only, and list pages that neither repeat nor skip."""

from __future__ import annotations

import copy
import json
import math
import threading
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import espalier
from espalier.errors import InputError
from espalier.store.ids import first_id, is_id
from espalier.store.open import Store, open_store
from espalier.store.packing import pack
from espalier.store.trace_filter import TraceFilter
from espalier.trace.records import Trace
from tests.examples import examples
from tests.traces import SCHEMA, sample_trace

TRACE = sample_trace(8).to_json()

ANY_TEXT = st.text(st.characters())  # half surrogate pairs and NUL among them
SCALARS = st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | ANY_TEXT
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(ANY_TEXT, inner, max_size=4), max_leaves=12
)


@pytest.fixture(scope="module")
def shared(kind: str, empty_url: Callable[[str], str]) -> Iterator[Store]:
    store = open_store(empty_url(kind))
    yield store
    store.close()


def save(store: Store, trace: dict[str, Any] = TRACE, *, caller: str = "anna", **over: Any) -> str:
    return store.save_trace(trace, **{"request_id": "req", "caller": caller, "index": 0, **over})


def changed(**over: Any) -> dict[str, Any]:
    """TRACE with other metadata."""
    trace = copy.deepcopy(TRACE)
    trace["metadata"].update(over)
    return trace


def as_json(value: Any) -> Any:
    """What JSON can say of it: no infinities, and two halves of a surrogate pair are one character."""
    if isinstance(value, dict):
        return {as_json(key): as_json(one) for key, one in value.items()}
    if isinstance(value, list):
        return [as_json(one) for one in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")
    return value


def test_a_run_of_an_engine_is_kept_whole_under_its_caller(shared: Store) -> None:
    with espalier.load("fake") as engine:
        result = engine.generate("hi", trace="steps", max_tokens=5, temperature=0)
    assert result.trace is not None
    kept = shared.save_trace(result.trace.to_json(), request_id="r", caller="local", index=2, route="cli")
    assert shared.trace(kept, caller="other") is None
    found = shared.trace(kept, caller="local")
    assert found is not None
    assert Trace.from_json(found).steps == result.trace.steps
    (row,) = shared.traces(TraceFilter(caller="local"), limit=1)
    assert (row["id"], row["request_id"], row["output_index"], row["route"]) == (kept, "r", 2, "cli")


@given(text=ANY_TEXT, prompt=ANY_TEXT, sampling=st.dictionaries(ANY_TEXT, VALUES, max_size=3), tax=st.floats())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_what_is_kept_is_what_is_read(
    shared: Store, text: str, prompt: str, sampling: dict[str, Any], tax: float
) -> None:
    trace = changed(prompt=prompt, model=text, sampling=sampling)
    trace["text"], trace["summary"]["total_tax_nats"] = text, tax
    trace_id = save(shared, trace, request_id=text, route=prompt)
    read = shared.trace(trace_id, caller="anna")
    assert repr(read) == repr(as_json(trace))  # repr: 1, 1.0 and True are different, -0.0 is not 0.0


def test_a_trace_that_is_read_is_a_trace(store: Store) -> None:
    trace = sample_trace(40)
    read = store.trace(save(store, trace.to_json()), caller="anna")
    assert read is not None
    assert Trace.from_json(read) == Trace.from_json(json.loads(json.dumps(trace.to_json())))


def test_a_list_shows_columns_without_what_was_written(store: Store, clock: Any) -> None:
    clock.now = 1_800_000_000.25
    trace_id = save(store, request_id="req-1", index=3, route="/v1/completions")
    (row,) = store.traces(TraceFilter(caller="anna"), limit=10)
    summary = TRACE["summary"]
    assert row == {
        "id": trace_id,
        "created": 1_800_000_000.25,
        "request_id": "req-1",
        "caller": "anna",
        "output_index": 3,
        "route": "/v1/completions",
        "model": "demo-24m",
        "strategy": "rejection",
        "constraint_kind": "json_schema",
        "finish_reason": TRACE["metadata"]["finish_reason"],
        "valid": None,
        "tokens": 8,
        "tax_nats": summary["total_tax_nats"],
        "removed_mass": summary["mean_removed_mass"],
        "rejected_steps": summary["rejected_steps"],
        "changed_steps": summary["changed_steps"],
        "unknown_steps": summary["unknown_steps"],
        "bounded_steps": 0,
        "prompt": TRACE["metadata"]["prompt"],
        "text": " ".join(TRACE["text"][:200].split()),
        "level": "steps",
        "prompt_tokens": None,
        "fingerprint": espalier.JsonSchema(SCHEMA).fingerprint,
        "title": "{name, age, email, active, bio}",
        "template": None,
        "worst_path": "/",
        "worst_tax_nats": summary["by_path"][""]["tax_nats"],
        "to_first_token": None,
        "total": None,
        "flagged": False,
    }


@pytest.mark.parametrize(("verdict", "valid"), [(None, None), ({"valid": True}, True), ({"valid": False}, False)])
def test_the_verdict_is_a_column_and_none_is_none(store: Store, verdict: Any, valid: bool | None) -> None:
    save(store, changed(verdict=verdict, constraint=None))
    (row,) = store.traces(TraceFilter(caller="anna"), limit=1)
    assert row["valid"] is valid
    assert row["constraint_kind"] is None


def test_an_id_is_unguessable_and_in_the_order_of_time(store: Store, clock: Any) -> None:
    ids = []
    for _ in range(5):
        ids += [save(store), save(store)]
        clock.now += 1
    assert ids == sorted(ids)
    assert all(is_id(one, "trc") for one in ids)


def test_each_caller_meets_their_own_traces_only(store: Store) -> None:
    annas, bens = save(store, caller="anna"), save(store, caller="ben")
    assert [row["id"] for row in store.traces(TraceFilter(caller="anna"), limit=9)] == [annas]
    assert [row["id"] for row in store.traces(TraceFilter(), limit=9)] == [bens, annas]
    assert store.trace(bens, caller="anna") is None
    assert not store.delete_trace(bens, caller="anna")
    assert store.trace(bens, caller="ben") == store.trace(bens, caller=None) == TRACE
    assert store.delete_trace(bens, caller="ben")
    assert not store.delete_trace(bens, caller="ben")
    assert store.trace(bens, caller="ben") is None


@pytest.mark.parametrize("trace_id", ["", "trc_", "' OR 1=1 --", "trc_" + "0" * 27, "trc_\0", "trc_\ud800", "é" * 31])
def test_an_id_that_was_never_made_finds_nothing(store: Store, trace_id: str) -> None:
    save(store)
    assert store.trace(trace_id, caller="anna") is None
    assert not store.delete_trace(trace_id, caller=None)


@pytest.mark.parametrize(
    ("limit", "after", "field"),
    [
        (0, None, "limit"),
        (-1, None, "limit"),
        (5, "x", "after"),
        (5, "gen_" + "0" * 27, "after"),
        (5, "trc_\0", "after"),
    ],
)
def test_a_page_that_cannot_be_is_refused(store: Store, limit: int, after: str | None, field: str) -> None:
    with pytest.raises(InputError) as caught:
        store.traces(TraceFilter(caller="anna", after=after), limit=limit)
    assert caught.value.field == field


@pytest.mark.parametrize("caller", ["a\0b", "\ud800", "x" * 1001])
def test_a_caller_whose_name_cannot_be_stored_as_it_is_is_refused(store: Store, caller: str) -> None:
    with pytest.raises(InputError, match="name of a caller"):
        save(store, caller=caller)
    with pytest.raises(InputError, match="name of a caller"):
        store.traces(TraceFilter(caller=caller), limit=1)


@pytest.mark.parametrize(
    "trace",
    [
        {},
        {"metadata": {}, "summary": {}, "steps": []},
        {**TRACE, "metadata": None},
        {**TRACE, "text": object()},
        {**TRACE, "steps": 5},
        {**TRACE, "text": 10**5000},
    ],
)
def test_what_is_no_trace_is_refused_and_nothing_kept(store: Store, trace: Any) -> None:
    with pytest.raises(InputError) as caught:
        save(store, trace)
    assert caught.value.field == "trace"
    assert store.traces(TraceFilter(), limit=9) == []


def test_a_trace_too_deep_for_json_is_refused(store: Store) -> None:
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(InputError):
        save(store, changed(sampling={"deep": deep}))
    while deep:  # a list this deep is not freed by recursion
        deep = deep.pop()


def test_a_long_trace_takes_a_small_part_of_its_text() -> None:
    trace = sample_trace(500).to_json()
    assert len(pack(trace, what="trace")) < len(json.dumps(trace)) / 6


STEPS = st.lists(st.sampled_from(["mine", "theirs", "delete", "page"]), min_size=4, max_size=30)


@pytest.mark.slow
@given(steps=STEPS, size=st.integers(1, 4), pick=st.randoms(use_true_random=False))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=examples(60))
def test_pages_show_each_trace_once_in_order_while_others_come_and_go(
    shared: Store, steps: list[str], size: int, pick: Any
) -> None:
    caller, other = uuid.uuid4().hex, uuid.uuid4().hex
    there = [save(shared, caller=caller) for _ in range(6)]
    at_start, gone, seen = set(there), set(), []

    def turn() -> bool:
        rows = shared.traces(TraceFilter(caller=caller, after=seen[-1] if seen else None), limit=size)
        seen.extend(row["id"] for row in rows)
        return bool(rows)

    turn()
    for step in steps:
        if step == "mine":
            there.append(save(shared, caller=caller))
        elif step == "theirs":
            save(shared, caller=other)
        elif step == "page":
            turn()
        elif there:
            victim = there.pop(pick.randrange(len(there)))
            assert shared.delete_trace(victim, caller=caller)
            gone.add(victim)
    while turn():
        pass
    assert seen == sorted(set(seen), reverse=True)
    assert at_start - gone <= set(seen) <= at_start


def test_pages_hold_while_threads_write_and_delete(store: Store) -> None:
    stays = [save(store) for _ in range(30)]
    comes_and_goes = [save(store) for _ in range(30)]
    done: list[str] = []

    def churn() -> None:
        for _ in range(15):
            store.delete_trace(comes_and_goes.pop(), caller="anna")
            done.append(save(store))

    threads = [threading.Thread(target=churn) for _ in range(2)]
    for thread in threads:
        thread.start()
    for _ in range(5):
        seen: list[str] = []
        while rows := store.traces(TraceFilter(caller="anna", after=seen[-1] if seen else None), limit=7):
            seen += [row["id"] for row in rows]
        assert seen == sorted(set(seen), reverse=True)
        assert set(stays) <= set(seen)
    for thread in threads:
        thread.join()
    assert len(done) == 30


def test_after_may_name_a_trace_that_is_gone(store: Store, clock: Any) -> None:
    old, middle, _new = save(store), save(store), save(store)
    store.delete_trace(middle, caller="anna")
    assert [row["id"] for row in store.traces(TraceFilter(caller="anna", after=middle), limit=5)] == [old]
    assert middle >= first_id("trc", clock.now)


def test_how_a_title_or_a_path_begins_counted_without_its_case_on_sqlite_alone(shared: Store) -> None:
    caller = uuid.uuid4().hex
    schema = json.loads(
        json.dumps(TRACE["metadata"]["constraint"]).replace(
            '"type": "object"', '"title": "Ärger_100%", "type": "object"', 1
        )
    )
    named = changed(constraint=schema)
    named["summary"]["by_path"] = {"/Name/first": {"tokens": 3, "tax_nats": 2.0, "removed_mass": 0.5}}
    trace_id = save(shared, named, caller=caller)
    (row,) = shared.traces(TraceFilter(caller=caller), limit=10)
    title, path = row["title"], row["worst_path"]
    assert (title[:5], path) == ("Ärger", "/Name/first")

    def finds(**wanted: str) -> bool:
        return [one["id"] for one in shared.traces(TraceFilter(caller=caller, **wanted), limit=10)] == [trace_id]

    assert all(finds(constraint=title[:length]) for length in (1, 5, 8, len(title)))
    assert not any(finds(constraint=text) for text in ("ärger", "ÄRGER", "ärGer_", "%", "Ärger%", "Ärger-", "_"))
    assert all(finds(path=text) for text in ("/Name/first", "/Name"))
    assert not any(finds(path=text) for text in ("/name", "/NAME/FIRST", "/Nam", "/Name/fir", "/Name/first/x", "/%"))
