"""Prepares a turn of a conversation: its prompt text, its constraint, and the parser of its output.

It joins a request's chat template, tools and reasoning into one prompt and one constraint. It knows no model: templates
and vocabularies are given to it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from espalier.chat.argument_types import ArgumentTypes
from espalier.chat.messages import check_messages
from espalier.chat.prompt.past import has_past_calls
from espalier.chat.prompt.render import NO_SCHEMA, render_prompt
from espalier.chat.prompt.template import ChatTemplate
from espalier.chat.reading.deltas import Turn
from espalier.chat.reading.turn_parser import TurnParser
from espalier.chat.reasoning import REASONING, Reasoning, detect_reasoning
from espalier.chat.wire.detect import detect_format
from espalier.chat.wire.formats import WireFormat, wire_format
from espalier.computed import computed
from espalier.constraints.after.thinking import Thinking
from espalier.constraints.joining.rule import is_filter, split, together
from espalier.constraints.spec import JsonSchema, Regex, Spec
from espalier.constraints.tools.grammar import checked_afterwards, in_schema_order
from espalier.constraints.tools.spec import ToolCalls
from espalier.engines.base import Message, Request
from espalier.errors import InputError, TemplateError
from espalier.tokens.vocab import Vocab
from espalier.wording import RAW, OptionText, constraint

DEFAULT_FORMAT = "args"
"""For a model whose template does not show how it writes calls: the prompt tells it to write them so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedTurn:
    """text: the prompt. before: the end of the prompt that belongs to the model's turn. spec: the constraint on the
    turn's text.

    format, names, types: how calls are written, the tools that can be called, and the types of their arguments.
    reasoning: the markers to split by; inside: whether the prompt has opened them. notes: what of the constraint does
    not hold in this turn, or not in all of it.
    """

    text: str
    before: str
    spec: Spec | None
    format: WireFormat | None = None
    names: tuple[str, ...] = ()
    types: Mapping[str, ArgumentTypes] = field(default_factory=dict)
    reasoning: Reasoning | None = None
    inside: bool = False
    notes: tuple[str, ...] = ()

    def parser(self) -> TurnParser:
        return TurnParser(
            format=self.format, names=self.names, types=self.types, reasoning=self.reasoning, inside=self.inside
        )


class TurnMaker:
    """Prepares the turns of one model. Raises InputError and its subclasses for requests that cannot be rendered."""

    def __init__(
        self, *, name: str, template: ChatTemplate | None, vocab: Vocab, tool_format: str | None = None
    ) -> None:
        """tool_format: for a model whose template does not show one."""
        self._name = name
        self._template = template
        self._vocab = vocab
        self._tool_format = tool_format

    def prepare(self, request: Request) -> PreparedTurn:
        if request.reasoning == "auto":
            request = replace(request, reasoning=self._detect_reasoning())
        if (request.prompt is None) == (request.messages is None):
            raise InputError("give either a prompt or messages", field="prompt")
        if request.messages is not None and request.raw:
            raise InputError("messages cannot be raw: the chat template has to render them", field="raw")
        request.tool_choice.allowed(request.tools)  # raises if no tool has that name
        format_ = self._format(request) if request.tools else self._past_format(request)
        render = self._renderer(request, format_)
        text = render(True)
        before = self._before(request, text, render)
        reasoning, inside, is_open = self._reasoning(request, before)
        return turn_with(request, text, before, format_, reasoning if is_open else None, inside=inside)

    @computed
    def _shown_format(self) -> str | None:
        """How calls are written, as the template shows it."""
        return None if self._template is None else detect_format(self._template.source)

    @computed
    def _shown_reasoning(self) -> Reasoning | None:
        """The reasoning markers that the template or the vocabulary shows."""
        return detect_reasoning("" if self._template is None else self._template.source, _markers(self._vocab))

    def _detect_reasoning(self) -> Reasoning:
        if self._shown_reasoning is None:
            raise InputError(
                f"the chat template and vocabulary of {self._name} show no reasoning markers",
                hint=f"name them: {', '.join(REASONING)}, or a pair of texts",
                field="reasoning",
            )
        return self._shown_reasoning

    def _format(self, request: Request) -> WireFormat:
        if request.tool_format is not None:
            return wire_format(request.tool_format)
        shown = self._shown_format or self._tool_format
        if shown is None and self._renders_tools(request):
            raise InputError(
                f"the chat template of {self._name} does not show how the model writes calls",
                hint="name it: tool_format= or ESPALIER_TOOL_FORMAT",
                field="tool_format",
            )
        return wire_format(shown or DEFAULT_FORMAT)

    def _past_format(self, request: Request) -> WireFormat | None:
        """How earlier calls are written in a prompt without tools, if the template does not write them."""
        if not has_past_calls([dict(message) for message in request.messages or ()]):
            return None
        return wire_format(request.tool_format or self._shown_format or self._tool_format or DEFAULT_FORMAT)

    def _renders_tools(self, request: Request) -> bool:
        return self._template is not None and not request.raw and self._template.abilities.tools

    def _renderer(self, request: Request, format_: WireFormat | None) -> Callable[[bool], str]:
        """A function that renders the prompt, with or without the start of the model's turn."""
        template = self._template
        if request.raw or (template is None and request.messages is None):
            if request.template_variables:
                raise InputError(
                    "template_variables need a chat template, and none is rendered here", field="template_variables"
                )
            asked = {"tools": bool(request.tools), "schema_in_prompt": request.schema_in_prompt}
            unheard = [name for name, given in asked.items() if given]
            if unheard and not request.raw:
                raise InputError(
                    f"{self._name} has no chat template, so {unheard[0]} cannot be put into the prompt",
                    hint=OptionText("write the prompt yourself and say ", RAW),
                    field=unheard[0],
                )
            if request.schema_in_prompt:
                raise InputError("schema_in_prompt does not work with a raw prompt", field="schema_in_prompt")
            return lambda _: request.prompt or ""
        if template is None:
            raise InputError(f"{self._name} has no chat template", hint="give a plain prompt", field="messages")
        schema = schema_of_spec(request.constraint) if request.schema_in_prompt else NO_SCHEMA
        native = format_ is None or self._shown_format in (None, format_.name)
        messages, begun = _split_begun_turn(request)

        def render(starts_turn: bool) -> str:
            add_generation_prompt = starts_turn and request.turn != "none"
            text = render_prompt(
                template,
                messages,
                tools=request.tools,
                choice=request.tool_choice,
                format=format_,
                max_calls=request.max_calls,
                native_tools=native,
                schema=schema,
                add_generation_prompt=add_generation_prompt,
                enable_thinking=request.enable_thinking,
                variables=request.template_variables,
            )
            return text + begun if starts_turn else text

        return render

    def _before(self, request: Request, text: str, render: Callable[[bool], str]) -> str:
        """The end of the prompt that belongs to the model's turn: what the template adds to start it. Without a
        template nothing shows where a turn starts: then it is the whole text, or with reasoning only an end with a
        marker."""
        if self._template is None or request.raw:
            return text if not isinstance(request.reasoning, Reasoning) else _tail(text, request.reasoning)
        try:
            without = render(False)
        except TemplateError:
            return ""  # a template that always starts a turn: what it adds is unknown
        return text[len(without) :] if text.startswith(without) else ""

    def _reasoning(self, request: Request, before: str) -> tuple[Reasoning | None, bool, bool]:
        """The markers; whether the prompt has opened them; whether reasoning is still possible."""
        asked = request.reasoning
        if asked is None or asked == "auto":
            return None, False, False
        opened, closed = before.rfind(asked.start), before.rfind(asked.end)
        return asked, opened > closed, opened > closed or closed < 0


def turn_with(
    request: Request,
    text: str,
    before: str,
    format_: WireFormat | None,
    reasoning: Reasoning | None,
    *,
    inside: bool = False,
) -> PreparedTurn:
    """The turn that follows a prompt: its constraint, and how it is split. format_: how calls are written. reasoning:
    the markers of reasoning that is still possible; inside: whether the prompt has opened it."""
    content, everywhere = split(request.constraint)
    calls = _calls(request, content, format_)
    may_call = calls is not None and bool(calls.allowed)
    return PreparedTurn(
        text=text,
        before=before,
        spec=_spec(request, content if calls is None else calls, everywhere, reasoning),
        format=calls.wire if calls is not None and may_call else None,
        names=() if calls is None else tuple(tool.name for tool in calls.allowed),
        types={} if calls is None else calls.types,
        reasoning=reasoning,
        inside=inside,
        notes=_notes(request, content, calls, reasoning),
    )


def _calls(request: Request, content: Spec | None, format_: WireFormat | None) -> ToolCalls | None:
    """The constraint of a turn with tools. content: what holds for a turn without calls."""
    if not request.tools or format_ is None:
        return None
    return ToolCalls(
        request.tools,
        choice=request.tool_choice,
        format=format_.name,
        max_calls=request.max_calls,
        order=request.schema_order,
        # A required call leaves no room for content, so the constraint has nothing to apply to.
        content=None if request.tool_choice.mode == "required" else content,
    )


def _spec(
    request: Request, answer: Spec | None, everywhere: Sequence[Spec], reasoning: Reasoning | None
) -> Spec | None:
    """The constraint on the turn's text. answer: on what follows the reasoning. everywhere: on all of the text."""
    whole = together(answer, *everywhere)
    if reasoning is None or (answer is None and request.max_reasoning is None):
        return whole
    # What holds everywhere is joined to the answer too, where it leads into no dead end.
    thinking = Thinking(
        Regex("(?s:.*)") if whole is None else whole,
        start=reasoning.start,
        end=reasoning.end,
        max_tokens=request.max_reasoning,
    )
    return together(thinking, *everywhere)


def _notes(
    request: Request, content: Spec | None, calls: ToolCalls | None, reasoning: Reasoning | None
) -> tuple[str, ...]:
    """What of the constraint does not hold in this turn, or not in all of it, for the user."""
    found = [] if calls is None else [*_checked_later(calls), *_kept_orders(calls)]
    if calls is not None and content is not None and request.tool_choice.mode == "required":
        found.append(f"{content.kind} holds for a turn without calls, and tool_choice demands a call")
    filters = [] if content is None else [one.kind for one in content.walk() if is_filter(one)]
    if reasoning is not None and filters:
        found.append(f"the reasoning is free: {' and '.join(dict.fromkeys(filters))} holds for what follows it")
    return tuple(found)


def _checked_later(calls: ToolCalls) -> list[str]:
    """A note for each tool whose schema says more than can be enforced token by token."""
    found = ((tool.name, checked_afterwards(tool, calls)) for tool in calls.allowed)
    return [f"the tool {name}: checked when the call is complete: {', '.join(kept)}" for name, kept in found if kept]


def _kept_orders(calls: ToolCalls) -> list[str]:
    """A note on the tools whose arguments do not come in every order."""
    names = in_schema_order(calls)
    shown = ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
    why = f"the format {calls.format} writes every order out, which is too much for so many names"
    return [f"the arguments of {shown} come in the order of their schemas: {why}"] if names else []


def schema_of_spec(spec: Spec | None) -> Any:
    """The schema within a constraint, for the prompt. Raises InputError where there is none or more than one."""
    found = [] if spec is None else [one for one in spec.walk() if isinstance(one, JsonSchema)]
    if len(found) != 1:
        many = "more than one" if found else "no"
        raise InputError(
            f"there is {many} schema to put into the prompt",
            hint=OptionText(constraint("JsonSchema")),
            field="schema_in_prompt",
        )
    return found[0].explicit().schema


def _markers(vocab: Vocab) -> frozenset[str]:
    """The reasoning markers that are single tokens of the vocabulary, special or not."""
    wanted = {text.encode(): text for found in REASONING.values() for text in (found.start, found.end)}
    special = {text for text in vocab.special_texts.values() if text in wanted.values()}
    return frozenset(special | {wanted[token] for token in vocab.tokens if token in wanted})


def as_messages(request: Request) -> Sequence[Message]:
    """A plain prompt becomes one user message."""
    if request.messages is not None:
        return request.messages
    return [{"role": "user", "content": request.prompt or ""}]


def _split_begun_turn(request: Request) -> tuple[Sequence[Message], str]:
    """The messages before the model's turn, and the text with which the turn has begun: that of a last message which
    the turn continues. Raises InputError where there is none to continue."""
    messages = as_messages(request)
    if request.turn != "continue":
        return messages, ""
    checked = check_messages(messages)
    last = checked[-1]
    if last["role"] != "assistant" or last.get("tool_calls"):
        raise InputError(
            "only a last message of the assistant's, without calls, can be continued", field="continue_final_message"
        )
    if len(messages) == 1:
        raise InputError("there is no message before the one to continue", field="messages")
    return messages[:-1], last["content"]


def calls_tools(turn: Turn) -> bool:
    """Whether there are calls and all are complete."""
    return bool(turn.calls) and all(call.is_complete for call in turn.calls)


def _tail(text: str, reasoning: Reasoning) -> str:
    """The end of a raw prompt from the last marker on, if only whitespace follows it: reasoning is opened or closed
    there. A marker elsewhere may be what the prompt is about."""
    bare = text.rstrip()
    if bare.endswith(reasoning.start):
        return text[len(bare) - len(reasoning.start) :]
    if bare.endswith(reasoning.end):
        return text[max(bare.rfind(reasoning.start), 0) :]
    return ""


ALPHABET = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
ID_LENGTH = 9
"""Mistral's templates accept exactly nine letters or digits; the others accept anything."""


def call_id(prompt: str, seed: int, index: int) -> str:
    """The id of a call: equal for equal runs, different for another prompt, seed or index."""
    digest = hashlib.blake2b(f"{seed} {index} {prompt}".encode("utf-8", "surrogatepass"), digest_size=16).digest()
    number = int.from_bytes(digest, "big")
    letters = []
    for _ in range(ID_LENGTH):
        number, place = divmod(number, len(ALPHABET))
        letters.append(ALPHABET[place])
    return "".join(letters)
