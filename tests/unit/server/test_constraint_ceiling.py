"""CONSTRAINT_BYTES over HTTP: who floods a server with new constraints gets 429 by name, and nobody else does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi")

from starlette.testclient import TestClient

from espalier.constraints.base import Compiled
from espalier.constraints.cache import ConstraintCache
from espalier.constraints.judging import in_this_process
from espalier.server.apps import create_app
from espalier.server.process import garbage
from espalier.settings import KernelSettings
from espalier.wiring import App
from tests.server_app import make_app, settings
from tests.server_process import FREE, KEYS, OTHER


def ask(web: TestClient, headers: dict[str, str], number: int) -> Any:
    body = {"prompt": "a", "max_tokens": 20, "structured_outputs": {"choice": [f"{number} is it", f"{number} was it"]}}
    return web.post("/v1/completions", json=body, headers=headers)


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> list[Compiled]:
    """All that is compiled, as texts hold it that go on."""
    found: list[Compiled] = []
    put = ConstraintCache.put

    def hold(cache: ConstraintCache, owner: str, key: str, compiled: Compiled) -> None:
        found.append(compiled)
        put(cache, owner, key, compiled)

    monkeypatch.setattr(ConstraintCache, "put", hold)
    return found


@pytest.mark.usefixtures("held")
def test_a_flood_of_constraints_gets_429_and_the_others_nothing(tmp_path: Path) -> None:
    """Three keys with new schemas took a server from 0.46 to 5 GB; whoever else was there paid for it."""
    (tmp_path / "keys.toml").write_text(KEYS, encoding="utf-8")
    app = make_app(config=settings(api_keys_file=str(tmp_path / "keys.toml")))
    with TestClient(app) as web:
        # Only a server that collects its own garbage sets it; this one would then give it back at any time.
        app.state.process.engine.engine.compiler.cache.ceiling = 600_000
        assert ask(web, OTHER, 1000).status_code == 200
        replies = [ask(web, FREE, number) for number in range(60)]
        assert replies[0].status_code == 200
        refused = replies[-1]
        assert refused.status_code == 429
        assert int(refused.headers["retry-after"]) >= 1
        error = refused.json()["error"]
        assert "compiled constraints of this key hold" in error["message"]
        assert error["code"] == "rate_limit_exceeded"
        assert {reply.status_code for reply in replies} == {200, 429}
        last = max(number for number, reply in enumerate(replies) if reply.status_code == 200)
        assert ask(web, FREE, last).status_code == 200, "what is kept needs nothing new"
        plain = web.post("/v1/completions", json={"prompt": "a", "max_tokens": 5}, headers=FREE)
        assert plain.status_code == 200
        assert {ask(web, OTHER, number).status_code for number in (1000, 1001, 1002)} == {200}
        lines = web.get("/metrics", headers=FREE).text.splitlines()
        held = {
            state: float(line.rpartition(" ")[2])
            for line in lines
            for state in ("kept", "garbage")
            if line.startswith("espalier:constraint_bytes{") and f'state="{state}"' in line
        }
        assert 0 < held["kept"] <= 300_000
        assert sum(held.values()) > 600_000


@pytest.mark.slow
def test_a_process_that_collects_no_garbage_counts_none(tmp_path: Path) -> None:
    """`espalier batch run`, the playground of a proxy and an application with an engine of its own never said that
    garbage was collected: after 1 GB of new constraints in all, every further one was refused for good."""
    (tmp_path / "keys.toml").write_text(KEYS, encoding="utf-8")
    config = settings(api_keys_file=str(tmp_path / "keys.toml"), constraint_bytes="150000")
    with TestClient(make_app(config=config)) as web:
        assert {ask(web, FREE, number).status_code for number in range(60)} == {200}


@pytest.mark.slow
@pytest.mark.usefixtures("held")
def test_the_setting_is_the_ceiling_of_a_server_that_opens_its_own_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(garbage, "LOOK_SECONDS", 3600.0)  # nothing is collected meanwhile
    (tmp_path / "keys.toml").write_text(KEYS, encoding="utf-8")
    config = settings(model="fake", constraint_bytes="150000", api_keys_file=str(tmp_path / "keys.toml"))
    with TestClient(create_app(config, app=App(KernelSettings()), judge=in_this_process)) as web:
        replies = [ask(web, FREE, number) for number in range(60)]
        assert replies[0].status_code == 200
        assert replies[-1].status_code == 429
        assert "where 0 MB may be held" in replies[-1].json()["error"]["message"]
        assert ask(web, OTHER, 1000).status_code == 200
