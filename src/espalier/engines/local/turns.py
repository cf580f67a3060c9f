"""Prepares a turn of a conversation: its prompt text, its constraint, and the parser of its output.

It joins a request's chat template, tools and reasoning into one prompt and one constraint. It knows no model: templates
and vocabularies are given to it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from espalier.chat.argument_types import ArgumentTypes
from espalier.chat.messages import check_messages
from espalier.chat.prompt.past import has_past_calls
from espalier.chat.prompt.render import NO_SCHEMA, render_prompt
from espalier.chat.prompt.template import ChatTemplate
from espalier.chat.reading.channel_header import ANSWER, header_begun, message_begun, opens_message
from espalier.chat.reading.deltas import Turn
from espalier.chat.reading.thoughts import ThoughtSplitter, find_reasoning, start_turn, thoughts_of
from espalier.chat.reading.turn_parser import TurnParser
from espalier.chat.reasoning import HARMONY, Reasoning
from espalier.chat.wire.detect import detect_format
from espalier.chat.wire.formats import WireFormat, wire_format
from espalier.computed import computed
from espalier.constraints.after.thinking import Thinking
from espalier.constraints.ban import Ban
from espalier.constraints.channels.spec import Channels, without_content
from espalier.constraints.joining.rule import split, together
from espalier.constraints.spec import JsonSchema, Regex, Spec
from espalier.constraints.tools.grammar import checked_afterwards, in_schema_order
from espalier.constraints.tools.spec import ToolCalls
from espalier.engines.base import Message, Request
from espalier.errors import InputError, TemplateError
from espalier.tokens.vocab import Vocab
from espalier.wording import RAW, OptionText, constraint

NO_MARKERS = "nothing is read as reasoning: the chat template and the vocabulary show no reasoning markers"
WRITTEN_WITH_MARKERS = ("after", "thinking", "regex", "gbnf", "free")
"""Kinds of constraints that may say themselves where the reasoning stands."""
NO_TOKENS = "the model answers at once: allowed_ids leaves it no tokens to reason with"
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

    def thoughts(self) -> ThoughtSplitter:
        """A splitter of a turn with reasoning."""
        assert self.reasoning is not None
        thoughts = thoughts_of(self.reasoning, inside=self.inside, in_channels=self.in_channels)
        thoughts.feed(self._header)
        return thoughts

    @property
    def in_channels(self) -> bool:
        """Whether the turn consists of messages in channels."""
        shown = self.reasoning if self.format is None else self.format
        return shown is not None and shown.in_channels

    @property
    def _header(self) -> str:
        """The header of the message that goes on, where a turn in channels has begun in the prompt."""
        return header_begun(self.before) if self.in_channels else ""

    def reasoning_setup(self) -> dict[str, Any]:
        """What a replay needs to know of the reasoning, as JSON; {} for a turn without."""
        if self.reasoning is None:
            return {}
        return {"reasoning": [self.reasoning.start, self.reasoning.end], "inside": self.inside}

    def parser(self) -> TurnParser:
        parser = TurnParser(
            format=self.format, names=self.names, types=self.types, reasoning=self.reasoning, inside=self.inside
        )
        parser.feed(self._header)
        return parser


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
        if (request.prompt is None) == (request.messages is None):
            raise InputError("give either a prompt or messages", field="prompt")
        if request.messages is not None and request.raw:
            raise InputError("messages cannot be raw: the chat template has to render them", field="raw")
        request.tool_choice.allowed(request.tools)  # raises if no tool has that name
        format_ = self._format(request) if request.tools else self._past_format(request)
        render, begun = self._renderer(request, format_)
        text = render(True)
        channels = self._channels(request, text, format_)
        if channels is not None:
            return self._in_channels(request, text, render, begun, format_, channels)
        markers, notes = self._markers_of(request, text)
        before = self._before(request, text, render, markers)
        is_off = request.reasoning == "none"
        if markers is not None and request.reasoning is None and request.sampling.allowed_ids is not None:
            is_off, notes = True, (*notes, NO_TOKENS)
        start = start_turn(markers, before, begun, may_think=not is_off and request.enable_thinking is not False)
        text, before = text + start.added, before + start.added
        turn = turn_with(request, text, before, format_, None if is_off else start.reasoning, inside=start.inside)
        return replace(turn, notes=(*notes, *turn.notes))

    @computed
    def _shown_format(self) -> str | None:
        """How calls are written, as the template shows it."""
        return None if self._template is None else detect_format(self._template.source)

    @computed
    def _shown_reasoning(self) -> tuple[Reasoning | None, Reasoning | None]:
        """The reasoning markers that the template or the vocabulary shows: by default, and where they are asked for."""
        source = "" if self._template is None else self._template.source
        return find_reasoning(source, self._vocab), find_reasoning(source, self._vocab, is_asked=True)

    def _markers_of(self, request: Request, text: str) -> tuple[Reasoning | None, tuple[str, ...]]:
        """The markers of reasoning in this turn, and notes. text: the rendered prompt. Behind a prompt that no chat
        template made, reasoning comes only where the request says so or the prompt has opened it."""
        stated = request.reasoning
        if isinstance(stated, Reasoning):
            return stated, ()
        is_asked = stated == "auto" or request.max_reasoning is not None
        shown = self._shown_reasoning[is_asked]
        is_plain = request.raw or self._template is None
        if is_plain and stated is None and (shown is None or not _opens(text, shown)):
            return None, ()
        return shown, (NO_MARKERS,) if shown is None and is_asked else ()

    def _channels(self, request: Request, text: str, format_: WireFormat | None) -> Reasoning | None:
        """The markers of a turn in channels; None for any other turn. A raw prompt begins one if it opens a message."""
        stated = request.reasoning
        if request.tools and format_ is not None:
            return HARMONY if format_.in_channels else None
        if isinstance(stated, Reasoning):
            return stated if stated.in_channels else None
        wire = None if self._shown_format is None else wire_format(self._shown_format)
        if wire is None or not wire.in_channels or (request.raw and not opens_message(text)):
            return None
        return HARMONY

    def _in_channels(
        self,
        request: Request,
        text: str,
        render: Callable[[bool], str],
        begun: Message,
        format_: WireFormat | None,
        channels: Reasoning,
    ) -> PreparedTurn:
        """A turn in channels. Where it continues an answer, the prompt holds the header of that. Raises InputError for
        tools of the model's own that would be in the prompt, and that nothing runs."""
        if built_in := request.template_variables.get("builtin_tools"):
            raise InputError(
                f"the model's built-in tools cannot be offered, because nothing runs them here: {built_in}",
                hint="offer functions of your own as `tools`",
                field="template_variables",
            )
        before = text if request.raw else self._before(request, text, render, None)
        # Such tokens can spell no header either.
        has_no_tokens = request.reasoning is None and request.sampling.allowed_ids is not None
        is_answer = begun or (has_no_tokens and not request.tools and not message_begun(before))
        added = f"{ANSWER}{begun.get('content') or ''}" if is_answer else ""
        turn = turn_with(request, text + added, before + added, format_, channels)
        return replace(turn, notes=(NO_TOKENS, *turn.notes)) if has_no_tokens else turn

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

    def _renderer(self, request: Request, format_: WireFormat | None) -> tuple[Callable[[bool], str], Message]:
        """A function that renders the prompt, with or without the start of the model's turn; and the message that the
        turn continues, empty for a new turn."""
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
            return lambda _: request.prompt or "", {}
        if template is None:
            raise InputError(f"{self._name} has no chat template", hint="give a plain prompt", field="messages")
        schema = schema_of_spec(request.constraint) if request.schema_in_prompt else NO_SCHEMA
        native = format_ is None or self._shown_format in (None, format_.name)
        messages, begun = _split_begun_turn(request)

        def render(starts_turn: bool) -> str:
            return render_prompt(
                template,
                messages,
                tools=request.tools,
                choice=request.tool_choice,
                format=format_,
                max_calls=request.max_calls,
                native_tools=native,
                schema=schema,
                add_generation_prompt=starts_turn and request.turn != "none",
                enable_thinking=False if request.reasoning == "none" else request.enable_thinking,
                variables=request.template_variables,
            )

        return render, begun

    def _before(self, request: Request, text: str, render: Callable[[bool], str], markers: Reasoning | None) -> str:
        """The end of the prompt that belongs to the model's turn: what the template adds to start it. Without a
        template nothing shows where a turn starts: then it is the whole text, or with reasoning only an end with a
        marker."""
        if self._template is None or request.raw:
            return text if markers is None else _tail(text, markers)
        # Of a template that always starts a turn nothing is known but whether it opens a thought.
        opening = _tail(text, markers) if markers is not None and _opens(text, markers) else ""
        try:
            without = render(False)
        except TemplateError:
            return opening
        return text[len(without) :] if text.startswith(without) else opening


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
    may_reason = True
    if reasoning is not None and reasoning.in_channels and (calls is None or calls.wire.in_channels):
        may_reason = _may_think(request)
        spec = _spec_in_channels(request, content, calls, everywhere)
    else:
        spec = _spec(request, content if calls is None else calls, everywhere, reasoning)
    return PreparedTurn(
        text=text,
        before=before,
        spec=spec,
        format=calls.wire if calls is not None and may_call else None,
        names=() if calls is None else tuple(tool.name for tool in calls.allowed),
        types={} if calls is None else calls.types,
        reasoning=reasoning,
        inside=inside,
        notes=_notes(request, content, everywhere, calls, reasoning if may_reason else None),
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
    """The constraint on the turn's text. answer: on what follows the reasoning. everywhere: on all of the answer, calls
    included; what of it holds for the reasoning too, `_held_in_reasoning` says."""
    whole = together(answer, *everywhere)
    if reasoning is None or (whole is None and request.max_reasoning is None):
        return whole
    if whole is not None and request.reasoning is None and _holds_markers(whole, reasoning):
        return whole
    # What holds for the reasoning is joined to the answer too, where it leads into no dead end.
    thinking = Thinking(
        Regex("(?s:.*)") if whole is None else whole,
        start=reasoning.start,
        end=reasoning.end,
        max_tokens=request.max_reasoning,
    )
    return together(thinking, *_held_in_reasoning(request, everywhere, None))


def _spec_in_channels(
    request: Request, content: Spec | None, calls: ToolCalls | None, everywhere: Sequence[Spec]
) -> Spec | None:
    """The constraint on a turn in channels; None for one that is free. content: on the answer."""
    held = _held_in_reasoning(request, everywhere, calls)
    content = None if calls is not None and calls.choice.mode == "required" else content
    turn = Channels(
        together(content, *(spec for spec in everywhere if spec not in held)),
        None if calls is None else without_content(calls),
        thinks=_may_think(request),
        max_tokens=request.max_reasoning,
    )
    return None if turn == Channels() and not held else together(turn, *held)


def _may_think(request: Request) -> bool:
    """Whether the request lets the model reason in a channel."""
    return request.reasoning != "none" and request.enable_thinking is not False


def _holds_markers(spec: Spec, reasoning: Reasoning) -> bool:
    """Whether a constraint says itself where the reasoning stands."""
    markers = (reasoning.start.strip(), reasoning.end.strip())
    written = (part.key().replace("\\", "") for part in spec.walk() if part.kind in WRITTEN_WITH_MARKERS)
    return any(marker in text for text in written for marker in markers)


def _held_in_reasoning(request: Request, everywhere: Sequence[Spec], calls: ToolCalls | None) -> list[Spec]:
    """Safety filters hold for all that the model writes; bans for its reasoning only if the request says so, or where
    reasoning and calls stand in channels, so that what holds for calls holds for all of the turn."""
    is_whole = request.hold_reasoning or (calls is not None and calls.wire.in_channels and bool(calls.allowed))
    return [spec for spec in everywhere if is_whole or not isinstance(spec, Ban)]


def _notes(
    request: Request,
    content: Spec | None,
    everywhere: Sequence[Spec],
    calls: ToolCalls | None,
    reasoning: Reasoning | None,
) -> tuple[str, ...]:
    """What of the constraint does not hold in this turn, or not in all of it, for the user."""
    notes = [] if calls is None else [*_checked_later(calls), *_kept_orders(calls)]
    if calls is not None and content is not None and request.tool_choice.mode == "required":
        notes.append(f"{content.kind} holds for a turn without calls, and tool_choice demands a call")
    if reasoning is not None:
        held = _held_in_reasoning(request, everywhere, calls)
        free = [content] if content is not None else []
        kinds = dict.fromkeys(spec.kind for spec in (*free, *everywhere) if spec not in held)
        if kinds:
            notes.append(f"the model may reason first: {' and '.join(kinds)} holds for what follows the reasoning")
    return tuple(notes)


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


def as_messages(request: Request) -> Sequence[Message]:
    """A plain prompt becomes one user message."""
    if request.messages is not None:
        return request.messages
    return [{"role": "user", "content": request.prompt or ""}]


def _split_begun_turn(request: Request) -> tuple[Sequence[Message], Message]:
    """The messages before the model's turn, and the last message where the turn continues it, else an empty one. Raises
    InputError where there is none to continue."""
    messages = as_messages(request)
    if request.turn != "continue":
        return messages, {}
    checked = check_messages(messages)
    last = checked[-1]
    if last["role"] != "assistant" or last.get("tool_calls"):
        raise InputError(
            "only a last message of the assistant's, without calls, can be continued", field="continue_final_message"
        )
    if len(messages) == 1:
        raise InputError("there is no message before the one to continue", field="messages")
    return messages[:-1], last


def calls_tools(turn: Turn) -> bool:
    """Whether there are calls and all are complete."""
    return bool(turn.calls) and all(call.is_complete for call in turn.calls)


def _opens(text: str, reasoning: Reasoning) -> bool:
    """Whether a prompt ends with an open thought."""
    return text.rstrip().endswith(reasoning.start.strip())


def _tail(text: str, reasoning: Reasoning) -> str:
    """The end of a raw prompt from the last marker on, if only whitespace follows it: reasoning is opened or closed
    there. A marker elsewhere may be what the prompt is about."""
    bare = text.rstrip()
    if bare.endswith(reasoning.start):
        return text[len(bare) - len(reasoning.start) :]
    if bare.endswith(reasoning.end):
        return text[max(bare.rfind(reasoning.start), 0) :]
    return ""
