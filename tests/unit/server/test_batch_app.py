"""Which application has which batch routes, and what a server without batch jobs answers."""

from __future__ import annotations

from pathlib import Path

from starlette.testclient import TestClient

from espalier.server.apps import create_batch_app, create_chat_app
from tests.server_app import client, fake_engine, settings


def test_the_batch_application_has_batch_jobs_and_no_chat(tmp_path: Path) -> None:
    config = settings(batch_jobs="true", database_url=f"sqlite:///{tmp_path}/e.db")
    with TestClient(create_batch_app(config, engine=fake_engine())) as web:
        assert web.get("/v1/batch/jobs").json() == {"jobs": []}
        assert web.get("/v1/batches").json()["data"] == []
        assert web.get("/v1/models").status_code == 200
        assert web.post("/v1/chat/completions", json={}).status_code == 404


def test_the_chat_application_has_no_batch_jobs(tmp_path: Path) -> None:
    config = settings(batch_jobs="true", database_url=f"sqlite:///{tmp_path}/e.db")
    with TestClient(create_chat_app(config, engine=fake_engine())) as web:
        assert web.get("/v1/batches").status_code == 404
        assert not (tmp_path / "e.db").exists()


def test_a_server_whose_batch_jobs_are_off_says_how_to_turn_them_on() -> None:
    with client() as web:
        reply = web.get("/v1/files")
        assert reply.status_code == 404
        assert "BATCH_JOBS" in reply.json()["error"]["message"]
