"""Records of steps are made late, but never on a server's event loop: there they held up every other request."""

from __future__ import annotations

import asyncio
from functools import partial

import pytest

pytest.importorskip("fastapi")

from espalier.trace.records import StepRecord
from tests.server_app import client

CHAT = {
    "model": "fake",
    "messages": [{"role": "user", "content": "Hi"}],
    "max_tokens": 20,
    "temperature": 0,
    "structured_outputs": {"regex": "[A-Z][a-z]+ [a-z]+[.]"},
}
STEPS = {"espalier": {"trace": "full"}}


def is_on_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


@pytest.fixture
def made(monkeypatch):
    """For each record that was made late, whether that was on an event loop."""
    found: list[bool] = []

    def noted(make):
        found.append(is_on_loop())
        return make()

    later = StepRecord.later
    monkeypatch.setattr(StepRecord, "later", lambda make, *origin: later(partial(noted, make), *origin))
    return found


@pytest.fixture(scope="module")
def server():
    with client() as found:
        yield found


@pytest.mark.parametrize("more", [{}, {"stream": True}, {"max_tokens": 10}])
@pytest.mark.parametrize("traced", [{}, STEPS])
def test_the_records_of_a_finished_output_are_made_beside_the_loop(server, made, more, traced):
    """The metrics read them, 70 us each, on the loop, and nobody was charged."""
    reply = server.post("/v1/chat/completions", json={**CHAT, **more, **traced})
    assert reply.status_code == 200, reply.text
    assert len(made) > 8
    assert not any(made)


@pytest.mark.parametrize(
    "more",
    [{"logprobs": True}, {"logprobs": True, "top_logprobs": 2}, {"espalier": {"trace": "full", "stream_steps": True}}],
)
def test_records_that_a_stream_reads_as_they_come_are_made_with_their_tokens(server, made, more):
    reply = server.post("/v1/chat/completions", json={**CHAT, "stream": True, **more})
    assert reply.status_code == 200, reply.text
    assert '"error"' not in reply.text
    assert not made
