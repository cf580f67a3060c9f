"""`ChatTemplate`: a model's own chat template (Jinja, as Hugging Face and llama.cpp store it), rendered in a sandbox.

It knows neither tokenizers nor engines: text in, text out. The environment is the one that transformers documents
(`utils/chat_template_utils.py`): trim_blocks, lstrip_blocks, loop controls, `tojson`, `raise_exception`,
`strftime_now`, `{% generation %}`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

from jinja2 import TemplateError as JinjaError
from jinja2 import nodes
from jinja2.ext import Extension
from jinja2.parser import Parser

from espalier.chat.messages import check_messages
from espalier.chat.prompt.abilities import Abilities, find_abilities
from espalier.chat.prompt.effort import EffortExceeded, exceeded, limited
from espalier.chat.prompt.sandbox import LimitedEnvironment, counting
from espalier.computed import computed
from espalier.errors import TemplateError, TooLarge
from espalier.files.limits import TEMPLATE, size_text
from espalier.files.reading import shortened
from espalier.wording import RAW, OptionText

MAX_INDENT = 32
# A template is foreign code: any exception from its expressions means that the template refused.
_REFUSALS = (
    JinjaError,
    ArithmeticError,
    AttributeError,
    LookupError,
    RuntimeError,
    TypeError,
    ValueError,
    SyntaxError,
    MemoryError,
    NotImplementedError,
    AssertionError,
)


class _Generation(Extension):
    """`{% generation %}` marks the assistant's text for training; here its content is passed through."""

    tags = {"generation"}  # noqa: RUF012  # jinja2 reads it from the class

    def parse(self, parser: Parser) -> nodes.Node | list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class ChatTemplate:
    """A compiled template. Raises TemplateError for one that does not parse, TooLarge for a very long one."""

    def __init__(
        self, source: str, *, bos_token: str = "", eos_token: str = "", now: Callable[[], datetime] = datetime.now
    ) -> None:
        self.source = source
        self._tokens = {"bos_token": bos_token, "eos_token": eos_token}
        self.bos_token = bos_token
        if len(source) > TEMPLATE.bytes:
            raise TooLarge(
                f"the model's chat template has {len(source):,} characters, and the limit is {TEMPLATE.bytes:,}",
                hint=f"templates have some {size_text(16384)}",
                field="messages",
            )
        environment = LimitedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, "jinja2.ext.loopcontrols"]
        )
        environment.filters["tojson"] = counting(_tojson, "tojson")
        environment.globals["raise_exception"] = _raise

        def strftime_now(form: str) -> str:
            return now().strftime(form)

        environment.globals["strftime_now"] = strftime_now
        try:
            with limited():
                self._template = environment.from_string(source)
        except _REFUSALS as error:
            raise TemplateError(f"the model's chat template does not parse: {_reason(error)}") from error

    @computed
    def abilities(self) -> Abilities:
        """What the template supports of tools, calls and results; found once, by trial. Never raises."""
        spent: list[EffortExceeded] = []

        def render(messages: Sequence[Mapping[str, Any]], *, tools: Sequence[Mapping[str, Any]] | None = None) -> str:
            if spent:  # it would take as long each time
                raise spent[0]
            try:
                return self.render(messages, tools=tools)
            except EffortExceeded as error:
                spent.append(error)
                raise

        return find_abilities(render)

    def takes(self, name: str) -> bool:
        """Whether a variable may have this name, that is, whether the name is not reserved."""
        reserved = {"self", "messages", "tools", "add_generation_prompt", *self._tokens, *self._template.globals}
        return name.isidentifier() and name not in reserved

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        add_generation_prompt: bool = True,
        tools: Sequence[Mapping[str, Any]] | None = None,
        **variables: Any,
    ) -> str:
        """The prompt text. Raises InputError for bad messages, TemplateError if the template refuses them."""
        checked = check_messages(messages)
        passed = list(tools) if tools else None
        try:
            with limited(list(checked), passed, variables):
                return self._template.render(
                    messages=checked,
                    tools=passed,
                    add_generation_prompt=add_generation_prompt,
                    **self._tokens,
                    **variables,
                )
        except _REFUSALS as error:
            raise TemplateError(
                f"the chat template refused the messages: {_reason(error)}", field="messages"
            ) from error


class BrokenTemplate(ChatTemplate):
    """Replaces an unusable template: its model still works with raw prompts, and every rendering raises with the
    reason."""

    def __init__(self, source: str, reason: str) -> None:
        self.source = source
        self._reason = reason

    def render(self, messages: Sequence[Mapping[str, Any]], **_: Any) -> str:
        """Raises TemplateError."""
        raise TemplateError(self._reason, hint=OptionText("say ", RAW, " and write the whole prompt"), field="messages")


def template_of(source: str, *, bos_token: str, eos_token: str) -> ChatTemplate:
    """The template of a model that is opened all the same if its template is broken: using that one then raises."""
    try:
        return ChatTemplate(source, bos_token=bos_token, eos_token=eos_token)
    except TemplateError as error:
        return BrokenTemplate(source, error.message)


def _reason(error: BaseException) -> str:
    """The message of a foreign exception, which may quote a whole conversation."""
    return shortened(str(error), 1000) or type(error).__name__


def _tojson(value: Any, ensure_ascii: bool = False, indent: int | None = None, **options: Any) -> str:
    # Jinja's own filter escapes HTML, which would change what the model reads.
    if isinstance(indent, str) or (indent is not None and not 0 <= indent <= MAX_INDENT):
        raise exceeded(f"writes JSON with an indent other than 0 to {MAX_INDENT}")
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, **options)


def _raise(message: str) -> None:
    raise JinjaError(message)
