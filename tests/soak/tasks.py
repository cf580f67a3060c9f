"""What clients of the soak do: every kind of constraint, every strategy, several dialects, streams that are left,
traces that are kept and read, batches, schemas that no one has sent before. Each is one function and one line of TASKS.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import httpx2

from espalier.constraints.after.spec import After
from espalier.constraints.ban import Ban
from espalier.constraints.channels.spec import Channels
from espalier.constraints.compose.all_of import AllOf
from espalier.constraints.compose.any_of import AnyOf
from espalier.constraints.free import Free
from espalier.constraints.safety.spec import Safety
from espalier.constraints.spec import Choice, Gbnf, JsonObject, JsonSchema, Regex, Spec
from espalier.constraints.tools.spec import ToolCalls
from espalier.constraints.words.spec import Wordlist
from espalier.decoding.strategies import STRATEGIES

USER = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 12}, "age": {"type": "integer"}},
    "required": ["name", "age"],
    "additionalProperties": False,
}
TOOL = {"name": "set_alarm", "description": "Set an alarm.", "parameters": USER}
CONSTRAINTS: Mapping[str, Spec] = {
    "json_schema": JsonSchema(USER),
    "json_object": JsonObject(max_depth=2),
    "regex": Regex(r"[a-z]{3,8}( [a-z]{2,6}){1,3}"),
    "choice": Choice(["red", "green", "blue"]),
    "gbnf": Gbnf('root ::= "(" root ")" | [a-z]'),
    "wordlist": Wordlist(lang="en", top=300),
    "ban": Ban(["the"]),
    "safety": Safety("standard"),
    "all_of": AllOf(Regex("[a-z ]{5,30}"), Ban(["cat"])),
    "any_of": AnyOf(Choice(["yes", "no"]), Regex("[0-9]{1,4}")),
    "after": After("=", Regex("[0-9]{2}")),
    "free": Free({"<": Regex("[a-z]{1,5}>")}),
    "tool_calls": ToolCalls([TOOL]),
    "channels": Channels(JsonSchema(USER)),
}


class Refused(Exception):
    """A reply that is an error. status: of HTTP."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(f"{status}: {text[:200]}")
        self.status = status


@dataclass(frozen=True, slots=True, kw_only=True)
class Errand:
    """What a task gets. number: counts all tasks of a run, so that what is made of it is new. random: of this task
    alone. wait: returns false once the run is over, else after a moment."""

    client: httpx2.Client
    number: int
    random: random.Random
    wait: Callable[[], bool]

    def send(self, path: str, body: Any, *, method: str = "POST") -> Any:
        """The reply as JSON. Raises Refused."""
        return _whole(self.client.request(method, path, json=body))

    def prompt(self) -> str:
        return self.random.choice(["Generate user info", "List three colors", "What is 7 + 5?", "Tell me a story."])

    def chat(self, **more: Any) -> dict[str, Any]:
        return {"messages": [{"role": "user", "content": self.prompt()}], "max_tokens": 24, **more}


Task: TypeAlias = Callable[[Errand], None]


def _whole(reply: httpx2.Response) -> Any:
    if reply.status_code >= 400:
        raise Refused(reply.status_code, reply.text)
    return reply.json()


def constrained(errand: Errand) -> None:
    """The kinds in turn."""
    kinds = sorted(CONSTRAINTS)
    spec = CONSTRAINTS[kinds[errand.number % len(kinds)]]
    errand.send(
        "/v1/completions", {"prompt": errand.prompt(), "max_tokens": 24, "espalier": {"constraint": spec.to_json()}}
    )


def new_schema(errand: Errand) -> None:
    fields = {f"{name}{errand.number}": {"type": kind} for name, kind in (("a", "string"), ("b", "integer"))}
    fields[f"c{errand.number}"] = {"enum": [f"x{errand.number}", f"y{errand.number}"]}
    schema = {"type": "object", "properties": fields, "required": sorted(fields), "additionalProperties": False}
    form = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
    errand.send("/v1/chat/completions", errand.chat(response_format=form))


def new_pattern(errand: Errand) -> None:
    pattern = f"n{errand.number}:[a-f]{{3,9}}"
    errand.send("/v1/completions", {"prompt": "a", "max_tokens": 16, "structured_outputs": {"regex": pattern}})


def streamed(errand: Errand) -> None:
    for _ in _events(errand, errand.chat(stream=True)):
        pass


def left(errand: Errand) -> None:
    """A client that leaves after some events, of a text that would be long, with a schema or without."""
    body = errand.chat(stream=True, max_tokens=300)
    body |= {"response_format": {"type": "json_object"}} if errand.number % 2 else {"ignore_eos": True}
    until = errand.random.randrange(1, 12)
    for count, _ in enumerate(_events(errand, body)):
        if count >= until:
            return


def _events(errand: Errand, body: Any) -> Iterator[str]:
    with errand.client.stream("POST", "/v1/chat/completions", json=body) as reply:
        if reply.status_code >= 400:
            raise Refused(reply.status_code, reply.read().decode(errors="replace"))
        for line in reply.iter_lines():
            if line.startswith('data: {"error"'):
                raise Refused(200, line)
            if line.startswith("data: "):
                yield line


def searched(errand: Errand) -> None:
    """The strategies in turn."""
    names = list(STRATEGIES.names())
    name = names[errand.number % len(names)]
    many = {"beam": {"num_beams": 3}, "smc": {"particles": 3}, "best_of": {"particles": 3}, "awrs": {"particles": 2}}
    ours = {"strategy": name, **many.get(name, {}), "constraint": CONSTRAINTS["regex"].to_json()}
    errand.send("/v1/completions", {"prompt": errand.prompt(), "max_tokens": 16, "espalier": ours})


def called(errand: Errand) -> None:
    tools = [{"type": "function", "function": TOOL}]
    errand.send("/v1/chat/completions", errand.chat(tools=tools, tool_choice="required", max_tokens=60))


def several(errand: Errand) -> None:
    errand.send("/v1/chat/completions", errand.chat(n=3, logprobs=True, top_logprobs=3))


def traced(errand: Errand) -> None:
    """A trace is kept, listed, read and, every other time, deleted."""
    schema = CONSTRAINTS["json_schema"].to_json()
    body = {"prompt": errand.prompt(), "max_tokens": 16, "espalier": {"trace": "steps", "constraint": schema}}
    errand.send("/v1/completions", body)
    rows = errand.send("/traces?limit=5", None, method="GET")["data"]
    address = f"/traces/{errand.random.choice(rows)['id']}"
    if errand.client.get(f"{address}/page").status_code == 200 and errand.number % 2:
        errand.client.delete(address)


def responded(errand: Errand) -> None:
    """A reply is stored, continued, read and, every other time, deleted."""
    reply = errand.send("/v1/responses", {"input": errand.prompt(), "max_output_tokens": 16})
    again = {"input": "And then?", "max_output_tokens": 16, "previous_response_id": reply["id"]}
    errand.send("/v1/responses", again)
    address = f"/v1/responses/{reply['id']}"
    errand.send(address, None, method="GET")
    if errand.number % 2:
        errand.send(address, None, method="DELETE")


def messaged(errand: Errand) -> None:
    errand.send("/v1/messages", errand.chat(model="any"))


def told_wrong(errand: Errand) -> None:
    """What is refused: a wrong body, a pattern that matches nothing, a schema that is none."""
    wrong = [{"max_tokens": -5}, {"structured_outputs": {"regex": "(("}}, {"json_schema": {"type": "nothing"}}]
    reply = errand.client.post("/v1/completions", json={"prompt": "a"} | wrong[errand.number % 3])
    if reply.status_code != 400:
        raise Refused(reply.status_code, reply.text)


def batched(errand: Errand) -> None:
    """A batch of five, one of them wrong: uploaded, waited for, read, and its files deleted."""
    lines = [
        json.dumps(
            {"custom_id": f"i{n}", "method": "POST", "url": "/v1/chat/completions", "body": errand.chat(max_tokens=8)}
        )
        for n in range(5)
    ]
    lines[4] = lines[4].replace('"max_tokens": 8', '"max_tokens": -8')
    files = {"file": ("in.jsonl", "\n".join(lines).encode())}
    upload = _whole(errand.client.post("/v1/files", files=files, data={"purpose": "batch"}))
    asked = {"input_file_id": upload["id"], "endpoint": "/v1/chat/completions", "completion_window": "24h"}
    batch = errand.send("/v1/batches", asked)
    while batch["status"] not in ("completed", "failed", "expired", "cancelled"):
        if not errand.wait():
            return
        batch = errand.send(f"/v1/batches/{batch['id']}", None, method="GET")
    if batch["request_counts"] != {"total": 5, "completed": 4, "failed": 1}:
        raise Refused(200, f"a batch ended with {batch['request_counts']}")
    for file in (batch["output_file_id"], batch["error_file_id"]):
        errand.client.get(f"/v1/files/{file}/content").raise_for_status()
        errand.send(f"/v1/files/{file}", None, method="DELETE")
    errand.send(f"/v1/files/{upload['id']}", None, method="DELETE")


def looked_up(errand: Errand) -> None:
    for path in ("/v1/models", "/slots", "/props", "/espalier/presets"):
        errand.send(path, None, method="GET")
    errand.send("/tokenize", {"content": errand.prompt() * 20})


TASKS: Mapping[Task, int] = {
    constrained: 28,
    new_schema: 14,
    new_pattern: 4,
    streamed: 6,
    left: 10,
    searched: 12,
    called: 4,
    several: 3,
    traced: 8,
    responded: 4,
    messaged: 3,
    told_wrong: 3,
    batched: 2,
    looked_up: 3,
}
"""Each with how many of about a hundred tasks it is."""
