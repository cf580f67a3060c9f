"""`/v1/chat/completions`: OpenAI's shapes, whole and streamed, and what stops a generation."""

from __future__ import annotations

import asyncio
import json
import socket
from typing import Any

import httpx2
import pytest

pytest.importorskip("fastapi")

from openai.types.chat import ChatCompletion, ChatCompletionChunk

from espalier.errors import DeadEnd, LimitExceeded, Overloaded
from tests.server_app import CountingMeter, MemoryStore, OneKeyGate, Stuck, client, events, make_app, served, settings

ROUTE = "/v1/chat/completions"
ASK: dict[str, Any] = {"messages": [{"role": "user", "content": "hi"}], "temperature": 0}
SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 8}, "age": {"type": "integer", "maximum": 99}},
    "required": ["name", "age"],
    "additionalProperties": False,
}
FORMAT = {"type": "json_schema", "json_schema": {"name": "person", "schema": SCHEMA, "strict": True}}
TOOL = {
    "type": "function",
    "function": {
        "name": "add",
        "parameters": {
            "type": "object",
            "properties": {"a": {"type": "integer", "minimum": 0, "maximum": 9}},
            "required": ["a"],
            "additionalProperties": False,
        },
    },
}


def chunks(text: str) -> list[dict[str, Any]]:
    data = events(text)
    assert data[-1] == "[DONE]"
    return [json.loads(one) for one in data[:-1]]


def test_a_reply_has_openais_shape_and_timings() -> None:
    with client("Hello.") as c:
        reply = c.post(ROUTE, json=ASK)
    assert reply.status_code == 200
    found = ChatCompletion.model_validate(reply.json(), strict=True)
    assert found.choices[0].message.content == "Hello."
    assert found.choices[0].finish_reason == "stop"
    own = {"id", "object", "created", "model", "system_fingerprint", "choices", "usage"}
    assert set(reply.json()) == own | {"timings"}  # which every reply of llama-server has
    assert found.usage is not None
    assert found.usage.total_tokens == found.usage.prompt_tokens + found.usage.completion_tokens
    assert found.id.startswith("chatcmpl-")


def test_a_stream_says_the_role_first_the_reason_last_and_done() -> None:
    with client("Hello.") as c:
        reply = c.post(ROUTE, json=ASK | {"stream": True})
    assert reply.headers["content-type"].startswith("text/event-stream")
    found = chunks(reply.text)
    for one in found:
        ChatCompletionChunk.model_validate(one, strict=True)
        assert "usage" not in one
    deltas = [one["choices"][0]["delta"] for one in found]
    assert deltas[0] == {"role": "assistant", "content": ""}
    assert deltas[-1] == {}
    assert "".join(one.get("content", "") for one in deltas) == "Hello."
    reasons = [one["choices"][0]["finish_reason"] for one in found]
    assert reasons == [None] * (len(found) - 1) + ["stop"]
    assert len({one["id"] for one in found}) == 1


def test_usage_comes_only_where_asked_for_and_in_the_last_chunk_alone() -> None:
    """LM clients take `"usage": null` for the end of a reply."""
    with client("Hello.") as c:
        found = chunks(c.post(ROUTE, json=ASK | {"stream": True, "stream_options": {"include_usage": True}}).text)
    assert not any("usage" in chunk for chunk in found[:-1])
    assert found[-1]["choices"] == []
    assert found[-1]["usage"]["completion_tokens"] == 7


def test_a_schema_holds_and_its_contract_comes_only_where_asked_for() -> None:
    with client('{"name": "Ada", "age": 36}') as c:
        plain = c.post(ROUTE, json=ASK | {"response_format": FORMAT}).json()
        full = c.post(ROUTE, json=ASK | {"response_format": FORMAT, "espalier": {"trace": True}}).json()
    assert json.loads(plain["choices"][0]["message"]["content"]) == {"name": "Ada", "age": 36}
    assert "espalier" not in plain
    assert {one["verdict"] for one in full["espalier"]["contract"]} <= {"enforced", "narrowed", "annotation"}
    output = full["espalier"]["outputs"][0]
    assert output["verdict"]["valid"] is True
    assert output["summary"]["total_steps"] == full["usage"]["completion_tokens"]
    assert "trace" not in output


def test_a_stream_has_espaliers_key_on_the_last_chunk_of_an_output() -> None:
    with client('{"name": "Ada", "age": 36}') as c:
        asked = ASK | {"response_format": FORMAT, "stream": True, "espalier": {"trace": "full"}}
        found = chunks(c.post(ROUTE, json=asked).text)
    assert all("espalier" not in one for one in found[:-1])
    output = found[-1]["espalier"]["outputs"][0]
    assert output["trace"]["format"] == "espalier-trace"
    assert found[-1]["espalier"]["contract"]


@pytest.mark.parametrize("stream", [False, True])
def test_log_probabilities_are_one_for_every_token_and_the_models_own(stream: bool) -> None:
    with client("Hi!") as c:
        asked = ASK | {"logprobs": True, "top_logprobs": 2, "stream": stream, "logit_bias": {"72": -100}}
        reply = c.post(ROUTE, json=asked)
    if stream:
        parts = [one["choices"][0]["logprobs"] for one in chunks(reply.text)]
        content = [token for one in parts if one for token in one["content"]]
    else:
        content = reply.json()["choices"][0]["logprobs"]["content"]
    assert all(len(one["top_logprobs"]) == 2 for one in content)
    assert content[0]["top_logprobs"][0]["token"] == "H"  # banned, and still what the model wanted
    assert content[0]["token"] != "H"
    assert content[0]["logprob"] < content[0]["top_logprobs"][0]["logprob"]
    assert all(bytes(one["bytes"]) for one in content)


def test_outputs_have_their_own_index_and_their_tokens_add_up() -> None:
    with client("Hello.") as c:
        whole = c.post(ROUTE, json=ASK | {"n": 3, "temperature": 1, "seed": 5}).json()
        parts = chunks(c.post(ROUTE, json=ASK | {"n": 3, "temperature": 1, "seed": 5, "stream": True}).text)
    texts = {0: "", 1: "", 2: ""}
    for one in parts:
        texts[one["choices"][0]["index"]] += one["choices"][0]["delta"].get("content", "")
    assert texts == {one["index"]: one["message"]["content"] for one in whole["choices"]}
    assert whole["usage"]["prompt_tokens"] == 10


def test_a_stop_text_ends_the_output_and_is_not_in_it() -> None:
    with client("one two three") as c:
        found = c.post(ROUTE, json=ASK | {"stop": " t", "espalier": {}}).json()
    assert found["choices"][0]["message"]["content"] == "one"
    assert found["choices"][0]["finish_reason"] == "stop"
    assert found["espalier"]["outputs"][0]["stop_reason"] == " t"


def test_a_required_tool_is_called() -> None:
    with client('{"name": "add", "args": {"a": 5}}') as c:
        found = c.post(ROUTE, json=ASK | {"tools": [TOOL], "tool_choice": "required"}).json()
    ChatCompletion.model_validate(found)
    choice = found["choices"][0]
    assert choice["finish_reason"] == "tool_calls"
    assert choice["message"]["content"] is None
    call = choice["message"]["tool_calls"][0]
    assert (call["type"], call["function"]["name"]) == ("function", "add")
    assert set(json.loads(call["function"]["arguments"])) == {"a"}


def test_call_deltas_name_the_call_once_and_then_add_arguments() -> None:
    with client('{"name": "add", "args": {"a": 5}}') as c:
        found = chunks(c.post(ROUTE, json=ASK | {"tools": [TOOL], "tool_choice": "required", "stream": True}).text)
    deltas = [call for one in found for call in one["choices"][0]["delta"].get("tool_calls", [])]
    assert all(one["index"] == 0 for one in deltas)
    assert set(deltas[0]) == {"index", "id", "type", "function"}
    assert deltas[0]["function"] == {"name": "add", "arguments": ""}
    assert all(set(one) == {"index", "function"} and set(one["function"]) == {"arguments"} for one in deltas[1:])
    assert json.loads("".join(one["function"]["arguments"] for one in deltas)).keys() == {"a"}
    assert found[-1]["choices"][0]["finish_reason"] == "tool_calls"


def test_a_cut_call_ends_with_length() -> None:
    with client('{"name": "add", "args": {"a": 5}}') as c:
        found = c.post(ROUTE, json=ASK | {"tools": [TOOL], "tool_choice": "required", "max_tokens": 12}).json()
    assert found["choices"][0]["finish_reason"] == "length"


def test_a_reply_with_calls_can_be_sent_back_as_it_is() -> None:
    with client('{"name": "add", "args": {"a": 5}}') as c:
        first = c.post(ROUTE, json=ASK | {"tools": [TOOL], "tool_choice": "required"}).json()
        said = ChatCompletion.model_validate(first).choices[0].message
        history = [
            *ASK["messages"],
            said.model_dump(),
            {"role": "tool", "tool_call_id": said.tool_calls[0].id if said.tool_calls else "", "content": "5"},
        ]
        assert c.post(ROUTE, json=ASK | {"messages": history}).status_code == 200


@pytest.mark.parametrize("stream", [False, True])
def test_reasoning_comes_apart_from_the_content(stream: bool) -> None:
    with client("<think>Hm.</think>Yes.") as c:
        reply = c.post(ROUTE, json=ASK | {"stream": stream, "espalier": {"reasoning": "think"}})
    if stream:
        deltas = [one["choices"][0]["delta"] for one in chunks(reply.text)]
        found = {
            name: "".join(d.get(name, "") for d in deltas) for name in ("reasoning", "reasoning_content", "content")
        }
    else:
        found = reply.json()["choices"][0]["message"]
    assert (found["reasoning"], found["reasoning_content"], found["content"]) == ("Hm.", "Hm.", "Yes.")


def test_token_ids_come_where_asked_for() -> None:
    with client("Hi") as c:
        whole = c.post(ROUTE, json=ASK | {"return_token_ids": True}).json()
        parts = chunks(c.post(ROUTE, json=ASK | {"return_token_ids": True, "stream": True}).text)
    assert whole["choices"][0]["token_ids"] == [72, 105, 256]
    assert [i for one in parts for i in one["choices"][0].get("token_ids", [])] == [72, 105, 256]


def test_old_guided_fields_work_with_a_warning() -> None:
    with client("b") as c:
        reply = c.post(ROUTE, json=ASK | {"guided_choice": ["a", "b"]})
    assert reply.json()["choices"][0]["message"]["content"] == "b"
    assert "structured_outputs.choice" in reply.headers["warning"]


def test_a_trace_is_kept_where_asked_for_and_its_id_is_told() -> None:
    store = MemoryStore()
    with client("Hi", config=settings(trace_level="asked"), store=store) as c:
        c.post(ROUTE, json=ASK)
        assert not store.kept
        found = c.post(ROUTE, json=ASK | {"espalier": {"trace": True}}).json()
    assert list(store.kept) == [found["espalier"]["outputs"][0]["trace_id"]]


def test_the_meter_is_told_of_every_output_and_of_what_was_refused() -> None:
    meter = CountingMeter()
    with client("Hi", meter=meter) as c:
        c.post(ROUTE, json=ASK | {"n": 2, "temperature": 1, "structured_outputs": {"regex": "[a-z]{2}"}})
        c.post(ROUTE, json=ASK | {"best_of": 3})
    assert [(one.constraint, one.error, one.result is not None) for one in meter.finishes] == [
        ("regex", None, True)
    ] * 2
    assert all(one.to_first_token is not None and one.queued <= one.total for one in meter.finishes)
    assert meter.compiles == ["regex"]
    assert meter.refusals == [(ROUTE, "unsupported_parameter")]


def test_a_fault_after_the_stream_has_begun_is_its_last_event() -> None:
    made: list[Stuck] = []

    def serve(engine: Any) -> Stuck:
        made.append(Stuck(engine, fails=DeadEnd("nothing is left")))
        return made[0]

    meter = CountingMeter()
    with client(serve=serve, meter=meter) as c:
        reply = c.post(ROUTE, json=ASK | {"stream": True})
    last = json.loads(events(reply.text)[-1])
    assert last == {"error": {"message": "nothing is left", "type": "server_error", "param": None, "code": "dead_end"}}
    assert "[DONE]" not in reply.text
    assert [one.error for one in meter.finishes] == ["dead_end"]


def test_a_fault_of_ours_in_a_stream_shows_nothing_of_our_insides() -> None:
    with client(serve=lambda engine: Stuck(engine, fails=RuntimeError("secret insides"))) as c:
        reply = c.post(ROUTE, json=ASK | {"stream": True}, headers={"x-request-id": "abc"})
    assert "secret" not in reply.text
    assert "abc" in json.loads(events(reply.text)[-1])["error"]["message"]


def test_a_full_queue_is_a_503_that_says_when_to_come_again() -> None:
    with client(serve=lambda engine: Stuck(engine, refuses=Overloaded())) as c:
        reply = c.post(ROUTE, json=ASK)
    assert (reply.status_code, reply.headers["retry-after"]) == (503, "1")
    assert reply.json()["error"]["code"] == "overloaded"


def test_a_key_is_asked_for_before_the_body_is_read() -> None:
    gate = OneKeyGate()
    with client("Hi", gate=gate) as c:
        refused = c.post(ROUTE, content=b"{ no json", headers={"content-type": "application/json"})
        assert refused.status_code == 401
        assert refused.json()["error"]["code"] == "invalid_api_key"
        assert c.post(ROUTE, json=ASK, headers={"authorization": "Bearer sk-good"}).status_code == 200
    assert gate.inside == 0


def test_too_many_requests_say_when_to_come_again() -> None:
    with client("Hi", gate=OneKeyGate(is_full=True)) as c:
        reply = c.post(ROUTE, json=ASK, headers={"authorization": "Bearer sk-good"})
    assert (reply.status_code, reply.headers["retry-after"]) == (429, "7")


class Wire:
    """One request by hand, whose client leaves when it wants to."""

    def __init__(self, body: dict[str, Any]) -> None:
        self._body = json.dumps(body).encode()
        self.leave = asyncio.Event()
        self.sent: list[Any] = []
        self._is_read = False

    async def receive(self) -> Any:
        if not self._is_read:
            self._is_read = True
            return {"type": "http.request", "body": self._body, "more_body": False}
        await self.leave.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Any) -> None:
        self.sent.append(message)


def scope(app: Any) -> dict[str, Any]:
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": "POST",
        "path": ROUTE,
        "raw_path": ROUTE.encode(),
        "query_string": b"",
        "root_path": "",
        "scheme": "http",
        "headers": [(b"content-type", b"application/json"), (b"host", b"localhost")],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 80),
    }


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_leaves_stops_its_generation(stream: bool) -> None:
    made: list[Stuck] = []
    meter, gate = CountingMeter(), OneKeyGate()

    def serve(engine: Any) -> Stuck:
        made.append(Stuck(engine))
        return made[0]

    async def run() -> None:
        app = make_app(serve=serve, meter=meter, gate=gate)
        async with app.router.lifespan_context(app):
            wire = Wire(ASK | {"stream": stream, "n": 2, "temperature": 1})
            asked = scope(app)
            asked["headers"].append((b"authorization", b"Bearer sk-good"))
            task = asyncio.create_task(app(asked, wire.receive, wire.send))
            await asyncio.to_thread(made[0].begun.wait)
            wire.leave.set()
            await task

    asyncio.run(run())
    assert [one.cancelled.is_set() for one in made[0].runs] == [True, True]
    assert [one.error for one in meter.finishes] == ["cancelled", "cancelled"]
    assert gate.inside == 0


@pytest.mark.parametrize("stream", [False, True])
def test_a_connection_that_is_cut_stops_its_generation(stream: bool) -> None:
    made: list[Stuck] = []

    def serve(engine: Any) -> Stuck:
        made.append(Stuck(engine))
        return made[0]

    body = json.dumps(ASK | {"stream": stream}).encode()
    head = f"POST {ROUTE} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {len(body)}"
    with served(make_app(serve=serve)) as url:
        with socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2]))) as connection:
            connection.sendall(f"{head}\r\n\r\n".encode() + body)
            assert made[0].begun.wait(timeout=60)
        assert made[0].runs[0].cancelled.wait(timeout=60)


RUNS_OVER: tuple[dict[str, Any], ...] = (
    {"espalier": {"safety": "strict"}},
    {"bad_words": ["bad"]},
    {"use_beam_search": True, "n": 2},
    {"espalier": {"constraint": {"kind": "regex", "pattern": "a+"}}},
    {"response_format": {"type": "json_object"}},
)


@pytest.mark.parametrize("fields", RUNS_OVER, ids=lambda one: next(iter(one)))
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_a_limit_that_a_run_exceeds_is_the_requests_fault(fields: dict[str, Any], stream: bool) -> None:
    fails = LimitExceeded("not found within the bounds of the search", hint="ask for less")
    with client(serve=lambda engine: Stuck(engine, fails=fails)) as asked:
        reply = asked.post("/v1/chat/completions", json=ASK | fields | {"stream": stream})
    assert reply.status_code == (200 if stream else 400)
    assert '"code":"too_costly"' in reply.text.replace('": "', '":"')
    assert "ask for less" in reply.text


def test_a_limit_of_the_engine_itself_is_the_servers_fault() -> None:
    with client(serve=lambda engine: Stuck(engine, fails=LimitExceeded("no room"))) as asked:
        reply = asked.post("/v1/chat/completions", json=ASK)
    assert reply.status_code == 500


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"structured_outputs": {"regex": "a"}}, "structured_outputs.regex"),
        ({"response_format": FORMAT, "espalier": {}}, "response_format.json_schema.schema"),
        ({"tools": [TOOL]}, "tools"),
    ],
)
def test_what_is_too_costly_to_compile_is_the_requests_fault(fields: dict[str, Any], param: str) -> None:
    with client(serve=lambda engine: Stuck(engine, refuses=LimitExceeded("too many states"))) as c:
        reply = c.post(ROUTE, json=ASK | fields)
    assert (reply.status_code, reply.json()["error"]["param"]) == (400, param)
    assert reply.json()["error"]["code"] == "too_costly"


def test_a_stream_that_waits_sends_pings() -> None:
    async def run() -> bytes:
        app = make_app(serve=Stuck, config=settings(sse_ping_seconds="0.01"))
        async with app.router.lifespan_context(app):
            wire = Wire(ASK | {"stream": True})
            task = asyncio.create_task(app(scope(app), wire.receive, wire.send))
            while not any(one.get("body") == b": ping\n\n" for one in wire.sent):
                assert not task.done()
                await asyncio.sleep(0)
            wire.leave.set()
            await task
            return b"".join(one.get("body", b"") for one in wire.sent)

    assert asyncio.run(run()).count(b"data: ") == 1


def test_a_request_that_takes_too_long_is_a_504() -> None:
    class Slow(Stuck):
        def submit(self, request: Any, *, owner: str = "", deadline: float | None = None) -> Any:
            run = super().submit(request)
            self.runs[-1].cancelled.wait(timeout=0.2)
            return run

    made: list[Slow] = []

    def serve(engine: Any) -> Slow:
        made.append(Slow(engine))
        return made[0]

    with client(serve=serve, config=settings(request_seconds="0.01")) as c:
        reply = c.post(ROUTE, json=ASK)
    assert reply.status_code == 504
    assert reply.json()["error"]["code"] == "deadline_exceeded"
    for one in made[0].runs:
        assert one.cancelled.wait(timeout=30)  # handed over by the thread, which nobody waits for any more


def test_the_loop_is_free_while_a_request_is_prepared() -> None:
    """Another request is answered while one compiles."""

    async def run() -> list[int]:
        going = asyncio.Event()
        loop = asyncio.get_running_loop()

        class Compiling(Stuck):
            def submit(self, request: Any, *, owner: str = "", deadline: float | None = None) -> Any:
                loop.call_soon_threadsafe(going.set)
                self.begun.wait()
                return super().submit(request)

        made: list[Compiling] = []

        def serve(engine: Any) -> Compiling:
            made.append(Compiling(engine, fails=DeadEnd()))
            return made[0]

        app = make_app(serve=serve)
        transport = httpx2.ASGITransport(app=app)
        async with app.router.lifespan_context(app), httpx2.AsyncClient(transport=transport, base_url="http://x") as c:
            first = asyncio.create_task(c.post(ROUTE, json=ASK))
            await going.wait()
            other = await c.get("/v1/models")
            made[0].begun.set()
            return [other.status_code, (await first).status_code]

    assert asyncio.run(run()) == [200, 500]


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"espalier": {"safety": {"patterns": [{"regex": "a" * 2100}]}}}, "espalier.safety"),
        ({"espalier": {"safety": {"lists": {"pii": ["x" * 1100]}}}}, "espalier.safety"),
        ({"espalier": {"safety": {"kind": "regex", "pattern": "a"}}}, "espalier.safety"),
        ({"vocab_lang": "a" * 5000, "vocab_n_words": 10}, "vocab_lang"),
    ],
    ids=["regex of 2,100 characters", "phrase of 1,100", "another kind", "language of 5,000 letters"],
)
def test_a_value_that_is_too_large_or_of_another_kind_was_an_internal_error(fields: Any, param: str) -> None:
    with client() as http:
        reply = http.post("/v1/chat/completions", json={"messages": [{"role": "user", "content": "hi"}], **fields})
    assert reply.status_code == 400, reply.text
    assert reply.json()["error"]["param"] == param


def test_more_template_variables_than_a_template_can_read_are_refused() -> None:
    given = {f"v{number}": 1 for number in range(1025)}
    with client() as asked:
        reply = asked.post(ROUTE, json=ASK | {"chat_template_kwargs": given})
    assert (reply.status_code, reply.json()["error"]["param"]) == (400, "chat_template_kwargs")
