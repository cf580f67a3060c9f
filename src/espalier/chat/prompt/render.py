"""Render a request's prompt: messages, tools and a schema through the chat template. Engines call only this.

Models and tokenizers are not known here. What the template cannot render is added to the messages as text (`texts.py`,
`past.py`). Messages without tools, calls, results and schema are rendered unchanged.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from espalier.chat.messages import check_messages
from espalier.chat.prompt.past import Message, has_past_calls, rewrite_past_calls
from espalier.chat.prompt.template import ChatTemplate
from espalier.chat.prompt.texts import schema_text, tools_text
from espalier.chat.tools import AUTO, Tool, ToolChoice
from espalier.chat.wire.formats import OPENAI, WireFormat
from espalier.errors import InputError

NO_SCHEMA: Any = object()
"""Stands for "no schema", since every JSON value could be a schema."""
_INSTRUCTING = ("system", "developer")


def render_prompt(
    template: ChatTemplate,
    messages: Sequence[Mapping[str, Any]],
    *,
    tools: Sequence[Tool] = (),
    choice: ToolChoice = AUTO,
    format: WireFormat | None = None,  # noqa: A002  # the word that every edge uses
    max_calls: int | None = None,
    native_tools: bool = True,
    schema: Any = NO_SCHEMA,
    add_generation_prompt: bool = True,
    enable_thinking: bool | None = None,
    variables: Mapping[str, Any] = MappingProxyType({}),
) -> str:
    """The prompt text. No argument is changed.

    tools, choice: all tools are in the prompt whatever the choice, so that prompts share their beginning; with mode
    `none` there are no tools in it. format, max_calls: used to describe calls if the template does not render tools
    itself. format is also the spelling of past calls if the template does not render them; None means OpenAI's plain
    JSON. native_tools: False describes tools and past calls as text even if the template renders them, for a format
    that is not the template's. enable_thinking: the variable with which many templates open or close the reasoning;
    None leaves it unset. variables: other variables of the template. Raises InputError for bad messages, for a reserved
    variable name, for a choice of an unknown tool, and for tools without a format where one is needed; TemplateError if
    the template refuses.
    """
    turns: list[Message] = list(check_messages(messages))
    if has_past_calls(turns):
        detected = template.abilities
        abilities = replace(detected, tool_calls=detected.tool_calls and native_tools)
        turns = rewrite_past_calls(turns, abilities, format or OPENAI)
    offered = tools if choice.mode != "none" else ()
    passed: list[dict[str, Any]] | None = None
    texts: list[str] = []
    if offered:
        choice.allowed(offered)
        if native_tools and template.abilities.tools:
            passed = [_as_templates_take(tool) for tool in offered]
        elif format is None:
            raise InputError(
                "tools need a wire format where the chat template does not render them",
                hint="name one, such as `args`",
                field="tool_format",
            )
        else:
            texts.append(tools_text(offered, format, choice, max_calls))
    if schema is not NO_SCHEMA:
        texts.append(schema_text(schema))
    if texts:
        turns = _add_instruction(turns, "\n\n".join(texts), system_role=template.abilities.system_role)
    switch = {} if enable_thinking is None else {"enable_thinking": enable_thinking}
    for name in variables:
        if name in switch or not template.takes(name):
            raise InputError(f"a chat template cannot be given {name[:100]!r}", field="template_variables")
    return template.render(turns, tools=passed, add_generation_prompt=add_generation_prompt, **switch, **variables)


def _as_templates_take(tool: Tool) -> dict[str, Any]:
    """OpenAI's shape. Many templates need a description; `strict` is left out, since a model should not read it."""
    inner = {"name": tool.name, "description": tool.description, "parameters": tool.schema}
    return {"type": "function", "function": inner}


def _add_instruction(turns: Sequence[Message], text: str, *, system_role: bool) -> list[Message]:
    """Add the text to the first system message, or as a new one; if the template supports none, in front of the first
    user message."""
    if not system_role:
        place = next((place for place, turn in enumerate(turns) if turn["role"] == "user"), None)
        if place is None:
            return [{"role": "user", "content": text}, *turns]
        turn = {**turns[place], "content": f"{text}\n\n{turns[place]['content']}"}
        return [*turns[:place], turn, *turns[place + 1 :]]
    if turns[0]["role"] not in _INSTRUCTING:
        return [{"role": "system", "content": text}, *turns]
    before = turns[0]["content"]
    return [{**turns[0], "content": f"{before}\n\n{text}" if before else text}, *turns[1:]]
