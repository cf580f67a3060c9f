"""A schema put into a rendered prompt stands where rendering the messages with it puts it, under every template."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from espalier.chat.prompt.insertion import with_schema
from espalier.chat.prompt.render import NO_SCHEMA, render_prompt
from espalier.chat.prompt.template import ChatTemplate
from espalier.errors import EspalierError
from tests import chat_templates

SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}
SYSTEM, USER = (
    {"role": "system", "content": "Be short.\n\nAlways."},
    {"role": "user", "content": "How many?\n\nSay it."},
)
SAID = {"role": "assistant", "content": "One."}
CONVERSATIONS = {
    "alone": [USER],
    "instructed": [SYSTEM, USER],
    "longer": [SYSTEM, USER, SAID, USER],
    "again": [USER, SAID, USER],
}
FOLDED = ("MISTRAL", "KIMI")
"""Where a user's turn may begin with instructions, which nothing marks."""
TEMPLATES = {name: text for name, text in vars(chat_templates).items() if name.isupper() and isinstance(text, str)}


@pytest.mark.parametrize("name", TEMPLATES)
def test_it_is_the_prompt_that_rendering_gives(name: str) -> None:
    template = ChatTemplate(TEMPLATES[name], bos_token="<s>", eos_token="</s>")

    def render(messages: Sequence[Mapping[str, Any]], has_schema: bool) -> str:
        return render_prompt(template, messages, schema=SCHEMA if has_schema else NO_SCHEMA)

    known = 0
    for messages in CONVERSATIONS.values():
        try:
            plain, wanted = render(messages, False), render(messages, True)
        except EspalierError:
            continue
        (made,) = with_schema([plain], SCHEMA, render)
        assert made in (None, wanted)
        known += made is not None
    assert bool(known) is (name not in FOLDED)


def test_a_prompt_that_no_template_has_written_is_left_alone() -> None:
    template = ChatTemplate(chat_templates.CHATML)
    assert with_schema(["Once"], SCHEMA, lambda messages, _: render_prompt(template, messages)) == [None]
