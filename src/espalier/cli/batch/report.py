"""`espalier batch report`: what a batch cost, where, why, and what to do: on the terminal, as JSON, as a page."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Annotated, Any

import typer

from espalier.cli import output
from espalier.cli.batch.store import folder_of, known, opened
from espalier.cli.columns import WIDTH, clip, shown, wrapped
from espalier.cli.flags.server import EnvFile
from espalier.errors import InputError
from espalier.files.limits import TRACE
from espalier.files.reading import read_text
from espalier.trace.files import write_text

PATHS = 12
SUFFIX = ".report.json"


def command(
    source: Annotated[str, typer.Argument(help="The output of `espalier batch run`, or a batch's id.", metavar="OUT")],
    as_json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
    html: Annotated[Path | None, typer.Option(help="Write a page.", metavar="FILE")] = None,
    database_url: Annotated[str | None, typer.Option("--database", help="The store, for a batch's id.")] = None,
    env_file: EnvFile = None,
) -> None:
    """Verdicts, costs by path over all items, the dearest values, findings with remedies, and outliers."""
    found = read(source, database_url, env_file)
    if html is not None:
        from espalier.jobs.report_page import render  # noqa: PLC0415

        write_text(html, render(found))
        output.note(f"page: {html}")
    if as_json:
        output.data_json(found)
    elif html is None:
        output.data("\n".join(screen(found)))


def read(source: str, database_url: str | None, env_file: str | None) -> dict[str, Any]:
    """The report of a finished run, of a run that was interrupted, or of a batch in the store."""
    path = Path(source)
    if path.with_name(path.name + SUFFIX).is_file():
        found = json.loads(read_text(path.with_name(path.name + SUFFIX), TRACE))
        if not isinstance(found, dict) or "verdicts" not in found:
            raise InputError(f"{path.name}{SUFFIX} is no report", field="report")
        return found
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


def screen(found: dict[str, Any]) -> list[str]:
    """The report in 80 columns."""
    items, verdicts, tokens = found["items"], found["verdicts"], found["tokens"]
    lines = [
        "items     " + _word_counts(items),
        "verdicts  " + (_word_counts(verdicts) or "none"),
        *(
            ["          broken: the text breaks what was called enforced, a fault of Espalier: report it"]
            if verdicts.get("broken")
            else []
        ),
        f"tokens    {tokens['prompt']} of prompts, {tokens['completion']} of answers",
        f"cost      {found['tax_nats']:.2f} nats of tax, {found['tax_nats_per_token']:.3f} a token; removed mass "
        f"{found['removed_mass']:.1%}",
        f"          rejected {found['rejected_rate']:.1%} of drawn tokens, changed {found['changed_share']:.1%}",
    ]
    if found["errors"]:
        lines.append("errors    " + _word_counts(found["errors"]))
    if found["by_path"]:
        lines += ["", f"{'path':<34}{'items':>8}{'tokens':>10}{'nats':>12}{'removed':>12}"]
        for path, one in list(found["by_path"].items())[:PATHS]:
            name = clip(shown(path) or "(its keys and punctuation)", 33)
            lines.append(
                f"{name:<34}{one['items']:>8}{one['tokens']:>10.0f}{one['tax_nats']:>12.2f}{one['removed_mass']:>12.1%}"
            )
        if len(found["by_path"]) > PATHS:
            lines.append(f"and {len(found['by_path']) - PATHS} more: --json")
    if found["dearest_values"]:
        lines += ["", "dearest values"]
        lines += [
            clip(
                f"  {one['tax_nats']:8.2f} nats  {shown(one['custom_id'])}  {one['path']} = {shown(one['value'])}",
                WIDTH,
            )
            for one in found["dearest_values"]
        ]
    if found["findings"]:
        lines += ["", "why"]
        for one in found["findings"]:
            lines.append(f"  {one['severity']}: {one['code']} in {one['items']} items")
            lines += [clip(f"    {shown(text)}", WIDTH) for text in one["examples"][:1]]
            lines += [f"    {line}" for text in one["remedies"] for line in wrapped(f"to do: {text}", WIDTH - 4)]
    if found["invalid"]:
        lines += ["", "not valid"]
        lines += [clip(f"  {shown(one['custom_id'])}: {'; '.join(one['errors'])}", WIDTH) for one in found["invalid"]]
    if found["outliers"]:
        lines += ["", "outliers"]
        lines += [
            clip(f"  {one['tax_nats']:8.2f} nats  {shown(one['custom_id'])}  {_trace(one)}", WIDTH)
            for one in found["outliers"]
        ]
    return lines


def _trace(one: dict[str, Any]) -> str:
    return f"espalier trace show {one['trace_id']}" if "trace_id" in one else f"line {one['line']}"


def _word_counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in counts.items())
