"""Sums of what constraints cost: equal to those of the traces that they came from, and kept when these go."""

from __future__ import annotations

import copy
import math
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from espalier.store.costs import adding, kept
from espalier.store.costs.answer import OTHERS
from espalier.store.costs.bins import bin_of, middle_of
from espalier.store.costs.report import ConstraintCosts, difference, path_changes
from espalier.store.costs.window import CostWindow
from espalier.store.open import Store, open_store
from espalier.store.retention import Limits
from espalier.store.trace_filter import TraceFilter
from tests.batch_jobs import Clock
from tests.examples import examples
from tests.traces import sample_trace

TRACE = sample_trace(8).to_json()
HOUR = 3_600
START = 1_800_000_000 // HOUR * HOUR
SCHEMAS = [{"type": "object", "title": title} for title in ("Order", "Person")]
NUMBERS = count()


@pytest.fixture(scope="module")
def shared(kind: str, empty_url: Callable[[str], str]) -> Iterator[tuple[Store, Clock]]:
    clock = Clock()
    store = open_store(empty_url(kind), clock=clock)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(adding, "MOST_CONSTRAINTS", 10**6)  # each example has its own
        yield store, clock
    store.close()


def answer(*, schema: Any = SCHEMAS[0], tax: float = 2.0, paths: dict[str, float] | None = None, **more: Any) -> Any:
    """A trace with a tax, and what it cost at each path."""
    trace = copy.deepcopy(TRACE)
    constraint = None if schema is None else {"kind": "json_schema", "schema": schema}
    trace["metadata"] |= {"constraint": constraint, **more}
    costs = {path: {"tokens": 2, "tax_nats": cost, "removed_mass": 0.5} for path, cost in (paths or {}).items()}
    trace["summary"] |= {"total_tax_nats": tax, "by_path": costs or None, "total_steps": 8, "mean_removed_mass": 0.25}
    return trace


def save(store: Store, trace: Any, *, caller: str = "anna", **more: Any) -> str:
    return store.save_trace(trace, request_id=f"req-{next(NUMBERS)}", caller=caller, index=0, **more)


def window(hours: int = 24, **more: Any) -> CostWindow:
    return CostWindow(since=START, until=START + hours * HOUR, **more)


ANSWERS = st.lists(
    st.tuples(
        st.integers(0, 47),  # the hour
        st.sampled_from([*SCHEMAS, None]),
        st.sampled_from(["anna", "ben"]),
        st.floats(0, 50),
        st.dictionaries(
            st.sampled_from(["", "/items/0/unit", "/items/17/unit", "/name"]), st.floats(0, 20), max_size=3
        ),
        st.sampled_from(["stop", "length"]),
        st.sampled_from([True, False, None]),
    ),
    max_size=8,
)


@given(given_answers=ANSWERS)
@settings(max_examples=examples(12), suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_the_sums_of_a_window_are_those_of_its_traces(shared: tuple[Store, Clock], given_answers: list[Any]) -> None:
    store, clock = shared
    tag = f"m{next(NUMBERS)}"  # the models of this example
    start = max(START, int(clock.now) // HOUR * HOUR + HOUR)  # ids never go back
    wanted: dict[str | None, Counter[str]] = {}
    paths: dict[str, Counter[str]] = {}
    for hour, schema, caller, tax, costs, finish, valid in sorted(given_answers, key=lambda given: given[0]):
        clock.now = start + hour * HOUR + 7
        verdict = None if valid is None else {"valid": valid, "judge": "test", "errors": []}
        title = None if schema is None else schema["title"] + tag
        own = None if schema is None else schema | {"title": title}
        more = {"model": tag, "finish_reason": finish, "verdict": verdict}
        save(store, answer(schema=own, tax=tax, paths=costs, **more), caller=caller)
        if 10 <= hour < 34 and caller == "anna":
            sums = wanted.setdefault(title, Counter())
            sums.update(answers=1, tokens=8, invalid=valid is False, cut=finish == "length", tax=tax)
            for path, cost in costs.items():
                name = path.replace("17", "*").replace("/0/", "/*/") or "/"
                paths.setdefault(title or "", Counter()).update({name: cost})
    own_window = CostWindow(since=start + 10 * HOUR, until=start + 34 * HOUR, caller="anna", model=tag)
    found = {row.title or None: row for row in store.costs(own_window)}
    assert found.keys() == wanted.keys()
    for title, sums in wanted.items():
        now = found[title].now
        assert (now.answers, now.tokens, now.invalid, now.cut) == tuple(
            sums[name] for name in ("answers", "tokens", "invalid", "cut")
        )
        assert math.isclose(now.tax, sums["tax"], abs_tol=1e-9)
        assert math.isclose(now.removed, 2.0 * now.answers, abs_tol=1e-9)
        if title is not None:  # a title is of one schema here; free text is of all examples
            read = {path.path: path.tax for path in store.cost_paths(own_window, found[title].fingerprint)}
            assert read.keys() == paths.get(title, Counter()).keys()
            for path, cost in read.items():
                assert math.isclose(cost, paths[title][path], abs_tol=1e-9)


def test_a_caller_sees_its_own_sums_and_an_admin_all(store: Store, clock: Clock) -> None:
    clock.now = START + 5
    for caller in ("anna", "ben", "ben"):
        save(store, answer(tax=3.0), caller=caller)
    assert [row.now.answers for row in store.costs(window(caller="anna"))] == [1]
    assert [row.now.answers for row in store.costs(window())] == [3]
    fingerprint = store.costs(window())[0].fingerprint
    assert store.cost_constraint(fingerprint, caller="carl") is None
    assert store.cost_constraint(fingerprint, caller="ben") is not None


def test_sums_stay_when_traces_are_deleted(store: Store, clock: Clock) -> None:
    clock.now = START + 5
    ids = [save(store, answer(tax=1.0)) for _ in range(4)]
    assert store.delete_trace(ids[0], caller="anna")
    clock.now += 10
    store.retention(Limits(rows=1)).run()
    assert len(store.traces(TraceFilter(caller="anna"), limit=9)) == 1
    assert store.costs(window())[0].now.answers == 4


def test_a_trace_that_was_not_stored_is_in_no_sum(store: Store, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    clock.now = START + 5
    save(store, answer())
    wanted = adding.CostSums._wanted_rows
    with monkeypatch.context() as patched:
        patched.setattr(
            adding.CostSums, "_wanted_rows", lambda *_: (_ for _ in ()).throw(RuntimeError("the disk is full"))
        )
        with pytest.raises(RuntimeError):
            save(store, answer(schema=SCHEMAS[1], paths={"/name": 1.0}))
    assert adding.CostSums._wanted_rows is wanted
    assert [(row.title, row.now.answers) for row in store.costs(window())] == [("Order", 1)]
    save(store, answer(schema=SCHEMAS[1], paths={"/name": 1.0}))
    assert {row.title: row.now.answers for row in store.costs(window())} == {"Order": 1, "Person": 1}


@pytest.mark.parametrize("texts", ["no", "hash"])
def test_no_text_of_an_answer_is_in_the_sums_where_texts_are_not_kept(store: Store, clock: Clock, texts: Any) -> None:
    clock.now = START + 5
    save(store, TRACE, texts=texts)
    (row,) = store.costs(window())
    known = store.cost_constraint(row.fingerprint, caller=None)
    assert known is not None
    assert known["spec"] is None
    assert not any(path.wanted for path in store.cost_paths(window(), row.fingerprint))


def test_what_the_model_wanted_is_counted_by_path(store: Store, clock: Clock) -> None:
    clock.now = START + 5
    trace = answer(paths={"/unit": 4.0})
    step = next(step for step in trace["steps"] if step["pre_masking"])
    text = '{"unit": "kg"}'
    for number, piece in enumerate(('{"unit": ', '"kg"', "}")):
        own = copy.deepcopy(step)
        own["token"] |= {"text": piece, "bytes": list(piece.encode()), "is_special": False}
        own["pre_masking"][0] |= {"text": '"pcs"', "allowed": number != 1}
        own["tax_nats"] = 4.0
        trace["steps"] = [*trace["steps"][:number], own]
    trace["text"] = text
    for _ in range(3):
        save(store, trace)
    (unit,) = store.cost_paths(window(), store.costs(window())[0].fingerprint)
    assert [(row.wanted, row.taken, row.times, row.tax) for row in unit.wanted] == [('"pcs"', '"kg"', 3, 12.0)]


def test_a_client_that_sends_ever_new_schemas_and_names_fills_no_disk(
    store: Store, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(adding, "MOST_CONSTRAINTS", 3)
    monkeypatch.setattr(adding, "MOST_PATHS", 4)
    clock.now = START + 5
    for number in range(8):
        save(store, answer(schema={"title": f"S{number}", "type": "object"}, paths={f"/p{number}": 1.0, "/q": 1.0}))
    costs = store.costs(window())
    assert sum(row.now.answers for row in costs) == 8
    assert {row.fingerprint: row.now.answers for row in costs}[OTHERS] == 5
    assert len(costs) == 4
    paths = store.cost_paths(window(), OTHERS)
    assert {path.path for path in paths} >= {OTHERS, "/q"}
    assert len(paths) == 5
    assert math.isclose(sum(path.tax for path in paths), 10.0)


def test_a_new_version_a_model_and_a_template_are_marks_on_the_trend(store: Store, clock: Clock) -> None:
    clock.now = START + 5
    save(store, answer(), template="a")
    clock.now = START + 5 * HOUR
    save(store, answer(model="other"), template="b")
    clock.now = START + 7 * HOUR
    save(store, answer(schema=SCHEMAS[0] | {"minProperties": 1}))
    (row, _) = sorted(store.costs(window()), key=lambda row: -row.now.answers)
    assert [len(point.marks) for point in row.trend] == [0, 2]
    assert any(mark == "model other" for point in row.trend for mark in point.marks)
    new = next(row for row in store.costs(window()) if row.now.answers == 1)
    assert [mark.partition(" ")[0] for point in new.trend for mark in point.marks] == ["version"]


def test_the_window_before_says_whether_it_became_dearer(store: Store, clock: Clock) -> None:
    for day, tax in ((0, 1.0), (1, 3.0)):
        for number in range(20):
            clock.now = START + day * 24 * HOUR + number * 60
            save(store, answer(tax=tax + 0.1 * (number % 3)))
    later = CostWindow(since=START + 24 * HOUR, until=START + 48 * HOUR)
    (row,) = store.costs(later)
    assert row.change is not None
    assert row.change.low is not None
    assert row.change.low < 2.0 < (row.change.high or 0.0) + 1e-9
    assert row.change.low > 1.8


def test_an_answer_of_the_first_second_of_an_hour_is_shown_within_it(store: Store, clock: Clock) -> None:
    clock.now = START + HOUR + 0.25
    save(store, answer())
    now = CostWindow(since=START, until=clock.now + 0.5)
    assert [row.now.answers for row in store.costs(now)] == [1]
    assert store.costs(CostWindow(since=START, until=START + HOUR)) == [], "an end is the beginning of an hour"


@given(tax=st.floats(1e-3, 1e6))
def test_a_percentile_is_within_four_and_a_half_percent(tax: float) -> None:
    assert abs(middle_of(bin_of(tax)) / tax - 1) < 0.045


def test_no_interval_is_told_of_few_answers_and_never_below_one_variance() -> None:
    assert difference((9, 9.0, 9.0), (100, 200.0, 400.0)).low is None
    assert difference((10, 10.0, 10.0), (10, 30.0, 90.0)) == (2.0, 2.0, 2.0)
    assert path_changes([], [], (0, 5)) == []


def test_costs_that_are_kept_are_never_those_of_before_an_answer(
    store: Store, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of each window, caller and model, whichever process stored the answer."""
    clock.now = START + 2 * HOUR + 5
    other = Store(store.database, clock=clock)

    def fresh(each: CostWindow) -> list[ConstraintCosts]:
        return Store(store.database, clock=clock).costs(each)

    asked = [
        window(4),
        window(4, caller="anna"),
        window(4, caller="ben"),
        window(4, model="small"),
        CostWindow(since=START + 3 * HOUR, until=START + 4 * HOUR),  # the answers are in the window before
    ]
    saved: list[Callable[[], object]] = [
        lambda: save(other, answer()),
        lambda: save(other, answer(model="small"), caller="ben"),
        lambda: save(store, answer(schema=SCHEMAS[1], tax=0.0)),
        lambda: save(other, answer(schema=None)),
        lambda: save(other, answer(schema={"type": "array", "title": "Order"}), caller="ben"),
    ]
    for add in saved:
        for each in asked:
            store.costs(each)
        add()
        for each in asked:
            assert store.costs(each) == fresh(each)
    clock.now += 401 * 24 * HOUR
    with monkeypatch.context() as patched:
        patched.setattr(Store, "_read_costs", lambda *_: pytest.fail("nothing was added"))
        assert [len(store.costs(each)) for each in asked] == [4, 3, 2, 1, 0]
    save(other, answer())  # old hours are forgotten
    for each in asked:
        assert store.costs(each) == fresh(each) == []


def test_windows_that_are_kept_are_few(store: Store, clock: Clock) -> None:
    clock.now = START + 5
    save(store, answer())
    for hours in range(1, 80):
        store.costs(window(hours))
    assert len(store._kept_costs._windows) <= kept.MOST_WINDOWS
