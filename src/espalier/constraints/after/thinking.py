"""`Thinking`: optional unconstrained reasoning between two markers, then the constrained answer.

The spec, its compiler and its judge; `thinking_matcher.py` enforces it over any compiled constraint.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from espalier.constraints.after.marker import opened
from espalier.constraints.after.matcher import CompiledAfter
from espalier.constraints.after.spec import After
from espalier.constraints.after.thinking_matcher import CompiledThinking
from espalier.constraints.base import Compiled
from espalier.constraints.compiler import Compiler
from espalier.constraints.spec import Spec
from espalier.constraints.verdict import Verdict, judge, parse
from espalier.errors import SpecError
from espalier.lexicon.files import WordFiles


@dataclass(frozen=True, slots=True)
class Thinking(Spec):
    """Either `start`, any text without `end`, `end` and then a text that `spec` accepts; or such a text at once.

    A text that begins with `start` (after up to four spaces, tabs or line ends) is always read as thinking, even if
    `spec` accepts texts that begin so. If the prompt has opened the thinking, the text continues it; if the prompt has
    closed it, the text is the answer. max_tokens: how many tokens the thinking may take, the start marker included.
    Raises SpecError naming the field.
    """

    kind: ClassVar[str] = "thinking"
    spec: Spec
    start: str = field(default="<think>", kw_only=True)
    end: str = field(default="</think>", kw_only=True)
    max_tokens: int | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        try:
            self.thought  # noqa: B018  # checks all fields
        except SpecError as error:
            names = {"marker": "end", "opens": "start", "max_before": "max_tokens"}
            raise SpecError(error.message, hint=error.hint, field=names.get(error.field or "", error.field)) from error

    @property
    def thought(self) -> After:
        """The constraint on texts that think first."""
        return After(self.end, self.spec, opens=self.start, max_before=self.max_tokens)

    def to_json(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "spec": self.spec.to_json(),
            "start": self.start,
            "end": self.end,
            "max_tokens": self.max_tokens,
        }

    @classmethod
    def from_fields(cls, values: dict[str, Any]) -> Thinking:
        inner = values.get("spec")
        if inner is None:
            return cls(**values)  # Python says what is missing
        if not isinstance(inner, Mapping):
            raise SpecError("what is thought about is a constraint: an object with a `kind`", field="spec")
        try:
            return cls(**{**values, "spec": Spec.from_json(inner)})
        except RecursionError:
            raise SpecError("the constraints are nested too deeply", field="spec") from None

    def beginnings(self) -> tuple[Spec, ...]:
        return self.spec.beginnings()

    def begun(self, before: str) -> str:
        return self.thought.begun(before)


def compile_thinking(spec: Thinking, compiler: Compiler) -> Compiled:
    """Raises as `compile_after`."""
    thought = compiler.compile(spec.thought)
    assert isinstance(thought, CompiledAfter)
    return CompiledThinking(spec, thought, is_begun=lambda before: bool(spec.begun(before)))


def judge_thinking(spec: Thinking, text: str, words: WordFiles) -> Verdict:
    """Judge as `After` if the text begins with the start marker, else as the inner constraint."""
    return judge(_meant(spec, text), text, words)


def parse_thinking(spec: Thinking, text: str) -> Any:
    """The value of the answer."""
    return parse(_meant(spec, text), text)


def _meant(spec: Thinking, text: str) -> Spec:
    is_thought = opened(text.encode("utf-8", "surrogatepass"), spec.start.encode()) is not None
    return spec.thought if is_thought else spec.spec
