"""Rows of generations: one each, with texts only if they are given."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import text

from espalier.errors import InputError
from espalier.store.open import Store

ROW: dict[str, Any] = {
    "request_id": "req-1", "caller": "anna", "route": "/v1/completions", "model": "demo", "constraint_kind": "regex",
    "streamed": False, "prompt_tokens": 7, "completion_tokens": 12, "queued": 0.25, "to_first_token": 0.5, "total": 1.5,
    "finish_reason": "stop", "valid": True, "error": None,
}  # fmt: skip
BARE = {"request_id": "req-2", "caller": "ben", "model": "demo", "error": "deadline_exceeded"}


def test_a_row_is_listed_as_it_was_given(store: Store) -> None:
    store.save_generation(ROW)
    store.save_generation(BARE)
    bens, annas = store.generations(caller=None, limit=9, after=None)
    assert {name: annas[name] for name in ROW} == ROW
    assert {name for name, value in bens.items() if value is not None} == {*BARE, "id", "created"}
    assert [row["id"] for row in store.generations(caller="anna", limit=9, after=None)] == [annas["id"]]
    assert store.generations(caller=None, limit=1, after=bens["id"]) == [annas]


def test_no_text_is_kept_unless_it_is_given(store: Store) -> None:
    store.save_generation(ROW)
    store.save_generation({**ROW, "content": {"prompt": "a\0b\ud800", "completion": "é"}})
    full, bare = store.generations(caller="anna", limit=9, after=None)
    assert "content" not in full
    assert store.generation_content(full["id"]) == {"prompt": "a\0b\ud800", "completion": "é"}
    assert store.generation_content(bare["id"]) is None
    assert store.generation_content("gen_none") is None
    with store.database.reading() as connection:
        assert connection.execute(text("SELECT count(content) FROM generations")).scalar_one() == 1


@pytest.mark.parametrize(
    ("over", "field"),
    [({"prompt": "text"}, "prompt"), ({"id": "gen_x"}, "id"), ({"model": None}, "model"), ({"total": "soon"}, "total"),
     ({"prompt_tokens": float("inf")}, "prompt_tokens"), ({"caller": "a\0"}, "caller"),
     ({"content": {"prompt": object()}}, "content")],
)  # fmt: skip
def test_a_field_that_is_none_of_a_row_or_of_another_type_is_refused(store: Store, over: Any, field: str) -> None:
    with pytest.raises(InputError) as caught:
        store.save_generation({**ROW, **over})
    assert caught.value.field == field
    assert store.generations(caller=None, limit=9, after=None) == []


def test_what_is_not_finite_is_null(store: Store) -> None:
    store.save_generation({**ROW, "total": float("inf"), "queued": float("nan")})
    (row,) = store.generations(caller="anna", limit=1, after=None)
    assert (row["total"], row["queued"]) == (None, None)
