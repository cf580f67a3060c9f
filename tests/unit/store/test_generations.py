"""Generation logs: one row each, with texts only if they are given."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import text

from espalier.errors import InputError
from espalier.store.generations import GenerationFilter, remove
from espalier.store.open import Store
from espalier.store.tables import GENERATION_LOGS
from tests.traces import sample_trace

ROW: dict[str, Any] = {
    "request_id": "req-1",
    "caller": "anna",
    "route": "/v1/completions",
    "model": "demo",
    "constraint_kind": "regex",
    "streamed": False,
    "prompt_tokens": 7,
    "completion_tokens": 12,
    "queued": 0.25,
    "to_first_token": 0.5,
    "total": 1.5,
    "finish_reason": "stop",
    "valid": True,
    "error": None,
}
TRACE = sample_trace(3).to_json()
BARE = {"request_id": "req-2", "caller": "ben", "model": "demo", "error": "deadline_exceeded"}


def test_a_row_is_listed_as_it_was_given(store: Store) -> None:
    store.save_generation(ROW)
    store.save_generation(BARE)
    bens, annas = store.generations(GenerationFilter(), limit=9)
    assert {name: annas[name] for name in ROW} == ROW
    assert {name for name, value in bens.items() if value is not None} == {*BARE, "id", "created", "flagged"}
    assert [row["id"] for row in store.generations(GenerationFilter(caller="anna"), limit=9)] == [annas["id"]]
    assert store.generations(GenerationFilter(after=bens["id"]), limit=1) == [annas]


def test_no_text_is_kept_unless_it_is_given(store: Store) -> None:
    store.save_generation(ROW)
    store.save_generation({**ROW, "content": {"prompt": "a\0b\ud800", "completion": "é"}})
    full, bare = store.generations(GenerationFilter(caller="anna"), limit=9)
    assert "content" not in full
    whole = store.generation(full["id"], caller="anna")
    assert whole is not None
    assert whole["content"] == {"prompt": "a\0b\ud800", "completion": "é"}
    assert store.generation(full["id"], caller="ben") is None
    assert (store.generation(bare["id"], caller=None) or {})["content"] is None
    assert store.generation("gen_none", caller=None) is None
    with store.database.reading() as connection:
        assert connection.execute(text("SELECT count(content) FROM generation_logs")).scalar_one() == 1


@pytest.mark.parametrize(
    ("over", "field"),
    [
        ({"prompt": "text"}, "prompt"),
        ({"id": "gen_x"}, "id"),
        ({"model": None}, "model"),
        ({"total": "soon"}, "total"),
        ({"prompt_tokens": float("inf")}, "prompt_tokens"),
        ({"caller": "a\0"}, "caller"),
        ({"content": {"prompt": object()}}, "content"),
    ],
)
def test_a_field_that_is_none_of_a_row_or_of_another_type_is_refused(store: Store, over: Any, field: str) -> None:
    with pytest.raises(InputError) as caught:
        store.save_generation({**ROW, **over})
    assert caught.value.field == field
    assert store.generations(GenerationFilter(), limit=9) == []


def test_what_is_not_finite_is_null(store: Store) -> None:
    store.save_generation({**ROW, "total": float("inf"), "queued": float("nan")})
    (row,) = store.generations(GenerationFilter(caller="anna"), limit=1)
    assert (row["total"], row["queued"]) == (None, None)


def test_feedback_goes_with_the_last_that_is_kept_of_its_request(store: Store) -> None:
    """It went with the first trace of several, and stayed for good where only logs were kept."""
    traces = [store.save_trace(TRACE, request_id="req-1", caller="anna", index=index) for index in range(2)]
    store.save_generation(ROW)
    store.save_feedback("req-1", caller="anna", name="user", score=0, text="the age is wrong")
    for trace_id in traces:
        assert store.delete_trace(trace_id, caller="anna")
        assert [row["text"] for row in store.feedback("req-1", caller=None)] == ["the age is wrong"]
    with store.database.writing() as connection:
        assert remove(connection, store.database, GENERATION_LOGS.c.request_id == "req-1") == 1
    assert store.feedback("req-1", caller=None) == []
