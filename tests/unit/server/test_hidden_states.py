"""`espalier.activations` of a request: hidden states go to the server's store."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("fastapi")
pytest.importorskip("lmdb", reason="lmdb is not installed")

import espalier
from espalier.activations.store.base import ActivationStore
from espalier.activations.store.record import CapturedVectors, RequestRecord
from espalier.errors import InputError
from espalier.server.process.hidden_states import HiddenStates
from espalier.wiring import demo_model
from tests.integration.server.test_batches_http import chat_line, content, lines, run
from tests.server_app import client, settings

CHAT = "/v1/chat/completions"
ASK: dict[str, Any] = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 5, "seed": 1}


def test_hidden_states_of_every_output_are_stored_under_the_id_of_the_request(tmp_path: Path) -> None:
    pytest.importorskip("transformers", reason="transformers is not installed")
    path = tmp_path / "states"
    with espalier.load(str(demo_model())) as engine:
        with client(engine=engine, config=settings(activations_store=str(path))) as c:
            wanted = {"layers": [-1], "positions": "response", "run_id": "tuesday"}
            asked = {"n": 2, "espalier": {"activations": wanted}}
            reply = c.post(CHAT, json=ASK | asked, headers={"x-request-id": "mine"})
            assert reply.status_code == 200, reply.text
            assert c.post(CHAT, json=ASK).status_code == 200  # nothing is stored of who does not ask
            stream = ASK | {"stream": True, "espalier": {"activations": True}}
            assert c.post(CHAT, json=stream, headers={"x-request-id": "streamed"}).status_code == 200
            wrong = c.post(CHAT, json=ASK | {"espalier": {"activations": {"layers": "most"}}})
            assert wrong.status_code == 400
            assert wrong.json()["error"]["param"] == "espalier.activations.layers"
            nameless = c.post(CHAT, json=ASK | {"espalier": {"activations": {"run_id": ""}}})
            assert nameless.json()["error"]["param"] == "espalier.activations.run_id"
        with ActivationStore(path) as store:
            found = [store.captured(key) for key in store.keys(request_id="mine")]
            assert sorted(one.record.sample_index for one in found if one.record.sample_index is not None) == [0, 1]
            texts = {choice["message"]["content"] for choice in reply.json()["choices"]}
            assert {one.record.response for one in found} == texts
            assert {one.record.layers for one in found} == {(3,)}
            assert {one.record.run_id for one in found} == {"tuesday"}
            groups = {one.record.sample_group_id for one in found}
            assert len(groups) == 1
            assert None not in groups
            (alone,) = [store.record(key) for key in store.keys(request_id="streamed")]
            assert (alone.run_id, alone.sample_group_id, alone.sample_index) == (None, None, None)
            assert store.size().requests == 3


@pytest.mark.slow
def test_an_item_of_a_batch_may_have_its_hidden_states_stored(tmp_path: Path) -> None:
    pytest.importorskip("transformers", reason="transformers is not installed")
    path, body = tmp_path / "states", {"activations": {"layers": [0], "positions": "last", "run_id": "nightly"}}
    config = settings(activations_store=str(path), batch_jobs="true", database_url=f"sqlite:///{tmp_path}/e.db")
    with espalier.load(str(demo_model())) as engine:
        with client(engine=engine, config=config) as c:
            asked = [chat_line("a", model="fake", max_tokens=3, espalier=body), chat_line("b", max_tokens=3)]
            batch = run(c, lines(*asked))
            assert batch["status"] == "completed", batch
            rows = {one["custom_id"]: one["response"] for one in content(c, batch["output_file_id"])}
        with ActivationStore(path) as store:
            (key,) = store.keys()
            record = store.record(key)
    assert (record.run_id, record.request_id) == ("nightly", rows["a"]["request_id"])
    assert record.response == rows["a"]["body"]["choices"][0]["message"]["content"]


def test_a_server_without_a_store_and_an_engine_without_hidden_states_refuse(tmp_path: Path) -> None:
    for config in (settings(), settings(activations_store=str(tmp_path / "states"))):
        with client(config=config) as c:
            reply = c.post(CHAT, json=ASK | {"espalier": {"activations": True}})
            assert reply.status_code == 400, reply.text
            assert reply.json()["error"]["param"] == "espalier.activations"


def test_two_workers_cannot_share_a_store() -> None:
    with pytest.raises(InputError, match="ACTIVATIONS_STORE has one writer"):
        settings(activations_store="x", workers="2")


def result(number: int, *, size: int = 1) -> Any:
    record = RequestRecord(
        prompt="p",
        response="r",
        model="m",
        input_length=1,
        timestamp=float(number),
        positions=(0,),
        sites=("residual",),
        layers=(0,),
        hidden=size,
    )

    class One:
        activations = CapturedVectors(record, {("residual", 0): np.ones((1, size), dtype=np.float16)})
        others = ()

    return One()


def test_a_full_quota_removes_the_oldest(tmp_path: Path) -> None:
    config = settings(activations_store=str(tmp_path / "s"), activations_max_bytes="1000000")
    states = HiddenStates(config)
    for number in range(128):
        states.put(result(number, size=20_000), request_id=f"r{number}", trace_id=None)
    states.close()
    with ActivationStore(tmp_path / "s") as store:
        assert store.size().used <= 1_000_000
        assert [*store.keys(request_id="r127")]
        assert not [*store.keys(request_id="r0")]


def test_old_hidden_states_go_when_the_server_starts(tmp_path: Path) -> None:
    path = str(tmp_path / "s")
    states = HiddenStates(settings(activations_store=path))
    states.put(result(0), request_id="old", trace_id=None)
    states.close()
    HiddenStates(settings(activations_store=path, activations_days="1"), now=lambda: 90_000.0).close()
    with ActivationStore(path) as store:
        assert store.size().requests == 0
