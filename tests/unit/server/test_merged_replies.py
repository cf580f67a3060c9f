"""Replies of our own server merged with its own rejection log: by the request's id, every step known."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi")

from espalier.trace.foreign.matching import MatchError
from espalier.trace.foreign.merge import CombinedTrace, merge_files
from tests.server_app import client, settings

CHAT = "/v1/chat/completions"
ASK: dict[str, Any] = {
    "messages": [{"role": "user", "content": "hi"}],
    "max_tokens": 12,
    "temperature": 0,
    "logprobs": 5,
    "structured_outputs": {"choice": ["yellow"]},
}
"""The model wishes for green: with `"logprobs": 5`, as the rejection tracer's README asks for it."""


def merged(folder: Path, reply: Any, **options: Any) -> CombinedTrace:
    path = folder / "reply.json"
    path.write_text(reply if isinstance(reply, str) else json.dumps(reply))
    return merge_files(path, folder / "log.json", **options)


def states(found: CombinedTrace) -> list[bool | None]:
    return [one["rejection_sampling"]["was_rejected"] for one in found.data["steps"]]


def test_a_number_of_logprobs_is_the_number_of_candidates() -> None:
    with client("green") as c:
        content = c.post(CHAT, json=ASK | {"logprobs": 2}).json()["choices"][0]["logprobs"]["content"]
        assert {len(one["top_logprobs"]) for one in content} == {2}
        assert all(isinstance(one["id"], int) for entry in content for one in (entry, *entry["top_logprobs"]))
        assert c.post(CHAT, json=ASK | {"logprobs": 0}).json()["choices"][0]["logprobs"] is None
        assert c.post(CHAT, json=ASK | {"logprobs": 2, "top_logprobs": 3}).status_code == 400


def test_ids_of_tokens_and_candidates_come_on_request() -> None:
    with client("green") as c:
        reply = c.post(CHAT, json=ASK | {"return_token_ids": True}).json()
    choice = reply["choices"][0]
    ids = [one["id"] for one in choice["logprobs"]["content"]]
    assert ids == choice["token_ids"][: len(ids)]
    assert choice["logprobs"]["content"][0]["top_logprobs"][0]["id"] == ord("g")


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("ids", [False, True])
def test_an_event_at_the_end_token_does_not_lose_the_others(tmp_path: Path, *, stream: bool, ids: bool) -> None:
    ask = ASK | {"return_token_ids": ids, "stream": stream, "espalier": {}}
    with client("yellow green", config=settings(rejection_log=str(tmp_path / "log.json"))) as c:
        reply = c.post(CHAT, json=ask | ({"stream_options": {"include_usage": True}} if stream else {}))
    events = json.loads((tmp_path / "log.json").read_text())["events"]
    assert [one["step"] for one in events] == [6]  # the space that the model wished for, where the text must end
    found = merged(tmp_path, reply.text)
    assert states(found) == [False] * 6 + [True]
    assert found.link is not None
    assert found.link.how == "request"
    assert found.data["summary"]["unknown_steps"] == 0


def test_four_requests_at_once_are_told_apart_by_the_id_in_their_replies(tmp_path: Path) -> None:
    schema = {"type": "object", "properties": {"a": {"enum": ["x", "y"]}}, "required": ["a"]}
    ask = {
        **ASK,
        "response_format": {"type": "json_schema", "json_schema": {"schema": schema}},
        "temperature": 1,
        "max_tokens": 40,
    }
    del ask["structured_outputs"]
    config = settings(rejection_log=str(tmp_path / "log.json"))
    with client("Sure!", config=config) as c, ThreadPoolExecutor(4) as pool:
        replies = list(pool.map(lambda seed: c.post(CHAT, json=ask | {"seed": seed}).json(), range(4)))
    events = json.loads((tmp_path / "log.json").read_text())["events"]
    for reply in replies:
        found = merged(tmp_path, reply)
        own = [one["step"] for one in events if one["request_id"] == reply["request_id"]]
        assert own
        assert [place for place, one in enumerate(states(found)) if one] == own
        assert None not in states(found)


def test_a_reply_without_rejections_is_known_to_have_none(tmp_path: Path) -> None:
    with client("yellow", config=settings(rejection_log=str(tmp_path / "log.json"))) as c:
        c.post(CHAT, json=ASK | {"structured_outputs": {"choice": ["green"]}})
        reply = c.post(CHAT, json=ASK).json()
        while_it_runs = merged(tmp_path, reply)
    assert states(while_it_runs) == states(merged(tmp_path, reply)) == [False] * 7


def test_one_of_several_outputs_and_llama_servers_route(tmp_path: Path) -> None:
    with client("green", config=settings(rejection_log=str(tmp_path / "log.json"))) as c:
        reply = c.post(CHAT, json=ASK | {"n": 2}).json()
        native = c.post(
            "/completion",
            json={
                "prompt": "x",
                "n_predict": 8,
                "temperature": 0,
                "n_probs": 3,
                "grammar": 'root ::= "red"',
                "id_slot": 3,
            },
        ).json()
    for choice in (0, 1):
        found = merged(tmp_path, reply, choice=choice)
        assert (found.task and found.task.output) == choice
        assert True in states(found)
        assert None not in states(found)
    found = merged(tmp_path, native)
    assert found.link is not None
    assert (found.link.how, None in states(found), True in states(found)) == ("request", False, True)


def test_a_request_is_picked_by_name_where_the_reply_does_not_say_it(tmp_path: Path) -> None:
    with client("green", config=settings(rejection_log=str(tmp_path / "log.json"))) as c:
        for name in ("first", "second"):
            reply = c.post(CHAT, json=ASK, headers={"x-request-id": name}).json()
    with pytest.raises(MatchError, match="is of request 'second', not of 'first'"):
        merged(tmp_path, reply, request="first")
    del reply["request_id"]
    assert merged(tmp_path, reply, request="second").data["metadata"]["link"]["request_id"] == "second"
    with pytest.raises(MatchError, match="the log has no request 'third'"):
        merged(tmp_path, reply, request="third")
