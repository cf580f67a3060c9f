import copy
import json
from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from espalier.chat.prompt.render import NO_SCHEMA, render_prompt
from espalier.chat.prompt.template import ChatTemplate
from espalier.chat.prompt.texts import schema_text, tools_text
from espalier.chat.tools import AUTO, Tool, ToolChoice, read_choice
from espalier.chat.wire.formats import wire_format
from espalier.errors import InputError, TemplateError
from tests import chat_templates as field

TOOLS = (
    Tool(name="get_weather", parameters={"type": "object", "properties": {"city": {"type": "string"}}}, strict=True),
    Tool(name="now", description="The time.", parameters={"type": "object", "properties": {}}),
)
USER = {"role": "user", "content": "How is it in Paris?"}
SYSTEM = {"role": "system", "content": "Be kind."}
ARGS = wire_format("args")


def template(source):
    return ChatTemplate(source, bos_token="<s>", eos_token="</s>", now=lambda: datetime(2026, 1, 2))


CHATML, GEMMA, HERMES, LLAMA, MISTRAL, FUNCTIONARY = map(
    template, (field.CHATML, field.GEMMA, field.HERMES, field.LLAMA, field.MISTRAL, field.FUNCTIONARY)
)


def call(name, arguments, id="call_1"):  # noqa: A002
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


def calls(*made, content=None):
    return {"role": "assistant", "content": content, "tool_calls": list(made)}


def result(content, id="call_1"):  # noqa: A002
    return {"role": "tool", "tool_call_id": id, "content": content}


PAST = [
    USER,
    calls(call("get_weather", '{"city":"Paris"}')),
    result("sunny"),
    {"role": "assistant", "content": "Sunny."},
    {"role": "user", "content": "Thanks"},
]


@pytest.mark.parametrize("source", [CHATML, HERMES, LLAMA, FUNCTIONARY, MISTRAL, GEMMA])
@pytest.mark.parametrize("begins", [True, False])
def test_messages_alone_are_rendered_as_they_are(source, begins):
    messages = [USER, {"role": "assistant", "content": "Fine.", "extra": 1}, USER]
    for given_messages in ([USER], messages):
        expected = source.render(given_messages, add_generation_prompt=begins)
        assert render_prompt(source, given_messages, add_generation_prompt=begins) == expected
        none = render_prompt(
            source, given_messages, tools=TOOLS, choice=read_choice("none"), add_generation_prompt=begins
        )
        assert none == expected


@given(
    st.lists(st.sampled_from(["system", "developer", "user", "assistant"]), min_size=1, max_size=5), st.text(max_size=9)
)
def test_any_messages_alone_are_rendered_as_they_are(roles, content):
    messages = [{"role": role, "content": content.encode("utf-8", "replace").decode()} for role in roles]
    assert render_prompt(CHATML, messages) == CHATML.render(messages)


def test_bad_messages_and_refusals_are_errors_as_before():
    with pytest.raises(InputError, match="no messages"):
        render_prompt(CHATML, [])
    with pytest.raises(TemplateError, match="System role"):
        render_prompt(GEMMA, [SYSTEM, USER])


# Tools


def test_tools_without_support_are_a_system_message():
    text = tools_text(TOOLS, ARGS, AUTO, 2)
    assert render_prompt(CHATML, [USER], tools=TOOLS, format=ARGS, max_calls=2) == (
        f"<|im_start|>system\n{text}<|im_end|>\n"
        "<|im_start|>user\nHow is it in Paris?<|im_end|>\n<|im_start|>assistant\n"
    )


@pytest.mark.parametrize("role", ["system", "developer"])
def test_tools_stand_behind_a_system_message_that_is_there(role):
    text = tools_text(TOOLS, ARGS, AUTO, None)
    prompt = render_prompt(CHATML, [{"role": role, "content": "Be kind."}, USER], tools=TOOLS, format=ARGS)
    assert prompt.startswith(f"<|im_start|>{role}\nBe kind.\n\n{text}<|im_end|>\n<|im_start|>user")
    empty = render_prompt(CHATML, [{"role": role, "content": ""}, USER], tools=TOOLS, format=ARGS)
    assert empty.startswith(f"<|im_start|>{role}\n{text}<|im_end|>")


def test_tools_stand_before_the_users_words_where_no_system_message_is_taken():
    text = tools_text(TOOLS, ARGS, AUTO, None)
    turns = [USER, {"role": "assistant", "content": "Fine."}, {"role": "user", "content": "And in Rome?"}]
    assert render_prompt(GEMMA, turns, tools=TOOLS, format=ARGS) == (
        f"<s><start_of_turn>user\n{text}\n\nHow is it in Paris?<end_of_turn>\n"
        "<start_of_turn>model\nFine.<end_of_turn>\n<start_of_turn>user\nAnd in Rome?<end_of_turn>\n"
        "<start_of_turn>model\n"
    )


def test_tools_are_a_users_words_where_there_is_no_user():
    flat = template("{% for m in messages if m.role != 'system' %}{{ m.role }}: {{ m.content }};{% endfor %}")
    prompt = render_prompt(flat, [{"role": "assistant", "content": "Hi"}], tools=TOOLS, format=ARGS)
    assert prompt == f"user: {tools_text(TOOLS, ARGS, AUTO, None)};assistant: Hi;"


def test_a_template_that_renders_tools_is_given_them():
    prompt = render_prompt(HERMES, [SYSTEM, USER], tools=TOOLS)
    line = '{"type": "function", "function": {"name": "now", "description": "The time.", "parameters": '
    assert line in prompt
    assert "You can use these tools" not in prompt
    assert prompt.startswith("<|im_start|>system\nBe kind.\n\n<tools>")


def test_a_model_reads_no_strict_and_a_template_misses_no_description():
    prompt = render_prompt(template(field.HERMES_NAMED_RESULTS), [USER], tools=TOOLS)
    assert "get_weather:  " in prompt
    assert "strict" not in render_prompt(HERMES, [USER], tools=TOOLS)


def test_llama_puts_tools_into_the_users_first_words():
    prompt = render_prompt(LLAMA, [SYSTEM, USER], tools=TOOLS)
    assert prompt.index("Environment: ipython") < prompt.index("Be kind.") < prompt.index('"get_weather"')
    assert "Today Date: 02 Jan 2026" in prompt


def test_tools_are_left_to_the_text_on_request():
    hermes = render_prompt(HERMES, [USER], tools=TOOLS, format=ARGS, native_tools=False)
    assert "<tools>" not in hermes
    assert tools_text(TOOLS, ARGS, AUTO, None) in hermes


@pytest.mark.parametrize("native", [True, False])
def test_tools_without_a_format_are_refused_where_one_is_needed(native):
    with pytest.raises(InputError, match="wire format") as caught:
        render_prompt(CHATML if native else HERMES, [USER], tools=TOOLS, native_tools=native)
    assert caught.value.field == "tool_format"


@pytest.mark.parametrize("source", [CHATML, HERMES])
def test_a_choice_of_a_tool_that_is_not_there_is_refused(source):
    with pytest.raises(InputError, match="later"):
        render_prompt(source, [USER], tools=TOOLS, choice=read_choice("later"), format=ARGS)


@pytest.mark.parametrize("source", [HERMES, LLAMA, MISTRAL, FUNCTIONARY])
def test_a_template_renders_the_same_tools_whatever_the_choice(source):
    choices = [AUTO, read_choice("required"), read_choice("now"), ToolChoice(names=("now",))]
    assert len({render_prompt(source, [USER], tools=TOOLS, choice=choice) for choice in choices}) == 1


def test_mistrals_any_is_a_required_call():
    assert read_choice("any") == read_choice("required") == read_choice({"type": "any"})


def test_the_choice_changes_only_the_end_of_the_text():
    prompts = [
        render_prompt(CHATML, [USER], tools=TOOLS, choice=choice, format=ARGS)
        for choice in (AUTO, read_choice("required"))
    ]
    shared = tools_text(TOOLS, ARGS, AUTO, None).rpartition("\n")[0]
    assert all(prompt.startswith(f"<|im_start|>system\n{shared}\n") for prompt in prompts)


# A schema


@pytest.mark.parametrize("schema", [{"type": "object"}, True, None])
def test_a_schema_stands_behind_the_tools(schema):
    both = f"{tools_text(TOOLS, ARGS, AUTO, None)}\n\n{schema_text(schema)}"
    assert f"system\n{both}<|im_end|>" in render_prompt(CHATML, [USER], tools=TOOLS, format=ARGS, schema=schema)
    assert f"system\nBe kind.\n\n{schema_text(schema)}<|im_end|>" in render_prompt(
        CHATML, [SYSTEM, USER], schema=schema
    )
    assert f"user\n{schema_text(schema)}\n\nHow is" in render_prompt(GEMMA, [USER], schema=schema)


def test_a_schema_goes_with_tools_that_the_template_renders():
    prompt = render_prompt(HERMES, [USER], tools=TOOLS, schema={"type": "object"})
    assert prompt.startswith(f"<|im_start|>system\n{schema_text({'type': 'object'})}\n\n<tools>")


def test_no_schema_is_none_at_all():
    assert render_prompt(CHATML, [USER], schema=NO_SCHEMA) == CHATML.render([USER])


# Past calls


@pytest.mark.parametrize("arguments", ['{"city":"Paris"}', {"city": "Paris"}])
def test_arguments_are_given_as_the_template_reads_them(arguments):
    past = [USER, calls(call("get_weather", arguments)), result("sunny")]
    hermes = render_prompt(HERMES, past)
    assert '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris"}}\n</tool_call>' in hermes
    assert "<tool_response>\nsunny\n</tool_response>" in hermes
    assert '{"name": "get_weather", "parameters": {"city": "Paris"}}<|eot_id|>' in render_prompt(LLAMA, past)
    expected = arguments if isinstance(arguments, str) else json.dumps(arguments)
    assert f"<function=get_weather>{expected}</function>" in render_prompt(FUNCTIONARY, past)


def test_calls_are_spelled_in_the_content_where_the_template_does_not_render_them():
    past = [
        USER,
        calls(call("get_weather", '{"city":"Paris"}'), call("now", "{}", "call_2"), content="Let me see."),
        result("sunny"),
        result("noon", "call_2"),
    ]
    assert render_prompt(CHATML, past, format=ARGS) == (
        "<|im_start|>user\nHow is it in Paris?<|im_end|>\n"
        '<|im_start|>assistant\nLet me see.\n{"name": "get_weather", "args": {"city": "Paris"}}\n'
        '{"name": "now", "args": {}}<|im_end|>\n'
        "<|im_start|>tool\nsunny<|im_end|>\n<|im_start|>tool\nnoon<|im_end|>\n<|im_start|>assistant\n"
    )
    assert 'assistant\n{"name": "get_weather", "arguments": {"city": "Paris"}}<|im_end|>' in render_prompt(CHATML, PAST)


def test_calls_of_a_format_that_is_not_the_templates_are_spelled_in_it():
    prompt = render_prompt(HERMES, PAST, format=ARGS, native_tools=False)
    assert 'assistant\n{"name": "get_weather", "args": {"city": "Paris"}}<|im_end|>' in prompt
    assert "<tool_call>" not in prompt


def test_results_are_the_users_words_where_the_template_does_not_render_them():
    past = [
        USER,
        calls(call("get_weather", '{"city":"Paris"}'), call("now", "{}", "call_2")),
        result("sunny"),
        result("noon", "call_2"),
        {"role": "tool", "content": "42"},
        {"role": "tool", "name": "later", "tool_call_id": "none", "content": "43"},
    ]
    assert render_prompt(GEMMA, past, format=wire_format("pythonic")) == (
        "<s><start_of_turn>user\nHow is it in Paris?<end_of_turn>\n"
        '<start_of_turn>model\n[get_weather(city="Paris"), now()]<end_of_turn>\n'
        "<start_of_turn>user\nResult of get_weather:\nsunny\n\nResult of now:\nnoon\n\nResult:\n42\n\n"
        "Result of later:\n43<end_of_turn>\n<start_of_turn>model\n"
    )
    assert render_prompt(GEMMA, PAST[:4], format=ARGS).count("Result of get_weather:\nsunny<end_of_turn>") == 1


def test_an_id_that_is_used_again_is_of_the_last_call():
    past = [*PAST[:4], USER, calls(call("now", "{}")), result("noon")]
    assert "Result of now:\nnoon" in render_prompt(GEMMA, past, format=ARGS)


def test_a_result_gets_the_name_of_its_call_where_the_template_needs_it():
    source = template(field.HERMES_NAMED_RESULTS)
    assert '{"name": "get_weather", "content": "sunny"}' in render_prompt(source, PAST)
    with pytest.raises(TemplateError, match="name of its function"):
        render_prompt(source, [USER, result("sunny")])


def test_ids_become_what_mistral_takes():
    past = [
        USER,
        calls(call("get_weather", '{"city":"Paris"}', "call_8fJ2xQ"), call("now", "{}", "abcDEF123")),
        result("sunny", "call_8fJ2xQ"),
        result("noon", "abcDEF123"),
        calls(call("now", "{}", "000000002"), {"function": {"name": "now", "arguments": "{}"}}),
        {"role": "tool", "content": "one"},
        {"role": "tool", "content": "night"},
        result("lost", "gone"),
    ]
    prompt = render_prompt(MISTRAL, past, tools=TOOLS)
    assert '"arguments": {"city": "Paris"}, "id": "000000001"}, {"name": "now"' in prompt
    assert '"content": sunny, "call_id": "000000001"' in prompt
    assert '"id": "abcDEF123"}]</s>' in prompt
    assert '"content": noon, "call_id": "abcDEF123"' in prompt
    assert '"content": one, "call_id": "000000002"' in prompt
    assert '"content": night, "call_id": "000000003"' in prompt
    assert '"content": lost, "call_id": "000000004"' in prompt


def test_ids_stay_as_they_are_elsewhere():
    source = template("{% for m in messages %}{{ m.content }}{{ m.tool_calls | tojson if m.tool_calls }}{% endfor %}")
    assert '[{"id": "call_1", "type": "function", "function": {"name": "get_weather"' in render_prompt(source, PAST)


def test_calls_whose_names_a_template_leaves_out_are_spelled_in_the_content():
    prompt = render_prompt(template(field.KIMI), PAST, format=ARGS)
    assert '{"name": "get_weather", "args": {"city": "Paris"}}' in prompt


def test_mistral_still_refuses_what_it_refuses():
    with pytest.raises(TemplateError, match="alternate"):
        render_prompt(MISTRAL, [USER, USER], tools=TOOLS)
    with pytest.raises(TemplateError, match="only user and assistant"):
        render_prompt(MISTRAL, [USER, calls(call("now", "{}")), SYSTEM])


@pytest.mark.parametrize("source", [CHATML, GEMMA, HERMES, LLAMA, MISTRAL, FUNCTIONARY])
def test_nothing_that_is_given_is_changed(source):
    past = [*PAST[:1], calls(call("get_weather", {"city": "Paris"})), *PAST[2:]]
    before = copy.deepcopy(past)
    once = render_prompt(source, past, tools=TOOLS, format=ARGS, schema={"type": "object"})
    assert past == before
    assert render_prompt(source, past, tools=TOOLS, format=ARGS, schema={"type": "object"}) == once


def test_calls_that_are_no_calls_name_the_field():
    with pytest.raises(InputError) as caught:
        render_prompt(CHATML, [USER, calls(call("now", "[]"))], format=ARGS)
    assert caught.value.field == "messages[1].tool_calls[0].function.arguments"


@pytest.mark.parametrize("source", [CHATML, MISTRAL])
def test_what_other_roles_hold_in_the_fields_of_calls_is_left_alone(source):
    odd = {**USER, "tool_calls": "none", "tool_call_id": ["x"], "name": {}}
    expected = render_prompt(source, [USER, calls(call("now", "{}")), result("noon")], format=ARGS)
    assert render_prompt(source, [odd, calls(call("now", "{}")), result("noon")], format=ARGS) == expected
