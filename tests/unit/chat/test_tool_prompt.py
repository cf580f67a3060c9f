import json

import pytest

from espalier.chat.prompt.texts import schema_text, tools_text
from espalier.chat.tools import AUTO, Tool, ToolChoice, read_choice
from espalier.chat.wire.formats import WIRE_FORMATS, WireFormat, wire_format
from espalier.errors import InputError

READ = Tool(
    name="read_file",
    description="Read a file – all of it.",
    parameters={"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]},
)
WRITE = Tool(name="write_file", parameters={"type": "object", "properties": {}})
TOOLS = (READ, WRITE)

LIST = """\
You can use these tools: read_file, write_file.
{"name":"read_file","description":"Read a file – all of it.","parameters":{"type":"object","properties":\
{"path":{"type":"string"}},"required":["path"]}}
{"name":"write_file","parameters":{"type":"object","properties":{}}}
"""
FREE = "\nIf no tool is needed, answer without a call."
MARKED = "To call a tool, write this, after other text if you like:\n"
OBJECT = "{...} is a JSON object of its arguments. You may make several calls, "
TAGS = "Texts stand as they are, other values as JSON. You may make several calls, "

HOW = {
    "args": 'To call a tool, answer with {"name": "NAME", "args": {...}} and nothing else. '
    "You may make several calls, one on each line.",
    "tool_args": 'To call a tool, answer with {"tool": "NAME", "args": {...}} and nothing else. '
    "You may make several calls, one on each line.",
    "openai": 'To call a tool, answer with {"name": "NAME", "arguments": {...}} and nothing else. '
    "You may make several calls, one on each line.",
    "llama3": 'To call a tool, answer with {"name": "NAME", "parameters": {...}} and nothing else. '
    'You may make several calls, separated by ";".',
    "hermes": "To call a tool, write this, after other text if you like:\n"
    '<tool_call>\n{"name": "NAME", "arguments": {...}}\n</tool_call>\n'
    "You may make several calls, one after another.",
    "mistral": "To call a tool, write this, after other text if you like:\n"
    '[TOOL_CALLS][{"name": "NAME", "arguments": {...}}]\n'
    'You may make several calls, separated by "," in the same list.',
    "mistral_args": "To call a tool, write this, after other text if you like:\n"
    "[TOOL_CALLS]NAME[ARGS]{...}\n"
    "{...} is a JSON object of its arguments. You may make several calls, one after another.",
    "mistral_id": MARKED + "[TOOL_CALLS]NAME[CALL_ID]000000000[ARGS]{...}\n" + OBJECT + "one after another.",
    "deepseek_v3": MARKED + "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>NAME\n```json\n{...}\n```"
    "<｜tool▁call▁end｜><｜tool▁calls▁end｜>\n" + OBJECT + "one after another within the same markers.",
    "deepseek_v31": MARKED + "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>NAME<｜tool▁sep｜>{...}<｜tool▁call▁end｜>"
    "<｜tool▁calls▁end｜>\n" + OBJECT + "one after another within the same markers.",
    "kimi": MARKED + "<|tool_calls_section_begin|><|tool_call_begin|>functions.NAME:0<|tool_call_argument_begin|>{...}"
    "<|tool_call_end|><|tool_calls_section_end|>\n" + OBJECT + "one after another within the same markers.",
    "harmony": MARKED
    + "<|channel|>commentary to=functions.NAME <|constrain|>json<|message|>{...}<|call|>\n"
    + OBJECT
    + 'separated by "<|call|><|start|>assistant".',
    "qwen_coder": MARKED + "<tool_call>\n<function=NAME>\n<parameter=ARGUMENT>\nVALUE\n</parameter>\n...\n</function>\n"
    "</tool_call>\n" + TAGS + "one after another.",
    "glm": MARKED
    + "<tool_call>NAME\n<arg_key>ARGUMENT</arg_key>\n<arg_value>VALUE</arg_value>\n...\n</tool_call>\n"
    + TAGS
    + "one after another.",
    "minimax": MARKED + '<minimax:tool_call>\n<invoke name="NAME">\n<parameter name="ARGUMENT">VALUE</parameter>\n...\n'
    "</invoke>\n</minimax:tool_call>\n" + TAGS + "one after another within the same markers.",
    "function_gemma": MARKED + "<start_function_call>call:NAME{ARGUMENT:VALUE,...}<end_function_call>\n"
    "Texts stand between <escape> and <escape>, other values as JSON, names without quotes. "
    "You may make several calls, one after another.",
    "gemma4": MARKED + "<|tool_call>call:NAME{ARGUMENT:VALUE,...}<tool_call|>\n"
    'Texts stand between <|"|> and <|"|>, other values as JSON, names without quotes. '
    "You may make several calls, one after another.",
    "functionary": "To call a tool, write this, after other text if you like:\n"
    "<function=NAME>{...}</function>\n"
    "{...} is a JSON object of its arguments. You may make several calls, one after another.",
    "upstream": MARKED + '\ue000{"name": "NAME", "arguments": {...}}\ue001\n'
    "You may make several calls, one after another.",
    "pythonic": "To call a tool, answer with [NAME(ARGUMENT=VALUE, ...)] and nothing else. Values are Python literals. "
    'You may make several calls, separated by "," in the same list.',
}


@pytest.mark.parametrize("name", HOW)
def test_the_documented_text_of_a_format(name):
    assert tools_text(TOOLS, wire_format(name), AUTO, None) == LIST + HOW[name] + FREE


def test_every_format_of_ours_has_a_documented_text():
    assert set(HOW) == set(WIRE_FORMATS.names())


def test_a_format_of_a_plugin_gets_its_text_from_its_data():
    wire = WireFormat(name="own", shape="named", head="<<", middle=" ", tail=">>", separator=" & ")
    text = tools_text([WRITE], wire, AUTO, None)
    assert (
        '<<NAME {...}>>\n{...} is a JSON object of its arguments. You may make several calls, separated by "&".' in text
    )


@pytest.mark.parametrize(
    ("choice", "max_calls", "end"),
    [
        (AUTO, 1, "Make one call only.\nIf no tool is needed, answer without a call."),
        (AUTO, 3, "You may make up to 3 calls, one on each line.\nIf no tool is needed, answer without a call."),
        (read_choice("required"), None, "one on each line.\nYou must call a tool."),
        (read_choice("read_file"), None, "Make one call only.\nCall only read_file. You must call a tool."),
        (read_choice("read_file"), 5, "Make one call only.\nCall only read_file. You must call a tool."),
        (ToolChoice(names=("write_file",)), None, "line.\nCall only write_file. " + FREE.strip()),
        (ToolChoice(mode="required", names=("write_file", "read_file")), None, "line.\nYou must call a tool."),
    ],
)
def test_what_the_choice_asks_for_comes_last(choice, max_calls, end):
    text = tools_text(TOOLS, wire_format("args"), choice, max_calls)
    assert text.endswith(end)
    assert text.startswith(LIST + "To call a tool, answer with")


def test_without_calls_or_tools_there_is_no_text():
    assert tools_text(TOOLS, wire_format("args"), read_choice("none"), None) == ""
    assert tools_text((), wire_format("args"), AUTO, None) == ""


def test_a_choice_of_a_tool_that_is_not_there_is_refused():
    with pytest.raises(InputError, match="delete_file"):
        tools_text(TOOLS, wire_format("args"), read_choice("delete_file"), None)


def test_it_begins_with_the_sentence_that_the_bundled_model_knows():
    text = tools_text([WRITE], wire_format("args"), AUTO, None)
    assert text.startswith("You can use these tools: write_file.\n")


def test_a_tool_is_one_line_whatever_its_texts_hold():
    tool = Tool(name="f", description="two\nlines é", parameters={"type": "object"})
    line = tools_text([tool], wire_format("args"), AUTO, None).splitlines()[1]
    assert json.loads(line) == {"name": "f", "description": "two\nlines é", "parameters": {"type": "object"}}


@pytest.mark.parametrize("schema", [{"type": "object", "title": "é"}, True, None])
def test_the_documented_text_of_a_schema(schema):
    compact = json.dumps(schema, ensure_ascii=False, separators=(",", ":"))
    assert schema_text(schema) == f"Answer with JSON that is valid under this JSON Schema:\n{compact}"


@pytest.mark.parametrize("schema", [{"const": float("nan")}, {"const": object()}, {1: {2, 3}}])
def test_a_schema_that_is_no_json_is_refused(schema):
    with pytest.raises(InputError, match="not JSON") as caught:
        schema_text(schema)
    assert caught.value.field == "schema"
