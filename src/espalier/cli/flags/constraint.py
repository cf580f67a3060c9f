"""Constraint flags: `--schema`, `--regex`, `--grammar` and so on, and the spec that they ask for."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from espalier.cli.flags.groups import info_of
from espalier.cli.flags.inputs import read_text
from espalier.cli.flags.schema import is_named
from espalier.cli.flags.schema import read_spec as read_schema
from espalier.constraints.after.spec import After
from espalier.constraints.ban import Ban
from espalier.constraints.joining.rule import together
from espalier.constraints.spec import Choice, Gbnf, JsonObject, Regex, Spec
from espalier.constraints.words.spec import Wordlist
from espalier.engines.request_options import CLOSED, SCHEMA_ORDER
from espalier.errors import InputError, SpecError
from espalier.files.json_shape import check_shape
from espalier.files.limits import CONSTRAINT
from espalier.grammar.builtin import GRAMMARS
from espalier.wiring import App

DEFINED_AS = "::="


@dataclass(frozen=True, slots=True, kw_only=True)
class ConstraintFlags:
    """Flags that ask for constraints; all that are given hold together."""

    schema: Annotated[
        str | None, typer.Option(help="A JSON Schema: a file, JSON, or `name, age int`.", metavar="SCHEMA")
    ] = None
    schema_format: Annotated[
        str | None, typer.Option(help="What `format` does: annotate (the default), assert.", metavar="WHAT")
    ] = None
    schema_order: Annotated[str | None, info_of(SCHEMA_ORDER)] = None
    allow_checked: Annotated[
        bool, typer.Option("--allow-checked", help="Accept keywords that are only checked afterwards.")
    ] = False
    closed: Annotated[bool, info_of(CLOSED)] = False
    regex: Annotated[str | None, typer.Option(help="A regular expression for the whole answer.")] = None
    grammar: Annotated[str | None, typer.Option(help="A GBNF grammar: a file, @NAME, or its text.", metavar="FILE")] = (
        None
    )
    root: Annotated[
        str | None, typer.Option(help="With --grammar: its start rule (default: root).", metavar="RULE")
    ] = None
    choice: Annotated[list[str] | None, typer.Option(help="An allowed answer; repeat it.", metavar="TEXT")] = None
    json_object: Annotated[bool, typer.Option("--json-object", help="Any JSON object.")] = False
    whitespace: Annotated[
        str | None,
        typer.Option(help="JSON white space: natural (the default), compact, flexible, indented.", metavar="STYLE"),
    ] = None
    constraint: Annotated[
        str | None, typer.Option(help="Any constraint, as a JSON file with a `kind`.", metavar="FILE")
    ] = None
    ban: Annotated[list[str] | None, typer.Option(help="A text that must not occur; repeat it.", metavar="TEXT")] = None
    after: Annotated[
        str | None, typer.Option(help='Text after which the constraint starts, such as "</think>".', metavar="MARKER")
    ] = None
    max_before: Annotated[
        int | None, typer.Option(help="With --after: at most N tokens before that text.", metavar="N")
    ] = None

    def spec(self, words: Wordlist | None = None) -> Spec | None:
        """The constraint that the flags ask for, joined with a word list; None without any. All of them hold, and start
        after the text of `--after`. Raises InputError, SpecError and its kin."""
        whole = together(*self._specs(), words, Ban(tuple(self.ban)) if self.ban else None)
        if self.after is None:
            if self.max_before is not None:
                raise InputError("--max-before needs --after", field="max_before")
            return whole
        if whole is None:
            hint = 'such as --json-object --after "</think>"'
            raise InputError("--after needs a constraint", hint=hint, field="after")
        return After(self.after, whole, max_before=self.max_before)

    def schema_options(self, app: App) -> dict[str, Any]:
        """Options of `make_request` for schemas of other origin, such as those of tools and presets: the order of
        properties, that where nothing states one, and whether they are closed. Raises InputError for names of
        properties without --schema."""
        return {
            SCHEMA_ORDER.name: self._order(),
            "default_order": app.settings.default_of(SCHEMA_ORDER),
            CLOSED.name: self.closed or None,
        }

    def usual_order(self, app: App) -> str | None:
        """The order of properties in schemas that state none. Raises as `schema_options`."""
        order: str | None = self._order() or app.settings.default_of(SCHEMA_ORDER)
        return order

    def _order(self) -> str | None:
        """The order if it is one of all schemas: `_specs` gives names of properties to the schema that they are of."""
        if self.schema_order is None or is_named(self.schema_order):
            return self.schema_order
        if self.schema is None:
            raise InputError("--schema-order needs --schema where it names properties", field=SCHEMA_ORDER.name)
        return None

    def _specs(self) -> Iterator[Spec]:
        self._check_details()
        style: Any = self.whitespace or "natural"  # checked by the specs themselves
        if self.schema is not None:
            yield read_schema(
                self.schema,
                whitespace=style,
                format=self.schema_format or "annotate",
                order=self.schema_order,
                allow="checked" if self.allow_checked else None,
            )
        if self.regex is not None:
            yield Regex(self.regex)
        if self.grammar is not None:
            grammar = read_grammar(self.grammar)
            yield Gbnf(grammar) if self.root is None else Gbnf(grammar, root=self.root)
        if self.choice:
            yield Choice(tuple(self.choice))
        if self.json_object:
            yield JsonObject(whitespace=style)
        if self.constraint is not None:
            yield read_spec(self.constraint)

    def _check_details(self) -> None:
        """Raises InputError for an option of a flag that is not given."""
        if self.whitespace is not None and self.schema is None and not self.json_object:
            raise InputError("--whitespace is for --schema and --json-object", field="whitespace")
        if self.root is not None and self.grammar is None:
            raise InputError("--root needs --grammar", field="root")
        for name in ("schema_format", "allow_checked"):
            if getattr(self, name) not in (None, False) and self.schema is None:
                raise InputError(f"--{name.replace('_', '-')} needs --schema", field="schema")


def read_spec(path: str) -> Spec:
    """Any constraint, from a JSON file such as `{"kind": "regex", "pattern": "[ab]+"}`. Raises SpecError."""
    try:
        text = read_text(path, "constraint")
        check_shape(text, CONSTRAINT, path)
        data = json.loads(text)
    except json.JSONDecodeError as error:
        raise SpecError(
            f"{path} is not JSON: {error.msg}, line {error.lineno}, column {error.colno}", field="constraint"
        ) from error
    except ValueError as error:  # a number of more digits than Python reads
        raise SpecError(f"{path}: {error}", field="constraint") from error
    return Spec.from_json(data)


def read_grammar(path: str) -> str:
    """The text of a grammar: a file, `-` for stdin, `@name` for a built-in one, or itself: only GBNF has `::=`. Raises
    InputError, UnknownName."""
    if DEFINED_AS in path:
        return path
    return str(GRAMMARS.load(path[1:])) if path.startswith("@") else read_text(path, "grammar")
