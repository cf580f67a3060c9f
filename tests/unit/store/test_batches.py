"""Batches in the database and on the disk: from an upload to the lines of the results, on SQLite and on PostgreSQL."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import secrets
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from espalier.errors import InputError, OutputError
from espalier.jobs.states import BatchState, ItemState
from espalier.jobs.values import ItemEnd
from espalier.store.batches.batches import MOST_PRIORITY, TooManyOpen
from espalier.store.batches.open import BatchStore
from espalier.store.batches.queue import POISON
from espalier.store.batches.quota import ResultQuota, UploadQuota, UploadQuotaFull
from tests.batch_jobs import Clock, Echo, answer, found, jsonl, line, open_batches, results, submit, upload


@pytest.fixture
def batches(url: str, clock: Clock, tmp_path: Path) -> Iterator[BatchStore]:
    opened = open_batches(url, tmp_path / "files", clock=clock, lease=10.0)
    yield opened
    opened.database.close()


def begun(store: BatchStore, count: int = 3, **plan: Any) -> str:
    batch = submit(store, [line(one) for one in range(1, count + 1)], **plan)
    assert store.queue.validate("w", Echo())
    return batch.id


def finish(store: BatchStore, worker: str = "w") -> None:
    while items := store.queue.claim(worker, 10, alone=True):
        store.queue.record(worker, [ItemEnd(lease=one.lease, answer=answer(one.body["prompt"])) for one in items])
    store.queue.tend(worker)


def test_a_batch_runs_from_its_upload_to_its_results_in_the_order_of_the_input(batches: BatchStore) -> None:
    batch_id = begun(batches, 450)
    assert found(batches, batch_id).state == BatchState.IN_PROGRESS
    finish(batches)
    batch = found(batches, batch_id)
    assert batch.state == BatchState.COMPLETED
    assert batch.counts.completed == batch.counts.total == 450
    assert [one["custom_id"] for one in results(batches, batch_id)] == [f"c{one}" for one in range(1, 451)]
    assert batch.usage == {"input_tokens": 900, "output_tokens": 1350, "total_tokens": 2250}
    assert batch.error_file is None
    row = batches.files.get(batch.output_file or "", caller="me")
    assert row is not None
    assert row["bytes"] == len(b"".join(batches.results.lines(batch_id, "output")))


def test_a_body_that_is_wrong_by_itself_has_its_error_at_once_and_the_others_run(batches: BatchStore) -> None:
    batch = submit(batches, [line(1), line(2, wrong=1), line(3)])
    batches.queue.validate("w", Echo())
    assert found(batches, batch.id).counts.failed == 1
    finish(batches)
    done = found(batches, batch.id)
    assert (done.counts.completed, done.counts.failed) == (2, 1)
    assert [one["custom_id"] for one in results(batches, batch.id, "output")] == ["c1", "c3"]
    (wrong,) = results(batches, batch.id, "error")
    assert wrong["custom_id"] == "c2"
    assert wrong["response"]["status_code"] == 400


def test_a_worker_that_slept_past_its_lease_cannot_record_a_stale_result(batches: BatchStore, clock: Clock) -> None:
    batch_id = begun(batches, 1)
    (slow,) = batches.queue.claim("slow", 1, alone=True)
    clock.now += 11
    batches.queue.tend("w")
    (quick,) = batches.queue.claim("quick", 1, alone=True)
    assert quick.lease.fence > slow.lease.fence
    assert not batches.queue.record("slow", [ItemEnd(lease=slow.lease, answer=answer("stale"))])
    assert batches.queue.record("quick", [ItemEnd(lease=quick.lease, answer=answer("right"))])
    assert not batches.queue.record("slow", [ItemEnd(lease=slow.lease, answer=answer("stale"))])
    assert results(batches, batch_id)[0]["response"]["body"] == {"text": "right"}


def test_an_item_that_kills_its_workers_is_set_aside_and_the_others_run(batches: BatchStore, clock: Clock) -> None:
    batch_id = begun(batches, 3)
    for _ in range(POISON):
        items = batches.queue.claim("w", 10, alone=True)
        batches.queue.record("w", [ItemEnd(lease=i.lease, answer=answer()) for i in items if i.custom_id != "c2"])
        clock.now += 11  # the worker died with item 2
        batches.queue.tend("w")
    batches.queue.tend("w")
    done = found(batches, batch_id)
    assert done.state == BatchState.COMPLETED
    (error,) = results(batches, batch_id, "error")
    assert error["custom_id"] == "c2"
    assert error["error"]["code"] == "poison_item"


def test_an_item_with_which_workers_died_runs_alone_after_all_others(batches: BatchStore, clock: Clock) -> None:
    begun(batches, 3)
    for _ in range(2):
        batches.queue.claim("dies", 1, alone=True)
        clock.now += 11
        batches.queue.tend("w")
    items = batches.queue.claim("w", 10, alone=True)
    assert [one.custom_id for one in items] == ["c2", "c3"]
    assert not batches.queue.claim("w", 10, alone=False)
    assert [one.custom_id for one in batches.queue.claim("v", 10, alone=True)] == ["c1"]


def test_an_item_that_fails_for_now_waits_and_is_tried_again(batches: BatchStore, clock: Clock) -> None:
    batch_id = begun(batches, 1)
    (item,) = batches.queue.claim("w", 1, alone=True)
    batches.queue.record("w", [ItemEnd(lease=item.lease, answer=answer(status=503), again=5.0)])
    assert not batches.queue.claim("w", 1, alone=True)
    clock.now += 5
    (again,) = batches.queue.claim("w", 1, alone=True)
    assert again.attempts == 1
    batches.queue.record("w", [ItemEnd(lease=again.lease, answer=answer())])
    batches.queue.tend("w")
    assert found(batches, batch_id).counts.completed == 1


DAY = 86_400.0


def test_a_clock_that_was_set_back_keeps_no_batch_waiting(batches: BatchStore, clock: Clock) -> None:
    """The worker that ran an item, the reader of an input and a pause before another try waited for the old time."""
    clock.now += DAY
    batch_id = begun(batches, 2)
    _, failed = batches.queue.claim("killed", 2, alone=True)
    batches.queue.record("w", [ItemEnd(lease=failed.lease, answer=answer(status=503), again=5.0)])
    unread = submit(batches, [line(1)])
    with pytest.raises(KeyboardInterrupt):
        batches.queue.validate("killed", Interrupted())
    clock.now -= DAY
    batches.queue.tend("w")
    assert batches.queue.validate("w", Echo())
    finish(batches)
    for each in (batch_id, unread.id):
        assert found(batches, each).state == BatchState.COMPLETED
        assert found(batches, each).counts.failed == 0


def test_a_clock_that_jumps_ahead_leaves_one_result_for_each_item(batches: BatchStore, clock: Clock) -> None:
    """Every lease has ended then: the items begin again, and what the first workers answer is refused."""
    batch_id = begun(batches, 3)
    items = batches.queue.claim("slow", 3, alone=True)
    clock.now += DAY
    batches.queue.tend("quick")
    finish(batches, "quick")
    assert not batches.queue.record("slow", [ItemEnd(lease=i.lease, answer=answer("late")) for i in items])
    assert found(batches, batch_id).state == BatchState.COMPLETED
    assert [one["response"]["body"]["text"] for one in results(batches, batch_id)] == ["p1", "p2", "p3"]


class Interrupted(Echo):
    """A reader that is killed at the first line."""

    def check(self, *given: Any) -> None:
        raise KeyboardInterrupt


def test_cancelling_stops_what_waits_at_once_and_what_runs_at_the_next_heartbeat(batches: BatchStore) -> None:
    batch_id = begun(batches, 3)
    (item,) = batches.queue.claim("w", 1, alone=True)
    batches.batches.cancel(batch_id, caller="me")
    assert found(batches, batch_id).state == BatchState.CANCELLING
    assert list(batches.queue.renew("w", [item.lease])) == [item.lease]
    batches.queue.release("w", [item.lease])
    batches.queue.tend("w")
    done = found(batches, batch_id)
    assert done.state == BatchState.CANCELLED
    assert done.counts.stopped == 3
    assert {one["error"]["code"] for one in results(batches, batch_id, "error")} == {"batch_cancelled"}


def test_a_batch_expires_with_what_it_has_finished(batches: BatchStore, clock: Clock) -> None:
    batch_id = begun(batches, 3, window=100.0)
    first, second = batches.queue.claim("w", 2, alone=True)
    batches.queue.record("w", [ItemEnd(lease=first.lease, answer=answer("in time"))])
    clock.now = found(batches, batch_id).expires or 0.0
    assert list(batches.queue.renew("w", [second.lease])) == [second.lease]
    batches.queue.release("w", [second.lease])
    batches.queue.tend("w")
    done = found(batches, batch_id)
    assert done.state == BatchState.EXPIRED
    assert "expired" in done.at
    assert len(results(batches, batch_id, "output")) == 1
    assert [one["error"]["code"] for one in results(batches, batch_id, "error")] == ["batch_expired"] * 2


def test_a_paused_batch_gives_its_items_back_and_goes_on_when_resumed(batches: BatchStore) -> None:
    batch_id = begun(batches, 2)
    items = batches.queue.claim("w", 2, alone=True)
    batches.batches.pause(batch_id, caller="me", paused=True)
    assert len(batches.queue.renew("w", [one.lease for one in items])) == 2
    batches.queue.release("w", [one.lease for one in items])
    assert not batches.queue.claim("w", 2, alone=True)
    batches.batches.pause(batch_id, caller="me", paused=False)
    assert len(batches.queue.claim("w", 2, alone=True)) == 2


def test_the_highest_priority_goes_first_and_then_the_oldest(batches: BatchStore) -> None:
    low, first, second = begun(batches, 1, priority=-1), begun(batches, 1), begun(batches, 1)
    high = begun(batches, 1, priority=5)
    items = batches.queue.claim("w", 10, alone=True)
    assert [one.lease.batch for one in items] == [high, first, second, low]


def test_a_worker_gets_no_more_items_of_several_batches_than_it_asks_for(batches: BatchStore) -> None:
    first, second = begun(batches, 2), begun(batches, 3)
    claimed = batches.queue.claim("w", 3, alone=True)
    assert [(one.lease.batch, one.lease.line) for one in claimed] == [(first, 1), (first, 2), (second, 1)]


def test_a_page_of_batches_of_one_kind_has_no_others(batches: BatchStore) -> None:
    jobs = {kind: submit(batches, [line(1)], kind=kind).id for kind in ("openai", "anthropic")}
    for kind, batch_id in jobs.items():
        assert [one.id for one in batches.batches.page(caller="me", limit=9, kind=kind)] == [batch_id]


def test_a_batch_bears_the_model_of_its_first_result_that_names_one(batches: BatchStore) -> None:
    batch_id = begun(batches, 5)

    def record(*models: str | None) -> str | None:
        items = batches.queue.claim("w", len(models), alone=True)
        answers = [replace(answer(), model=model) for model in models]
        batches.queue.record(
            "w", [ItemEnd(lease=i.lease, answer=given) for i, given in zip(items, answers, strict=True)]
        )
        return found(batches, batch_id).model

    assert record(None) is None
    assert record(None, "first", "second") == "first"
    assert record("third") == "first"


def test_no_caller_opens_more_batches_than_the_limit(batches: BatchStore) -> None:
    file = upload(batches, jsonl([line(1)]))
    plan = found(batches, begun(batches)).plan
    with pytest.raises(TooManyOpen):
        batches.batches.create(plan, most_open=1)
    assert file


def test_another_caller_sees_no_batch_and_no_file(batches: BatchStore) -> None:
    batch_id = begun(batches)
    file = batches.files.page(caller="me", limit=1)[0]["id"]
    assert batches.batches.get(batch_id, caller="you") is None
    assert batches.batches.cancel(batch_id, caller="you") is None
    assert batches.files.get(file, caller="you") is None
    assert not batches.files.remove(file, caller="you")
    assert batches.batches.page(caller="you", limit=9) == []


def test_pages_of_batches_go_on_after_the_last_id(batches: BatchStore) -> None:
    made = [begun(batches, 1) for _ in range(5)][::-1]
    first = batches.batches.page(caller="me", limit=2)
    rest = batches.batches.page(caller="me", limit=9, after=first[-1].id)
    assert [one.id for one in (*first, *rest)] == made
    with pytest.raises(InputError, match="after"):
        batches.batches.page(caller="me", limit=2, after="nonsense")
    with pytest.raises(InputError, match="at least 1"):
        batches.batches.page(caller="me", limit=0)


def test_old_batches_and_uploads_are_deleted_and_open_ones_stay(batches: BatchStore, clock: Clock) -> None:
    old = begun(batches)
    finish(batches)
    assert list(batches.batches.sweep(clock.now)) == [], "it is not older than that"
    clock.now += 1000
    new = begun(batches)
    assert batches.sweep(500.0) > 0
    assert batches.batches.get(old, caller=None) is None
    assert batches.batches.get(new, caller=None) is not None
    assert len(batches.files.page(caller="me", limit=9)) == 1


def test_a_file_that_has_expired_is_gone(batches: BatchStore, clock: Clock) -> None:
    with batches.files.writing() as file:
        file.write(b"x")
        row = batches.files.add(file, caller="me", filename="x", seconds=5.0)
    clock.now += 5
    assert batches.files.get(row["id"], caller="me") is None
    batches.sweep(None)
    assert not list(batches.files.folder.iterdir())


def test_an_upload_that_breaks_off_leaves_nothing(batches: BatchStore) -> None:
    with contextlib.suppress(KeyboardInterrupt), batches.files.writing() as file:
        file.write(b"half")
        raise KeyboardInterrupt
    assert not list(batches.files.folder.iterdir())


def test_a_full_disk_is_said_and_nothing_is_left(batches: BatchStore, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OutputError, match="No space left"):
        upload(batches, b"x")
    assert not list(batches.files.folder.iterdir())
    assert not batches.files.page(caller="me", limit=9)


def test_an_open_batch_is_not_deleted(batches: BatchStore) -> None:
    batch_id = begun(batches)
    with pytest.raises(InputError, match="has not ended"):
        batches.batches.remove(batch_id, caller="me")
    batches.batches.cancel(batch_id, caller="me")
    batches.queue.tend("w")
    assert batches.batches.remove(batch_id, caller="me")
    assert batches.batches.get(batch_id, caller="me") is None


def seed(store: BatchStore, value: Any) -> str:
    content = value if isinstance(value, bytes) else json.dumps(value).encode()
    batch = submit(store, content, kind="seed", window=None)
    store.queue.validate("w", Echo())
    return batch.id


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"{", "not JSON"),
        (b'{"a": 1}', "Input file must contain a JSON list."),
        (b"[1, 2", "ends|neither|JSON"),
        (b"[1] x", "follows"),
        (b"\xff[]", "UTF-8"),
    ],
)
def test_a_file_that_is_no_list_fails_the_job(content: bytes, said: str, batches: BatchStore) -> None:
    batch = found(batches, seed(batches, content))
    assert batch.state == BatchState.FAILED
    assert re.search(said, batch.errors[0].message)


def test_items_of_a_list_of_any_spacing_are_found(batches: BatchStore, make_list: Callable[[list[Any]], bytes]) -> None:
    values = [{"a": [1, {"b": "]}"}]}, "x", 12, {"custom_id": "mine"}, {"custom_id": "mine"}, [], {"t": 'é\\"'}]
    batch = found(batches, seed(batches, make_list(values)))
    assert batch.counts.total == len(values)
    items = batches.queue.claim("w", 10, alone=True)
    assert [one.body["item"] for one in items] == values


@pytest.fixture(params=["plain", "wide", "bom"])
def make_list(request: pytest.FixtureRequest) -> Callable[[list[Any]], bytes]:
    def made(values: list[Any]) -> bytes:
        if request.param == "wide":
            return b"\n [ " + b" ,\t".join(json.dumps(one, indent=3).encode() for one in values) + b" ] \n"
        return (b"\xef\xbb\xbf" if request.param == "bom" else b"") + json.dumps(values, ensure_ascii=False).encode()

    return made


def test_a_batch_whose_results_fill_the_disk_is_cancelled_and_keeps_what_it_has(tmp_path: Path) -> None:
    store = open_batches(f"sqlite:///{tmp_path}/e.db", tmp_path / "files", results=ResultQuota(2_000))
    batch = submit(store, [line(number) for number in range(100)])
    other = submit(store, [line(number) for number in range(3)])
    while store.queue.validate("w", Echo()):
        pass
    while items := store.queue.claim("w", 5, alone=False):
        text = secrets.token_hex(200)
        store.queue.record("w", [ItemEnd(lease=item.lease, answer=answer(text)) for item in items])
    store.queue.tend("w")
    full = found(store, batch.id)
    assert full.state == BatchState.CANCELLED
    assert [fault.code for fault in full.errors] == ["batch_output_too_large"]
    assert 5 <= full.counts.completed < 20
    assert full.counts.stopped == 100 - full.counts.completed
    assert len(list(store.results.lines(batch.id, "all"))) == 100
    assert found(store, other.id).counts.completed == 3
    store.database.close()


@pytest.mark.parametrize("priority", [MOST_PRIORITY + 1, -MOST_PRIORITY - 1])
def test_a_priority_out_of_range_is_refused(priority: int, batches: BatchStore) -> None:
    with pytest.raises(InputError, match="a priority is from") as told:
        submit(batches, [line(1)], priority=priority)
    assert told.value.field == "priority"
    batch = submit(batches, [line(1)], priority=MOST_PRIORITY)
    with pytest.raises(InputError, match="a priority is from"):
        batches.batches.prioritise(batch.id, caller="me", priority=priority)
    assert found(batches, batch.id).plan.priority == MOST_PRIORITY
    assert batches.batches.prioritise(batch.id, caller="me", priority=-MOST_PRIORITY) is not None


def test_items_of_open_batches_are_counted_by_state_and_those_of_ended_ones_not(batches: BatchStore) -> None:
    assert batches.batches.open_items() == dict.fromkeys(ItemState, 0)
    begun(batches, 3)
    assert batches.batches.open_items() == dict.fromkeys(ItemState, 0) | {ItemState.PENDING: 3}
    begun(batches, 2)
    begun(batches, 1)
    assert batches.batches.open_items() == dict.fromkeys(ItemState, 0) | {ItemState.PENDING: 6}
    (item,) = batches.queue.claim("w", 1, alone=True)
    batches.queue.record("w", [ItemEnd(lease=item.lease, answer=answer())])
    assert batches.batches.open_items() == dict.fromkeys(ItemState, 0) | {ItemState.PENDING: 5, ItemState.DONE: 1}
    finish(batches)
    assert batches.batches.open_items() == dict.fromkeys(ItemState, 0)


def test_results_that_break_their_constraint_are_counted_and_unjudged_ones_not(batches: BatchStore) -> None:
    batch_id = begun(batches, 6)
    valid = dict(zip(range(1, 6), (True, False, None, False, None), strict=True))
    items = batches.queue.claim("w", 5, alone=True)
    batches.queue.record(
        "w", [ItemEnd(lease=one.lease, answer=replace(answer(), valid=valid[int(one.custom_id[1:])])) for one in items]
    )
    counted = found(batches, batch_id).counts
    assert (counted.total, counted.completed, counted.invalid, counted.pending) == (6, 5, 2, 1)


def test_the_input_of_a_job_of_a_word_list_server_goes_with_its_end_and_an_openai_upload_stays(
    batches: BatchStore,
) -> None:
    for kind, content in (("seed", b'[{"prompt": "p1"}]'), ("openai", jsonl([line(1)]))):
        batch = submit(batches, content, kind=kind)
        assert batches.queue.validate("w", Echo())
        items = batches.queue.claim("w", 10, alone=True)
        batches.queue.record("w", [ItemEnd(lease=one.lease, answer=answer()) for one in items])
        batches.queue.tend("w")
        assert found(batches, batch.id).state == BatchState.COMPLETED
        is_there = batches.files.get(batch.plan.input_file, caller=None) is not None
        assert is_there == (kind == "openai")


def test_an_upload_that_ends_after_another_took_the_last_room_is_refused(batches: BatchStore) -> None:
    batches.files.quota = UploadQuota(batches.database, most_bytes=100, most_files=2)
    for size in (60, 40):
        upload(batches, b"x" * size)
    with pytest.raises(UploadQuotaFull, match="2 uploads"):
        upload(batches, b"")
    with pytest.raises(UploadQuotaFull, match="100 bytes"):
        upload(batches, b"x" * 101, caller="you")
    upload(batches, b"x" * 100, caller="you")
    assert len(batches.files.page(caller="me", limit=9)) == 2
    assert len(list(batches.files.folder.iterdir())) == 3, "nothing is left of what was refused"
