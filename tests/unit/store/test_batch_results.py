"""Results of a batch as their readers get them: a word-list server's list, and what the report sums."""

from __future__ import annotations

import json
from dataclasses import replace

from espalier.jobs.values import ItemEnd
from espalier.store.batches.open import BatchStore
from tests.batch_jobs import Echo, answer, jsonl, line, submit


def test_the_results_of_a_word_list_servers_job_are_one_list_that_numbers_its_items_from_0(batches: BatchStore) -> None:
    batch_id = submit(batches, [line(1), line(2)]).id
    assert batches.queue.validate("w", Echo())
    items = batches.queue.claim("w", 10, alone=True)
    batches.queue.record("w", [ItemEnd(lease=item.lease, answer=answer()) for item in items])
    entries = json.loads(b"".join(batches.results.wordlist_list(batch_id, given_ids=False)))
    assert [one["id"] for one in entries] == [f"chatcmpl-batch-{batch_id}-{index}" for index in (0, 1)]
    assert not any("custom_id" in one for one in entries)
    refused = submit(batches, b"\n\n").id
    assert batches.queue.validate("w", Echo())
    assert b"".join(batches.results.wordlist_list(refused, given_ids=False)) == b"[]"


def test_the_list_of_a_word_list_servers_job_is_written_as_that_server_writes_it(batches: BatchStore) -> None:
    batch = submit(
        batches, json.dumps([{"prompt": f"p{one}", "custom_id": f"c{one}"} for one in range(3)]).encode(), kind="seed"
    )
    assert batches.queue.validate("w", Echo())
    items = batches.queue.claim("w", 10, alone=True)
    batches.queue.record("w", [ItemEnd(lease=item.lease, answer=answer("é")) for item in items])
    batches.queue.tend("w")
    for given_ids in (False, True):
        written = b"".join(batches.results.wordlist_list(batch.id, given_ids=given_ids))
        entries = json.loads(written)
        assert written == json.dumps(entries, indent=2).encode()
        assert [entry.get("custom_id") for entry in entries] == (["c0", "c1", "c2"] if given_ids else [None] * 3)
        assert [entry["id"] for entry in entries] == [f"chatcmpl-batch-{batch.id}-{index}" for index in range(3)]
    refused = submit(batches, b'[{"prompt": "p"}, {"prompt": "p", "prompt": "q"}]', kind="seed")
    assert batches.queue.validate("w", Echo())
    after = batches.batches.get(refused.id, caller=None)
    assert after is not None
    assert [fault.line for fault in after.errors] == [2]


def test_the_report_gets_the_figures_of_what_ran_and_the_states_of_what_never_did(batches: BatchStore) -> None:
    batch = submit(batches, jsonl([line(one) for one in range(1, 6)]))
    assert batches.queue.validate("w", Echo())
    answers = [replace(answer(), figures={"tax": 0.5}, trace_id="trc"), answer(), answer("no", status=400)]
    items = batches.queue.claim("w", 3, alone=True)
    ends = [ItemEnd(lease=item.lease, answer=one) for item, one in zip(items, answers, strict=True)]
    batches.queue.record("w", ends)
    batches.batches.cancel(batch.id, caller=None)
    rows = list(batches.results.figures(batch.id))
    assert [(row["custom_id"], row["good"]) for row in rows] == [
        ("c1", True),
        ("c2", True),
        ("c3", False),
        ("c4", None),
        ("c5", None),
    ]
    assert [row["state"] for row in rows] == ["done", "done", "failed", "cancelled", "cancelled"]
    assert [row["figures"] for row in rows[:3]] == [{"tax": 0.5}, {}, {}]
    assert [row["error"] for row in rows[:3]] == [None, None, {"code": "failed", "message": "no", "param": None}]
    assert (rows[0]["trace_id"], rows[0]["prompt_tokens"], rows[0]["completion_tokens"]) == ("trc", 2, 3)


def test_a_batch_without_results_has_used_no_tokens(batches: BatchStore) -> None:
    batch = submit(batches, jsonl([line(1)]))
    assert batches.results.usage(batch.id) == {"input_tokens": 0, "output_tokens": 0, "total_tokens": 0}
