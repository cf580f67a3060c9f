"""A preset, a safety filter and a schema together, on `/v1/responses` and `/v1/messages`, whole and as a stream: none
is dropped on the way through another API."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi")
pytest.importorskip("transformers")
pytest.importorskip("ollama")

from starlette.testclient import TestClient

import espalier
from tests import messages_api, ollama_api, responses_api
from tests.server_app import client

DEMO = Path(__file__).parents[3] / "models" / "demo"
pytestmark = pytest.mark.slow
SCHEMA = {
    "type": "object",
    "properties": {"md": {"enum": ["calm", "glad", "hmm"]}, "wrd": {"type": "string", "maxLength": 6}},
    "required": ["md", "wrd"],
    "additionalProperties": False,
}
OURS = {"preset": "code_generation", "safety": {"patterns": ["calm", "glad", {"regex": "[aeio][a-z]"}]}}
"""The preset brings a safety filter of its own; only one of the moods is left."""
RESPONSES = {
    "input": "Generate user info",
    "max_output_tokens": 60,
    "espalier": OURS,
    "text": {"format": {"type": "json_schema", "name": "m", "strict": True, "schema": SCHEMA}},
}
MESSAGES = {
    "messages": [{"role": "user", "content": "Generate user info"}],
    "max_tokens": 60,
    "espalier": OURS,
    "output_config": {"format": {"type": "json_schema", "schema": SCHEMA}},
}
OLLAMA = {
    "messages": [{"role": "user", "content": "Generate user info"}],
    "options": {"num_predict": 60},
    "espalier": OURS,
    "format": SCHEMA,
}


@pytest.fixture(scope="module", params=["transformers", "llamacpp"])
def api(request: pytest.FixtureRequest, demo_engine: espalier.LoadedEngine) -> Iterator[TestClient]:
    if request.param == "transformers":
        with client(engine=demo_engine) as found:
            yield found
        return
    pytest.importorskip("llama_cpp")
    with espalier.load(str(DEMO / "demo.gguf")) as engine, client(engine=engine) as found:
        yield found


@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize(("apis", "body"), [(responses_api, RESPONSES), (messages_api, MESSAGES), (ollama_api, OLLAMA)])
def test_a_preset_safety_and_a_schema_hold_together(
    api: TestClient, apis: Any, body: dict[str, Any], streams: bool
) -> None:
    for seed in range(3):
        asked = {**body, "seed": seed, "espalier": OURS}
        found = apis.gathered(apis.streamed(api, asked)) if streams else apis.whole(api, asked)
        text = apis.text_of(found)
        made = json.loads(text)
        assert made["md"] == "hmm"
        assert not re.search("[aeio][a-z]", made["wrd"])
        (output,) = found["espalier"]["outputs"]
        assert output["verdict"]["valid"] is True


@pytest.mark.parametrize(
    ("route", "body"), [("/v1/responses", RESPONSES), ("/v1/messages", MESSAGES), ("/api/chat", OLLAMA)]
)
def test_what_contradicts_the_filter_is_refused_and_not_dropped(
    api: TestClient, route: str, body: dict[str, Any]
) -> None:
    own = {**OURS, "safety": {"patterns": ["{"]}}
    reply = api.post(route, json={**body, "espalier": own})
    assert reply.status_code == 400, reply.text
