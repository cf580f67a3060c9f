"""An engine that runs elsewhere, without logits and without a tokenizer, is served like any other."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from starlette.testclient import TestClient

import espalier
from espalier.chat.reading.deltas import Turn
from espalier.constraints.spec import Regex
from espalier.engines.base import Capabilities, Event, FinishEvent, Request, Result, TokenEvent, Usage
from espalier.engines.protocols import Engine
from espalier.engines.serving.direct import DirectService
from espalier.errors import Cancelled, CapabilityError, DeadlineExceeded, InputError, Overloaded, Unavailable
from tests.server_app import events, make_app, settings

SAYS = ("Hel", "lo", ".")
ASKED = {"model": "fake", "messages": [{"role": "user", "content": "hi"}]}


class Elsewhere:
    """An Engine that says three tokens to everything. It enforces JSON objects, and knows no vocabulary."""

    name = "elsewhere"
    vocab = compiler = template = None

    def __init__(self) -> None:
        self.seen: list[Request] = []
        self.closed = 0
        self.may_go_on = threading.Event()
        self.may_go_on.set()

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(constraints=frozenset({"json_object"}), max_sequences=2)

    def encode(self, text: str, *, add_special: bool) -> list[int]:
        raise CapabilityError("elsewhere does not know its tokens")

    def prompt_text(self, request: Request) -> str:
        raise CapabilityError("elsewhere renders its own prompts")

    def prompt_ids(self, request: Request) -> list[int]:
        raise CapabilityError("elsewhere does not know its tokens")

    def run(self, requests: Sequence[Request]) -> Iterator[Event]:
        self.seen += requests
        return self._events(len(requests))

    def _events(self, count: int) -> Iterator[Event]:
        try:
            for index in range(count):
                for token, text in enumerate(SAYS):
                    self.may_go_on.wait()
                    yield TokenEvent(index=index, token_id=token, text=text)
                yield FinishEvent(index=index, text="", result=self._result())
        finally:
            self.closed += 1

    def _result(self) -> Result:
        text = "".join(SAYS)
        return Result(
            text=text,
            token_ids=(0, 1, 2),
            finish_reason="stop",
            stop_reason=None,
            seed=0,
            turn=Turn(content=text),
            usage=Usage(prompt_tokens=1, completion_tokens=3),
        )

    def close(self) -> None: ...


@pytest.fixture
def elsewhere() -> Elsewhere:
    return Elsewhere()


@pytest.fixture
def client(elsewhere: Elsewhere) -> Iterator[TestClient]:
    engine: Engine = elsewhere
    with TestClient(make_app(engine=espalier.LoadedEngine(engine)), raise_server_exceptions=False) as found:
        yield found


def refusal(client: TestClient, path: str, body: dict[str, Any]) -> dict[str, Any]:
    reply = client.post(path, json=body)
    assert reply.status_code in (400, 501), reply.text
    error: dict[str, Any] = reply.json()["error"]
    return error


def test_it_lists_its_model_and_answers_plain_requests(client: TestClient, elsewhere: Elsewhere) -> None:
    assert client.get("/v1/models").json()["data"][0]["id"] == "fake"
    reply = client.post("/v1/chat/completions", json=ASKED)
    assert reply.status_code == 200, reply.text
    assert reply.json()["choices"][0]["message"]["content"] == "Hello."
    assert reply.json()["usage"]["completion_tokens"] == 3
    assert elsewhere.seen[0].messages == ({"role": "user", "content": "hi"},)
    texts = client.post("/v1/completions", json={"model": "fake", "prompt": "hi"}).json()["choices"]
    assert texts[0]["text"] == "Hello."
    assert client.post("/completion", json={"prompt": "hi"}).json()["content"] == "Hello."


def test_it_streams(client: TestClient) -> None:
    reply = client.post("/v1/chat/completions", json=ASKED | {"stream": True})
    assert reply.status_code == 200
    found = events(reply.text)
    assert found[-1] == "[DONE]"
    assert sum('"content":"' in one or '"content": "' in one for one in found) >= 1


def test_a_constraint_that_it_can_enforce_reaches_it(client: TestClient, elsewhere: Elsewhere) -> None:
    reply = client.post("/v1/chat/completions", json=ASKED | {"response_format": {"type": "json_object"}})
    assert reply.status_code == 200, reply.text
    assert elsewhere.seen[-1].constraint is not None
    assert elsewhere.seen[-1].constraint.kind == "json_object"


@pytest.mark.parametrize(
    ("more", "param"),
    [
        ({"structured_outputs": {"regex": "[a-z]+"}}, "structured_outputs.regex"),
        ({"tools": [{"type": "function", "function": {"name": "f", "parameters": {}}}]}, "tools"),
        ({"espalier": {"strategy": "beam", "num_beams": 2}}, "espalier.strategy"),
        ({"espalier": {"strategy": "rejection"}}, "espalier.strategy"),
        ({"espalier": {"sampler": "native"}}, "espalier.sampler"),
        ({"logprobs": True}, "logprobs"),
    ],
)
def test_what_it_cannot_do_is_refused_by_name(
    client: TestClient, elsewhere: Elsewhere, more: dict[str, Any], param: str
) -> None:
    error = refusal(client, "/v1/chat/completions", ASKED | more)
    assert error["param"] == param
    assert error["code"] == "capability_error"
    assert "elsewhere" in error["message"]
    assert not elsewhere.seen


def test_its_tokens_are_refused(client: TestClient) -> None:
    for path, body in (
        ("/tokenize", {"content": "hi"}),
        ("/detokenize", {"tokens": [1]}),
        ("/apply-template", ASKED),
        ("/v1/completions", {"model": "fake", "prompt": [1, 2]}),
        ("/completion", {"prompt": [1, 2]}),
    ):
        error = refusal(client, path, body)
        assert error["code"] == "capability_error", path
        assert "elsewhere" in error["message"]
    assert client.get("/props").json()["eos_token"] is None


def test_a_limit_in_tokens_that_nobody_can_count_stops_the_start(elsewhere: Elsewhere) -> None:
    app = make_app(engine=espalier.LoadedEngine(elsewhere), config=settings(max_input_tokens="10"))
    with pytest.raises(CapabilityError, match="MAX_INPUT_TOKENS"), TestClient(app):
        pass


def test_python_sees_the_same(elsewhere: Elsewhere) -> None:
    loaded = espalier.LoadedEngine(elsewhere)
    assert loaded.generate("hi").text == "Hello."
    with pytest.raises(CapabilityError, match="cannot enforce regex"):
        loaded.generate("hi", constraint=Regex("a"))
    with pytest.raises(CapabilityError, match="vocabulary"):
        _ = loaded.vocab


def test_open_requests_are_limited_and_freed(elsewhere: Elsewhere) -> None:
    service = DirectService(elsewhere, queue_size=1)
    runs = [service.submit(Request(prompt="hi")) for _ in range(3)]  # two at once, and one that waits
    assert service.load().running == 3
    with pytest.raises(Overloaded):
        service.submit(Request(prompt="hi"))
    assert [type(event) for event in runs[0]] == [TokenEvent] * 3 + [FinishEvent]
    with pytest.raises(InputError, match="can be read once"):
        iter(runs[0])
    runs[1].cancel()
    assert service.load().running == 1
    with pytest.raises(Cancelled):
        list(runs[1])
    del runs
    assert service.load().running == 0  # nobody can read it any more
    service.close()
    with pytest.raises(Unavailable):
        service.submit(Request(prompt="hi"))
    with pytest.raises(InputError, match="queue_size"):
        DirectService(elsewhere, queue_size=0)


def test_deadlines_and_closing_end_a_run_between_its_events(elsewhere: Elsewhere) -> None:
    now = [0.0]
    service = DirectService(elsewhere, queue_size=4, clock=lambda: now[0])
    with pytest.raises(InputError, match="deadline"):
        service.submit(Request(prompt="hi"), deadline=0)
    late = iter(service.submit(Request(prompt="hi"), deadline=5))
    next(late)
    now[0] = 6.0
    with pytest.raises(DeadlineExceeded):
        next(late)
    assert elsewhere.closed == 1
    left = iter(service.submit(Request(prompt="hi")))
    next(left)
    service.close()
    with pytest.raises(Cancelled):
        next(left)
    assert (elsewhere.closed, service.load().running) == (2, 0)


def test_a_run_cancelled_while_it_computes_is_closed_by_its_reader(elsewhere: Elsewhere) -> None:
    service = DirectService(elsewhere, queue_size=4)
    elsewhere.may_go_on.clear()
    run = service.submit(Request(prompt="hi"))
    told: list[BaseException] = []

    def read() -> None:
        try:
            list(run)
        except Cancelled as error:
            told.append(error)

    reader = threading.Thread(target=read)
    reader.start()
    while not elsewhere.seen:
        pass
    run.cancel()
    elsewhere.may_go_on.set()
    reader.join(60)
    assert [type(one) for one in told] == [Cancelled]
    assert service.load().running == 0
