"""Parsers of what people write: grammars, expressions, schemas, word lists, presets, test cases, settings."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path

from tests.fuzz.parsers.law import Read
from tests.fuzz.parsers.target import compile_here, compile_seconds, through_file


def open_gbnf() -> Read:
    from espalier.grammar.check import check
    from espalier.grammar.parser import parse
    from espalier.grammar.printer import print_grammar

    def read(data: bytes) -> object:
        grammar = parse(data)
        check(grammar)
        return parse(print_grammar(grammar))

    return read


def open_lark() -> Read:
    from functools import partial

    from espalier.constraints.joining.named import _lark_schema, schema_spec
    from espalier.grammar.lark.read import read_lark
    from espalier.grammar.parser import parse
    from espalier.grammar.printer import print_grammar
    from espalier.time_limit import time_limit

    def read(data: bytes) -> object:
        with time_limit(compile_seconds(data)):
            lark = read_lark(data.decode("utf-8", "replace"), partial(_lark_schema, schema_spec))
            return parse(print_grammar(lark.grammar))

    return read


def open_regex() -> Read:
    from espalier.grammar.regex.parse import parse_regex

    def read(data: bytes) -> object:
        try:
            text = data.decode("utf-8", "surrogatepass")
        except UnicodeDecodeError:
            text = data.decode("utf-8", "replace")
        return parse_regex(text)

    return read


def open_compiled_regex() -> Read:
    import espalier
    from espalier.time_limit import time_limit

    compile_here()

    def read(data: bytes) -> object:
        with time_limit(compile_seconds(data)):
            matcher = espalier.compile(espalier.Regex(data.decode("utf-8", "replace"))).matcher()
            return matcher.mask(), matcher.shortest_completion()

    return read


def open_schema() -> Read:
    import espalier
    from espalier.constraints.joining.named import schema_spec
    from espalier.schema.lint.hazards import hazards
    from espalier.time_limit import time_limit

    compile_here()

    def read(data: bytes) -> object:
        spec = schema_spec(data.decode("utf-8", "replace"))
        with time_limit(compile_seconds(data)):
            hazards(spec.schema)
            espalier.contract(spec)
            return espalier.compile(spec).matcher().mask()

    return read


def open_shorthand() -> Read:
    from espalier.schema.read.check import check_document
    from espalier.schema.shorthand import parse_shorthand

    return lambda data: check_document(parse_shorthand(data.decode("utf-8", "replace")))


def open_constraint() -> Read:
    """The JSON of a constraint, as `--constraint FILE` and the field of bodies take it."""
    from espalier.constraints.joining.named import read_constraint

    def read(data: bytes) -> object:
        with suppress(ValueError, RecursionError):  # of json, which is not what is tried
            value = json.loads(data)
            return read_constraint(value).to_json()
        return None

    return read


def open_preset() -> Read:
    from espalier.sampling.presets.files import preset_text, read_preset

    return through_file("mine.toml", lambda path: preset_text(read_preset(path)))


def open_cases(suffix: str) -> Read:
    from espalier.harness.cases.read import read_cases

    return through_file(f"cases{suffix}", read_cases)


def open_words() -> Read:
    from espalier.lexicon.files import read_words

    def read(path: Path) -> object:
        return read_words(path, "fr")

    return through_file("fr.txt", read)


def open_keys() -> Read:
    from espalier.server.admit.auth import read_key_file

    return through_file("keys.toml", read_key_file)
