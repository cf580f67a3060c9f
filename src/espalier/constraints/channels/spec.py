"""`Channels`: the spec of a turn in channels. `compile.py` enforces it, `judge.py` judges a finished text.

<|channel|>analysis<|message|>Look it up.<|end|><|start|>assistant<|channel|>final<|message|>It is done.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from espalier.chat.reading.channel_header import message_begun
from espalier.constraints.spec import Spec
from espalier.constraints.tools.spec import ToolCalls
from espalier.errors import SpecError


@dataclass(frozen=True, slots=True)
class Channels(Spec):
    """A turn of gpt-oss: any number of messages that are reasoning, then an answer in the channel `final`, or calls.

    final: the constraint on the answer; None for any text. calls: the tools, in a format in channels such as `harmony`;
    None for no tools. Where its choice demands a call, there is no answer. Before calls, and before an answer that is
    any text, there may also be messages to the user (in the channel `commentary`). thinks: whether there may be
    reasoning. max_tokens: how many tokens may come before the answer or the call, after which only the shortest way to
    one is left.

    Raises SpecError naming the field.
    """

    kind: ClassVar[str] = "channels"
    final: Spec | None = None
    calls: ToolCalls | None = None
    thinks: bool = True
    max_tokens: int | None = None

    def __post_init__(self) -> None:
        if self.final is not None and not isinstance(self.final, Spec):
            raise SpecError(
                f"the answer has a Spec such as JsonSchema(...), not {type(self.final).__name__}", field="final"
            )
        if self.calls is not None:
            if not isinstance(self.calls, ToolCalls):
                raise SpecError(f"calls are a ToolCalls, not {type(self.calls).__name__}", field="calls")
            if not self.calls.wire.in_channels or self.calls.content is not None:
                raise SpecError(
                    f"calls in the format {self.calls.format!r} do not stand in channels"
                    if self.calls.content is None
                    else "the constraint on the answer is `final`, and not the content of the calls",
                    field="calls",
                )
        if not isinstance(self.thinks, bool):
            raise SpecError(f"thinks: {self.thinks!r} is not true or false", field="thinks")
        most = self.max_tokens
        if most is not None and (isinstance(most, bool) or not isinstance(most, int) or most < 0):
            raise SpecError(f"max_tokens: {most!r} must be a whole number of tokens, at least 0", field="max_tokens")

    @classmethod
    def of(cls, calls: ToolCalls) -> Channels:
        """The turn that a ToolCalls in such a format describes."""
        return cls(calls.content, without_content(calls))

    @property
    def has_answer(self) -> bool:
        return self.calls is None or self.calls.choice.mode != "required"

    def to_json(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "final": None if self.final is None else self.final.to_json(),
            "calls": None if self.calls is None else self.calls.to_json(),
            "thinks": self.thinks,
            "max_tokens": self.max_tokens,
        }

    @classmethod
    def from_fields(cls, values: dict[str, Any]) -> Channels:
        read = {}
        for name in ("final", "calls"):
            inner = values.get(name)
            if isinstance(inner, Mapping):
                try:
                    read[name] = Spec.from_json(inner)
                except RecursionError:
                    raise SpecError("the constraints are nested too deeply", field=name) from None
        return cls(**{**values, **read})

    def begun(self, before: str) -> str:
        """The part of the model's turn that the prompt holds, behind the opening of its last message."""
        return message_begun(before)


def without_content(calls: ToolCalls) -> ToolCalls:
    """The calls without a content of their own."""
    if calls.content is None:
        return calls
    return ToolCalls(**{**{name: getattr(calls, name) for name in ToolCalls.json_fields()}, "content": None})
