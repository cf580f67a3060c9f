"""`espalier batch report`: what a batch cost, where, why, and what to do: on the terminal, as JSON, as a page."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Annotated, Any

import typer

from espalier.cli import output
from espalier.cli.batch.store import folder_of, known, opened
from espalier.cli.flags.server import EnvFile
from espalier.columns import WIDTH, clip, shown, wrapped
from espalier.errors import InputError
from espalier.files.limits import TRACE
from espalier.files.reading import read_text
from espalier.trace.files import write_text
from espalier.trace.report.findings import words_of

PATHS = 12
SUFFIX = ".report.json"


def command(
    source: Annotated[str, typer.Argument(help="The output of `espalier batch run`, or a batch's id.", metavar="OUT")],
    as_json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
    html: Annotated[Path | None, typer.Option(help="Write a page.", metavar="FILE")] = None,
    database_url: Annotated[str | None, typer.Option("--database", help="The store, for a batch's id.")] = None,
    env_file: EnvFile = None,
) -> None:
    """Verdicts, costs by path over all items, the most expensive values, findings with remedies, and outliers."""
    report = read(source, database_url, env_file)
    if html is not None:
        from espalier.jobs.report_page import render  # noqa: PLC0415

        write_text(html, render(report))
        output.note(f"page: {html}")
    if as_json:
        output.data_json(report)
    elif html is None:
        output.data("\n".join(screen(report)))


def read(source: str, database_url: str | None, env_file: str | None) -> dict[str, Any]:
    """The report of a finished run, of a run that was interrupted, or of a batch in the store."""
    path = Path(source)
    if path.with_name(path.name + SUFFIX).is_file():
        report = json.loads(read_text(path.with_name(path.name + SUFFIX), TRACE))
        if not isinstance(report, dict) or "verdicts" not in report:
            raise InputError(f"{path.name}{SUFFIX} is no report", field="report")
        return report
    database = folder_of(path) / "jobs.db"
    if not database.is_file() and not re.fullmatch(r"batch_[0-9a-z]+", source):
        raise InputError(f"there is no report of {source!r}", hint="name the output of `espalier batch run`")
    from espalier.jobs.report import report_of  # noqa: PLC0415

    url = f"sqlite:///{database.absolute()}" if database.is_file() else database_url
    with opened(url, env_file) as store:
        batches = store.batches.page(caller=None, limit=1) if database.is_file() else [known(store, source)]
        if not batches:
            raise InputError(f"there is no batch in {database}")
        return report_of(store.results.figures(batches[0].id))


def screen(report: dict[str, Any]) -> list[str]:
    """The report in 80 columns."""
    items, verdicts, tokens = report["items"], report["verdicts"], report["tokens"]
    lines = [
        "answers   " + report.get("answers", _word_counts(items)),
        "items     " + _word_counts(items),
        "verdicts  " + (_word_counts(verdicts) or "none"),
        *(
            ["          broken: the text breaks what was called enforced, a fault of Espalier: report it"]
            if verdicts.get("broken")
            else []
        ),
        f"tokens    {tokens['prompt']} of prompts, {tokens['completion']} of answers",
        f"cost      {report['tax_nats']:.2f} nats of tax, {report['tax_nats_per_token']:.3f} a token; removed mass "
        f"{report['removed_mass']:.1%}",
        f"          rejected {report['rejected_rate']:.1%} of drawn tokens, changed {report['changed_share']:.1%}",
    ]
    if report["errors"]:
        lines.append("errors    " + _word_counts(report["errors"]))
    if report["by_path"]:
        lines += ["", f"{'path':<34}{'items':>8}{'tokens':>10}{'nats':>12}{'removed':>12}"]
        for path, finding in list(report["by_path"].items())[:PATHS]:
            name = clip(shown(path) or "(keys and punctuation)", 33)
            lines.append(
                f"{name:<34}{finding['items']:>8}{finding['tokens']:>10.0f}{finding['tax_nats']:>12.2f}{finding['removed_mass']:>12.1%}"
            )
        if len(report["by_path"]) > PATHS:
            lines.append(f"and {len(report['by_path']) - PATHS} more: --json")
    if report["dearest_values"]:
        lines += ["", "most expensive values"]
        lines += [
            clip(
                f"  {item['tax_nats']:8.2f} nats  {shown(item['custom_id'])}  {item['path']} = {shown(item['value'])}",
                WIDTH,
            )
            for item in report["dearest_values"]
        ]
    if report["findings"]:
        lines += ["", "why"]
        for finding in report["findings"]:
            lines.append(f"  {finding['severity']}: {words_of(finding['code'])}, in {finding['items']} items")
            lines += [clip(f"    {shown(text)}", WIDTH) for text in finding["examples"][:1]]
            lines += [f"    {line}" for text in finding["remedies"] for line in wrapped(f"to do: {text}", WIDTH - 4)]
    if report["invalid"]:
        lines += ["", "not valid"]
        lines += [
            clip(f"  {shown(item['custom_id'])}: {'; '.join(item['errors'])}", WIDTH) for item in report["invalid"]
        ]
    if report["outliers"]:
        lines += ["", "outliers"]
        lines += [
            clip(f"  {outlier['tax_nats']:8.2f} nats  {shown(outlier['custom_id'])}  {_trace(outlier)}", WIDTH)
            for outlier in report["outliers"]
        ]
    return lines


def _trace(item: dict[str, Any]) -> str:
    return f"espalier trace show {item['trace_id']}" if "trace_id" in item else f"line {item['line']}"


def _word_counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in counts.items())
