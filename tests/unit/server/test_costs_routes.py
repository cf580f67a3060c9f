"""What constraints cost, over HTTP: each answer of a server is in the sums, a key sees its own, and the page asks for
them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi")
pytest.importorskip("sqlalchemy")

from espalier.store.open import Store, open_store
from tests.server_app import client, settings

CHAT = "/v1/chat/completions"
BODY: dict[str, Any] = {
    "messages": [{"role": "user", "content": "A secret garden"}],
    "max_tokens": 40,
    "temperature": 0,
}
SCHEMA = {"title": "Answer", "type": "object", "properties": {"word": {"type": "string"}}, "required": ["word"]}
JSON = {"response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": SCHEMA}}}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = open_store(f"sqlite:///{tmp_path}/a.db")
    yield opened
    opened.close()


def server(store: Any, **values: str) -> Any:
    return client('{"word": "hidden"}', config=settings(**{"trace_level": "steps", **values}), store=store)


def test_each_answer_is_in_the_sums_of_its_constraint(store: Store) -> None:
    with server(store) as c:
        for body in (BODY | JSON, BODY | JSON, BODY):
            assert c.post(CHAT, json=body).status_code == 200
        rows = {row["title"]: row for row in c.get("/costs").json()["data"]}
        assert {title: row["answers"] for title, row in rows.items()} == {"Answer": 2, None: 1}
        answer = rows["Answer"]
        traces = c.get("/traces", params={"constraint": answer["fingerprint"]}).json()["data"]
        assert answer["tokens"] == sum(row["tokens"] for row in traces)
        assert answer["tax_nats"] == pytest.approx(sum(row["tax_nats"] for row in traces))
        assert answer["seconds_per_token"] > 0
        opened = c.get(f"/costs/{answer['fingerprint']}").json()
        assert opened["constraint"]["schema"] == SCHEMA
        # The end of the text is at no path.
        assert 0 < sum(path["tax_nats"] for path in opened["paths"]) <= answer["tax_nats"] + 1e-6
        assert "/word" in {path["path"] for path in opened["paths"]}


KEYS = """
[[key]]
name = "anna"
key = "anna-anna-anna"
[[key]]
name = "ben"
key = "ben-ben-ben-ben"
[[key]]
name = "ops"
key = "ops-ops-ops-ops"
admin = true
"""


def test_a_key_sees_its_own_sums_alone_and_an_admin_all(store: Store, tmp_path: Path) -> None:
    (tmp_path / "keys.toml").write_text(KEYS)
    anna, ben, ops = (
        {"authorization": f"Bearer {key}"} for key in ("anna-anna-anna", "ben-ben-ben-ben", "ops-ops-ops-ops")
    )
    with server(store, api_keys_file=str(tmp_path / "keys.toml")) as c:
        for key in (anna, anna, ben):
            c.post(CHAT, json=BODY | JSON, headers=key)
        answers = [c.get("/costs", headers=key).json()["data"][0]["answers"] for key in (anna, ben, ops)]
        assert answers == [2, 1, 3]
        c.post(CHAT, json=BODY | {"response_format": {"type": "json_object"}}, headers=anna)
        other = next(r["fingerprint"] for r in c.get("/costs", headers=anna).json()["data"] if r["title"] != "Answer")
        assert c.get(f"/costs/{other}", headers=ben).status_code == 404
        assert c.get(f"/costs/{other}", headers=ops).status_code == 200
        assert c.get("/costs").status_code == 401


def test_a_window_that_ends_before_it_begins_and_an_unknown_filter_are_refused(store: Store) -> None:
    with server(store) as c:
        reply = c.get("/costs", params={"since": 20, "until": 10})
        assert (reply.status_code, reply.json()["error"]["param"]) == (400, "until")
        assert c.get("/costs", params={"constraint": "x"}).status_code == 400
        assert c.get("/costs", params={"since": 10, "until": 20}).json()["data"] == []


def test_without_texts_no_token_and_no_schema_is_shown(store: Store) -> None:
    with server(store, trace_texts="no") as c:
        c.post(CHAT, json=BODY | JSON)
        (row,) = c.get("/costs").json()["data"]
        opened = c.get(f"/costs/{row['fingerprint']}").json()
        assert opened["constraint"] is None
        assert not any(path["wanted"] for path in opened["paths"])
        assert "hidden" not in c.get(f"/costs/{row['fingerprint']}").text
        assert "secret" not in c.get("/costs").text


def test_a_browser_gets_a_page_that_holds_nothing_of_the_server(store: Store) -> None:
    with server(store, api_keys="sk-1") as c:
        page = c.get("/costs", headers={"accept": "text/html"})
        assert page.status_code == 200
        assert "default-src 'none'" in page.headers["content-security-policy"]
        assert "<h1>Costs</h1>" in page.text
