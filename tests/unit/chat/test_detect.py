import pytest

from espalier.chat.wire.detect import SIGNS, detect_format
from espalier.chat.wire.formats import WIRE_FORMATS
from tests import chat_templates as field

EXPECTED = {
    "CHATML": None,
    "HERMES": "hermes",
    "HERMES_NAMED_RESULTS": "hermes",
    "QWEN_CODER": "qwen_coder",
    "GLM": "glm",
    "MISTRAL": "mistral",
    "MISTRAL_ARGS": "mistral_args",
    "LLAMA": "llama3",
    "PYTHONIC": "pythonic",
    "FUNCTIONARY": "functionary",
    "GEMMA": None,
    "HARMONY": "harmony",
    "DEEPSEEK": "deepseek_v3",
    "KIMI": "kimi",
}


@pytest.mark.parametrize("name", EXPECTED)
def test_the_format_of_a_template_is_told(name):
    assert detect_format(getattr(field, name)) == EXPECTED[name]


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("", None),
        # Qwen's, with the quotes escaped in a string of the template; and a call written by `tojson`
        (r'"<tool_call>\n{\"name\": <n>, \"arguments\": <a>}\n</tool_call>"', "hermes"),
        ("'<tool_call>name<tool_sep>' \"name\": arguments", None),
        ("<tool_calls>{\"name\": 'x', \"arguments\": 'y'}</tool_calls>", None),
        ("'[TOOL_CALLS]' + message['content']|string", "mistral"),
        ("'[TOOL_CALLS]' + call.function.name + '[CALL_ID]' + call.id + '[ARGS]'", "mistral_id"),
        ("'<start_function_call>call:' + f['name'] + '{' '<escape>'", "function_gemma"),
        ("'<|tool_call>call:' + f['name'] + '{' '}<tool_call|>'", "gemma4"),
        ("'<minimax:tool_call>' '<invoke name=' '<parameter name='", "minimax"),
        ("'<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>' + n + '<｜tool▁sep｜>' + a", "deepseek_v31"),
        ("'[TOOL_CALLS]' + call['function']['name'] + arguments", None),
        ("'<function=' + f.name + '>' '</function>' \"name\": n, \"parameters\": p ipython", "functionary"),
        ("[func_name1(param1=value1, param2=value2), func_name2(...)] ipython", "pythonic"),
        ("<tool>[func_name1(params_name1=params_value1)]</tool>", None),
        ('{"name": "\' + n + \'", "parameters": p} <|python_tag|>', "llama3"),
        ('{"name": n, "parameters": p}', None),
        ('{"name": n, "description": d, "parameters": p} ipython', None),
    ],
)
def test_near_relatives_are_told_apart(source, expected):
    assert detect_format(source) == expected


def test_what_only_a_comment_says_does_not_count():
    assert detect_format("{# [TOOL_CALLS] [\nof old #}{{ messages[0].content }}") is None


def test_every_sign_names_a_format_that_is_there():
    assert {sign.format for sign in SIGNS} <= set(WIRE_FORMATS.names())
