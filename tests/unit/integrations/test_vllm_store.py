"""Reports of requests in vLLM that go to our store: one row for each request, whatever became of it."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("sqlalchemy", reason="the extra [server] is not installed")

from hypothesis import given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402
from vllm.v1.sample.logits_processor import BatchUpdate  # noqa: E402

from espalier.errors import InputError  # noqa: E402
from espalier.integrations.vllm import ConstraintProcessor  # noqa: E402
from espalier.integrations.vllm.keeping import WAITING_SECONDS, TraceReporter, store_reporter  # noqa: E402
from espalier.integrations.vllm.report import StepReport  # noqa: E402
from espalier.integrations.vllm.reporter import reporter_of  # noqa: E402
from espalier.store.costs.window import CostWindow  # noqa: E402
from espalier.store.generations import GenerationFilter  # noqa: E402
from espalier.store.open import open_store  # noqa: E402
from espalier.tokens.vocab import Vocab  # noqa: E402
from tests.batch_jobs import Clock  # noqa: E402
from tests.examples import examples  # noqa: E402
from tests.toy_engines import config_of  # noqa: E402


class Bytes(ConstraintProcessor):
    @classmethod
    def vocab_of(cls, vllm_config: Any) -> Vocab:
        return Vocab.bytes()


def keeper() -> tuple[TraceReporter, list[Mapping[str, Any]], Clock]:
    found: list[Mapping[str, Any]] = []
    clock = Clock()

    def put(make: Callable[[], Mapping[str, Any]]) -> None:
        found.append(make())

    return TraceReporter(put, model="m", clock=clock), found, clock


def test_a_request_that_was_preempted_has_one_row_with_all_its_steps() -> None:
    made, rows, _ = keeper()
    for place in range(3):
        made(StepReport(id="a", step=place, tax_nats=1.0, removed_mass=0.5))
    made(StepReport(id="a", step=3, left="unfinished"))
    made(StepReport(id="a", step=3, tax_nats=2.0, removed_mass=0.1))
    made(StepReport(id="a", step=4, left="finished"))
    (row,) = rows
    assert (row["tax_nats"], row["completion_tokens"], row["finish_reason"]) == (5.0, 4, "stop")
    assert math.isclose(row["removed_mass"], 0.4)


def test_a_request_that_does_not_come_back_has_its_row_after_a_while() -> None:
    made, rows, clock = keeper()
    made(StepReport(id="a", step=0, tax_nats=1.0))
    made(StepReport(id="a", step=1, left="unfinished"))
    assert not rows
    clock.now += WAITING_SECONDS + 1
    made(StepReport(id="b", step=0))
    assert [(one["request_id"], one["finish_reason"]) for one in rows] == [("a", None)]
    made.close()
    assert [one["request_id"] for one in rows] == ["a", "b"]


def test_a_failure_has_a_row_that_says_why_and_no_second_one() -> None:
    made, rows, _ = keeper()
    made(StepReport(id="a", step=2, failure="no token is allowed"))
    made(StepReport(id="a", step=2, left="unfinished"))
    made.close()
    assert [(one["error"], one["completion_tokens"]) for one in rows] == [("no token is allowed", 2)]


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(["step", "step", "fail", "left", "end"])), max_size=60)
)
@settings(max_examples=examples(200), deadline=None)
def test_every_step_is_in_exactly_one_row(events: list[tuple[str, str]]) -> None:
    """Oracle: the sum over rows is the sum over steps."""
    made, rows, clock = keeper()
    total = 0
    for name, what in events:
        clock.now += 7
        if what == "step":
            total += 1
            made(StepReport(id=name, step=0, tax_nats=1.0))
        elif what == "fail":
            made(StepReport(id=name, step=0, failure="x"))
        else:
            made(StepReport(id=name, step=0, left="finished" if what == "end" else "unfinished"))
    made.close()
    assert sum(one["tax_nats"] for one in rows) == total


def test_the_processor_keeps_what_a_request_asks_for_and_nothing_of_others(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'e.db'}"
    reports: list[StepReport] = []
    kept = store_reporter(url, model="m")

    def both(step: StepReport) -> None:
        reports.append(step)
        kept(step)

    made = type("Kept", (Bytes,), {"reporter": staticmethod(both)})(config_of(), torch.device("cpu"), False)

    def params(**more: Any) -> Any:
        return SimpleNamespace(extra_args={"espalier": {"constraint": {"kind": "choice", "options": ["ab"]}, **more}})

    outputs: list[list[int]] = [[], []]
    added = [(0, params(report=True, id="a"), [1], outputs[0]), (1, params(), [1], outputs[1])]
    made.update_state(BatchUpdate(batch_size=2, removed=[], added=added, moved=[]))
    for token in (*b"ab", Vocab.bytes().eos_ids[0]):
        made.apply(torch.zeros((2, Vocab.bytes().width)))
        made.update_state(None)
        for one in outputs:
            one.append(token)
    made.update_state(BatchUpdate(batch_size=0, removed=[0, 1], added=[], moved=[]))
    assert reports[-1].left == "finished"
    kept.close()
    store = open_store(url)
    (row,) = store.generations(GenerationFilter(), limit=10)
    assert (row["request_id"], row["completion_tokens"], row["finish_reason"]) == ("a", 3, "stop")
    assert row["tax_nats"] == pytest.approx(sum(one.tax_nats for one in reports))
    trace = store.trace(row["trace_id"], caller=None)
    assert trace is not None
    assert trace["metadata"]["constraint"] == {"kind": "choice", "options": ["ab"]}
    store.close()


def test_costs_show_what_constraints_cost_inside_vllm(tmp_path: Path) -> None:
    """The same constraint, asked for by three requests, has one row of sums."""
    url = f"sqlite:///{tmp_path / 'e.db'}"
    kept = store_reporter(url, model="m")
    spec = {"kind": "choice", "options": ["ab", "cd"]}
    for name in "abc":
        for step, tax in enumerate((1.5, 0.0)):
            removed = 1 - math.exp(-tax)
            kept(
                StepReport(id=name, step=step, tax_nats=tax, removed_mass=removed, was_changed=tax > 0, constraint=spec)
            )
        kept(StepReport(id=name, step=2, left="finished", constraint=spec))
    kept(StepReport(id="d", step=0, tax_nats=math.inf, constraint=spec))
    kept(StepReport(id="d", step=0, failure="no token is allowed", constraint=spec))
    kept.close()
    store = open_store(url)
    now = time.time()
    (costs,) = store.costs(CostWindow(since=now - 3600, until=now + 3600))
    assert (costs.kind, costs.title) == ("choice", "ab | cd")
    assert (costs.now.answers, costs.now.tokens, costs.now.changed) == (3, 6, 3)
    assert costs.now.tax == pytest.approx(4.5)
    assert {row["error"] for row in store.generations(GenerationFilter(), limit=9)} == {None, "no token is allowed"}
    store.close()


def test_a_store_that_cannot_be_opened_is_told_when_the_engine_starts(tmp_path: Path) -> None:
    config = config_of(additional_config={"espalier": {"store": f"sqlite:///{tmp_path}/none/e.db"}})
    with pytest.raises(InputError, match="cannot open the database"):
        reporter_of(config, None)
