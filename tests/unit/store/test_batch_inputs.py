"""Inputs of batches as a worker reads them: what is refused and where, and whose verdict counts."""

from __future__ import annotations

from typing import Any

import pytest

from espalier.jobs.states import BatchState
from espalier.jobs.values import InputFault
from espalier.store.batches.open import BatchStore
from tests.batch_jobs import Clock, Echo, found, jsonl, line, submit

FAULTS: dict[str, tuple[bytes, str, int | None]] = {
    "no JSON": (jsonl([line(1)]) + b"{\n", "invalid_json_line", 2),
    "NaN": (jsonl([line(1)]).replace(b'"p1"', b"NaN"), "invalid_json_line", 1),
    "a key twice": (jsonl([line(1)]).replace(b'"custom_id"', b'"url": "x", "custom_id"'), "invalid_json_line", 1),
    "no object": (b"[]\n", "invalid_json_line", 1),
    "no id": (jsonl([{**line(1), "custom_id": ""}]), "missing_custom_id", 1),
    "an id twice": (jsonl([line(1), line(2), line(1)]), "duplicate_custom_id", 3),
    "another method": (jsonl([{**line(1), "method": "GET"}]), "invalid_method", 1),
    "another route": (jsonl([line(1), {**line(2), "url": "/v1/chat/completions"}]), "mismatched_endpoint", 2),
    "no body": (jsonl([{**line(1), "body": "x"}]), "missing_body", 1),
    "a stream": (jsonl([line(1, stream=True)]), "stream_not_supported", 1),
    "a field too many": (jsonl([{**line(1), "prompt": "x"}]), "unknown_field", 1),
    "nothing": (b"\n\n", "empty_file", None),
    "too deep": (jsonl([line(1)]).replace(b'"p1"', b"[" * 500 + b"]" * 500), "invalid_json_line", 1),
}


@pytest.mark.parametrize("name", FAULTS)
def test_an_input_with_a_fault_is_refused_with_its_line(name: str, batches: BatchStore) -> None:
    content, code, number = FAULTS[name]
    batch = submit(batches, content)
    batches.queue.validate("w", Echo())
    refused = found(batches, batch.id)
    assert refused.state == BatchState.FAILED
    assert refused.counts.total == 0
    assert [(one.code, one.line) for one in refused.errors] == [(code, number)]


def test_a_reader_that_dies_is_followed_by_another_that_begins_anew(batches: BatchStore, clock: Clock) -> None:
    batch = submit(batches, [line(one) for one in range(1, 600)])

    class Dies(Echo):
        def check(self, *given: Any) -> None:
            if given[1]["prompt"] == "p300":
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        batches.queue.validate("w", Dies())
    assert not batches.queue.validate("v", Echo()), "it is still the first one's"
    clock.now += 61
    assert batches.queue.validate("v", Echo())
    assert found(batches, batch.id).counts.total == 599


def test_a_reader_that_sleeps_past_its_lease_writes_nothing_more(batches: BatchStore, clock: Clock) -> None:
    batch = submit(batches, [line(one) for one in range(1, 600)])

    class Sleeps(Echo):
        def check(self, *given: Any) -> None:
            if given[1]["prompt"] == "p300":
                clock.now += 61
                assert batches.queue.validate("v", Echo())

    batches.queue.validate("w", Sleeps())
    done = found(batches, batch.id)
    assert done.state == BatchState.IN_PROGRESS
    assert done.counts.total == 599


@pytest.mark.parametrize("how", ["was cancelled", "has another reader"])
def test_a_batch_that_is_not_the_readers_any_more_kept_its_verdict_on_the_input(
    how: str, batches: BatchStore, clock: Clock
) -> None:
    batch = submit(batches, [line(1)])

    class Refuses(Echo):
        def check_job(self, *given: Any) -> InputFault:
            if how == "was cancelled":
                batches.batches.cancel(batch.id, caller="me")
            else:
                clock.now += 61
                assert batches.queue.validate("v", Echo())
            return InputFault(code="wrong", message="wrong")

    batches.queue.validate("w", Refuses())
    after = found(batches, batch.id)
    assert after.state == (BatchState.CANCELLED if how == "was cancelled" else BatchState.IN_PROGRESS)
    assert not after.errors
    assert after.counts.total == (0 if how == "was cancelled" else 1)


def test_of_an_input_with_many_faults_the_first_are_told(batches: BatchStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("espalier.store.batches.stages.MOST_FAULTS", 3)
    for count, told in ((2, 2), (3, 3), (5, 3)):
        batch = submit(batches, jsonl([line(1)]) + b"{\n" * count)
        assert batches.queue.validate("w", Echo())
        failed = found(batches, batch.id)
        assert (failed.state, [one.line for one in failed.errors]) == (BatchState.FAILED, [*range(2, 2 + told)])


def test_a_batch_whose_input_was_deleted_before_it_was_read_fails_and_says_so(batches: BatchStore) -> None:
    batch = submit(batches, [line(1)])
    assert batches.files.remove(found(batches, batch.id).plan.input_file, caller="me")
    assert batches.queue.validate("w", Echo())
    failed = found(batches, batch.id)
    assert failed.state == BatchState.FAILED
    assert len(failed.errors) == 1
