"""`espalier costs try`: runs kept prompts again, as they were asked and with each remedy, and says which one helps; and
estimates that from kept answers.

`harness/compare/` makes the edits and measures; this module reads the store and prints.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, cast

import typer

from espalier.api.loaded import LoadedEngine
from espalier.api.replaying import sampling_fields
from espalier.chat.prompt.insertion import with_schema
from espalier.chat.prompt.texts import schema_text
from espalier.cli import output
from espalier.cli.costs.window import Since, WindowFlags, window_of
from espalier.cli.flags.groups import with_flags
from espalier.cli.flags.model import EngineFlags, Model, load
from espalier.cli.progress import counting
from espalier.cli.trace.read import DatabaseUrl, store_at
from espalier.constraints.spec import JsonSchema, Spec
from espalier.engines.base import Request
from espalier.engines.local.turns import schema_of_spec
from espalier.errors import InputError, UnknownName
from espalier.harness.compare.estimating import TaxEstimate, estimate_lines, estimated
from espalier.harness.compare.remedies import How, Trial, Variant, changed, trials_text, try_variants
from espalier.harness.compare.schema_edits import SchemaEdit, WantedAt, patches, schema_edits
from espalier.harness.compare.whole_words import whole_words
from espalier.sampling.config import SamplingConfig
from espalier.store.costs.report import PathWindow
from espalier.store.trace_filter import TraceFilter
from espalier.trace.files import write_text
from espalier.trace.records import Trace
from espalier.trace.report.findings import BOUNDED_WHITESPACE, NATURAL_LAYOUT, SHOW_THE_SCHEMA, Remedy
from espalier.wiring import build_app

if TYPE_CHECKING:
    from espalier.store.open import Store

PROMPTS = 20
MOST_EDITS = 6
"""Edits of the schema that are tried."""
MOST_TOKENS = 400
"""Of each run, where the trace had no lower limit."""
PAGE = 100


@with_flags
def try_command(
    fingerprint: Annotated[str, typer.Argument(help="Of a JSON Schema, as `costs list` shows it.", show_default=False)],
    *,
    count: Annotated[int, typer.Option("--n", help="How many kept prompts.", min=1, metavar="N")] = PROMPTS,
    since: Since = "30d",
    patch: Annotated[
        str | None,
        typer.Option(help="Write the edits as JSON: RFC 6902 patches, whole schemas for orders.", metavar="FILE"),
    ] = None,
    database: DatabaseUrl = None,
    estimate: Annotated[bool, typer.Option("--estimate", help="Only estimate, without a model.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
    model: Model = None,
    engine: EngineFlags,
) -> None:
    """Run kept prompts of a schema again, each as asked and with every remedy: the whitespace, edits of the schema that
    the tokens which the model wanted speak for, and the schema in the prompt. Pairs share prompt and seed. First what
    changes the schema alone is estimated from the steps of the kept answers. Exit code 0: one helps; 1: none."""
    window = window_of(WindowFlags(since=since))
    with store_at(database) as store:
        schema = _schema_of(store, fingerprint)
        wanted = _wanted(store.cost_paths(window, fingerprint))
        traces = _kept(store, TraceFilter(constraint=fingerprint, since=window.since), count)
    asked = [_request(trace, schema) for trace in traces]
    is_run = not estimate and (
        any(True for _ in _changes(schema, _edits(schema, wanted))) or not _is_shown(schema, asked)
    )
    if is_run:
        with load(model, engine, build_app()) as loaded, counting("runs") as progress:
            attempt = Attempt.of(schema, whole_words(wanted, traces, loaded.run), traces)
            _say_estimates(attempt, as_json=as_json)
            variants = [
                Variant(each.remedy, each.said, partial(_with, each.constraint, asked)) for each in attempt.changes
            ]
            variants += _showing(schema, asked, loaded)
            attempt = attempt._replace(trials=try_variants(asked, variants, run=loaded.run, seeds=1, progress=progress))
    else:
        attempt = Attempt.of(schema, wanted, traces)
        _say_estimates(attempt, as_json=as_json)
    if patch is not None:
        write_text(Path(patch), json.dumps(list(patches(attempt.edits)), ensure_ascii=False, indent=2) + "\n")
        output.note(f"edits: {patch}")
    if as_json:
        said = [
            {"action": change.remedy.action, "how": change.said("cli"), **own.to_json()}
            for change, own in zip(attempt.changes, attempt.estimates, strict=True)
        ]
        shown = {
            "prompts": len(traces),
            "estimates": said,
            "trials": [trial.to_json("cli") for trial in attempt.trials],
        }
        output.data_json(shown)
    elif not attempt.changes and not attempt.trials:
        output.data("Nothing to try: what the model wanted speaks for no edit of the schema.")
    elif not estimate:
        for line in _lines(attempt.trials, prompts=len(traces)):
            output.data(line)
    helps = [own.is_lower for own in attempt.estimates] if estimate else [trial.helps for trial in attempt.trials]
    raise typer.Exit(0 if any(helps) else 1)


class ChangedSchema(NamedTuple):
    """A remedy and the constraint that it makes. said: what it changes, in the words of an edge."""

    remedy: Remedy
    said: How
    constraint: Spec


class Attempt(NamedTuple):
    """What a command has found: edits of the schema, the changes that they and the whitespace make, an estimate of each
    change, and the trials with the model."""

    edits: Sequence[SchemaEdit]
    changes: Sequence[ChangedSchema]
    estimates: Sequence[TaxEstimate]
    trials: Sequence[Trial] = ()

    @classmethod
    def of(cls, schema: JsonSchema, wanted: Sequence[WantedAt], traces: Sequence[Trace]) -> Attempt:
        """What can be found without a model."""
        edits = _edits(schema, wanted)
        changes = list(_changes(schema, edits))
        return cls(edits, changes, [estimated(traces, schema, change.constraint) for change in changes])


def _edits(schema: JsonSchema, wanted: Sequence[WantedAt]) -> Sequence[SchemaEdit]:
    return schema_edits(cast(Mapping[str, Any], schema.schema), wanted)[:MOST_EDITS]


def _say_estimates(attempt: Attempt, *, as_json: bool) -> None:
    if attempt.changes and not as_json:
        said = [change.said("cli") for change in attempt.changes]
        for line in estimate_lines(list(zip(said, attempt.estimates, strict=True))):
            output.data(line)


def _schema_of(store: Store, fingerprint: str) -> JsonSchema:
    """Raises UnknownName, and InputError for what is no JSON Schema or was not kept."""
    known = store.cost_constraint(fingerprint, caller=None)
    if known is None:
        raise UnknownName(f"no answer of the constraint {fingerprint!r:.80} is in the sums", field="fingerprint")
    if known["spec"] is None:
        raise InputError(
            "the schema was not kept", hint="serve with --trace-texts yes, so that it is", field="fingerprint"
        )
    spec = Spec.from_json(json.loads(known["spec"]))
    if not isinstance(spec, JsonSchema) or not isinstance(spec.schema, dict):
        raise InputError(f"remedies are tried for JSON Schemas; this is {known['kind']}", field="fingerprint")
    return spec


def _wanted(paths: Sequence[PathWindow]) -> list[WantedAt]:
    return [WantedAt(path.path, row.wanted, row.taken, row.tax) for path in paths for row in path.wanted]


def _kept(store: Store, wanted: TraceFilter, count: int) -> list[Trace]:
    """The newest traces with different prompts. Raises InputError where none has kept its prompt."""
    kept: dict[str, Trace] = {}
    after: str | None = None
    while len(kept) < count:
        page = store.traces(replace(wanted, after=after), limit=PAGE)
        for row in page:
            body = store.trace(row["id"], caller=None)
            trace = None if body is None else Trace.from_json(body)
            if trace is not None and trace.prompt and len(kept) < count:
                kept.setdefault(trace.prompt, trace)
        if len(page) < PAGE:
            break
        after = page[-1]["id"]
    if not kept:
        raise InputError(
            "no answer of it with its prompt is kept",
            hint="serve with --trace-texts yes; --since 90d looks further back",
            field="fingerprint",
        )
    return list(kept.values())


def _request(trace: Trace, schema: JsonSchema) -> Request:
    """The request of a trace, with its prompt as the model got it, and its own seed. Raises what SamplingConfig
    raises for a field that it does not know."""
    config = SamplingConfig.from_json(sampling_fields(trace))
    seed = 0 if config.seed is None else config.seed
    config = replace(config, seed=seed, n=1, max_tokens=min(config.max_tokens, MOST_TOKENS))
    return Request(prompt=trace.prompt, raw=True, constraint=schema, sampling=config, trace="summary")


def _changes(schema: JsonSchema, edits: Sequence[SchemaEdit]) -> Iterator[ChangedSchema]:
    for remedy in (BOUNDED_WHITESPACE, NATURAL_LAYOUT):
        plan = changed(remedy, {"constraint": schema})
        if plan is not None and plan[1]["constraint"] != schema:
            yield ChangedSchema(remedy, plan[0], plan[1]["constraint"])
    for edit in edits:
        remedy = Remedy(action=edit.action, about=edit.about)
        yield ChangedSchema(remedy, remedy.said, Spec.from_json(schema.to_json() | {"schema": edit.schema}))


def _with(constraint: Spec, asked: Sequence[Request]) -> list[Request]:
    return [replace(request, constraint=constraint) for request in asked]


def _is_shown(schema: JsonSchema, asked: Sequence[Request]) -> bool:
    text = schema_text(schema_of_spec(schema))
    return all(text in (request.prompt or "") for request in asked)


def _showing(schema: JsonSchema, asked: Sequence[Request], loaded: LoadedEngine) -> list[Variant]:
    """The schema in the prompts, unless they have it."""
    shown = schema_of_spec(schema)
    plan = changed(SHOW_THE_SCHEMA, {"constraint": schema})
    if plan is None or _is_shown(schema, asked):
        return []

    def render(messages: Sequence[Mapping[str, Any]], has_schema: bool) -> str:
        (request,), _ = loaded.requests(messages, constraint=schema, schema_in_prompt=has_schema)
        return loaded.engine.prompt_text(request)

    def make() -> list[Request]:
        prompts = with_schema([request.prompt or "" for request in asked], shown, render)
        if None in prompts:
            raise InputError(f"a kept prompt is not as the chat template of {loaded.name} writes", field="prompt")
        return [replace(request, prompt=prompt) for request, prompt in zip(asked, prompts, strict=True)]

    return [Variant(SHOW_THE_SCHEMA, plan[0], make)]


def _lines(trials: Sequence[Trial], *, prompts: int) -> Iterator[str]:
    yield f"Attempt on {prompts} kept prompts."
    yield from list(trials_text(trials, seeds=1))[1:]
