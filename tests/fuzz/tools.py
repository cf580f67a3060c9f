"""Tool calls in every wire format against the parser of turns and `jsonschema`.

Every accepted text must parse into allowed calls whose arguments are valid; valid calls written by hand, and free text
in which no call begins, must be accepted.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Any

from espalier.chat.reading.turn_parser import parse_turn
from espalier.chat.tools import Tool
from espalier.constraints.spec import Choice, JsonObject, Regex, Spec
from espalier.constraints.tools.spec import ToolCalls
from espalier.errors import EspalierError
from tests.fuzz.cases import Case, CaseFuzzer
from tests.fuzz.schema.oracle import parse, valid
from tests.schema_fuzz import Maker
from tests.tool_texts import FORMATS, Call, written

NAMES = ("read", "read_file", "now", "re", "x1", "search_all")
KEYS = ("path", "p", "n", "tags", "inside", "é", "a b")
CHARS = "ab /.é\"\\\n\x01日{}[]<>:,'’😀\u2028"
FREE = ("", "hello", "So, é.", "a < b", "no call", "1 2 3", "'x'", "日本")
INSERTED = ('"', "\\", "{", "}", "[", "]", ",", ":", " ", "\n", "a", "1", "(", ")", "=", "<", "\x00", "é", "null")
CONTENTS: tuple[tuple[Spec | None, Callable[[str], bool]], ...] = (
    (None, lambda text: True),
    (None, lambda text: True),
    (None, lambda text: True),
    (Regex("[a-z ]*"), lambda text: bool(re.fullmatch("[a-z ]*", text))),
    (Choice(["yes", "[no]", "{"]), lambda text: text in ("yes", "[no]", "{")),
    (JsonObject(), lambda text: isinstance(json.loads(text), dict)),
)
WITH_WORDS = ("pythonic", "function_gemma", "gemma4")
"""Formats in which names are words."""
Draw = Callable[[], Any]


class ToolFuzzer(CaseFuzzer):
    def draw(self, random: Random, counts: Counter[str]) -> Case | None:
        wire = random.choice(FORMATS)
        is_python = wire in WITH_WORDS
        tools = {name: draw_tool(random, is_python) for name in random.sample(NAMES, random.randint(1, 3))}
        content, is_content = random.choice(CONTENTS)
        choice = random.choice(("auto", "auto", "required", "none", next(iter(tools))))
        if choice not in ("auto", "none"):
            content, is_content = CONTENTS[0]
        most = random.choice((None, None, 1, 2))
        schemas = {name: schema for name, (schema, _) in tools.items()}
        try:
            strict = [Tool(name=name, parameters=schema, strict=True) for name, schema in schemas.items()]
            spec = ToolCalls(strict, format=wire, choice=choice, max_calls=most, content=content)
            judges = {name: valid(schema) for name, schema in schemas.items()}
        except EspalierError as error:
            counts[f"not drawn: {error.code}"] += 1
            return None
        must = _calls(random, spec, tools)
        if content is None and choice in ("auto", "none"):
            must += random.sample(FREE, 3)
        opener = (spec.wire.marker or spec.wire.opener).encode()

        def fault(text: str, is_accepted: bool) -> str:
            if not is_accepted:
                return "refuses a valid turn" if text in must else ""
            return turn_fault(spec, text, judges, is_content)

        return Case(
            spec=spec,
            fault=fault,
            near=must,
            features=[wire, f"choice {choice if choice in ('auto', 'required', 'none') else 'name'}"]
            + (["content"] if content is not None else []),
            liked=b'"\\{}[]()<>,:=',
            begins=(b"", opener, opener),
            longest=60,
            inserted=(*INSERTED, spec.wire.marker or "{", spec.wire.close or "}"),
        )


def turn_fault(
    spec: ToolCalls, text: str, judges: dict[str, Callable[[Any], bool]], is_content: Callable[[str], bool]
) -> str:
    """What is wrong with an accepted text, "" if nothing is."""
    allowed = {tool.name for tool in spec.allowed}
    turn = parse_turn(
        text, format=spec.wire, names=sorted(allowed) if spec.content is not None else (), types=spec.types
    )
    if turn.fault and (turn.calls or spec.content is None):
        return f"accepts what the parser faults: {turn.fault}"
    for call in turn.calls:
        if call.name not in allowed:
            return f"accepts a call of {call.name!r}"
        if not call.is_complete:
            return "accepts a call that is cut off"
        value, _ = parse(call.arguments)
        if not judges[call.name](value):
            return f"accepts arguments that are not valid: {call.arguments}"
    count = len(turn.calls)
    most = 1 if spec.choice.single else spec.max_calls
    if (most is not None and count > most) or (spec.choice.mode == "required" and not count):
        return f"accepts {count} calls"
    if spec.choice.mode == "required" and turn.content.strip():
        return "accepts text beside required calls"
    if spec.content is not None and not count and not is_content(text):
        return "accepts a content that is not valid"
    return ""


def _calls(random: Random, spec: ToolCalls, tools: dict[str, tuple[Any, Draw | None]]) -> list[str]:
    """Turns of valid calls, as the format writes them."""
    drawn = {
        name: draw for name, (_, draw) in tools.items() if draw is not None and name in {t.name for t in spec.allowed}
    }
    if not drawn:
        return []
    texts = []
    for _ in range(5):
        calls: list[Call] = []
        for _ in range(random.randint(1, spec.most_calls or 3)):
            name = random.choice(list(drawn))
            calls.append((name, drawn[name]()))
        text = written(spec.wire, *calls)
        read = [(call.name, call.parsed) for call in parse_turn(text, format=spec.wire, types=spec.types).calls]
        if spec.wire.has_json or read == calls:  # between tags, some texts are read as JSON, and so not demanded
            texts.append(text)
    return texts


def draw_tool(random: Random, is_python: bool) -> tuple[Any, Draw | None]:
    """A schema of arguments, and what draws valid arguments in the schema's order; None if nothing does."""
    if random.random() < 0.25 and not is_python:
        maker = Maker(random, depth=2)
        maker.chosen.remove("$ref")  # the definitions are missing
        return {"type": "object"} | maker.objects(1), None
    return _object(random, 0, KEYS[:5] if is_python else KEYS)


def _object(random: Random, depth: int, keys: tuple[str, ...]) -> tuple[Any, Draw]:
    made = {key: _value(random, depth + 1) for key in random.sample(keys, random.randint(0, 3))}
    required = [key for key in made if random.random() < 0.5]
    schema = {
        "type": "object",
        "properties": {key: inner for key, (inner, _) in made.items()},
        "required": required,
        "additionalProperties": False,
    }
    return schema, lambda: {key: draw() for key, (_, draw) in made.items() if key in required or random.random() < 0.5}


def _value(random: Random, depth: int) -> tuple[Any, Draw]:
    kinds: list[Callable[[], tuple[Any, Draw]]] = [
        lambda: _text(random),
        lambda: _integer(random),
        lambda: ({"type": "boolean"}, lambda: random.random() < 0.5),
        lambda: ({"enum": ["fast", 'q"t', None, 3, "é"]}, lambda: random.choice(["fast", 'q"t', None, 3, "é"])),
        lambda: ({"type": "string", "pattern": '^[a-c"]{1,3}$'}, lambda: random.choice(["a", 'b"', '"""', "abc"])),
    ]
    if depth < 3:
        kinds += [lambda: _array(random, depth), lambda: _object(random, depth, KEYS), lambda: _either(random, depth)]
    return random.choice(kinds)()


def _text(random: Random) -> tuple[Any, Draw]:
    low, high = random.randint(0, 2), random.randint(2, 6)
    return {"type": "string", "minLength": low, "maxLength": high}, lambda: "".join(
        random.choice(CHARS) for _ in range(random.randint(low, high))
    )


def _integer(random: Random) -> tuple[Any, Draw]:
    low, high = random.randint(-12, 3), random.randint(3, 1200)
    return {"type": "integer", "minimum": low, "maximum": high}, lambda: random.randint(low, high)


def _array(random: Random, depth: int) -> tuple[Any, Draw]:
    inner, draw = _value(random, depth + 1)
    most = random.randint(0, 3)
    return {"type": "array", "items": inner, "maxItems": most}, lambda: [draw() for _ in range(random.randint(0, most))]


def _either(random: Random, depth: int) -> tuple[Any, Draw]:
    made = [_value(random, depth + 1) for _ in range(2)]

    def draw() -> Any:
        return random.choice(made)[1]()

    return {"anyOf": [schema for schema, _ in made]}, draw
