"""ToolCalls: what is asked for, and which texts are in the language of each format and choice."""

from __future__ import annotations

import json

import pytest

from espalier import Choice, Gbnf, JsonObject, JsonSchema, Regex, ToolCalls, Vocab
from espalier.automata.languages.dfa import Dfa
from espalier.automata.languages.network import Network
from espalier.chat.tools import Tool, ToolChoice
from espalier.chat.wire.formats import wire_format
from espalier.constraints.ban import Ban
from espalier.constraints.compiler import Compiler
from espalier.constraints.compose.all_of import AllOf
from espalier.constraints.free import Free, Region
from espalier.constraints.spec import Spec
from espalier.constraints.words.spec import Wordlist
from espalier.errors import InputError, SpecError, UnsupportedError
from espalier.tokens import mask as masks
from tests.tool_texts import ALONE, FORMATS, TOOLS, written

BYTES = Compiler(Vocab.bytes())
READ = ("read", {"path": "a"})
FILE = ("read_file", {"path": "b", "lines": 7})


def accepts(text, **options):
    return BYTES.compile(ToolCalls(TOOLS, **options)).accepts(text)


# The spec


def test_json_and_back():
    spec = ToolCalls(TOOLS, choice="read", format="hermes", max_calls=3, whitespace="compact")
    data = spec.to_json()
    assert list(data) == ["kind", "tools", "choice", "format", "max_calls", "whitespace", "content"]
    assert data["tools"][0] == {"type": "function", "function": {"name": "read", "parameters": TOOLS["read"]}}
    assert data["choice"] == {"type": "function", "function": {"name": "read"}}
    assert Spec.from_json(json.loads(json.dumps(data))) == spec
    held = ToolCalls(TOOLS, content=JsonSchema({"type": "integer"}))
    assert Spec.from_json(json.loads(json.dumps(held.to_json()))) == held
    named = [{"type": "function", "function": {"name": name}} for name in ("now", "read")]
    allowed = {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": named}}
    spec = ToolCalls(TOOLS, choice=allowed)
    assert [tool.name for tool in spec.allowed] == ["read", "now"]
    assert Spec.from_json(spec.to_json()) == spec


def test_values():
    spec = ToolCalls(TOOLS)
    same = ToolCalls([Tool(name=name, parameters=schema) for name, schema in TOOLS.items()], choice=ToolChoice())
    assert spec == same
    assert hash(spec) == hash(same)
    assert spec != ToolCalls(TOOLS, choice="none")
    assert all(isinstance(tool, Tool) for tool in spec.tools)
    with pytest.raises(AttributeError):
        spec.format = "x"


@pytest.mark.parametrize(
    ("options", "field", "message"),
    [
        ({"choice": "write"}, "choice", "'write', which is no tool"),
        ({"choice": 3}, "choice", "cannot be"),
        ({"choice": ToolChoice(mode="required", single=True)}, "choice", "names one tool"),
        ({"choice": ToolChoice(mode="auto", names=("read",), single=True)}, "choice", "names one tool"),
        ({"choice": ToolChoice(mode="none", names=("read",))}, "choice", "mode of allowed_tools"),
        ({"format": "xml"}, "format", "unknown format .* 'xml'"),
        ({"format": None}, "format", "unknown format"),
        ({"max_calls": 0}, "max_calls", "from 1 on"),
        ({"max_calls": True}, "max_calls", "from 1 on"),
        ({"max_calls": "2"}, "max_calls", "from 1 on"),
        ({"whitespace": "wide"}, "whitespace", "unknown whitespace"),
        ({"content": Regex("a"), "choice": "required"}, "content", "where a call is required"),
        ({"content": Regex("a"), "choice": "read"}, "content", "where a call is required"),
        ({"content": "a"}, "content", "content is a Spec"),
    ],
)
def test_what_is_not_well_formed_names_the_field(options, field, message):
    with pytest.raises(SpecError, match=message) as told:
        ToolCalls(TOOLS, **options)
    assert told.value.field == field


@pytest.mark.parametrize(
    ("tools", "field", "message"),
    [
        ([], "tools", "no tools"),
        ([{"name": "a", "parameters": {}}, {"name": "a", "parameters": {}}], "tools[1].name", "two tools called 'a'"),
        ([{"name": "a b", "parameters": {}}], "tools[0].name", "no name for a tool"),
        ([{"name": "a", "parameters": 3}], "tools[0].parameters", "the schema of a is an object"),
        ([{"type": "web_search"}], "tools[0].type", "cannot be called here"),
        ([3], "tools[0]", "a tool is an object"),
        ("read", "tools", "a list of tools"),
    ],
)
def test_tools_that_are_not_well_formed_name_the_place(tools, field, message):
    with pytest.raises(InputError, match=message) as told:
        ToolCalls(tools)
    assert told.value.field == field
    with pytest.raises(InputError, match=message):
        Spec.from_json({"kind": "tool_calls", "tools": tools})


def test_a_field_that_is_missing_or_unknown():
    with pytest.raises(SpecError, match="needs `tools`"):
        Spec.from_json({"kind": "tool_calls"})
    with pytest.raises(SpecError, match="no field 'tool'"):
        Spec.from_json({"kind": "tool_calls", "tools": TOOLS, "tool": 1})
    with pytest.raises(SpecError, match="unknown constraint"):
        Spec.from_json({"kind": "tool_calls", "tools": TOOLS, "content": {"kind": "x"}})


@pytest.mark.parametrize("name", ["class", "a-b", "3d", "a..b", "x.None"])
def test_names_that_python_cannot_call(name):
    tools = {name: {"type": "object"}}
    with pytest.raises(SpecError, match="cannot be called in the format 'pythonic'") as told:
        ToolCalls(tools, format="pythonic")
    assert told.value.field == "tools[0].name"
    assert ToolCalls(tools).tools[0].name == name


def test_names_with_dots_are_called_in_python():
    spec = ToolCalls({"files.read": TOOLS["read"]}, format="pythonic", choice="required")
    assert BYTES.compile(spec).accepts('[files.read(path="a")]')


def test_word_languages_are_those_of_the_content():
    assert ToolCalls(TOOLS).word_languages() == ()
    words = Wordlist(lang="en")
    assert ToolCalls(TOOLS, content=words).word_languages() == words.word_languages() != ()


# The language, format by format

DEEP, DEEP_END = "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>", "<｜tool▁call▁end｜><｜tool▁calls▁end｜>"
KIMI, KIMI_ARGS = "<|tool_calls_section_begin|><|tool_call_begin|>functions.", "<|tool_call_argument_begin|>"
KIMI_END = "<|tool_call_end|><|tool_calls_section_end|>"
CALLS = {
    "args": (
        ['{"name": "read", "args": {"path": "a"}}', '{"name":"now","args":{}}\n{"name":"now","args":{}}'],
        ['{"name": "read", "args": {}}', '{"name": "reads", "args": {"path": "a"}}', '{"args": {}, "name": "now"}',
         '{"name": "now", "args": {}}{"name": "now", "args": {}}', '{"name": "now", "arguments": {}}',
         '{"name": "now", "args": {}, "id": 1}', '{"name": "now"}', '{"name": "now", "args": "{}"}',
         '{"name": "now", "args": {}}\n', '{"name": "now", "args": {}}\n\n{"name": "now", "args": {}}'],
    ),
    "tool_args": (['{"tool": "read", "args": {"path": "a"}}'], ['{"name": "now", "args": {}}']),
    "openai": (['{"name": "read", "arguments": {"path": "a"}}'], ['{"name": "now", "args": {}}']),
    "llama3": (
        ['{"name": "now", "parameters": {}}', '<|python_tag|>{"name": "now", "parameters": {}}',
         '{"name": "now", "parameters": {}}; {"name": "now", "parameters": {}};{"name": "now", "parameters": {}}'],
        ["<|python_tag|>", '{"name": "now", "arguments": {}}', '{"name": "now", "parameters": {}};'],
    ),
    "hermes": (
        ['<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>',
         '<tool_call>{"name": "now", "arguments": {}}</tool_call>',
         '<tool_call> {"name": "now", "arguments": {}}</tool_call>',
         '<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>\n<tool_call>{"name": "now", "arguments": {}}'
         '</tool_call><tool_call>{"name": "now", "arguments": {}}</tool_call>'],
        ['{"name": "now", "arguments": {}}', '<tool_call>\n{"name": "now", "arguments": {}}',
         '<tool_call>   {"name": "now", "arguments": {}}</tool_call>'],
    ),
    "mistral": (
        ['[TOOL_CALLS][{"name": "now", "arguments": {}}]', '[TOOL_CALLS] [{"name": "now", "arguments": {}}]',
         '[TOOL_CALLS][{"name": "now", "arguments": {}}, {"name": "now", "arguments": {}}]'],
        ["[TOOL_CALLS][]", '[TOOL_CALLS]{"name": "now", "arguments": {}}', '[{"name": "now", "arguments": {}}]',
         '[TOOL_CALLS][{"name": "now", "arguments": {}}'],
    ),
    "mistral_args": (
        ["[TOOL_CALLS]now[ARGS]{}", '[TOOL_CALLS]read[ARGS]{"path": "a"}[TOOL_CALLS]read_file[ARGS]{"path": "b"}'],
        ["[TOOL_CALLS]now{}", "now[ARGS]{}", "[TOOL_CALLS]no[ARGS]{}", "[TOOL_CALLS]now[ARGS]{}now[ARGS]{}"],
    ),
    "mistral_id": (
        ["[TOOL_CALLS]now[CALL_ID]aB3dE6gH9[ARGS]{}",
         '[TOOL_CALLS]now[CALL_ID]000000000[ARGS]{}[TOOL_CALLS]read[CALL_ID]000000001[ARGS]{"path": "b"}'],
        ["[TOOL_CALLS]now[ARGS]{}", "[TOOL_CALLS]now[CALL_ID][ARGS]{}", "[TOOL_CALLS]now[CALL_ID]12345678[ARGS]{}",
         "[TOOL_CALLS]now[CALL_ID]1234567890[ARGS]{}"],
    ),
    "deepseek_v3": (
        [f"{DEEP}function<｜tool▁sep｜>now\n```json\n{{}}\n```{DEEP_END}",
         f"{DEEP}function<｜tool▁sep｜>now\n```json\n{{}}\n```<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function"
         f'<｜tool▁sep｜>read\n```json\n{{"path": "b"}}\n```{DEEP_END}'],
        [f"{DEEP}function<｜tool▁sep｜>now\n{{}}{DEEP_END}", f"{DEEP}now\n```json\n{{}}\n```{DEEP_END}",
         f"{DEEP}function<｜tool▁sep｜>now\n```json\n{{}}\n```<｜tool▁call▁end｜>"],
    ),
    "deepseek_v31": (
        [f"{DEEP}now<｜tool▁sep｜>{{}}{DEEP_END}",
         f"{DEEP}now<｜tool▁sep｜>{{}}<｜tool▁call▁end｜>"
         f'<｜tool▁call▁begin｜>read<｜tool▁sep｜>{{"path": "b"}}{DEEP_END}'],
        [f"{DEEP}function<｜tool▁sep｜>now\n```json\n{{}}\n```{DEEP_END}", f"{DEEP}nowhere<｜tool▁sep｜>{{}}{DEEP_END}",
         "<｜tool▁calls▁begin｜><｜tool▁calls▁end｜>"],
    ),
    "kimi": (
        [f"{KIMI}now:0{KIMI_ARGS}{{}}{KIMI_END}",
         f"{KIMI}now:0{KIMI_ARGS}{{}}<|tool_call_end|><|tool_call_begin|>functions.read:1{KIMI_ARGS}"
         f'{{"path": "b"}}{KIMI_END}'],
        [f"{KIMI}now{KIMI_ARGS}{{}}{KIMI_END}", f"{KIMI}now:x{KIMI_ARGS}{{}}{KIMI_END}",
         f"{KIMI}now:0{KIMI_ARGS}{{}}<|tool_calls_section_end|>"],
    ),
    "qwen_coder": (
        ["<tool_call>\n<function=now>\n</function>\n</tool_call>",
         "<tool_call>\n<function=read>\n<parameter=path>\n\n\n</parameter>\n</function>\n</tool_call>",
         "<tool_call>\n<function=read_file>\n<parameter=path>\n</param\n</parameter>\n<parameter=lines>\n3\n</parameter>\n"
         "</function>\n</tool_call>\n<tool_call>\n<function=now>\n</function>\n</tool_call>"],
        ["<tool_call>\n<function=read>\n<parameter=path>a</parameter>\n</function>\n</tool_call>",
         "<tool_call>\n<function=read>\n</function>\n</tool_call>", '<tool_call>\n{"name": "now", "arguments": {}}\n'
         "</tool_call>", "<tool_call>\n<function=now>\n<parameter=x>\n1\n</parameter>\n</function>\n</tool_call>"],
    ),
    "glm": (
        ["<tool_call>now\n</tool_call>", "<tool_call>now</tool_call>",
         "<tool_call>read\n<arg_key>path</arg_key>\n<arg_value></arg_value>\n</tool_call>",
         "<tool_call>read<arg_key>path</arg_key><arg_value>\n5 </arg_value></tool_call>"],
        ["<tool_call>read\n</tool_call>", "<tool_call>nowhere\n</tool_call>",
         "<tool_call>read\n<arg_key>path</arg_key>\n</tool_call>",
         "<tool_call>search\n<arg_key>query</arg_key>\n<arg_value>0123456789abc</arg_value>\n</tool_call>"],
    ),
    "minimax": (
        ['<minimax:tool_call>\n<invoke name="now">\n</invoke>\n</minimax:tool_call>',
         '<minimax:tool_call>\n<invoke name="read">\n<parameter name="path">{}</parameter>\n</invoke>\n'
         '<invoke name="now">\n</invoke>\n</minimax:tool_call>'],
        ['<minimax:tool_call>\n<invoke name="now">\n</invoke>', "<minimax:tool_call>\n</minimax:tool_call>",
         '<minimax:tool_call>\n<invoke name="read">\n</invoke>\n</minimax:tool_call>'],
    ),
    "function_gemma": (
        ["<start_function_call>call:now{}<end_function_call>",
         '<start_function_call>call:read{path:<escape>a"\n<escape>}<end_function_call><start_function_call>call:now{}'
         "<end_function_call>", "<start_function_call>call:search{query:<escape>x<escape>,mode:null,tags:[],"
         "inside:{deep:true}}<end_function_call>"],
        ["<start_function_call>call:now<end_function_call>", "<start_function_call>now{}<end_function_call>",
         '<start_function_call>call:read{path:"a"}<end_function_call>', "<start_function_call>call:now{}"],
    ),
    "gemma4": (
        ["<|tool_call>call:now{}<tool_call|>", '<|tool_call>call:read{path:<|"|><|"|>}<tool_call|>'],
        ["<|tool_call>call:nowhere{}<tool_call|>", '<|tool_call>call:read{path:<|"|>a<|"|>}',
         '<|tool_call>call:read{"path":<|"|>a<|"|>}<tool_call|>'],
    ),
    "functionary": (
        ["<function=now>{}</function>", '<function=read>{"path": "a"}</function>\n<function=now>{}</function>'],
        ["<function=now>{}", "<function=now{}</function>", "<function=nowhere>{}</function>"],
    ),
    "upstream": (
        ['\ue000{"name": "now", "arguments": {}}\ue001',
         '\ue000{"name": "now", "arguments": {}}\ue001\n\ue000{"name": "read", "arguments": {"path": "a"}}\ue001'],
        ['{"name": "now", "arguments": {}}', '\ue000{"name": "now", "arguments": {}}',
         '<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>'],
    ),
    "pythonic": (
        ["[now()]", '[read(path="a"), read_file(path="b", lines=3)]', '[search(query="x", mode=None, tags=["a"])]'],
        ["now()", "[]", '[read("a")]', "[read()]", "[now(),]", '[search(query="x", mode=null)]'],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FORMATS)
def test_calls_alone(name):
    good, bad = CALLS[name]
    compiled = BYTES.compile(ToolCalls(TOOLS, choice="required", format=name))
    for text in [*good, written(wire_format(name), READ, FILE)]:
        assert compiled.accepts(text), text
    for text in [*bad, "", "hello", " ", " " + good[0], good[0] + " and text"]:
        assert not compiled.accepts(text), text


@pytest.mark.parametrize("name", FORMATS)
def test_auto(name):
    good, bad = CALLS[name]
    marker = wire_format(name).marker
    compiled = BYTES.compile(ToolCalls(TOOLS, format=name))
    for text in ["", "hello", " ", "a {b} [c] é\n", *good]:
        assert compiled.accepts(text), text
    for text in bad:
        openers = (wire_format(name).opener, wire_format(name).lead or "{")
        begins = marker in text if marker else text.lstrip().startswith(openers)
        assert compiled.accepts(text) != begins, text
    call = good[0]
    assert compiled.accepts(f"Let me see. {call}")
    assert compiled.accepts(f"\n {call}")
    assert compiled.accepts(f"{call}\n") == bool(marker)
    assert not compiled.accepts(f"{call}\n\n")
    assert not compiled.accepts(f"{call} so")
    if marker:
        assert not compiled.accepts(f"a\n {marker}")
        assert not compiled.accepts(f"{marker}? b")
        assert compiled.accepts(f"a {marker}")
        assert compiled.accepts(f"a {marker}? b")
        assert compiled.accepts(f"a {marker}? b {call}")
        assert compiled.accepts(f"a {marker[:-1]} b {call}")


@pytest.mark.parametrize("name", FORMATS)
def test_none_never_calls(name):
    wire = wire_format(name)
    compiled = BYTES.compile(ToolCalls(TOOLS, format=name, choice="none"))
    for text in ("", "hello", " ", "a {b} [c] é\n"):
        assert compiled.accepts(text)
    for text in CALLS[name][0]:
        assert not compiled.accepts(text)
        assert not compiled.accepts(f"\n{text}")
        assert compiled.accepts(f"so {text}") == (not wire.marker)


@pytest.mark.parametrize("name", FORMATS)
def test_a_single_choice_is_exactly_one_call_of_that_tool(name):
    wire = wire_format(name)
    compiled = BYTES.compile(ToolCalls(TOOLS, format=name, choice="read", max_calls=5))
    assert compiled.accepts(written(wire, READ))
    for text in ("", "hello", written(wire, FILE), written(wire, READ, READ), "a " + written(wire, READ)):
        assert not compiled.accepts(text)


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("choice", ["auto", "required"])
def test_max_calls(name, choice):
    compiled = BYTES.compile(ToolCalls(TOOLS, format=name, choice=choice, max_calls=2))
    for count in (1, 2, 3):
        assert compiled.accepts(written(wire_format(name), *[READ] * count)) == (count <= 2)


def test_a_choice_among_some_tools():
    choice = {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "read"}]}
    assert accepts('{"name": "read", "args": {"path": ""}}', choice=choice)
    assert not accepts('{"name": "now", "args": {}}', choice=choice)


def test_whitespace():
    compact = '{"name":"read","args":{"path":"a"}}'
    natural = '{"name": "read", "args": {"path": "a"}}'
    indented = json.dumps({"name": "read", "args": {"path": "a"}}, indent=2)
    for style, good in (
        ("compact", [compact]), ("natural", [compact, natural]), ("flexible", [compact, natural, indented]),
        ("indented", [indented]),
    ):  # fmt: skip
        for text in (compact, natural, indented):
            assert accepts(text, whitespace=style) == (text in good)


def test_text_before_calls_without_a_marker_is_whitespace_only():
    call = '{"name": "now", "args": {}}'
    assert accepts(f" \n\t\r{call}")
    assert accepts(f"\N{NO-BREAK SPACE}{call}}}")  # free text: a call begins after the whitespace of JSON
    assert not accepts(f" {call}}}")
    assert not accepts(f"{call} ")


# Content


def test_content_in_the_place_of_free_text():
    options = {"content": JsonSchema({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"],
                                      "additionalProperties": False})}  # fmt: skip
    for name in ("args", "hermes"):
        call = written(wire_format(name), READ)
        for text, valid in (('{"n": 3}', True), (call, True), ("", False), ("hello", False), (f" {call}", False),
                            (f'{{"n": 3}}{call}', False), ("{}", False)):  # fmt: skip
            assert accepts(text, format=name, **options) == valid
            assert accepts(text, format=name, choice="none", **options) == (valid and text != call)


def test_content_without_an_automaton_is_refused():
    with pytest.raises(UnsupportedError, match="ToolCalls cannot hold after"):
        accepts("", content=Spec.from_json({"kind": "after", "marker": "x", "spec": Regex("a").to_json()}))


# Compositions


def test_all_of_holds_tool_calls():
    ban = Ban(["secret"])
    compiled = BYTES.compile(AllOf(ToolCalls(TOOLS, format="hermes"), ban))
    call = written(wire_format("hermes"), READ)
    assert compiled.accepts(f"ok {call}")
    assert not compiled.accepts("a secret")
    assert not compiled.accepts(call.replace('"a"', '"secret"'))


def test_free_text_holds_tool_calls():
    spec = Free({"<call>": Region(ToolCalls(TOOLS, choice="required"), end="</call>")})
    compiled = BYTES.compile(spec)
    assert compiled.accepts('so <call>{"name": "now", "args": {}}</call> it is')
    assert not compiled.accepts("so <call>now</call>")


def test_a_few_regular_tools_are_one_deterministic_automaton():
    few = {name: TOOLS[name] for name in ("read", "now")}
    assert isinstance(BYTES.language(ToolCalls(few), wanted_by="this test"), Dfa)
    anything = ToolCalls({"any": {"type": "object"}})
    assert isinstance(BYTES.language(anything, wanted_by="this test"), Network)
    assert BYTES.compile(AllOf(ToolCalls(few), Gbnf('root ::= "(" root ")" | [a-z]'))).accepts("((a))")


def test_tool_calls_with_special_tokens_join_what_reads_their_spelling():
    vocab = Vocab.from_tokens(
        [*(bytes([b]) for b in range(256)), b"", b""], eos_ids=[256], special_ids={256: "<eos>", 257: "<tool_call>"}
    )
    one = Compiler(vocab)
    calls = one.compile(AllOf(ToolCalls(TOOLS, format="hermes"), Ban(["x"])))
    matcher = calls.matcher()
    assert masks.test(matcher.mask(), 257)
    matcher.advance(257)
    assert matcher.explain(ord("x")).member == "all_of[0].tool_calls"
    assert calls.spelled == {257: b"<tool_call>"}
    banned = one.compile(AllOf(ToolCalls(TOOLS, format="hermes"), Ban(["tool_call>"]))).matcher()
    assert not masks.test(banned.mask(), 257)
    assert banned.explain(257).member == "all_of[1].ban"
    silent = AllOf(ToolCalls(TOOLS, format="hermes", choice="none"), Ban(["x"]))
    assert not one.compile(silent).accepts("a <tool_call>")
    assert one.compile(AllOf(ToolCalls(TOOLS), Ban(["x"]))).accepts("a <tool_call>")


# Reasons


def told(compiled, text, token):
    matcher = compiled.matcher()
    for byte in text.encode():
        matcher.advance(byte)
    return matcher.explain(token)


@pytest.mark.parametrize("name", FORMATS)
def test_explain_names_the_tool_and_the_place(name):
    text = written(wire_format(name), ("search", {"query": "x", "inside": {"deep": True}}))
    at = max(text.find("true"), text.find("True"))
    for choice in ("required", "auto"):
        found = told(BYTES.compile(ToolCalls(TOOLS, format=name, choice=choice)), text[:at], ord("x"))
        assert (found.member, found.rule) == ("tool_calls", "search/properties/inside/properties/deep")
        assert 'not "x"' in found.reason


def test_explain_within_a_text_names_its_place():
    compiled = BYTES.compile(ToolCalls(TOOLS, choice="required"))
    found = told(compiled, '{"name": "read_file", "args": {"path": "a', ord("\n"))
    assert (found.rule, found.member) == ("read_file/properties/path", "tool_calls")
    found = told(compiled, '{"name": "search", "args": {"query": "a\\\\', ord("\n"))
    assert found.rule == "search/properties/query"
    found = told(compiled, '{"name": "re', ord("x"))
    assert found.rule == "call"


def test_explain_in_and_around_free_text():
    hermes = BYTES.compile(ToolCalls(TOOLS, format="hermes"))
    found = told(hermes, "a ", 0x80)
    assert (found.member, found.rule) == ("tool_calls", None)
    found = told(hermes, "a\n<tool_call>", ord("x"))
    assert 'not "x"' in found.reason
    found = told(BYTES.compile(ToolCalls(TOOLS, format="hermes", choice="none")), "a <tool_call", ord(">"))
    assert found.reason == "a tool call would start here, and the choice is none"
    found = told(BYTES.compile(ToolCalls(TOOLS, choice="none")), " ", ord("{"))
    assert found.reason == "a tool call would start here, and the choice is none"
    found = told(BYTES.compile(ToolCalls(TOOLS, choice="required")), "", 256)
    assert found.reason == "the text is not complete, so it cannot end here"
    held = BYTES.compile(ToolCalls(TOOLS, content=Choice(["yes"])))
    assert told(held, "y", ord("x")).rule == "tool_calls.choice"


def test_any_object_is_enforced_by_a_stack():
    compiled = BYTES.compile(ToolCalls({"any": {"type": "object"}}, choice="required"))
    assert compiled.accepts('{"name": "any", "args": {"a": [{"b": [[]]}]}}')
    assert not compiled.accepts('{"name": "any", "args": [1]}')
    assert JsonObject().kind == "json_object"


def test_every_format_has_its_cases():
    assert set(CALLS) == set(FORMATS)
    assert [name for name in FORMATS if not wire_format(name).marker] == list(ALONE)
