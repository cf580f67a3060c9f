"""`espalier grammar check|print|sample|accepts|convert`: inspect a GBNF grammar, or convert a JSON Schema to one.

A grammar is a file, `-` for stdin, or `@name` for one that ships with Espalier.
"""

from __future__ import annotations

import sys
from pathlib import Path
from random import Random
from typing import Annotated, Any

import typer

from espalier import api
from espalier.cli import output
from espalier.cli.flags.constraint import read_grammar
from espalier.cli.flags.groups import sub_app, with_flags
from espalier.cli.flags.schema import SchemaArgument, SchemaFlags
from espalier.cli.progress import working
from espalier.constraints.json_schema.check import grammar_contract
from espalier.constraints.json_schema.lowered import LoweredSchema
from espalier.constraints.json_schema.typos import typo_notes
from espalier.constraints.spec import Gbnf
from espalier.errors import InputError, LimitExceeded, VocabError
from espalier.grammar.ast import Grammar
from espalier.grammar.check import GrammarFinding, check, validate
from espalier.grammar.parser import parse
from espalier.grammar.printer import print_grammar
from espalier.grammar.sample import SentenceSampler
from espalier.schema.gbnf import printed, renamed

app = sub_app("Check, print, sample and try GBNF grammars; convert JSON Schemas to GBNF.")

File = Annotated[str, typer.Argument(help="A file, `-` for stdin, or @NAME for a built-in.", metavar="GRAMMAR")]
Root = Annotated[str, typer.Option(help="The start rule.")]
AsJson = Annotated[bool, typer.Option("--json", help="As JSON.")]


def read(path: str, root: str) -> Grammar:
    """The parsed grammar, without errors. Raises GrammarError with line and column."""
    grammar = parse(read_grammar(path), root=root)
    validate(grammar)
    return grammar


@app.command("check", short_help="Find errors and remarkable rules.")
def check_command(grammar: File, root: Root = "root", as_json: AsJson = False) -> None:
    """Find errors and remarkable rules: undefined, unreachable and endless ones."""
    parsed = parse(read_grammar(grammar), root=root)
    findings = check(parsed)
    failed = any(finding.severity == "error" for finding in findings)
    if not failed:
        findings += too_large(read_grammar(grammar), root)
        failed = any(finding.severity == "error" for finding in findings)
    if as_json:
        output.data_json(
            {
                "ok": not failed,
                "rules": len(parsed.rules),
                "findings": [
                    {
                        "severity": finding.severity,
                        "code": finding.code,
                        "message": finding.message,
                        "rule": finding.rule,
                        "line": finding.position.line if finding.position else None,
                        "column": finding.position.column if finding.position else None,
                        "hint": finding.hint,
                    }
                    for finding in findings
                ],
            }
        )
    else:
        for fact in findings:
            output.data(str(fact))
        output.note(f"{len(parsed.rules)} rules; {'not usable' if failed else 'usable'}")
    raise typer.Exit(1 if failed else 0)


def too_large(text: str, root: str) -> list[GrammarFinding]:
    """A finding for a grammar whose automaton exceeds the limits, which only compiling shows."""
    try:
        with working("compiling the grammar"):
            api.compile(Gbnf(text, root=root))
    except LimitExceeded as error:
        return [GrammarFinding(severity="error", code="too-large", message=error.message, hint=error.hint)]
    except VocabError:
        return []  # it names tokens, which the byte vocabulary does not have; a model's may
    return []


@app.command("print", short_help="Print a grammar in normal form.")
def print_command(grammar: File, root: Root = "root") -> None:
    """Print a grammar in normal form, which parses to the same grammar."""
    output.data(print_grammar(parse(read_grammar(grammar), root=root)))


@app.command("sample", short_help="Draw random sentences.")
def sample_command(
    grammar: File,
    root: Root = "root",
    count: Annotated[int, typer.Option("-n", "--count", help="Number of sentences.")] = 5,
    seed: Annotated[int, typer.Option(help="The same seed gives the same sentences.")] = 0,
    max_size: Annotated[int, typer.Option(help="At most this many characters, if possible.")] = 200,
    as_json: AsJson = False,
) -> None:
    """Draw random sentences of a grammar, one on each line (as JSON strings with --json)."""
    if count < 1:
        raise InputError(f"--count: {count} must be at least 1", field="count")
    if max_size < 0:
        raise InputError(f"--max-size: {max_size} must be at least 0", field="max_size")
    sampler = SentenceSampler(read(grammar, root))
    random = Random(seed)  # sentences, not secrets
    sentences = [sampler.draw(random, max_size=max_size) for _ in range(count)]
    if as_json:
        output.data_json(sentences)
        return
    for sentence in sentences:
        output.data(sentence)


@app.command("accepts", short_help="Check whether a grammar accepts a text.")
def accepts_command(
    grammar: File,
    text: Annotated[str, typer.Argument(help="The text; `-` reads stdin, to the byte.")],
    root: Root = "root",
    as_json: AsJson = False,
) -> None:
    """Check whether a grammar accepts a text and, if not, at which byte and why. Exit 1 if not."""
    data = sys.stdin.buffer.read() if text == "-" else text.encode("utf-8", "surrogateescape")
    answer = judge(read_grammar(grammar), root, data)
    if as_json:
        output.data_json(answer)
    else:
        output.data("accepted" if answer["accepted"] else f"refused at byte {answer['byte']}: {answer['reason']}")
    raise typer.Exit(0 if answer["accepted"] else 1)


@app.command("convert", short_help="Convert a JSON Schema to GBNF.")
@with_flags
def convert_command(
    *,
    schema: SchemaArgument,
    details: SchemaFlags,
    indent: Annotated[int, typer.Option(help="With `--whitespace indented`: spaces a level.")] = 2,
    root: Annotated[str, typer.Option(help="The name of the start rule.", metavar="RULE")] = "root",
    target: Annotated[str | None, typer.Option("-o", "--output", help="Default: stdout.", metavar="FILE")] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite the file.")] = False,
) -> None:
    """Convert a JSON Schema to a GBNF grammar for llama.cpp, with the JSON pointer of each rule in a comment.

    A keyword that a grammar cannot express is an error with its pointer; values that the grammar leaves out are named
    on stderr.
    """
    spec = details.spec(schema, indent=indent)
    for note in typo_notes(spec):
        output.note(note)
    lowered = LoweredSchema(spec)
    contract = grammar_contract(lowered)
    contract.check()
    text = printed(renamed(lowered.converted, root))
    if target is None or target == "-":
        output.data(text)
    else:
        output.write_file(Path(target).expanduser(), text, force=force)
    for note in dict.fromkeys(entry.note for entry in contract.by_verdict("narrowed")):
        output.note(note)


def judge(grammar: str, root: str, data: bytes) -> dict[str, Any]:
    """Walk the bytes of a text: accepted, or the first byte that is refused and what was expected."""
    with working("compiling the grammar"):
        matcher = api.compile(Gbnf(grammar, root=root)).matcher()
    for place, byte in enumerate(data):
        if not matcher.allows(byte):
            blame = matcher.explain(byte)
            reason = ", ".join(
                part
                for part in (
                    blame.reason,
                    f"rule {blame.rule}" if blame.rule else "",
                    blame.position or "",
                    f"expected {blame.expected}" if blame.expected else "",
                )
                if part
            )
            return {"accepted": False, "byte": place, "reason": reason, "blame": blame.to_json()}
        matcher.advance(byte)
    if matcher.is_accepting:
        return {"accepted": True, "byte": len(data), "reason": None, "blame": None}
    blame = matcher.explain(256)  # the byte vocabulary's EOS
    expected = f": expected {blame.expected}" if blame.expected else ""
    return {
        "accepted": False,
        "byte": len(data),
        "reason": f"the text ends before the sentence does{expected}",
        "blame": blame.to_json(),
    }
