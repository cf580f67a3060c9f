"""`espalier check`: reports what an engine enforces of a JSON Schema, its hazards, and which documents it accepts.

`constraints/json_schema/check.py` finds this out; this module prints it in 80 columns.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

import typer
from rich.cells import cell_len, set_cell_size

from espalier import api
from espalier.cli import output
from espalier.cli.flags.groups import with_flags
from espalier.cli.flags.inputs import read_text
from espalier.cli.flags.schema import SchemaArgument, SchemaFlags
from espalier.cli.progress import working
from espalier.cli.vocab.reading import read_vocab
from espalier.columns import WIDTH, middle, shown, wrapped
from espalier.constraints.json_schema.check import CompileCost, SchemaReport, check_schema
from espalier.constraints.json_schema.instances import Instance, read_instances
from espalier.errors import InputError, UnsupportedError
from espalier.schema.contract import VERDICTS, Contract, ContractEntry
from espalier.schema.lint.engine_limits import ENGINES
from espalier.tokens.vocab import Vocab

POINTER = 32  # columns of a pointer in the table


@with_flags
def command(
    *,
    schema: SchemaArgument,
    engine: Annotated[str, typer.Option(help=f"{', '.join(ENGINES)}.", metavar="ENGINE")] = "transformers",
    tokenizer: Annotated[
        str | None, typer.Option(help="Tokenizer to compile for: a file, a folder, a hub name, kept:...", metavar="M")
    ] = None,
    instances: Annotated[
        str | None, typer.Option(help="Documents to check: JSON lines, `-` for stdin.", metavar="FILE")
    ] = None,
    details: SchemaFlags,
    allow: Annotated[
        str | None, typer.Option(help="checked: accept keywords that are only checked afterwards.", metavar="VERDICT")
    ] = None,
    allow_unknown: Annotated[
        bool, typer.Option("--allow-unknown", help="Unknown keywords are listed, and are no fault.")
    ] = False,
    show_all: Annotated[bool, typer.Option("--all", help="Show annotations and other engines' hazards too.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
) -> None:
    """Show what an engine enforces of a JSON Schema, keyword by keyword, and what it costs.

    enforced: exactly as the schema says; narrowed: always, but some values or spellings cannot be generated;
    checked: only afterwards; refused: not at all.

    Exit 1 if a keyword is not enforced or not known, or if jsonschema judges a document otherwise.
    """
    spec = details.spec(schema, allow=allow)
    if schema.strip() == "-" and instances == "-":
        raise InputError("the schema and the documents cannot both be standard input", field="instances")
    lines = None if instances is None else read_instances(read_text(instances, "instances"), _source(instances))
    vocab = Vocab.bytes() if tokenizer is None else read_vocab(tokenizer)
    try:
        with working("compiling the schema"):
            report = check_schema(
                spec, api.default_app().compiler(vocab), engine=engine, allow_unknown=allow_unknown, instances=lines
            )
    except UnsupportedError as error:  # not one keyword: the whole cannot be enforced
        if as_json:
            output.data_json({"ok": False, "engine": engine, "error": error.message})
        output.fail(error)
        raise typer.Exit(1) from None
    if as_json:
        output.data_json(report.to_json())
        for keyword in report.unknown:
            output.note(f"schema: {keyword}")
    else:
        output.data("\n".join(page(report, show_all=show_all)))
        output.note(summary(report))
    raise typer.Exit(0 if report.ok else 1)


def _source(path: str) -> str:
    return "stdin" if path == "-" else path


def summary(report: SchemaReport) -> str:
    """The result in one line."""
    parts = []
    if count := len(report.unknown):
        parts.append(f"{count} unknown keyword{'s' * (count > 1)}{' (allowed)' if report.allow_unknown else ''}")
    if count := len(report.lacking):
        parts.append(f"{count} keyword{'s' * (count > 1)} would not be enforced")
    if count := len(report.disputed):
        parts.append(f"{count} document{'s' * (count > 1)} judged otherwise than by jsonschema")
    if any(is_bug(report, instance) for instance in report.disputed):
        parts.append("THAT IS A BUG: please report it with the schema and the document")
    if parts:
        return "; ".join(parts)
    return "all is enforced, or checked afterwards" if report.contract.by_verdict("checked") else "all is enforced"


def is_bug(report: SchemaReport, instance: Instance) -> bool:
    """Whether no verdict of the contract explains the dispute."""
    return instance.accepted or not report.contract.by_verdict("narrowed")


def page(report: SchemaReport, *, show_all: bool = False) -> list[str]:
    """The report for people, in 80 columns."""
    looked_up = "" if report.cost else ", by what it is known to drop and refuse"
    lines = [f"engine      {ENGINES[report.engine].name}{looked_up}", f"contract    {counts(report.contract)}"]
    if report.cost is not None:
        lines += cost_lines(report.cost)
    lines += ["", *contract_table(report.contract, show_all=show_all)]
    lines += unknown_lines(report)
    lines += hazard_lines(report, show_all=show_all)
    if report.instances:
        lines += ["", *instance_lines(report)]
    return lines


def unknown_lines(report: SchemaReport) -> Iterator[str]:
    """Keywords that nobody knows, with the nearest known ones."""
    if report.unknown:
        yield from ("", "Unknown keywords, which assert nothing")
    for keyword in report.unknown:
        yield f"  {middle(shown(keyword.pointer), WIDTH - 2)}"
        yield f"    {keyword.hint}"


def hazard_lines(report: SchemaReport, *, show_all: bool) -> Iterator[str]:
    if not report.hazards:
        return
    yield from ("", "Hazards")
    concerned = [h for h in report.hazards if show_all or report.engine in h.engines]
    for hazard in concerned:
        others = f" [{', '.join(hazard.engines)}]" if show_all and len(hazard.engines) < len(ENGINES) else ""
        yield f"  {middle(shown(hazard.pointer or '/'), WIDTH - 2)}"
        text = shown(f"{hazard.message} ({hazard.code}){others}")
        yield from (f"    {line}" for line in wrapped(text, WIDTH - 4))
    if more := len(report.hazards) - len(concerned):
        yield f"  {f'and {more}' if concerned else more} for other engines; --all shows {'them' if more > 1 else 'it'}"


def counts(contract: Contract) -> str:
    counts_by_verdict = [f"{n} {v}" for v in VERDICTS if v != "annotation" and (n := len(contract.by_verdict(v)))]
    silent = len(contract.by_verdict("annotation"))
    return ", ".join(counts_by_verdict or ["asserts nothing"]) + (f" ({silent} more assert nothing)" if silent else "")


def cost_lines(cost: CompileCost) -> list[str]:
    memory = "memory not known" if cost.memory is None else f"{cost.memory / 1e6:,.2f} MB"
    if cost.measured == "process" and cost.memory is not None:
        memory = f"the process grew by {memory}"
    built = cost.backend if cost.states is None else f"{cost.backend} of {cost.states:,} states"
    tables = f", {memory}{' of tables' if cost.measured == 'tables' else ''}"
    return [
        f"compiled    in {cost.seconds * 1000:,.1f} ms: {built}{tables}",
        *_field(
            "vocabulary",
            f"{shown(cost.vocab)}, {cost.tokens:,} ids, {cost.allowed:,} allowed at the start; "
            f"first mask in {cost.first_mask * 1000:,.2f} ms",
        ),
    ]


def _field(name: str, text: str) -> list[str]:
    first, *rest = wrapped(text, WIDTH - 12)
    return [f"{name:<12}{first}", *(f"{'':12}{line}" for line in rest)]


def contract_table(contract: Contract, *, show_all: bool) -> Iterator[str]:
    """One line for each keyword, with its note wrapped beside it."""
    entries = [e for e in contract.entries if show_all or e.verdict != "annotation"]
    if not entries:
        return
    names = [middle(shown(name(entry)), POINTER) for entry in entries]
    wide = max(map(cell_len, names))
    verdict = max(len(entry.verdict) for entry in entries)
    indent = verdict + wide + 6
    shown_notes: set[str] = set()
    for entry, pointer in zip(entries, names, strict=True):
        first, *rest = wrapped(shown(entry.note), WIDTH - indent) or [""]
        if rest and entry.note in shown_notes:
            first, rest = "as above", []
        shown_notes.add(entry.note)
        yield f"  {entry.verdict:<{verdict}}  {set_cell_size(pointer, wide)}  {first}".rstrip()
        yield from (" " * indent + line for line in rest)


def name(entry: ContractEntry) -> str:
    """The pointer of an entry; an entry of no single keyword is named by its subject."""
    return entry.pointer or (f"({entry.keyword})" if entry.keyword else "(the whole)")


def instance_lines(report: SchemaReport) -> Iterator[str]:
    """Counts, then a paragraph for each document that is refused or disputed."""
    instances = report.instances
    taken = sum(instance.accepted for instance in instances)
    yield f"Documents: {len(instances):,}, {taken:,} accepted, {len(instances) - taken:,} refused"
    for judged in instances:
        if not judged.accepted:
            after = f" after {shown(judged.before)}" if judged.before else ""
            yield from _paragraph(f"line {judged.line}: refused at byte {judged.byte}{after}", _why(judged))
            yield from _paragraph("", _word_judgement(report, judged))
        elif judged.valid is False:
            yield from _paragraph(f"line {judged.line}: accepted", _word_judgement(report, judged))


def _why(instance: Instance) -> str:
    return f"{instance.reason}{f' [{instance.pointer}]' if instance.pointer else ''}"


def _word_judgement(report: SchemaReport, instance: Instance) -> str:
    errors = f": {'; '.join(instance.errors[:2])}" if instance.errors else ""
    if instance.valid is None:
        return f"jsonschema cannot judge it{errors}"
    verdict = f"jsonschema: {'valid' if instance.valid else 'not valid'}{errors}"
    if not instance.disputed:
        return verdict
    if instance not in report.disputed:
        return f"{verdict}; that is only checked afterwards"
    return f"BUG: {verdict}" if is_bug(report, instance) else f"{verdict}; it cannot come out, see what is narrowed"


def _paragraph(head: str, text: str) -> Iterator[str]:
    if head:
        yield f"  {middle(head, WIDTH - 2)}"
    yield from (f"    {line}" for line in wrapped(shown(text), WIDTH - 4))
