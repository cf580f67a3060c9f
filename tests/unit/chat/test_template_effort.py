"""Every template ends: loops, texts, numbers and lists within limits, and templates of the field are not concerned."""

from __future__ import annotations

import time
from typing import Any

import pytest

from espalier.chat.prompt import effort
from espalier.chat.prompt.effort import EffortExceeded
from espalier.chat.prompt.template import ChatTemplate
from espalier.errors import TemplateError, TooLarge

USER = [{"role": "user", "content": "Hi"}]
GROWING = "{%% set ns = namespace(x=%s, y=%s) %%}{%% for i in range(60) %%}%s{%% endfor %%}{{ ns.x%s }}"


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(effort.limited, "__kwdefaults__", {"seconds": 0.05}, raising=False)
    monkeypatch.setattr(effort.limited.__wrapped__, "__kwdefaults__", {"seconds": 0.05})


@pytest.mark.parametrize(
    "source",
    [
        "{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}",
        "{% for a in range(99999) if range(99999)|select('equalto', -1)|list %}{% endfor %}",
        "{% macro f(n) %}{% if n > 0 %}{{ f(n-1) }}{{ f(n-1) }}{% endif %}{% endmacro %}{{ f(60) }}",
        "{% for i in range(99999) %}{{ range(99999)|map('string')|list|length }}{% endfor %}",
        "{% set x = range(99999)|list %}{% for i in range(99999) %}{% if -1 in x %}{% endif %}{% endfor %}",
        "{% for i in range(1000) %}{{ range(99999)|sort|length }}{% endfor %}",
    ],
)
def test_a_template_of_ten_billion_turns_ends(source: str) -> None:
    begun = time.thread_time()
    with pytest.raises(EffortExceeded, match="CPU time"):
        ChatTemplate(source).render(USER)
    assert time.thread_time() - begun < 3


@pytest.mark.parametrize(
    "source",
    [
        GROWING % ("'a'", "0", "{% set ns.x = ns.x ~ ns.x %}", "|length"),
        GROWING % ("'a'", "0", "{% set ns.x = ns.x + ns.x %}", "|length"),
        GROWING % ("'a'", "0", "{% set y %}{{ ns.x }}{{ ns.x }}{% endset %}{% set ns.x = y %}", "|length"),
        GROWING % ("[1]", "0", "{% set ns.x = [ns.x, ns.x] %}", ""),
        GROWING % ("{}", "0", "{% set ns.x = {'a': ns.x, 'b': ns.x} %}", "|tojson"),
        GROWING % ("[1]", "[1]", "{% set ns.x = [ns.x, ns.x] %}{% set ns.y = [ns.y, ns.y] %}", " == ns.y"),
        GROWING % ("3", "0", "{% set ns.x = ns.x * ns.x %}", ""),
        "{% macro f(x) %}{{ x }}{{ x }}{% endmacro %}" + GROWING % ("'a'", "0", "{% set ns.x = f(ns.x) %}", "|length"),
        "{{ 'a' * 10000000000 }}",
        "{{ 10000000000 * 'a' }}",
        "{{ 9 ** 99999 }}",
        "{{ [1] * 10000000000 }}",
        "{{ 'a'|center(10000000000) }}",
        "{{ 'a'.zfill(10000000000) }}",
        "{{ '%10000000000d' % 1 }}",
        "{{ '%*d' % (1000000000, 1) }}",
        "{{ '{:10000000000}'.format(1) }}",
        "{{ '{:{}}'.format(1, 10000000000) }}",
        "{% set x = 'a' * 100000 %}{{ x|replace('a', x) }}",
        "{% set x = 'a' * 100000 %}{{ x.replace('a', x) }}",
        "{{ range(100000)|join('a' * 100000) }}",
        "{{ range(99999)|map('string')|join('a' * 100000) }}",
        "{{ ('a' * 100000).translate({97: 'b' * 100000}) }}",
        "{{ ('\n' * 100000)|indent(100000, true) }}",
        "{{ ('{0}' * 10000).format('a' * 100000) }}",
        "{{ ('%s' * 10000) % (('a' * 100000,) * 10000) }}",
        "{{ ([[1]] * 100000)|sum(start=[]) }}",
        "{{ ('\t' * 1000000).expandtabs(100000) }}",
        "{{ [1]|batch(9999999999, 1)|list }}",
        "{{ strftime_now('%1000000000d') }}",
        "{{ [1]|tojson(indent=10000) }}",
        "{{ ('<!---->' * 50000)|striptags }}",
        "{{ (range(90000)|list)|pprint }}",
    ],
)
def test_a_template_makes_no_text_of_gigabytes(source: str) -> None:
    begun = time.thread_time()
    with pytest.raises(EffortExceeded):
        ChatTemplate(source).render(USER)
    assert time.thread_time() - begun < 2


@pytest.mark.slow
@pytest.mark.parametrize(
    "source",
    [
        "{{ " + "(" * 3000 + "1" + ")" * 3000 + " }}",
        "{% for a in [1] %}" * 200 + "{% endfor %}" * 200,
        "{% if 1 %}" * 2000 + "{% endif %}" * 2000,
        "{% macro f(n) %}{{ f(n) }}{% endmacro %}{{ f(1) }}",
    ],
)
def test_a_template_that_is_nested_without_end_is_refused(source: str) -> None:
    with pytest.raises(TemplateError, match=r"recursion|indentation|nested"):
        ChatTemplate(source).render(USER)


def test_a_very_long_template_is_refused() -> None:
    with pytest.raises(TooLarge, match="the limit is 262,144"):
        ChatTemplate("x" * (1 << 19))


def test_abilities_of_a_template_without_end_are_found_by_one_trial(monkeypatch: pytest.MonkeyPatch) -> None:
    template = ChatTemplate("{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}")
    trials: list[object] = []
    render = ChatTemplate.render

    def count(self: ChatTemplate, messages: Any, **options: Any) -> str:
        trials.append(messages)
        return render(self, messages, **options)

    monkeypatch.setattr(ChatTemplate, "render", count)
    assert not template.abilities.tools
    assert len(trials) == 1


def test_a_long_conversation_is_within_the_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(effort.limited.__wrapped__, "__kwdefaults__", {"seconds": 2.0})
    messages = [{"role": role, "content": "some words " * 100} for _ in range(500) for role in ("user", "assistant")]
    gathered = (
        "{% set ns = namespace(text='') %}{% for m in messages %}{% set ns.text = ns.text ~ m.role ~ m.content|trim %}"
        "{% endfor %}{{ ns.text }}{{ messages|map(attribute='role')|join(',') }}{{ cycler('a', 'b').next() }}"
    )
    shown = ChatTemplate(gathered).render(messages[:300])
    assert len(shown) > 300 * 1000
    assert len(ChatTemplate("{% for m in messages %}{{ m.content }}{% endfor %}").render(messages)) == 1000 * 1100
