"""`After`: any text up to a marker, then a text that another constraint accepts.

The spec, its compiler and its judge; `matcher.py` enforces it over any compiled constraint.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, get_args

from espalier.automata.reasons.describe import quoted
from espalier.constraints.after.border import GAP, WHITESPACE, Border
from espalier.constraints.after.marker import Waiting, opened
from espalier.constraints.after.matcher import CompiledAfter
from espalier.constraints.base import Compiled
from espalier.constraints.compiler import Compiler
from espalier.constraints.spec import Spec, check_text
from espalier.constraints.verdict import Verdict, judge, parse
from espalier.errors import SpecError
from espalier.lexicon.files import WordFiles

InPrompt = Literal["auto", "yes", "no"]
"""Whether the prompt already holds the marker. auto: look for it in the part of the model's turn that the prompt holds.
yes: the text begins behind it. no: the text must contain it."""
_BRACKETS = {"<": ">", "[": "]"}


@dataclass(frozen=True, slots=True)
class After(Spec):
    """Any text without the marker, then the marker, then a text that `spec` accepts, with which the whole ends.

    Only the first occurrence of the marker counts. A special token of the vocabulary that is spelled like the marker
    counts as the marker, and its spelling is part of the text; likewise, before the marker, a special token spelled
    like the marker's opening tag (`<think>` for `</think>`) or like `opens`.

    opens: what the text before the marker must begin with, such as `<think>`, after up to four spaces, tabs or line
    ends. If the prompt holds the opening and no marker after it, the text continues from there. So
    `AnyOf(After("</think>", spec, opens="<think>"), spec)` may think first or answer at once.
    max_before: after so many tokens, only the tokens are allowed that lead to the marker by the fewest bytes.
    in_prompt: whether the prompt already holds the marker.
    gap: whether up to four spaces, tabs or line ends may stand between the marker and the text of `spec`; whitespace
    that `spec` can begin with belongs to `spec`, but for what it skips before an opening of its own.

    Raises SpecError naming the field.
    """

    kind: ClassVar[str] = "after"
    marker: str
    spec: Spec
    max_before: int | None = field(default=None, kw_only=True)
    in_prompt: InPrompt = field(default="auto", kw_only=True)
    gap: bool = field(default=True, kw_only=True)
    opens: str | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        check_text(self.marker, "a marker", "marker")
        if not self.marker:
            raise SpecError("the marker is empty", hint="without a marker, use the constraint itself", field="marker")
        if not isinstance(self.spec, Spec):
            raise SpecError(
                f"what comes after the marker is a Spec such as JsonObject(), not {type(self.spec).__name__}",
                hint="wrap a schema: JsonSchema({...})",
                field="spec",
            )
        most = self.max_before
        if most is not None and (isinstance(most, bool) or not isinstance(most, int) or most < 0):
            raise SpecError(f"max_before: {most!r} must be a whole number of tokens, at least 0", field="max_before")
        if self.in_prompt not in get_args(InPrompt):
            raise SpecError(
                f"in_prompt: {self.in_prompt!r}", hint=f"one of: {', '.join(get_args(InPrompt))}", field="in_prompt"
            )
        if not isinstance(self.gap, bool):
            raise SpecError(f"gap: {self.gap!r} is not true or false", field="gap")
        if self.opens is None:
            return
        check_text(self.opens, "an opening", "opens")
        if not self.opens.strip():
            raise SpecError("the opening is empty", hint="leave `opens` out where any text may begin", field="opens")
        if self.marker in self.opens:
            raise SpecError(f"the opening {quoted(self.opens)} holds the marker, which is to follow it", field="opens")

    def to_json(self) -> dict[str, Any]:
        values = {
            "kind": self.kind,
            "marker": self.marker,
            "spec": self.spec.to_json(),
            "max_before": self.max_before,
            "in_prompt": self.in_prompt,
            "gap": self.gap,
        }
        return values if self.opens is None else {**values, "opens": self.opens}

    @classmethod
    def from_fields(cls, values: dict[str, Any]) -> After:
        inner = values.get("spec")
        if "spec" in values and not isinstance(inner, Mapping):
            raise SpecError("what comes after the marker is a constraint: an object with a `kind`", field="spec")
        if inner is None:
            return cls(**values)  # Python says what is missing
        try:
            return cls(**{**values, "spec": Spec.from_json(inner)})
        except RecursionError:
            raise SpecError("the constraints are nested too deeply", field="spec") from None

    def key(self) -> str:
        own = self.to_json() | {"spec": None}
        return f"{json.dumps(own, ensure_ascii=False, separators=(',', ':'))} {self.spec.key()}"

    @property
    def opening(self) -> str | None:
        """The tag that the marker closes, `<think>` for `</think>`; None if the marker is no closing tag."""
        text = self.marker
        if len(text) > 3 and text[1] == "/" and _BRACKETS.get(text[0]) == text[-1]:
            return text[0] + text[2:]
        return None

    def beginnings(self) -> tuple[Spec, ...]:
        """Without `opens` any character may come first."""
        return () if self.opens is not None else (self,)

    @property
    def tags(self) -> tuple[str, ...]:
        """The texts that open the part before the marker: `opens`, and the tag that the marker closes."""
        return tuple(dict.fromkeys(tag for tag in (self.opens, self.opening) if tag is not None))

    def answer_in(self, before: str) -> str | None:
        """The part of the answer that the prompt holds already, without leading whitespace; None while the marker is
        still to come. The last marker counts, unless an opening follows it."""
        if self.in_prompt != "auto":
            return "" if self.in_prompt == "yes" else None
        _, marker, rest = before.rpartition(self.marker)
        if not marker or any(tag in rest for tag in self.tags):
            return None
        return rest.lstrip(WHITESPACE.decode())

    def opened_in(self, before: str) -> bool:
        """Whether the prompt holds the opening and no marker after it."""
        if self.opens is None or self.in_prompt != "auto":
            return False
        return self.opens in before.rpartition(self.marker)[2]

    def begun(self, before: str) -> str:
        """As `Spec.begun`, with the opening and the marker, since the judge looks for them."""
        answer, opens = self.answer_in(before), self.opens or ""
        if answer is None:
            return opens if self.opened_in(before) else ""
        return opens + self.marker + answer


def compile_after(spec: After, compiler: Compiler) -> Compiled:
    """Raises what the inner compiler raises; UnsupportedError for a marker that is an EOS token; VocabError for a
    vocabulary that cannot spell the marker, or that lacks bytes where `max_before` is given; LimitExceeded."""
    inner = compiler.compile(spec.spec)
    waiting = Waiting(
        spec.marker.encode(),
        compiler.vocab,
        compiler.trie,
        opens=None if spec.opens is None else spec.opens.encode(),
        tags=[tag.encode() for tag in spec.tags],
        hurries=spec.max_before is not None,
    )
    beginnings = [compiler.compile(part) for part in spec.spec.beginnings()]
    border = Border(inner, compiler.trie, gap=spec.gap, beginnings=beginnings)
    return CompiledAfter(
        spec,
        waiting,
        border,
        max_before=spec.max_before,
        answer_in=spec.answer_in,
        start_in=lambda before: waiting.inside if spec.opened_in(before) else waiting.start,
    )


def judge_after(spec: After, text: str, words: WordFiles) -> Verdict:
    """The verdict of the inner constraint's judge on the text behind the first marker.

    The text holds the marker even if the prompt held it (see `begun`); with `in_prompt="yes"` it may also be the answer
    alone. `max_before` is not judged.
    """
    _, verdict = _likeliest_answer(spec, text, words)
    return verdict


def parse_after(spec: After, text: str) -> Any:
    """The value of the text behind the first marker, as the inner constraint parses it."""
    answers = _answers(spec, text)
    answer = answers[0] if len(answers) == 1 else _likeliest_answer(spec, text, None)[0]
    return parse(spec.spec, answer)


def _likeliest_answer(spec: After, text: str, words: WordFiles | None) -> tuple[str, Verdict]:
    """The first valid answer and its verdict; else one that cannot be judged, else the likeliest invalid one."""
    answers = _answers(spec, text)
    if not answers:
        return text, Verdict(valid=False, judge="search", errors=(_missing(spec, text),))
    verdicts: dict[str, Verdict] = {}
    for answer in answers:
        verdicts[answer] = judge(spec.spec, answer, words)
        if verdicts[answer].valid:
            return answer, verdicts[answer]
    likeliest = next((answer for answer in answers if answer[:1].strip()), answers[0])
    likely = next((answer for answer in answers if verdicts[answer].valid is None), likeliest)
    return likely, verdicts[likely]


def _missing(spec: After, text: str) -> str:
    if spec.opens is not None and _behind_opening(spec, text) is None:
        return f"the text does not begin with {quoted(spec.opens)}"
    return f"the marker {quoted(spec.marker)} does not occur"


def _behind_opening(spec: After, text: str) -> str | None:
    """The text behind the opening, or the text itself if there is no opening; None if the opening is missing."""
    if spec.opens is None:
        return text
    data = text.encode("utf-8", "surrogatepass")
    length = opened(data, spec.opens.encode())
    return None if length is None else data[length:].decode("utf-8", "surrogatepass")


def _answers(spec: After, text: str) -> list[str]:
    """The candidates for the answer in a text: the part behind the marker and, with `in_prompt="yes"`, the whole text;
    each with all its leading whitespace, and without 1 to GAP characters of it."""
    behind = _behind_opening(spec, text)
    _, marker, rest = ("", "", "") if behind is None else behind.partition(spec.marker)
    answers: list[str] = []
    for part in ([rest] if marker else []) + ([text] if spec.in_prompt == "yes" else []):
        size = len(part) - len(part.lstrip(WHITESPACE.decode()))
        answers += [part[count:] for count in range(min(size, GAP) + 1 if spec.gap else 1)]
    return list(dict.fromkeys(answers))
