"""Write tool calls in a wire format: the inverse of the parsers. Templates, tools and schemas are not known here."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from keyword import iskeyword
from typing import Any

from espalier.chat.wire.formats import CallShape, WireFormat
from espalier.errors import InputError

Words = Mapping[bool | None, str]
JSON_WORDS: Words = {True: "true", False: "false", None: "null"}
PYTHON_WORDS: Words = {True: "True", False: "False", None: "None"}


def render_calls(wire: WireFormat, calls: Sequence[tuple[str, Mapping[str, Any]]]) -> str:
    """The calls, as pairs of name and arguments, in the format's usual spelling; "" for none.

    Raises InputError for arguments that JSON cannot express, or that are nested too deeply.
    """
    try:
        spelled = [
            spell_call(wire, name, _ARGUMENTS[wire.shape](wire, args), place)
            for place, (name, args) in enumerate(calls)
        ]
        return join_calls(wire, spelled)
    except RecursionError as error:
        raise InputError("the arguments of a call are nested too deeply", field="arguments") from error


def spell_call(wire: WireFormat, name: str, arguments: str, place: int = 0) -> str:
    """One call without what surrounds it. arguments: already spelled, in JSON or, in the python shape, `a=1, b="x"`.
    place: of the call among others, for formats that number them."""
    id_text = f"{wire.id_mark}{wire.id_spelling.format(place)}" if wire.id_mark else ""
    return _SHAPES[wire.shape](wire, f"{name}{id_text}", arguments)


def join_calls(wire: WireFormat, calls: Iterable[str]) -> str:
    """Spelled calls with everything that the format puts around and between them; "" for none."""
    around = [f"{wire.head}{call}{wire.tail}" for call in calls]
    return f"{wire.begin}{wire.open}{wire.separator.join(around)}{wire.close}{wire.end}" if around else ""


def literal(value: Any, words: Words = JSON_WORDS) -> str:
    """A JSON value as a literal of JSON or, with PYTHON_WORDS, of Python. Raises InputError for other values."""
    write = _LITERALS.get(type(value))
    if write is None:
        raise InputError(f"{value!r:.60} is no value of JSON", field="arguments")
    return write(value, words)


def _float(value: float, _words: Words) -> str:
    if math.isnan(value):
        raise InputError("NaN is no value of JSON", field="arguments")
    # In both languages a number too large for a float reads back as infinity, which has no literal.
    return repr(value) if math.isfinite(value) else ("1e999" if value > 0 else "-1e999")


def _string(value: str, _words: Words) -> str:
    return json.dumps(value, ensure_ascii=False)  # its escapes mean the same in Python


def _array(value: Sequence[Any], words: Words) -> str:
    return f"[{', '.join(literal(inner, words) for inner in value)}]"


def _object(value: Mapping[str, Any], words: Words) -> str:
    return f"{{{', '.join(f'{_key(key)}: {literal(inner, words)}' for key, inner in value.items())}}}"


def _key(key: Any) -> str:
    if not isinstance(key, str):
        raise InputError(f"{key!r:.60} is no key of a JSON object", field="arguments")
    return json.dumps(key, ensure_ascii=False)


_LITERALS: dict[type, Callable[[Any, Words], str]] = {
    type(None): lambda value, words: words[value],
    bool: lambda value, words: words[value],
    int: lambda value, _words: str(value),
    float: _float,
    str: _string,
    list: _array,
    tuple: _array,
    dict: _object,
}


def _keywords(arguments: Mapping[str, Any]) -> str:
    """`a=1, b="x"`; names that are no Python identifiers go into `**{...}` at the end."""
    plain = {key: value for key, value in arguments.items() if str(key).isidentifier() and not iskeyword(key)}
    spelled = [f"{key}={literal(value, PYTHON_WORDS)}" for key, value in plain.items()]
    others = {key: value for key, value in arguments.items() if key not in plain}
    return ", ".join([*spelled, f"**{_object(others, PYTHON_WORDS)}"] if others else spelled)


def _json(wire: WireFormat, name: str, arguments: str) -> str:
    name_key, quoted, args_key = map(_key, (wire.name_key, name, wire.args_key))
    return f"{{{name_key}: {quoted}, {args_key}: {arguments}}}"


def _write_named_call(wire: WireFormat, name: str, arguments: str) -> str:
    return f"{name}{wire.middle}{arguments}"


def _python(_wire: WireFormat, name: str, arguments: str) -> str:
    return f"{name}({arguments})"


def _write_tagged_call(wire: WireFormat, name: str, arguments: str) -> str:
    return f"{wire.name_open}{name}{wire.middle if arguments else wire.middle.rstrip()}{arguments}"


def _tags(wire: WireFormat, arguments: Mapping[str, Any]) -> str:
    """Each argument between its tags. Raises InputError for a text that holds the tag after it."""
    return "\n".join(spell_tag(wire, _bare(wire, key), _raw(wire, value)) for key, value in arguments.items())


def spell_tag(wire: WireFormat, name: str, value: str) -> str:
    """One argument of the tagged shape."""
    return f"{wire.key}{name}{wire.assign}{value}{wire.value_close}"


def _bare(wire: WireFormat, key: Any) -> str:
    closer = wire.assign.split()[0]
    if not isinstance(key, str) or closer in key:
        raise InputError(f"{key!r:.60} cannot be written as the name of an argument", field="arguments")
    return key


def _raw(wire: WireFormat, value: Any) -> str:
    text = value if isinstance(value, str) else literal(value)
    return _check_text(wire, text) if isinstance(value, str) else text


def _check_text(wire: WireFormat, text: str) -> str:
    """The text. Raises InputError for one that a parser would end early."""
    for end in wire.text_ends:
        if end in text:
            raise InputError(f"a text with {end} cannot be an argument here", field="arguments")
    return text


def _bare_call(_wire: WireFormat, name: str, arguments: str) -> str:
    return f"{name}{arguments}"


def _bare_value(wire: WireFormat, value: Any) -> str:
    """A value in Gemma's notation. Raises InputError for what needs quotes that it does not have."""
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str) or not _NAME.fullmatch(key):
                raise InputError(f"{key!r:.60} cannot be written as the name of an argument", field="arguments")
        return f"{{{','.join(f'{key}:{_bare_value(wire, inner)}' for key, inner in value.items())}}}"
    if isinstance(value, list | tuple):
        return f"[{','.join(_bare_value(wire, inner) for inner in value)}]"
    if not isinstance(value, str):
        return literal(value)
    return f"{wire.quote}{_check_text(wire, value)}{wire.quote}"


_NAME = re.compile(r"""[^\s:,{}\[\]<>"'\x00-\x1f]+""")
_SHAPES: dict[CallShape, Callable[[WireFormat, str, str], str]] = {
    "json": _json,
    "named": _write_named_call,
    "python": _python,
    "tagged": _write_tagged_call,
    "bare": _bare_call,
}
_ARGUMENTS: dict[CallShape, Callable[[WireFormat, Mapping[str, Any]], str]] = {
    "json": lambda _wire, arguments: _object(arguments, JSON_WORDS),
    "named": lambda _wire, arguments: _object(arguments, JSON_WORDS),
    "python": lambda _wire, arguments: _keywords(arguments),
    "tagged": _tags,
    "bare": _bare_value,
}
