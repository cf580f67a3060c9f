"""What commands read: prompts, schema and grammar files, and the constraint that a set of flags asks for."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from espalier.constraints.spec import Choice, Gbnf, JsonObject, JsonSchema, Regex, Spec
from espalier.errors import InputError, SchemaError
from espalier.grammar.builtin import GRAMMARS


def read_text(path: str, what: str) -> str:
    """A text file, or stdin for `-`. Raises InputError naming the path."""
    try:
        if path == "-":
            return _stdin()
        return Path(path).expanduser().read_text(encoding="utf-8-sig")
    except OSError as error:
        raise InputError(f"cannot read the {what} {path}: {error.strerror or error}", field=what) from error
    except UnicodeDecodeError as error:
        raise InputError(f"the {what} {path} is not UTF-8 at byte {error.start}", field=what) from error


def _stdin() -> str:
    if sys.stdin is None:  # closed by the caller
        raise InputError("there is no standard input", field="stdin")
    return sys.stdin.read()


def read_prompt(prompt: str | None) -> str:
    """The argument; `-`, or nothing while something is piped in, is stdin."""
    if prompt is None and (sys.stdin is None or sys.stdin.isatty()):
        raise InputError("there is no prompt", hint='espalier generate "Write ..." (or - for stdin)', field="prompt")
    text = read_text("-", "prompt") if prompt in (None, "-") else str(prompt)
    if not text.strip():
        raise InputError("the prompt is empty", field="prompt")
    # A file or a pipe ends its last line; that newline is not part of what was asked.
    return text.removesuffix("\n") if prompt in (None, "-") else text


def read_schema(path: str, whitespace: str) -> JsonSchema:
    """A JSON Schema file. Raises SchemaError with line and column where it is not JSON."""
    text = read_text(path, "schema")
    try:
        schema: Any = json.loads(text, object_pairs_hook=_no_duplicates)
    except json.JSONDecodeError as error:
        raise SchemaError(f"{path} is not JSON: {error.msg}, line {error.lineno}, column {error.colno}") from error
    except RecursionError as error:
        raise SchemaError(f"{path} is nested too deeply") from error
    return JsonSchema(schema, whitespace=whitespace)  # type: ignore[arg-type]  # checked by JsonSchema itself


def read_grammar(path: str) -> str:
    """The text of a grammar: a file, `-`, or `@name` for a built-in one. Raises InputError, UnknownName."""
    return str(GRAMMARS.load(path[1:])) if path.startswith("@") else read_text(path, "grammar")


def read_constraint(
    *,
    schema: str | None,
    regex: str | None,
    grammar: str | None,
    choice: list[str] | None,
    json_object: bool,
    whitespace: str | None = None,
) -> Spec | None:
    """The one constraint the flags ask for. Raises InputError for two, or for whitespace without JSON."""
    given = {
        "--schema": schema is not None,
        "--regex": regex is not None,
        "--grammar": grammar is not None,
        "--choice": bool(choice),
        "--json-object": json_object,
    }
    named = [flag for flag, on in given.items() if on]
    if len(named) > 1:
        raise InputError(f"give one constraint, not {' and '.join(named)}", field="constraint")
    if whitespace is not None and schema is None and not json_object:
        raise InputError("--whitespace is for --schema and --json-object", field="whitespace")
    whitespace = whitespace or "natural"
    if schema is not None:
        return read_schema(schema, whitespace)
    if regex is not None:
        return Regex(regex)
    if grammar is not None:
        return Gbnf(read_grammar(grammar))
    if choice:
        return Choice(tuple(choice))
    return JsonObject(whitespace=whitespace) if json_object else None  # type: ignore[arg-type]  # checked there


def check_trace_path(path: str | None) -> Path | None:
    """The path to write to. Fails before a long generation, not after it. Raises InputError."""
    if path is None:
        return None
    target = Path(path).expanduser()
    if target.suffix.lower() not in (".html", ".json"):
        raise InputError(f"--trace {path}: the name must end in .html or .json", field="trace")
    if target.is_dir():
        raise InputError(f"--trace {path} is a folder", field="trace")
    if not target.parent.is_dir():
        raise InputError(f"--trace {path}: there is no folder {target.parent}", field="trace")
    if not os.access(target.parent, os.W_OK):
        raise InputError(f"--trace {path}: the folder {target.parent} cannot be written to", field="trace")
    return target


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise SchemaError(
                f"the key {key!r} occurs twice in one object", hint="JSON parsers disagree on which counts"
            )
        found[key] = value
    return found
