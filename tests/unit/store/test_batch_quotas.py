"""How much one caller may upload and one batch may answer, to the byte, also where others write at the same time."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import Connection, insert

from espalier.jobs.states import BatchState
from espalier.store.batches.open import BatchStore
from espalier.store.batches.quota import LOOK_SHARE, ResultQuota, UploadQuota, UploadQuotaFull
from espalier.store.batches.tables import RESULTS
from tests.batch_jobs import Echo, found, line, submit, upload

MOST = 1_600
LOOK = int(MOST * LOOK_SHARE)
"""So much is added before a batch is looked at again."""


def begun(store: BatchStore) -> str:
    batch = submit(store, [line(1)])
    assert store.queue.validate("w", Echo())
    return batch.id


def add(store: BatchStore, quota: ResultQuota, batch_id: str, number: int, answer: int, figures: int = 0) -> BatchState:
    """Add a result of so many bytes. Returns the state of its batch."""
    row: dict[str, Any] = {
        "batch_id": batch_id,
        "line": number,
        "created": 0.0,
        "good": True,
        "answer": b"a" * answer,
        "figures": b"f" * figures or None,
        "prompt_tokens": 0,
        "completion_tokens": 0,
    }
    with store.database.writing() as connection:
        connection.execute(insert(RESULTS), [row])
        quota.count(connection, [row], 1.0)
    return found(store, batch_id).state


def test_results_of_exactly_the_quota_are_kept_and_one_byte_more_is_too_much(batches: BatchStore) -> None:
    quota, batch_id = ResultQuota(MOST), begun(batches)
    assert add(batches, quota, batch_id, 1, MOST - LOOK + 1) == BatchState.IN_PROGRESS
    assert add(batches, quota, batch_id, 2, LOOK - 1) == BatchState.IN_PROGRESS, "counted since the last look"
    assert add(batches, quota, batch_id, 3, 1) == BatchState.CANCELLING
    batch_id = begun(batches)
    assert add(batches, quota, batch_id, 1, MOST) == BatchState.IN_PROGRESS, "looked up"
    assert add(batches, quota, batch_id, 2, 1) == BatchState.CANCELLING


def test_figures_of_results_count_and_results_without_any_count_no_more_than_they_are(batches: BatchStore) -> None:
    quota, batch_id = ResultQuota(MOST), begun(batches)
    assert add(batches, quota, batch_id, 1, 700, figures=300) == BatchState.IN_PROGRESS
    assert add(batches, quota, batch_id, 2, 600) == BatchState.IN_PROGRESS
    assert add(batches, quota, batch_id, 3, 0, figures=1) == BatchState.CANCELLING


def test_what_another_worker_added_is_noticed_after_a_sixteenth_of_the_quota(batches: BatchStore) -> None:
    mine, others, batch_id = ResultQuota(MOST), ResultQuota(MOST), begun(batches)
    assert add(batches, mine, batch_id, 1, 1) == BatchState.IN_PROGRESS
    assert add(batches, others, batch_id, 2, MOST - 1) == BatchState.IN_PROGRESS
    assert add(batches, mine, batch_id, 3, LOOK - 1) == BatchState.IN_PROGRESS, "too little to look at"
    assert add(batches, mine, batch_id, 4, 1) == BatchState.CANCELLING


def test_the_sizes_of_those_batches_are_remembered_that_were_counted_last(
    batches: BatchStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[str] = []
    size = ResultQuota._size

    def noted(self: ResultQuota, connection: Connection, batch_id: str) -> int:
        looked.append(batch_id)
        return size(self, connection, batch_id)

    monkeypatch.setattr(ResultQuota, "_size", noted)
    monkeypatch.setattr("espalier.store.batches.quota.MOST_KNOWN", 2)
    quota, (first, second, third) = ResultQuota(MOST), (begun(batches) for _ in range(3))
    for number, batch_id in enumerate((first, second, first, third, first, second)):
        add(batches, quota, batch_id, number, 1)
    assert looked == [first, second, third, second]


def test_an_upload_of_exactly_the_quota_is_taken_and_one_byte_more_is_not(batches: BatchStore) -> None:
    quota = UploadQuota(batches.database, most_bytes=100)
    upload(batches, b"x" * 60)
    with quota.writing("me") as take:
        take(30)
        take(10)
        with pytest.raises(UploadQuotaFull, match="100 bytes"):
            take(1)
    with quota.writing("me") as take, pytest.raises(UploadQuotaFull):
        take(41)


def test_an_upload_does_not_begin_where_not_a_byte_more_is_allowed(batches: BatchStore) -> None:
    quota = UploadQuota(batches.database, most_bytes=100)
    upload(batches, b"x" * 99)
    with quota.writing("me") as take:
        take(1)
        with pytest.raises(UploadQuotaFull), quota.writing("me"):
            pass
    with quota.writing("me"):
        upload(batches, b"x")
    with pytest.raises(UploadQuotaFull), quota.writing("me"):
        pass


def test_an_upload_does_not_begin_where_no_further_file_is_allowed(batches: BatchStore) -> None:
    quota = UploadQuota(batches.database, most_files=2)
    upload(batches, b"x")
    with quota.writing("me") as take:
        take(1)
    upload(batches, b"x")
    with pytest.raises(UploadQuotaFull, match="2 uploads"), quota.writing("me"):
        pass


def test_the_end_of_one_upload_leaves_what_another_still_writes_counted(batches: BatchStore) -> None:
    quota = UploadQuota(batches.database, most_bytes=100)
    with quota.writing("me") as goes_on:
        goes_on(30)
        with quota.writing("me") as ends:
            ends(60)
        with quota.writing("me") as third, pytest.raises(UploadQuotaFull):
            third(71)
        goes_on(70)
    assert not quota._writing, "nothing is kept of callers that write no more"


@pytest.mark.parametrize(("limit", "size"), [({"most_bytes": 100}, 41), ({"most_files": 1}, 0)])
def test_one_limit_alone_holds_when_an_upload_is_kept(batches: BatchStore, limit: dict[str, int], size: int) -> None:
    batches.files.quota = UploadQuota(batches.database, **limit)
    upload(batches, b"x" * 60)
    with pytest.raises(UploadQuotaFull):
        upload(batches, b"x" * size)
    assert len(batches.files.page(caller="me", limit=9)) == 1
