"""`After` on an engine: what the text shows, where the prompt's own words count, what is judged and parsed."""

import numpy as np
import pytest

import espalier
from espalier.chat.prompt.template import ChatTemplate
from espalier.constraints.after.spec import After
from espalier.constraints.spec import JsonObject, Regex
from espalier.engines.fake import FakeStepModel, wishing
from espalier.engines.local.engine import LocalEngine
from espalier.errors import InputError
from espalier.tokens.vocab import Vocab

EOS, MARK, OPEN = 256, 257, 258
TURN = "{% for m in messages %}{{ m.content }}|{% endfor %}"


def engine(wish, template=None, favourite=None):
    """A model over bytes whose vocabulary has the marker as a special token; it may long for one token above all."""
    tokens = [bytes([b]) for b in range(256)]
    specials = {EOS: "<eos>", MARK: "</think>", OPEN: "<think>"}
    vocab = Vocab.from_tokens(tokens, eos_ids=[EOS], special_ids=specials, width=259)

    def logits_of(ids):
        border = ids.index(EOS) + 1
        row = wishing(vocab, wish, border)(ids)
        if favourite is not None and favourite not in ids[border:]:
            row[favourite] += np.float32(50)
        return row

    local = LocalEngine(
        name="marked",
        model=FakeStepModel(logits_of, width=vocab.width),
        vocab=vocab,
        encode=lambda text, *, add_special: [*text.encode(), EOS],
        template=None if template is None else ChatTemplate(template),
    )
    return espalier.LoadedEngine(local)


def test_the_text_shows_a_marker_that_is_a_special_token():
    result = engine('{"a": 1}', favourite=MARK).generate(
        "hi", constraint=After("</think>", JsonObject()), temperature=0
    )
    assert result.text == '</think>{"a": 1}'
    assert result.token_ids[0] == MARK
    assert result.parsed == {"a": 1}
    assert result.verdict.valid is True
    assert result.trace.steps[0].bytes == b""
    assert result.trace.text == result.text


def test_the_opening_tag_is_text_too():
    result = engine("hm</think>yes", favourite=OPEN).generate(
        "hi", constraint=After("</think>", Regex("yes")), temperature=0
    )
    assert (result.text, result.token_ids[0]) == ("<think>hm</think>yes", OPEN)
    assert result.parsed == "yes"


def test_a_stop_text_sees_the_marker():
    spec = After("</think>", Regex("[a-z]+"))
    result = engine("hm", favourite=MARK).generate("hi", constraint=spec, temperature=0, stop=["think>"])
    assert result.text == "</"


def test_a_template_that_closes_the_thinking_begins_with_the_answer():
    closed = TURN + "{% if add_generation_prompt %}<think>\n\n</think>\n\n{% endif %}"
    spec = After("</think>", JsonObject())
    result = engine('{"a": 1}', closed).generate("what does </think> mean?", constraint=spec, temperature=0)
    assert result.text == '{"a": 1}'
    assert result.parsed == {"a": 1}


def test_a_template_that_opens_the_thinking_waits_for_the_marker():
    opened = TURN + "{% if add_generation_prompt %}</think> <think>\n{% endif %}"
    spec = After("</think>", JsonObject())
    result = engine('hm</think>{"a": 1}', opened).generate("hi </think>", constraint=spec, temperature=0)
    assert result.text == 'hm</think>{"a": 1}'
    assert result.parsed == {"a": 1}


@pytest.mark.parametrize(
    "template",
    [
        "{% if not add_generation_prompt %}{{ raise_exception('no') }}{% endif %}x</think>",
        "{{ add_generation_prompt }} x</think>",
    ],
)
def test_a_template_whose_turn_cannot_be_told_says_nothing(template):
    result = engine('hm</think>{"a": 1}', template).generate(
        "hi", constraint=After("</think>", JsonObject()), temperature=0
    )
    assert result.text == 'hm</think>{"a": 1}'


@pytest.mark.parametrize("raw", [True, False])
def test_a_plain_prompt_is_all_there_is(raw):
    eng = engine('"a": 1}', TURN if raw else None)
    spec = After("</think>", JsonObject())
    result = eng.generate("q <think>hm</think> {", constraint=spec, temperature=0, raw=raw)
    assert result.text == '"a": 1}'
    assert result.parsed == {"a": 1}
    assert result.verdict.valid is True
    with pytest.raises(InputError, match="in_prompt") as caught:
        eng.generate("Use </think> please", constraint=spec, raw=raw)
    assert caught.value.field == "prompt"
    waits = After("</think>", JsonObject(), in_prompt="no")
    other = engine('so</think>{"a": 1}', TURN if raw else None)
    assert other.generate("Use </think> please", constraint=waits, temperature=0, raw=raw).parsed == {"a": 1}
