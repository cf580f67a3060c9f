"""Tools, reasoning and prompts through an engine: the fake model wishes for a text, the turn is what is read of it."""

from __future__ import annotations

import json

import numpy as np
import pytest

import espalier
from espalier.api import make_request
from espalier.chat.prompt.template import ChatTemplate
from espalier.chat.reading.deltas import ArgumentsDelta, CallBegun, CallEnded, ContentDelta, ReasoningDelta
from espalier.constraints.verdict import judge
from espalier.engines.base import FinishEvent
from espalier.engines.fake import FakeStepModel, noise, open_engine
from espalier.engines.local.engine import LocalEngine
from espalier.errors import CapabilityError, InputError, UnknownName
from espalier.tokens.vocab import Vocab

TOOLS = {
    "read_file": {
        "type": "object",
        "properties": {"path": {"type": "string"}},
        "required": ["path"],
        "additionalProperties": False,
    },
    "add": {
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
        "required": ["a", "b"],
        "additionalProperties": False,
    },
}
CALL = '{"name": "read_file", "args": {"path": "/etc/hosts"}}'
GREEDY = {"temperature": 0, "max_tokens": 300}


def wishing(text):
    return espalier.LoadedEngine(open_engine(wish=text))


def test_a_call_is_read_from_the_text():
    result = wishing(CALL).generate("go", tools=TOOLS, **GREEDY)
    (call,) = result.tool_calls
    assert (call.name, call.arguments, call.parsed) == ("read_file", '{"path": "/etc/hosts"}', {"path": "/etc/hosts"})
    assert call.is_complete
    assert result.finish_reason == "tool_calls"
    assert result.content == ""
    assert result.verdict.valid is True
    assert result.parsed == [{"name": "read_file", "arguments": {"path": "/etc/hosts"}}]


def test_what_is_no_call_is_content():
    result = wishing("Paris").generate("go", tools=TOOLS, **GREEDY)
    assert (result.content, result.tool_calls, result.finish_reason) == ("Paris", (), "stop")
    assert result.parsed == "Paris"


def test_a_tool_that_does_not_exist_cannot_be_called():
    result = wishing('{"name": "rm", "args": {}}').generate("go", tools=TOOLS, **GREEDY)
    assert [call.name for call in result.tool_calls] in (["read_file"], ["add"])


def test_a_named_tool_is_called_exactly_once():
    wish = f"{CALL}\n{CALL}"
    result = wishing(wish).generate("go", tools=TOOLS, tool_choice="add", **GREEDY)
    assert [call.name for call in result.tool_calls] == ["add"]


def test_none_never_calls():
    result = wishing(CALL).generate("go", tools=TOOLS, tool_choice="none", **GREEDY)
    assert result.tool_calls == ()
    assert not result.text.lstrip().startswith("{")


@pytest.mark.parametrize(("limit", "count"), [({"parallel_tool_calls": False}, 1), ({"max_calls": 2}, 2), ({}, 3)])
def test_parallel_calls_obey_the_limit(limit, count):
    wish = "\n".join([CALL] * 3)
    result = wishing(wish).generate("go", tools=TOOLS, **limit, **GREEDY)
    assert len(result.tool_calls) == count
    assert [call.index for call in result.tool_calls] == list(range(count))
    assert len({call.id for call in result.tool_calls}) == count


def test_text_before_a_call_is_kept_and_streamed_apart():
    wish = 'I will look.\n<tool_call>\n{"name": "add", "arguments": {"a": 1, "b": 2}}\n</tool_call>'
    events = list(wishing(wish).stream("go", tools=TOOLS, tool_format="hermes", **GREEDY))
    deltas = [delta for event in events for delta in event.deltas]
    result = events[-1].result
    assert "".join(d.text for d in deltas if isinstance(d, ContentDelta)) == result.content
    assert result.content.strip() == "I will look."
    assert [d for d in deltas if isinstance(d, CallBegun)] == [CallBegun(0, "add", result.tool_calls[0].id)]
    pieces = [d.text for d in deltas if isinstance(d, ArgumentsDelta)]
    assert len(pieces) > 3
    assert "".join(pieces) == result.tool_calls[0].arguments == '{"a": 1, "b": 2}'
    assert [d for d in deltas if isinstance(d, CallEnded)] == [CallEnded(0)]
    assert result.verdict.valid is True


def test_a_call_cut_at_the_limit_is_told_as_such():
    result = wishing(CALL).generate("go", tools=TOOLS, temperature=0, max_tokens=35)
    (call,) = result.tool_calls
    assert result.finish_reason == "length"
    assert not call.is_complete
    assert call.parsed is None
    assert '{"path": "/etc/hosts"}'.startswith(call.arguments)
    assert result.verdict.valid is False
    assert result.turn.fault


def test_a_stop_text_that_cuts_a_call_does_not_make_it_one():
    result = wishing(CALL).generate("go", tools=TOOLS, stop=["hosts"], **GREEDY)
    assert result.finish_reason == "stop"
    assert not result.tool_calls[0].is_complete


def test_ids_are_the_same_for_the_same_run_and_others_for_another():
    eng = wishing(CALL)
    ids = [
        eng.generate(prompt, tools=TOOLS, seed=seed, **GREEDY).tool_calls[0].id
        for prompt, seed in [("a", 1), ("a", 1), ("b", 1), ("a", 2)]
    ]
    assert ids[0] == ids[1]
    assert len(set(ids)) == 3
    assert all(len(i) == 9 and i.isalnum() for i in ids)  # what Mistral's templates take


def test_content_beside_tools_is_held_to_the_constraint():
    spec = espalier.Choice(["yes", "no"])
    assert wishing("yes").generate("go", tools=TOOLS, constraint=spec, **GREEDY).content == "yes"
    assert wishing(CALL).generate("go", tools=TOOLS, constraint=spec, **GREEDY).tool_calls[0].name == "read_file"
    other = wishing("Perhaps").generate("go", tools=TOOLS, constraint=spec, **GREEDY)
    assert other.content in ("yes", "no") or other.tool_calls


def test_a_schema_whose_documents_look_like_calls_stays_content():
    spec = espalier.JsonSchema(
        {
            "type": "object",
            "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
            "required": ["name", "age"],
            "additionalProperties": False,
        }
    )
    result = wishing('{"name": "Ada", "age": 36}').generate("go", tools=TOOLS, constraint=spec, **GREEDY)
    assert result.tool_calls == ()
    assert result.parsed == {"name": "Ada", "age": 36}


def test_reasoning_is_free_of_the_constraint_and_split_from_the_content():
    wish = '<think>Hm, {"name"? No.</think>{"name": "Ada"}'
    spec = espalier.JsonSchema({"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]})
    events = list(wishing(wish).stream("go", constraint=spec, reasoning="think", **GREEDY))
    result = events[-1].result
    assert result.reasoning == 'Hm, {"name"? No.'
    assert result.content == '{"name": "Ada"}'
    assert result.parsed == {"name": "Ada"}
    assert result.verdict.valid is True
    deltas = [delta for event in events for delta in event.deltas]
    assert "".join(d.text for d in deltas if isinstance(d, ReasoningDelta)) == result.reasoning


def test_a_model_may_answer_without_reasoning():
    spec = espalier.Choice(["yes", "no"])
    result = wishing("yes").generate("go", constraint=spec, reasoning="think", **GREEDY)
    assert (result.content, result.reasoning) == ("yes", None)
    assert result.verdict.valid is True


def test_reasoning_then_a_call():
    result = wishing(f"<think>I call.</think>\n{CALL}").generate("go", tools=TOOLS, reasoning="think", **GREEDY)
    assert result.reasoning == "I call."
    assert result.tool_calls[0].parsed == {"path": "/etc/hosts"}
    assert result.verdict.valid is True


def test_reasoning_ends_at_its_limit():
    result = wishing(f"<think>{'on and on ' * 30}</think>yes").generate(
        "go", constraint=espalier.Choice(["yes", "no"]), reasoning="think", max_reasoning=20, **GREEDY
    )
    assert result.verdict.valid is True
    assert len(result.reasoning) <= 20


def opened_engine(wish, opening):
    """A template that begins the model's turn within its reasoning."""
    template = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
    template += "{% if add_generation_prompt %}assistant: " + opening + "{% endif %}"
    engine = open_engine(wish=wish)
    return espalier.LoadedEngine(
        LocalEngine(
            name="opened",
            model=engine.model,
            vocab=engine.vocab,
            encode=engine._encode,
            template=ChatTemplate(template),
        )
    )


def test_reasoning_that_the_prompt_has_opened_ends_before_the_answer():
    spec = espalier.Choice(["yes", "no"])
    eng = opened_engine("Hm.</think>yes", "<think>\n")
    result = eng.generate("go", constraint=spec, reasoning="auto", **GREEDY)
    assert (result.reasoning, result.content) == ("Hm.", "yes")
    assert result.parsed == "yes"
    assert result.verdict.valid is True


def test_reasoning_that_the_prompt_has_closed_is_over():
    spec = espalier.Choice(["yes", "no"])
    result = opened_engine("yes", "<think>\n\n</think>\n\n").generate(
        "go", constraint=spec, reasoning="think", **GREEDY
    )
    assert (result.reasoning, result.content, result.parsed) == (None, "yes", "yes")


def test_tools_are_told_to_a_model_whose_template_has_none():
    engine = open_engine()
    text = engine.prompt_text(make_request("go", tools=TOOLS))
    assert "You can use these tools: read_file, add." in text
    assert '"args"' in text
    assert "You can use" not in engine.prompt_text(make_request("go", tools=TOOLS, tool_choice="none"))


def test_the_schema_is_put_into_the_prompt_on_request():
    spec = espalier.JsonSchema({"type": "object", "properties": {"age": {"type": "integer"}}})
    text = open_engine().prompt_text(make_request("go", constraint=spec, schema_in_prompt=True, system="Be brief."))
    assert '{"type":"object","properties":{"age":{"type":"integer"}}}' in text.replace(": ", ":").replace(", ", ",")
    assert "Be brief." in text


def test_an_earlier_call_and_its_result_are_part_of_the_conversation():
    messages = [
        {"role": "user", "content": "Read it"},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {"id": "abc", "type": "function", "function": {"name": "read_file", "arguments": '{"path": "/x"}'}}
            ],
        },
        {"role": "tool", "tool_call_id": "abc", "content": "127.0.0.1"},
    ]
    text = open_engine().prompt_text(make_request(messages, tools=TOOLS))
    assert '{"name": "read_file", "args": {"path": "/x"}}' in text
    assert "127.0.0.1" in text


def test_noise_calls_only_what_exists_in_every_format():
    vocab = Vocab.bytes()
    model = FakeStepModel(lambda tokens: noise(tokens, vocab.width), width=vocab.width)
    eng = espalier.LoadedEngine(
        LocalEngine(name="noise", model=model, vocab=vocab, encode=lambda text, *, add_special: list(text.encode()))
    )
    for name in ("args", "hermes", "mistral", "functionary", "pythonic"):
        for seed in range(3):
            result = eng.generate(
                "go",
                raw=True,
                tools={"add": TOOLS["add"]},
                tool_choice="required",
                tool_format=name,
                max_calls=2,
                seed=seed,
                max_tokens=400,
                trace="off",
            )
            assert result.finish_reason == "tool_calls"
            assert 1 <= len(result.tool_calls) <= 2
            assert all(set(call.parsed) == {"a", "b"} for call in result.tool_calls)
            assert result.verdict.valid is True, (name, result.text, result.verdict)


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"tool_choice": "required"}, "tool_choice"),
        ({"tool_choice": "fly", "tools": TOOLS}, "tool_choice"),
        ({"tool_format": "hermes"}, "tool_format"),
        ({"max_calls": 0, "tools": TOOLS}, "max_calls"),
        ({"max_calls": 2, "parallel_tool_calls": False, "tools": TOOLS}, "parallel_tool_calls"),
        ({"max_reasoning": 0}, "max_reasoning"),
        ({"reasoning": "nonsense"}, "reasoning"),
        ({"tools": []}, "tools"),
        ({"tools": [{"name": "a b", "parameters": {}}]}, "tools[0].name"),
        ({"tools": [{"name": "a", "parameters": 3}]}, "tools[0].parameters"),
        ({"tools": [{"type": "web_search"}], "tool_choice": "required"}, "tool_choice"),
        ({"tools": [{"name": "a", "parameters": {}}, {"name": "a", "parameters": {}}]}, "tools[1].name"),
    ],
)
def test_what_is_asked_wrongly_names_the_field(options, field):
    with pytest.raises(InputError) as error:
        make_request("go", **options)
    assert error.value.field == field


def test_an_unknown_format_lists_those_there_are():
    with pytest.raises(UnknownName, match="tool_formats") as error:
        make_request("go", tools=TOOLS, tool_format="xml")
    assert "hermes" in error.value.hint


@pytest.mark.parametrize("options", [{"reasoning": "auto"}, {"max_reasoning": 5}])
def test_reasoning_of_a_model_without_markers_is_told(options):
    result = wishing("<think>hm</think>Hello").generate("go", **options, **GREEDY)
    assert (result.content, result.reasoning) == ("<think>hm</think>Hello", None)
    assert any("show no reasoning markers" in note for note in result.notes)


def test_a_schema_that_is_not_there_cannot_be_put_into_the_prompt():
    with pytest.raises(InputError, match="no schema"):
        open_engine().prompt_text(make_request("go", schema_in_prompt=True))


def test_a_schema_that_cannot_be_enforced_names_the_tool_and_the_pointer():
    schema = {"type": "object", "properties": {"tags": {"type": "string", "pattern": r"^(a*)b\1$"}}}
    tools = [{"name": "search", "parameters": schema, "strict": True}]
    with pytest.raises(espalier.EspalierError, match=r"search.*/properties/tags") as error:
        open_engine().run([make_request("go", tools=tools)])
    assert "strict" in str(error.value)


def test_tools_without_a_template_are_refused_unless_the_prompt_is_raw():
    vocab = Vocab.bytes()
    model = FakeStepModel(lambda tokens: np.zeros(vocab.width, dtype=np.float32), width=vocab.width)
    engine = LocalEngine(name="bare", model=model, vocab=vocab, encode=lambda text, *, add_special: list(text.encode()))
    with pytest.raises(InputError, match="no chat template"):
        engine.prompt_text(make_request("go", tools=TOOLS))
    assert engine.prompt_text(make_request("go", tools=TOOLS, raw=True)) == "go"


def test_a_template_that_shows_no_format_needs_it_named():
    template = "{% if tools %}{{ tools | tojson }}{% endif %}{% for m in messages %}{{ m.content }}{% endfor %}"
    fake = open_engine()
    engine = LocalEngine(
        name="odd", model=fake.model, vocab=fake.vocab, encode=fake._encode, template=ChatTemplate(template)
    )
    with pytest.raises(InputError, match="does not show how"):
        engine.prompt_text(make_request("go", tools=TOOLS))
    assert "read_file" in engine.prompt_text(make_request("go", tools=TOOLS, tool_format="openai"))


def test_an_engine_that_cannot_hold_calls_says_so():
    class Text:
        name = "text"
        capabilities = espalier.load("fake").capabilities.__class__(constraints=frozenset({"regex"}))

    with pytest.raises(CapabilityError, match="tool calls"):
        espalier.LoadedEngine(Text()).requests("go", tools=TOOLS)


def test_the_constraint_of_the_trace_can_be_made_again():
    result = wishing(CALL).generate("go", tools=TOOLS, **GREEDY)
    spec = espalier.constraints.spec.Spec.from_json(json.loads(json.dumps(result.trace.constraint)))
    assert judge(spec, result.text).valid is True


def test_the_last_event_holds_what_was_held_back():
    events = list(wishing("  ").stream("go", tools=TOOLS, **GREEDY))
    assert isinstance(events[-1], FinishEvent)
    said = [delta.text for event in events for delta in event.deltas if isinstance(delta, ContentDelta)]
    assert "".join(said) == events[-1].result.content


STRICT = {
    "f": {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"], "additionalProperties": False}
}
BAD = '{"name": "f", "args": {"zzz": 1}}'


def test_a_call_after_a_thought_is_held_to_its_tool_too():
    for text in (f"<think>x</think>{BAD}", '<think>x</think>{"name": "rm", "args": {}}'):
        result = wishing(text).generate("go", tools=STRICT, reasoning="think", **GREEDY)
        assert all(set(call.parsed) == {"a"} for call in result.tool_calls)
        assert "rm" not in [call.name for call in result.tool_calls]
        assert result.verdict.valid is True


def test_a_thought_must_end_before_the_turn_does():
    result = wishing("<think>hmm").generate("go", tools=STRICT, reasoning="think", **GREEDY)
    assert result.finish_reason != "stop" or result.turn.fault == ""


def test_a_marker_within_a_thought_begins_no_call():
    text = '<think>x <tool_call>\n{"name":"f","arguments":{"a":"1"}}\n</tool_call></think>done'
    result = wishing(text).generate("go", tools=STRICT, reasoning="think", tool_format="hermes", **GREEDY)
    assert (result.content, result.tool_calls, result.finish_reason) == ("done", (), "stop")
    assert "<tool_call>" in result.reasoning


@pytest.mark.parametrize("tools", [None, STRICT])
def test_reasoning_has_its_limit_also_without_a_constraint(tools):
    result = wishing(f"<think>{'abc ' * 20}</think>ok").generate(
        "go", tools=tools, reasoning="think", max_reasoning=12, **GREEDY
    )
    assert len(result.reasoning) <= 12


def test_content_that_would_be_read_as_a_call_is_a_call_and_held_to_its_tool():
    result = wishing(BAD).generate("go", tools=STRICT, constraint=espalier.JsonObject(), **GREEDY)
    assert [call.name for call in result.tool_calls] == ["f"]
    assert all(call.arguments.startswith('{"a": "') for call in result.tool_calls)


def test_content_with_other_keys_first_is_content():
    text = '{"args": {"zzz": 1}, "name": "f"}'
    result = wishing(text).generate("go", tools=STRICT, constraint=espalier.JsonObject(), **GREEDY)
    assert (result.content, result.tool_calls) == (text, ())
    assert result.parsed == json.loads(text)


def test_a_marker_within_content_is_not_written_beside_tools():
    result = wishing('{"x": "<function=f>{}</function>"}').generate(
        "go", tools=STRICT, constraint=espalier.JsonObject(), tool_format="functionary", **GREEDY
    )
    assert "<function=" not in result.content
    assert result.tool_calls == ()
    assert json.loads(result.content) == result.parsed


@pytest.mark.slow
def test_content_that_is_cut_is_not_lost():
    spec = espalier.JsonSchema({"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]})
    for most in range(1, 12):
        result = wishing('{"name": "Bob"}').generate(
            "go", tools=STRICT, constraint=spec, temperature=0, max_tokens=most
        )
        assert result.content == result.text


def test_a_raw_prompt_about_markers_opens_nothing():
    eng = wishing("{}")
    asked = "Explain what the <think> tag is. Answer in JSON: "
    result = eng.generate(asked, raw=True, constraint=espalier.JsonObject(), reasoning="think", **GREEDY)
    assert (result.reasoning, result.finish_reason) == (None, "stop")
    old = "assistant: <think>old</think>b\nuser: c\nassistant: "
    result = wishing("<think>hm</think>{}").generate(
        old, raw=True, constraint=espalier.JsonObject(), reasoning="think", **GREEDY
    )
    assert (result.reasoning, result.content) == ("hm", "{}")
    opened = wishing("hm</think>{}").generate(
        "go\n<think>\n", raw=True, constraint=espalier.JsonObject(), reasoning="think", **GREEDY
    )
    assert (opened.reasoning, opened.content) == ("hm", "{}")


def test_messages_without_a_role_are_a_typed_error():
    with pytest.raises(InputError, match="role"):
        open_engine().prompt_text(make_request([{"content": "hi"}]))


def test_a_format_that_is_no_name_is_a_typed_error():
    with pytest.raises(InputError) as error:
        make_request("go", tools=TOOLS, tool_format=[])
    assert error.value.field == "tool_format"


def test_a_template_for_tools_is_used_where_there_are_tools():
    fake = open_engine()
    engine = LocalEngine(
        name="two",
        model=fake.model,
        vocab=fake.vocab,
        encode=fake._encode,
        template=ChatTemplate("plain: {{ messages[-1].content }}"),
        tool_template=ChatTemplate('{{ tools | tojson }}<tool_call>{"name": x, "arguments": y}'),
    )
    assert engine.prompt_text(make_request("go")) == "plain: go"
    assert "read_file" in engine.prompt_text(make_request("go", tools=TOOLS))
