import threading

import pytest

from espalier.chat.prompt.abilities import Abilities, find_abilities
from espalier.chat.prompt.template import ChatTemplate
from tests import chat_templates as field


def can(tools, tool_role, system_role, call_objects, tool_calls, any_id=True, many_calls=True):
    return Abilities(
        tools=tools,
        tool_role=tool_role,
        system_role=system_role,
        call_objects=call_objects,
        tool_calls=tool_calls,
        any_id=any_id,
        many_calls=many_calls,
    )


EXPECTED = {
    "CHATML": can(False, True, True, True, False),
    "HERMES": can(True, True, True, True, True),
    "HERMES_NAMED_RESULTS": can(True, True, True, True, True),
    "QWEN_CODER": can(True, True, True, True, True),
    "GLM": can(True, True, True, True, True),
    "MISTRAL": can(True, True, True, True, True, any_id=False),
    "MISTRAL_ARGS": can(True, True, True, True, True),
    "LLAMA": can(True, True, True, True, True, many_calls=False),
    "PYTHONIC": can(True, True, True, True, True),
    "FUNCTIONARY": can(True, True, True, False, True),
    "GEMMA": can(False, False, False, True, False),
    "HARMONY": can(True, True, True, True, True),
    "DEEPSEEK": can(False, True, True, False, True),
    "KIMI": can(True, True, True, True, False),  # the name of a call is only in its id, which is the client's
}


@pytest.mark.parametrize("name", EXPECTED)
def test_what_a_template_can_do_is_found(name):
    assert ChatTemplate(getattr(field, name), bos_token="<s>", eos_token="</s>").abilities == EXPECTED[name]


NOTHING = can(False, False, False, True, False)


@pytest.mark.parametrize(
    "source",
    [
        "{{ raise_exception('no') }}",
        "{{ 1 / 0 }}",
        "{{ messages[9].content.x.y }}",
        "{{ 'x'.index('y') }}",
        "{{ {}['a']['b'] }}",
        "{{ '%d' | format('x') }}",
        "{{ '{9}'.format(1) }}",
        "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
        "{% for i in range(99999999) %}{% endfor %}",
        "{{ none.items() }}",
        "{{ none | length }}",
        "{{ ''.__class__.__mro__ }}",
        "",
    ],
)
def test_a_template_that_fails_can_do_nothing_and_raises_nothing(source):
    assert ChatTemplate(source).abilities == NOTHING


def test_arguments_that_come_out_as_python_are_given_as_text():
    source = "{% for c in messages[1].tool_calls or [] %}{{ c.function.name ~ c.function.arguments }}{% endfor %}"
    assert ChatTemplate(source).abilities == can(False, False, False, False, True)


def test_calls_are_found_where_results_are_refused():
    source = (
        "{% for m in messages %}{% if m.role == 'tool' %}{{ raise_exception('no') }}{% endif %}"
        "{{ m.content }}{{ m.tool_calls | tojson if m.tool_calls }}{% endfor %}"
    )
    assert ChatTemplate(source).abilities == can(False, False, True, True, True)


def test_tools_that_are_only_shown_below_a_system_message_are_found():
    source = "{% if messages[0].role == 'system' %}{{ tools | tojson }}{% endif %}{{ messages[-1].content }}"
    assert ChatTemplate(source).abilities.tools


def test_a_template_that_needs_tools_to_be_defined_is_given_them():
    assert ChatTemplate("{% if tools is not none %}{{ tools | length }}{% endif %}{{ messages[-1].content }}").abilities


def test_they_are_found_once():
    template = ChatTemplate(field.HERMES)
    found = []
    threads = [threading.Thread(target=lambda: found.append(template.abilities)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(abilities == template.abilities for abilities in found)
    assert template.abilities is template.abilities


def test_they_are_found_with_any_renderer():
    assert find_abilities(lambda messages, *, tools=None: "") == NOTHING
