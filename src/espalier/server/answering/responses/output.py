"""`ResponsesOutput`: the items of a response as they grow, with the events that tell of them.

The whole reply and the stream both come from here. It knows neither the response around the items nor the model.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from espalier.chat.reading.deltas import ArgumentsDelta, CallBegun, CallEnded, ContentDelta, Delta, ReasoningDelta
from espalier.server.answering.custom_input import CustomInput

Json = dict[str, Any]
Logprobs = Callable[[str, str], Sequence[Json]]
"""From the reasoning and the content so far to the log probabilities of the content."""


class ResponsesOutput:
    """suffix: of the items' ids. custom: the names of custom tools. has_summary: whether reasoning is shown as its
    summary. logprobs: of the content, None where none were asked for."""

    def __init__(
        self, suffix: str, *, custom: frozenset[str], has_summary: bool, logprobs: Logprobs | None = None
    ) -> None:
        self.items: list[Json] = []
        self._suffix, self._custom, self._has_summary, self._logprobs = suffix, custom, has_summary, logprobs
        self._open: str | None = None  # the kind of the last item while it grows
        self._text: list[str] = []  # of the last item
        self._reasoning = ""
        self._input: CustomInput | None = None
        self._has_ended = False  # the call that is open

    # What comes

    def of(self, delta: Delta, logprobs: Sequence[Json] = ()) -> Iterator[Json]:
        """The events of a delta. logprobs: of the tokens of its text."""
        if isinstance(delta, ReasoningDelta):
            if delta.text:
                yield from self._begin("reasoning")
                yield from self._add(delta.text)
        elif isinstance(delta, ContentDelta):
            if delta.text:
                yield from self._begin("message")
                yield from self._add(delta.text, {"logprobs": list(logprobs)})
        elif isinstance(delta, CallBegun):
            yield from self._call(delta)
        elif isinstance(delta, ArgumentsDelta):
            text = delta.text if self._input is None else self._input.feed(delta.text)
            if text:
                yield from self._add(text)
        elif isinstance(delta, CallEnded):
            self._has_ended = True

    def end(self, *, is_complete: bool) -> Iterator[Json]:
        """The events of the end. is_complete: False if the token limit ended the text."""
        if not any(item["type"] != "reasoning" for item in self.items):
            yield from self._begin("message")  # an empty one, which clients read as an empty text
        yield from self._close("completed" if is_complete or self._has_ended else "incomplete")

    # Items

    def _begin(self, kind: str) -> Iterator[Json]:
        """Begin an item of this kind, unless one is open."""
        if self._open == kind:
            return
        yield from self._close()
        item = {"reasoning": self._new_reasoning, "message": self._new_message}[kind]()
        yield from self._add_item(kind, item)
        if kind == "message" or not self._has_summary:
            yield self._event("content_part.added", content_index=0, part=self._part(""))
        else:
            yield self._event("reasoning_summary_part.added", summary_index=0, part=self._part(""))

    def _call(self, delta: CallBegun) -> Iterator[Json]:
        yield from self._close()
        is_custom = delta.name in self._custom
        kind = "custom_tool_call" if is_custom else "function_call"
        self._input, self._has_ended = CustomInput() if is_custom else None, False
        content = {"input": ""} if is_custom else {"arguments": ""}
        item = {
            "id": self._id("ctc" if is_custom else "fc"),
            "type": kind,
            "status": "in_progress",
            "call_id": delta.id,
            "name": delta.name,
            **content,
        }
        yield from self._add_item(kind, item)

    def _add_item(self, kind: str, item: Json) -> Iterator[Json]:
        self.items.append(item)
        self._open, self._text = kind, []
        yield self._item_event("added")

    def _add(self, text: str, more: Json | None = None) -> Iterator[Json]:
        self._text.append(text)
        yield self._event(f"{self._name}.delta", delta=text, **self._index, **(more or {}))

    def _close(self, status: str = "completed") -> Iterator[Json]:
        kind, text = self._open, "".join(self._text)
        if kind is None:
            return
        item = self.items[-1]
        if kind in ("function_call", "custom_tool_call"):
            own = "arguments" if kind == "function_call" else "input"
            item[own] = text
            yield self._event(f"{self._name}.done", **{own: text})
        else:
            part, more = self._part(text), {}
            if kind == "message":
                logprobs = [] if self._logprobs is None else list(self._logprobs(self._reasoning, text))
                part["logprobs"] = logprobs
                more = {"logprobs": logprobs}
            else:
                self._reasoning = text
            yield self._event(f"{self._name}.done", text=text, **self._index, **more)
            in_summary = kind == "reasoning" and self._has_summary
            item["summary" if in_summary else "content"] = [part]
            yield self._event(
                "reasoning_summary_part.done" if in_summary else "content_part.done", part=part, **self._index
            )
        item["status"] = status
        self._open = None
        yield self._item_event("done")

    def _new_reasoning(self) -> Json:
        shown: Json = {} if self._has_summary else {"content": []}
        return {"id": self._id("rs"), "type": "reasoning", "status": "in_progress", "summary": [], **shown}

    def _new_message(self) -> Json:
        return {"id": self._id("msg"), "type": "message", "status": "in_progress", "role": "assistant", "content": []}

    def _id(self, prefix: str) -> str:
        return f"{prefix}_{self._suffix}{len(self.items):02d}"

    def _part(self, text: str) -> Json:
        if self._open == "message":
            return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
        return {"type": "summary_text" if self._has_summary else "reasoning_text", "text": text}

    @property
    def _name(self) -> str:
        """What events of the text of the open item are called."""
        if self._open == "reasoning":
            return "reasoning_summary_text" if self._has_summary else "reasoning_text"
        return {
            "message": "output_text",
            "function_call": "function_call_arguments",
            "custom_tool_call": "custom_tool_call_input",
        }[self._open or ""]

    @property
    def _index(self) -> Json:
        if self._open == "reasoning" and self._has_summary:
            return {"summary_index": 0}
        return {"content_index": 0} if self._open in ("reasoning", "message") else {}

    def _event(self, name: str, **more: Any) -> Json:
        item_id, place = self.items[-1]["id"], len(self.items) - 1
        return {"type": f"response.{name}", "item_id": item_id, "output_index": place, **more}

    def _item_event(self, name: str) -> Json:
        place = len(self.items) - 1
        return {"type": f"response.output_item.{name}", "output_index": place, "item": {**self.items[-1]}}
