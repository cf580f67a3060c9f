from datetime import datetime

import pytest

from espalier.chat.messages import check_messages
from espalier.chat.prompt.template import ChatTemplate
from espalier.errors import InputError, TemplateError

CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
USER = [{"role": "user", "content": "Hi"}]


def test_it_renders_as_the_model_was_trained():
    assert ChatTemplate(CHATML).render(USER) == "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    assert ChatTemplate(CHATML).render(USER, add_generation_prompt=False).endswith("<|im_end|>\n")


def test_it_equals_transformers_on_templates_of_the_field():
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("jinja2")
    tokenizers = pytest.importorskip("tokenizers")
    sources = [
        CHATML,
        "{{ bos_token }}{%- for m in messages %}\n{{- '[' + m['role'] + '] ' + m['content'] | trim }}\n{%- endfor %}",
        "{% for m in messages %}{% if loop.index0 > 5 %}{% break %}{% endif %}{{ m | tojson }}{% endfor %}",
        "{% for m in messages %}{% generation %}{{ m.content }}{% endgeneration %}{% endfor %}",
        "{% if tools %}{{ tools | tojson(indent=2) }}{% endif %}{{ messages[0].content }}",
    ]
    core = tokenizers.Tokenizer(tokenizers.models.BPE())
    theirs = transformers.PreTrainedTokenizerFast(tokenizer_object=core, bos_token="<s>", eos_token="</s>")
    messages = [{"role": "system", "content": " be <b> & kind "}, {"role": "user", "content": "é\n'x'"}]
    tools = [{"type": "function", "function": {"name": "f", "parameters": {"a": "<é>"}}}]
    for source in sources:
        ours = ChatTemplate(source, bos_token="<s>", eos_token="</s>").render(messages, tools=tools)
        expected = theirs.apply_chat_template(
            messages, tools=tools, chat_template=source, tokenize=False, add_generation_prompt=True
        )
        assert ours == expected, source


def test_the_clock_of_a_template_is_an_argument():
    template = ChatTemplate("{{ strftime_now('%Y') }}", now=lambda: datetime(1999, 1, 1))
    assert template.render(USER) == "1999"


def test_a_template_that_does_not_parse_says_so():
    with pytest.raises(TemplateError, match="does not parse"):
        ChatTemplate("{% for %}")


def test_a_template_that_refuses_the_messages_is_an_error_of_the_input():
    template = ChatTemplate("{{ raise_exception('roles must alternate') }}")
    with pytest.raises(TemplateError, match="roles must alternate"):
        template.render(USER)


@pytest.mark.parametrize("fault", ["{{ 1 / 0 }}", "{{ '{9}'.format(1) }}", "{{ {}.x.y }}", "{{ messages + 1 }}"])
def test_whatever_a_template_raises_is_its_refusal(fault):
    with pytest.raises(TemplateError, match="refused"):
        ChatTemplate(fault).render(USER)


@pytest.mark.parametrize(
    "attack", ["{{ ''.__class__.__mro__ }}", "{{ messages.append(1) }}", "{{ cycler.__init__.__globals__ }}"]
)
def test_a_template_cannot_reach_out_of_its_sandbox(attack):
    with pytest.raises(TemplateError):
        ChatTemplate(attack).render(USER)


@pytest.mark.parametrize(
    ("messages", "words"),
    [
        ([], "no messages"),
        (["hi"], r"messages\[0\]"),
        ([{"role": "robot", "content": "x"}], "robot"),
        ([{"content": "x"}], "role"),
        ([*USER, {"role": "user"}], r"messages\[1\]"),
        ([{"role": "user", "content": [{"type": "image_url"}]}], "image_url"),
    ],
)
def test_a_message_that_is_not_one_is_named(messages, words):
    with pytest.raises(InputError, match=words):
        check_messages(messages)


def test_text_parts_are_joined_and_the_input_is_not_changed():
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    message = {"role": "user", "content": parts}
    assert check_messages([message])[0]["content"] == "ab"
    assert message["content"] is parts
