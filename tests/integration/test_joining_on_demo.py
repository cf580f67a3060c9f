"""Constraints that were dropped in silence, on the bundled model, through each edge."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("transformers", reason="transformers is not installed")

import espalier
from espalier.cli.main import main_code
from espalier.constraints.verdict import judge
from espalier.errors import Stranded
from espalier.sampling.presets.catalogue import BUILTIN
from tests.server_app import client

PROMPT = "Generate user info"
UNENFORCED = (
    "safety: profanity: nothing is enforced: it needs a list, and there is none",
    "safety: violence: nothing is enforced: it needs a list, and there is none",
)


@pytest.fixture
def generate(capfd, monkeypatch, tmp_path):
    monkeypatch.setenv("ESPALIER_CONFIG_DIR", str(tmp_path))
    monkeypatch.delenv("ESPALIER_MODEL", raising=False)

    def call(*arguments):
        code = main_code(["generate", *arguments])
        out, err = capfd.readouterr()
        return code, out, err

    return call


@pytest.mark.slow
@pytest.mark.parametrize("flags", [["--safety", "minimal"], ["--ban", "@"]], ids=" ".join)
def test_preset_json_strict_with_a_filter_printed_prose(generate, flags):
    code, out, _ = generate("--preset", "json_strict", *flags, "--seed", "1", PROMPT)
    assert code == 0
    assert isinstance(json.loads(out), dict)
    assert flags != ["--ban", "@"] or "@" not in out


@pytest.mark.parametrize("own", [espalier.Safety("minimal"), espalier.Ban(["@"])], ids=lambda one: one.kind)
def test_a_filter_in_python_dropped_the_preset_s_json(demo_engine, own):
    result = demo_engine.generate(PROMPT, preset="json_strict", constraint=own, seed=1)
    assert isinstance(result.parsed, dict)
    assert judge(own, result.text).valid
    assert result.verdict.valid
    assert result.notes == ()


@pytest.mark.slow
def test_tool_call_with_a_filter_answered_hello_in_prose(demo_engine):
    result = demo_engine.generate("Hello", preset="tool_call", safety="minimal", seed=1)
    assert set(result.parsed) == {"name", "args"}
    assert result.verdict.valid


@pytest.mark.parametrize("stream", [False, True])
def test_over_http_a_safety_level_dropped_the_preset_s_json(demo_engine, stream):
    with client(engine=demo_engine) as http:
        body = {"messages": [{"role": "user", "content": PROMPT}], "seed": 1, "stream": stream}
        body |= {"espalier": {"preset": "json_strict", "safety": "minimal"}}
        reply = http.post("/v1/chat/completions", json=body)
        assert reply.status_code == 200
        if stream:
            chunks = [json.loads(line[6:]) for line in reply.text.splitlines() if line.startswith("data: {")]
            text = "".join(one["choices"][0]["delta"].get("content") or "" for one in chunks if one["choices"])
        else:
            text = reply.json()["choices"][0]["message"]["content"]
        assert isinstance(json.loads(text), dict)
        assert "warning" not in reply.headers


def test_safe_chat_said_nothing_in_python_of_what_it_does_not_enforce(demo_engine):
    assert demo_engine.generate("Hello", preset="safe_chat", max_tokens=4).notes == UNENFORCED


def test_safe_chat_said_nothing_over_http_of_what_it_does_not_enforce(demo_engine):
    body = {"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 4, "espalier": {"preset": "safe_chat"}}
    with client(engine=demo_engine) as http:
        reply = http.post("/v1/chat/completions", json=body)
        (output,) = reply.json()["espalier"]["outputs"]
        assert output["notes"] == list(UNENFORCED)
        assert all(note in reply.headers["warning"] for note in UNENFORCED)
        streamed = http.post("/v1/chat/completions", json=body | {"stream": True})
        assert json.dumps(UNENFORCED[0]) in streamed.text


def test_the_command_line_says_what_takes_the_place_of_a_preset_s_form(generate):
    code, out, err = generate("-m", "fake", "--preset", "json_strict", "--choice", "yes", "hi")
    assert (code, out) == (0, "yes\n")
    assert err == (
        "json_object of the preset 'json_strict' is replaced by the request's choice: both are the form of the answer\n"
    )
    code, out, _ = generate("-m", "fake", "--json", "--preset", "safe_chat", "--max-tokens", "3", "hi")
    assert json.loads(out)["notes"] == list(UNENFORCED)


PATH = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
TOOLS = {"ls": PATH | {"additionalProperties": False}}


def test_a_ban_did_not_hold_in_the_arguments_of_a_call(demo_engine):
    free = demo_engine.generate("Read the file /etc/hosts", tools=TOOLS, tool_choice="required", seed=1)
    (word, *_) = [part for part in free.tool_calls[0].arguments.split("/") if part.isalnum()] or ["etc"]
    held = demo_engine.generate(
        "Read the file /etc/hosts", tools=TOOLS, tool_choice="required", seed=1, constraint=espalier.Ban([word])
    )
    assert word not in held.text
    assert held.tool_calls[0].is_complete


def test_a_required_call_says_that_the_content_s_constraint_has_nothing_to_hold():
    engine = espalier.load("fake")
    asked = {"tools": TOOLS, "tool_choice": "required", "constraint": espalier.JsonObject(), "max_tokens": 80}
    assert engine.generate("hi", **asked).notes == (
        "json_object holds for a turn without calls, and tool_choice demands a call",
    )


def test_a_preset_s_form_was_dropped_beside_tools_that_need_not_be_called():
    request = espalier.api.make_request("hi", tools=TOOLS, preset="json_strict", tool_choice="none")
    assert request.constraint == espalier.JsonObject()
    assert espalier.api.make_request("hi", tools=TOOLS, preset="json_strict").constraint == espalier.JsonObject()
    called = espalier.api.make_request("hi", tools=TOOLS, preset="json_strict", tool_choice="required")
    assert called.constraint is None
    assert "'json_strict' is replaced by the request's tools" in called.notes[0]


def test_two_constraints_of_one_body_were_refused():
    body = {"messages": [{"role": "user", "content": "hi"}], "temperature": 0, "max_tokens": 80}
    both = {"response_format": {"type": "json_object"}, "espalier": {"constraint": {"kind": "ban", "phrases": ["Ada"]}}}
    with client('{"name": "Ada", "age": 36}') as http:
        text = http.post("/v1/chat/completions", json=body | both).json()["choices"][0]["message"]["content"]
    assert isinstance(json.loads(text), dict)
    assert "Ada" not in text


def test_a_disabled_filter_of_a_chain_was_applied():
    vocab = espalier.load("fake").vocab
    chain = espalier.FilterChain([espalier.TokenBan([ord("H")], name="no_h")])
    chain.disable("no_h")
    engine = espalier.LoadedEngine(espalier.load("fake").engine)
    request = espalier.api.make_request("hi", filters=chain)
    assert request.filters == ()
    assert vocab is not None
    assert engine.generate("hi", filters=chain, max_tokens=2, temperature=0).text


@pytest.mark.parametrize("name", BUILTIN)
def test_each_preset_gives_what_it_says_in_python(demo_engine, name):
    result = demo_engine.generate("Read the file /etc/hosts", preset=name, max_tokens=60, seed=1)
    if result.finish_reason == "stop" and result.verdict is not None:
        assert result.verdict.valid
    spec = espalier.api.make_request("x", preset=name).constraint
    if spec is not None and result.finish_reason == "stop":
        assert judge(spec, result.text).valid


@pytest.mark.parametrize("name", ["json_strict", "tool_call", "safe_chat", "code_generation"])
def test_each_preset_gives_what_it_says_over_http(demo_engine, name):
    body = {"messages": [{"role": "user", "content": PROMPT}], "max_tokens": 200, "seed": 1}
    body |= {"espalier": {"preset": name}}
    with client(engine=demo_engine) as http:
        reply = http.post("/v1/chat/completions", json=body).json()
    (choice,), (output,) = reply["choices"], reply["espalier"]["outputs"]
    if choice["finish_reason"] == "stop":
        assert output["verdict"]["valid"] is True
    if name in ("json_strict", "tool_call"):
        assert choice["finish_reason"] == "stop"
        assert isinstance(json.loads(choice["message"]["content"]), dict)


APART = espalier.AllOf(
    espalier.JsonSchema({"type": "array", "items": {"enum": [1, 2]}, "minItems": 2, "uniqueItems": True}),
    espalier.After("</think>", espalier.Regex("a+")),
    dead_ends="rewind",
)
"""Members of which one has no automaton, so that only trying shows that they share no text."""


@pytest.mark.slow
def test_members_that_share_no_text_were_a_fault_of_the_server(demo_engine):
    with pytest.raises(Stranded, match=r"all_of\[0\].json_schema and all_of\[1\].after allow none") as caught:
        demo_engine.generate("Hello", constraint=APART, seed=1)
    assert (caught.value.http_status, caught.value.field) == (400, "constraint")
    assert caught.value.hint
    body = {"messages": [{"role": "user", "content": "Hello"}], "seed": 1, "espalier": {"constraint": APART.to_json()}}
    with client(engine=demo_engine) as http:
        for stream in (False, True):
            reply = http.post("/v1/chat/completions", json=body | {"stream": stream})
            if stream:  # nothing can be sent before it is known
                error = json.loads(reply.text.split("data: ")[-1])["error"]
            else:
                assert reply.status_code == 400
                error = reply.json()["error"]
            assert (error["type"], error["code"]) == ("invalid_request_error", "stranded")
            assert error["param"] == "espalier.constraint"
            assert "json_schema and all_of[1].after" in error["message"]


@pytest.mark.slow
def test_members_that_share_no_text_end_the_command_with_a_usage_error(generate, tmp_path):
    path = tmp_path / "apart.json"
    path.write_text(json.dumps(APART.to_json()))
    code, _, err = generate("--constraint", str(path), "--seed", "1", "Hello")
    assert code == 2
    assert "all_of[0].json_schema and all_of[1].after" in " ".join(err.split())
