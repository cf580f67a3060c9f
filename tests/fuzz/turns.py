"""Turns of reasoning, prose, tool calls and stop texts in every wire format, read in random pieces.

The writer knows what it wrote. However a turn is cut into pieces, it is read as in one; a thought becomes no call, and
no stop text ends it; the mask accepts what was written; and the judge agrees with the mask on texts near it.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, NamedTuple

from espalier.chat.reading.channel_walk import BETWEEN
from espalier.chat.reading.deltas import ArgumentsDelta, CallBegun, CallEnded, ContentDelta, Delta, ReasoningDelta, Turn
from espalier.chat.reading.incoming import SPACE
from espalier.chat.reading.turn_parser import parse_turn
from espalier.chat.reasoning import HARMONY, REASONING, Reasoning
from espalier.chat.tools import Tool, read_choice
from espalier.chat.wire.formats import wire_format
from espalier.constraints.base import Compiled
from espalier.constraints.compiler import Compiler
from espalier.constraints.spec import Choice, JsonObject, Regex, Spec
from espalier.constraints.verdict import judge
from espalier.decoding.text.stops import TextAssembler
from espalier.engines.base import Request
from espalier.engines.local.turns import PreparedTurn, turn_with
from espalier.errors import EspalierError, NotAvailable
from espalier.time_limit import time_limit
from tests import gpt_oss
from tests.fuzz.cases import COMPILE_SECONDS, LAW_SECONDS, WITH_TOKENS
from tests.fuzz.schema.oracle import parse, valid
from tests.fuzz.session import Finding, Totals
from tests.fuzz.texts import changed, walk
from tests.fuzz.tools import NAMES, WITH_WORDS, draw_tool
from tests.fuzz.vocabularies import byte_compiler, check_masks, token_compiler
from tests.tool_texts import FORMATS, Call, written

MARKED = [reasoning for reasoning in REASONING.values() if not reasoning.in_channels]
WORDS = ("a", "So, é.", "日本", "<", "</", "{", "}", "[1]", '"', "'", "\n", "\n\n", " ", "json", "call", "x: 1", "😀")
STOPS = ("\n\n", "so", "é", "}", "</", "a", "<|", "\n", "日本", "zebra", '"}', "call")
GAPS = ("", "\n", "\n\n", " ", "\r\n\t")
ANSWERS: tuple[tuple[Spec, Callable[[Random], str]], ...] = (
    (Regex("[a-z]+( [a-z]+)*"), lambda random: random.choice(("so it is", "a", "zebra"))),
    (Choice(["yes", "[no]", "{"]), lambda random: random.choice(("yes", "[no]", "{"))),
    (JsonObject(), lambda random: json.dumps({random.choice("ab"): random.choice((1, "so", {}, [None]))})),
)
"""Constraints on an answer without calls, and what writes such an answer."""
CHANGES = 4
WALKS = 2


class Segment(NamedTuple):
    """A piece of a turn; stop texts are looked for in the parts of the answer alone."""

    text: str
    is_answer: bool


@dataclass(slots=True, kw_only=True)
class WrittenTurn:
    """A turn as it was written, and what must be read of it."""

    segments: list[Segment] = field(default_factory=list)
    reasoning: str | None = None
    content: str = ""
    calls: list[Call] = field(default_factory=list)

    def add(self, text: str, *, is_answer: bool) -> None:
        self.segments.append(Segment(text, is_answer))

    def add_thought(self, body: str) -> None:
        """A thought that is read without the whitespace around it."""
        self.reasoning = (
            body.strip(SPACE) if self.reasoning is None else f"{self.reasoning}{BETWEEN}{body.strip(SPACE)}"
        )
        self.add(body, is_answer=False)

    def add_content(self, body: str) -> None:
        self.content = f"{self.content}{BETWEEN}{body}" if self.content else body
        self.add(body, is_answer=True)

    @property
    def next_opening(self) -> str:
        """What begins the next message in a channel."""
        return gpt_oss.NEXT if self.segments else ""

    @property
    def text(self) -> str:
        return "".join(segment.text for segment in self.segments)

    def until(self, stops: Sequence[str]) -> str:
        """The text up to the first stop text in the answer."""
        shown = ""
        for text, is_answer in self.segments:
            ends = [at for stop in stops if (at := text.find(stop)) >= 0] if is_answer else []
            if ends:
                return shown + text[: min(ends)]
            shown += text
        return shown


class TurnFuzzer:
    """Each case has one turn, one set of stop texts and one way of cutting."""

    def __init__(self) -> None:
        self._harmony = Compiler(gpt_oss.VOCAB)

    def one(self, seed: int, totals: Totals) -> None:
        """See `Fuzzer`."""
        random = Random(seed)
        case = _draw(random, totals.counts)
        if case is None:
            return
        totals.spec, totals.text = case.turn.spec, case.written.text
        totals.features.update(case.features)
        faults = [_reading_fault(case, random), _stopping_fault(case, random)]
        try:
            faults += self._mask_faults(case, random, totals)
        except AssertionError as error:
            faults.append(f"a law: {error}")
        except EspalierError as error:
            totals.counts[f"not compiled, texts and laws: {error.code}"] += 1
        for fault in filter(None, faults):
            totals.findings.append(
                Finding(seed=seed, fault=f"after {case.turn.before!r}: {fault}", spec=case.turn.spec, text=totals.text)
            )

    def _mask_faults(self, case: _Case, random: Random, totals: Totals) -> list[str]:
        """What is wrong with the mask, on the turn as it was written and on texts near it."""
        spec, text, before = case.turn.spec, case.written.text, case.turn.before
        if spec is None:
            return []
        is_harmony = case.turn.in_channels
        with time_limit(COMPILE_SECONDS):
            compiled = (self._harmony if is_harmony else byte_compiler()).compile(spec)
            has_tokens = not is_harmony and random.random() < WITH_TOKENS
            of_tokens = token_compiler().compile(spec) if has_tokens else None
        totals.counts["compiled"] += 1
        faults = [] if _accepts(compiled, text, before) else ["the mask refuses what was written"]
        near = [changed(text, random, case.inserted) for _ in range(CHANGES)]
        with time_limit(LAW_SECONDS):
            if not is_harmony:
                near += _walks(compiled, random, before)
            for tried in dict.fromkeys((text, *near)):
                totals.text = tried
                is_accepted = _accepts(compiled, tried, before)
                totals.counts[f"text: {'accepted' if is_accepted else 'refused'}"] += 1
                faults.append(_chunk_fault(case.turn, tried, random))
                if is_accepted:
                    faults.append(case.fault(tried))
                if any(faults):
                    return faults
            totals.text = text
            if of_tokens is not None:
                check_masks(compiled, of_tokens, text, random, before=before)
        return faults


@dataclass(frozen=True, slots=True, kw_only=True)
class _Case:
    turn: PreparedTurn
    written: WrittenTurn
    stops: tuple[str, ...]
    judges: dict[str, Callable[[Any], bool]]
    features: tuple[str, ...]
    inserted: tuple[str, ...]

    def fault(self, text: str) -> str:
        """What is wrong with a text that the mask accepts, "" if nothing is."""
        spec = self.turn.spec
        assert spec is not None
        verdict = judge(spec, spec.begun(self.turn.before) + text)
        if verdict.valid is False:
            return f"the mask accepts what the judge refuses: {verdict.errors}"
        for call in _read(self.turn, [text])[0].calls:
            if call.name not in self.judges or not call.is_complete:
                return f"the mask accepts a call of {call.name!r} that nobody offered or that is cut off"
            if not self.judges[call.name](parse(call.arguments)[0]):
                return f"the mask accepts arguments that are not valid: {call.arguments}"
        return ""


def _draw(random: Random, counts: Counter[str]) -> _Case | None:
    name = random.choice((*FORMATS, "harmony", "harmony"))
    wire, is_harmony = wire_format(name), name == "harmony"
    tools = {tool: draw_tool(random, name in WITH_WORDS) for tool in random.sample(NAMES, random.choice((0, 1, 2, 2)))}
    schemas = {tool: schema for tool, (schema, _) in tools.items()}
    choice = random.choice(("auto", "auto", "required", "none")) if tools else "none"
    answer = random.choice((None, None, *ANSWERS)) if choice != "required" else None
    reasoning = HARMONY if is_harmony else random.choice(MARKED)
    inside = random.random() < 0.4
    stops = tuple(random.sample(STOPS, random.randint(0, 3)))
    try:
        request = Request(
            prompt="",
            tools=tuple(Tool(name=tool, parameters=schema, strict=True) for tool, schema in schemas.items()),
            tool_choice=read_choice(choice),
            constraint=None if answer is None else answer[0],
        )
        judges = {tool: valid(schema) for tool, schema in schemas.items()}
        opened = "<|start|>assistant" if is_harmony else ""
        before = opened + (reasoning.start if is_harmony else f"{reasoning.start}\n") if inside else opened
        turn = turn_with(request, before, before, wire if tools else None, reasoning, inside=inside and not is_harmony)
    except EspalierError as error:
        counts[f"not drawn: {error.code}"] += 1
        return None
    callable_tools = [] if choice == "none" else [tool for tool, (_, draw) in tools.items() if draw is not None]
    if choice == "required" and not callable_tools:
        counts["not drawn: no call can be written"] += 1
        return None
    calls: list[Call] = []
    if callable_tools and (choice == "required" or random.random() < 0.6):
        for _ in range(1 if is_harmony else random.randint(1, 2)):
            tool = random.choice(callable_tools)
            calls.append((tool, tools[tool][1]()))  # type: ignore[misc]  # tools without a draw are left out
    quoted = "to=functions.read{}" if is_harmony else written(wire, (next(iter(tools), "read"), {}))
    if calls and not _is_read_back(turn, calls, written(wire, *calls).removesuffix(wire.end)):
        counts["not drawn: the format spells a value otherwise"] += 1
        return None
    plan = _Plan(
        random=random,
        turn=turn,
        reasoning=reasoning,
        inside=inside,
        quoted=(quoted, quoted if is_harmony else written(wire, *calls), *stops),
        calls=calls,
        answer=None if answer is None else answer[1](random),
        has_prose=choice == "auto" and answer is None,
    )
    text = plan.in_channels() if is_harmony else plan.between_markers()
    return _Case(
        turn=turn,
        written=text,
        stops=stops,
        judges=judges,
        features=(
            f"format: {name}",
            f"choice {choice}",
            f"thought: {'none' if text.reasoning is None else 'of the prompt' if inside else 'of the model'}",
            f"answer: {'calls' if calls else 'free' if answer is None else answer[0].kind}",
            f"stop texts: {len(stops)}",
        ),
        inserted=(*WORDS, reasoning.start, reasoning.end, wire.marker or "{", wire.close or "}", quoted),
    )


def _is_read_back(turn: PreparedTurn, calls: list[Call], text: str) -> bool:
    """Whether the calls alone are read as they were written: between tags, some texts are read as JSON."""
    read = parse_turn(text, format=turn.format, names=turn.names, types=turn.types)
    return [(call.name, call.parsed) for call in read.calls] == calls


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plan:
    """What a turn is written of. quoted: what thoughts mention. answer: None for any text. has_prose: whether prose may
    stand before a call."""

    random: Random
    turn: PreparedTurn
    reasoning: Reasoning
    inside: bool
    quoted: tuple[str, ...]
    calls: list[Call]
    answer: str | None
    has_prose: bool

    def between_markers(self) -> WrittenTurn:
        """One thought between markers, or none, and then prose, calls or an answer."""
        text, random = WrittenTurn(calls=self.calls), self.random
        start, end = self.reasoning.start, self.reasoning.end
        if self.inside or random.random() < 0.7:
            if not self.inside:
                text.add(random.choice(("", "\n", "  ")) + start, is_answer=False)
            elif random.random() < 0.1:
                text.add(f"{start}\n", is_answer=False)  # the model repeats the marker
            body = _body(random, (*self.quoted, start, end[:-1], end[1:]), end)
            if self.inside and body.lstrip(SPACE)[:1] == start[:1]:
                body = f"x{body}"
            text.add_thought(body)
            text.add(end + random.choice(GAPS), is_answer=False)
        if self.answer is not None and not self.calls:
            text.add_content(self.answer)
            return text
        marker = "" if self.turn.format is None else self.turn.format.marker
        if not self.calls or (self.has_prose and marker and random.random() < 0.5):
            begun = (marker[: random.randint(1, len(marker) - 1)],) if len(marker) > 1 else ()
            text.add_content("So" + _body(random, begun, marker or "\x00"))
        if self.calls:
            assert self.turn.format is not None
            spelled = written(self.turn.format, *self.calls).removesuffix(self.turn.format.end)
            if text.content:
                text.segments[-1] = Segment(text.content + spelled, True)
            else:
                text.add(spelled, is_answer=True)
        return text

    def in_channels(self) -> WrittenTurn:
        """Thoughts and messages to the user, and then an answer or a call."""
        text, random = WrittenTurn(calls=self.calls), self.random
        if self.inside:
            text.add_thought(self._message())
        for _ in range(random.randint(0, 2)):
            is_thought = random.random() < 0.6 or (self.answer is not None and not self.calls)
            channel = "analysis" if is_thought else "commentary"
            text.add(f"{text.next_opening}<|channel|>{channel}<|message|>", is_answer=False)
            (text.add_thought if is_thought else text.add_content)(self._message())
        if not self.calls:
            text.add(text.next_opening + gpt_oss.FINAL, is_answer=False)
            text.add_content(self._message() if self.answer is None else self.answer)
            return text
        ((name, arguments),) = self.calls
        spelled = gpt_oss.call(name, json.dumps(arguments, ensure_ascii=False), in_role=random.random() < 0.3)
        header, message, body = spelled.removesuffix("<|call|>").partition("<|message|>")
        text.add(text.next_opening + header + message, is_answer=False)
        text.add(body, is_answer=True)
        return text

    def _message(self) -> str:
        """A body without markers."""
        body = _body(self.random, self.quoted, "<|end|>").replace("<|", "<")
        return body if body.strip(SPACE) else f"x{body}"


def _body(random: Random, pieces: Sequence[str], end: str) -> str:
    """Words and pieces, up to where the end marker would begin."""
    words = [random.choice(pieces) if pieces and random.random() < 0.4 else random.choice(WORDS) for _ in range(6)]
    body = "".join(words[: random.randint(0, 6)])
    while (body + end).find(end) != len(body):
        body = body[:-1]
    return body


def _cut(data: Any, random: Random) -> list[Any]:
    """A text or bytes in random pieces."""
    ends = sorted(random.randint(0, len(data)) for _ in range(random.choice((0, 1, 3, len(data)))))
    return [data[low:high] for low, high in zip([0, *ends], [*ends, len(data)], strict=True)]


def _read(turn: PreparedTurn, pieces: Sequence[str]) -> tuple[Turn, list[Delta]]:
    parser = turn.parser()
    deltas = [delta for piece in pieces for delta in parser.feed(piece)]
    deltas += parser.finish()
    return parser.turn, deltas


def _chunk_fault(turn: PreparedTurn, text: str, random: Random) -> str:
    """Whether a text is read otherwise in pieces, or its deltas are not its turn."""
    whole, _ = _read(turn, [text])
    pieces = _cut(text, random)
    streamed, deltas = _read(turn, pieces)
    if streamed != whole:
        return f"in the pieces {pieces!r} it is read as {streamed}, whole as {whole}"
    texts = {kind: "".join(d.text for d in deltas if isinstance(d, kind)) for kind in (ReasoningDelta, ContentDelta)}
    if (texts[ReasoningDelta], texts[ContentDelta]) != (whole.reasoning or "", whole.content):
        return f"its deltas are {deltas}, and its turn is {whole}"
    begun = [delta.name for delta in deltas if isinstance(delta, CallBegun)]
    arguments = ["" for _ in begun]
    for delta in deltas:
        if isinstance(delta, ArgumentsDelta):
            arguments[delta.index] += delta.text
    ended = {delta.index for delta in deltas if isinstance(delta, CallEnded)}
    calls = [(name, arguments[place], place in ended) for place, name in enumerate(begun)]
    if calls != [(call.name, call.arguments, call.is_complete) for call in whole.calls]:
        return f"its deltas are {deltas}, and its calls are {whole.calls}"
    return ""


def _reading_fault(case: _Case, random: Random) -> str:
    """What is wrong with the reading of the turn that was written."""
    wanted, text = case.written, case.written.text
    read, _ = _read(case.turn, [text])
    if read.fault:
        return f"the turn that was written has a fault: {read.fault}"
    if read.reasoning != wanted.reasoning:
        return f"the reasoning is read as {read.reasoning!r}, and was {wanted.reasoning!r}"
    if [(call.name, call.parsed) for call in read.calls] != wanted.calls:
        return f"the calls are read as {read.calls}, and were {wanted.calls}"
    if read.content != wanted.content:
        return f"the content is read as {read.content!r}, and was {wanted.content!r}"
    return _chunk_fault(case.turn, text, random)


def _stopping_fault(case: _Case, random: Random) -> str:
    """What is wrong with the turn where stop texts end it, shown in random pieces of bytes."""
    assembler = TextAssembler(case.stops, case.turn.thoughts())
    shown = [assembler.feed(piece).text for piece in _cut(case.written.text.encode(), random)]
    shown.append(assembler.finish().text)
    text = case.written.until(case.stops)
    if "".join(shown) != text:
        return f"the stop texts {case.stops} leave {''.join(shown)!r}, and not {text!r}"
    streamed, _ = _read(case.turn, shown)
    if streamed != _read(case.turn, [text])[0]:
        return f"cut by {case.stops} and in the pieces {shown!r} it is read as {streamed}"
    wanted = case.written
    if text == wanted.text:
        return ""
    if not case.turn.in_channels and streamed.reasoning != wanted.reasoning:
        return f"a stop text of {case.stops} changes the reasoning to {streamed.reasoning!r}"
    complete = [(call.name, call.parsed) for call in streamed.calls if call.is_complete]
    if complete != wanted.calls[: len(complete)]:
        return f"cut by {case.stops} its calls are {streamed.calls}"
    return ""


def _accepts(compiled: Compiled, text: str, before: str) -> bool:
    matcher = compiled.matcher(before=before)
    tokens = gpt_oss.encode(text) if compiled.vocab is gpt_oss.VOCAB else text.encode("utf-8", "surrogatepass")
    for token in tokens:
        if not matcher.allows(token):
            return False
        matcher.advance(token)
    return matcher.is_accepting


def _walks(compiled: Compiled, random: Random, before: str) -> list[str]:
    texts = []
    for _ in range(WALKS):
        try:
            text = walk(compiled, random, liked=b'"{}<>', longest=random.randint(0, 40), before=before)
        except NotAvailable:
            break
        if text is not None:
            texts.append(text)
    return texts
