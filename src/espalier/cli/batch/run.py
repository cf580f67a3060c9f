"""`espalier batch run` and `espalier batch worker`: batches on a model in this process, without HTTP.

A run keeps its state in the folder OUT.batch until it is finished, so the same command goes on after an interruption,
and nothing that has an answer is run again. The output is written at the end, whole.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import shutil
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from espalier import api
from espalier.cli import output
from espalier.cli.batch.cluster import Cluster, work_on_ray
from espalier.cli.batch.progress import BatchProgress
from espalier.cli.batch.stopping import end_if, shown, stopped_by_signals, until_done
from espalier.cli.batch.store import folder_of, known
from espalier.cli.flags.answer import AnswerFlags
from espalier.cli.flags.constraint import ConstraintFlags
from espalier.cli.flags.groups import with_flags
from espalier.cli.flags.model import EngineFlags, Model, load
from espalier.cli.flags.safety import SafetyFlags
from espalier.cli.flags.server import EnvFile, read_server
from espalier.cli.flags.store import app_with_store
from espalier.cli.flags.words import WordFlags
from espalier.errors import InputError
from espalier.files.writing import replaced
from espalier.jobs.formats.rows import GOES_ON, format_of, read_rows, write_rows
from espalier.jobs.formats.template import CHAT, Template, answered, encoded, templated, with_shared
from espalier.jobs.states import OPEN_BATCHES, BatchState
from espalier.optional import check_extra
from espalier.wiring import build_app

if TYPE_CHECKING:
    from espalier.jobs.values import Batch
    from espalier.store.batches.open import BatchStore

CALLER = "local"
LOCAL, OPENAI, RAY = "local", "openai", "ray"
OTHER_THREADS = 8
"""How many threads the default pool has beside those that wait for another server."""
REPORT = ".report.json"
TRACES = ".traces.db"
ALL_TRACES = {"TRACE_LEVEL": "steps", "KEEP_TRACES": "forever"}
ASKED_TRACES = {"TRACE_LEVEL": "asked", "KEEP_TRACES": "forever"}


@with_flags
def command(
    *,
    source: Annotated[Path, typer.Option("-i", "--input", help="JSON Lines, CSV or Parquet, by its name.")],
    out: Annotated[Path, typer.Option("-o", "--output", help="JSON Lines, CSV or Parquet, by its name.")],
    model: Model = None,
    template: Annotated[
        str | None, typer.Option(help="Prompt of each row: 'Classify: {text}'.", metavar="TEXT")
    ] = None,
    system: Annotated[str | None, typer.Option(help="System message, with a template.")] = None,
    endpoint: Annotated[str, typer.Option(help="The route of every line.")] = CHAT,
    constraint: ConstraintFlags,
    safety: SafetyFlags,
    vocab: WordFlags,
    max_tokens: Annotated[int | None, typer.Option(help="Tokens of an answer.", min=1)] = None,
    temperature: Annotated[float | None, typer.Option(help="0: the likeliest token.", min=0)] = None,
    seed: Annotated[int | None, typer.Option(help="Of the random generator of every item.")] = None,
    body: Annotated[str | None, typer.Option(help="Further fields of every body.", metavar="JSON")] = None,
    executor: Annotated[
        str, typer.Option(help="local: a model in this process; openai: the server at --url; ray.", metavar="NAME")
    ] = LOCAL,
    address: Annotated[
        str | None, typer.Option(help="Of the Ray cluster: host:port, auto. [default: RAY_ADDRESS, or a new one here]")
    ] = None,
    replicas: Annotated[int | None, typer.Option(help="Ray actors, each with the model. [default: 1]", min=1)] = None,
    cpus: Annotated[float | None, typer.Option(help="Cores that an actor reserves. [default: 1]", min=0.01)] = None,
    gpus: Annotated[float | None, typer.Option(help="GPUs of an actor, or a part. [default: 0]", min=0)] = None,
    pipeline: Annotated[
        int | None, typer.Option(help="Items that run at once, with Ray on each actor. [default: 16]", min=1)
    ] = None,
    tries: Annotated[
        int | None, typer.Option(help="How often an item is tried that fails for now. [default: 3]", min=1)
    ] = None,
    traces: Annotated[bool, typer.Option("--traces", help="Keep the trace of every item, in OUT.traces.db.")] = False,
    restart: Annotated[bool, typer.Option("--restart", help="Forget what an earlier run has finished.")] = False,
    env_file: EnvFile = None,
    engine: EngineFlags,
) -> None:
    """Run every line of a file and write the answers in its order. Interrupted, the same command goes on.

    A file of requests (custom_id, method, url, body) is taken as it is; rows of a table become requests by --template.
    The constraint of the flags holds for every item that has none of its own.
    Beside OUT there is OUT.report.json: see `espalier batch report OUT`. Exit code 1 if an item failed, or its answer
    is not valid, or was cut."""
    check_extra("server")
    from espalier.jobs.report import is_good  # noqa: PLC0415

    cluster = _cluster(executor, address=address, replicas=replicas, cpus=cpus, gpus=gpus, traces=traces)
    engine = _executor(executor, engine)
    format_of(out)
    wanted = AnswerFlags(constraint=constraint, safety=safety, vocab=vocab)
    shared = _shared_fields(max_tokens, temperature, seed, body)
    ours = _constraint_fields(wanted)
    if ours:
        shared["espalier"] = {**shared.get("espalier", {}), **ours}
    made = None if template is None else Template(text=template, system=system, shared=shared, endpoint=endpoint)
    if made is None and (system is not None or format_of(source) != ".jsonl"):
        raise InputError("rows of a table need a prompt", hint="--template 'Classify: {text}'", field="template")
    folder = folder_of(out)
    if restart:
        shutil.rmtree(folder, ignore_errors=True)
    key = _key(source, [template, system, endpoint, shared])
    database = folder / "jobs.db"
    flags = {
        "DATABASE_URL": f"sqlite:///{database.absolute()}",
        "BATCH_JOB_TEMP_DIR": str(folder / "files"),
        "MAX_BODY_BYTES": "8000000",
        "BATCH_OUTPUT_BYTES": "none",  # the disk is the user's own
        **(ALL_TRACES if traces else ASKED_TRACES),
        **({} if pipeline is None else {"BATCH_JOB_PIPELINE_SIZE": str(pipeline)}),
        **({} if tries is None else {"BATCH_TRIES": str(tries)}),
    }
    environment, settings = read_server(flags, env_file)
    with replaced_error(folder):
        folder.mkdir(parents=True, exist_ok=True)
    from espalier.server.process.opening import open_batches  # noqa: PLC0415  # the extra [server]
    from espalier.store.open import open_store  # noqa: PLC0415

    kept, repairs = open_store(settings.database_url), None
    try:
        store = open_batches(kept, settings)
        batch = _find_or_submit(store, source, made, shared, endpoint, key, folder)
        if batch.state in OPEN_BATCHES and cluster is not None:
            with BatchProgress() as progress:
                work_on_ray(cluster, environment, settings, store, model, engine, progress, batch.id)
        elif batch.state in OPEN_BATCHES:
            with load(model, engine, build_app()) as loaded, BatchProgress() as progress:
                asyncio.run(_work(loaded, settings, kept, batch.id, progress))
                repairs = getattr(loaded.engine, "repairs", None)
        batch = known(store, batch.id)
        if batch.state != BatchState.COMPLETED:
            faults = [f"line {error.line}: {error.message}" if error.line else error.message for error in batch.errors]
            shutil.rmtree(folder, ignore_errors=True)
            for fault in faults[1:20]:
                output.note(fault)
            raise InputError(f"{source}: {faults[0] if faults else batch.state}", field="input")
        checked = {} if repairs is None else repairs.to_json()
        report = _write(store, batch, source, out, checked, is_table=made is not None)
    finally:
        kept.close()
    if any("trace_id" in item for item in (*report["outliers"], *report["invalid"])):
        with replaced_error(folder):
            database.replace(out.with_name(out.name + TRACES))
        output.note(f"traces: --database sqlite:///{out.with_name(out.name + TRACES).absolute()}")
    shutil.rmtree(folder, ignore_errors=True)
    output.note(f"{report['answers']}: {out}")
    output.note(f"espalier batch report {out}")
    raise typer.Exit(0 if is_good(report) else 1)


@with_flags
def worker_command(
    *,
    model: Model = None,
    database_url: Annotated[str | None, typer.Option("--database", help="The store. [default: DATABASE_URL]")] = None,
    pipeline: Annotated[int | None, typer.Option(help="Items that run at once.", min=1)] = None,
    until_idle: Annotated[bool, typer.Option("--until-idle", help="End when no batch is open.")] = False,
    env_file: EnvFile = None,
    engine: EngineFlags,
) -> None:
    """Work on the batches of the store until a signal. Any number of workers and servers share one store."""
    check_extra("server")
    flags = {} if database_url is None else {"DATABASE_URL": database_url}
    flags |= {} if pipeline is None else {"BATCH_JOB_PIPELINE_SIZE": str(pipeline)}
    _, settings = read_server(flags, env_file)
    from espalier.store.open import open_store  # noqa: PLC0415

    store = open_store(settings.database_url)
    try:
        with load(model, engine, build_app()) as loaded:
            output.note(f"working with {loaded.name}; Ctrl-C gives running items back")
            asyncio.run(_work(loaded, settings, store, None, None, until_idle=until_idle))
    finally:
        store.close()


async def _work(
    loaded: api.LoadedEngine,
    settings: Any,
    kept: Any,
    batch_id: str | None,
    progress: BatchProgress | None,
    *,
    until_idle: bool = True,
) -> None:
    """Run a worker on the store: until nothing is open, or until a signal."""
    from espalier.server.batching.working import keep_working, make_worker  # noqa: PLC0415
    from espalier.server.process.opening import Parts, open_batches, open_process  # noqa: PLC0415

    parts = Parts(app=app_with_store(), engine=loaded, store=kept)
    # A request to another server waits in a thread, and Python's own pool has few where there are few cores.
    threads = ThreadPoolExecutor(settings.batch_job_pipeline_size + OTHER_THREADS, thread_name_prefix="espalier-wait")
    asyncio.get_running_loop().set_default_executor(threads)
    stopped = stopped_by_signals()
    async with open_process(settings, parts, ()) as process:
        store = open_batches(kept, settings)
        worker = make_worker(process, store)
        worker.until_idle = True
        if not until_idle:
            work = keep_working(process, store)
        else:
            work = worker.run() if progress is None else shown(worker, store, str(batch_id), progress)
        await until_done(work, stopped)
    end_if(stopped, goes_on=progress is not None)


def _find_or_submit(
    store: BatchStore,
    source: Path,
    template: Template | None,
    shared: dict[str, Any],
    endpoint: str,
    key: str,
    folder: Path,
) -> Batch:
    """The batch of an earlier run of the same command, or a new one."""
    from espalier.jobs.values import BatchPlan  # noqa: PLC0415

    before = store.batches.page(caller=None, limit=1)
    if before:
        if (before[0].plan.metadata or {}).get("run") != key:
            raise InputError(
                f"{folder} holds an unfinished run of another input or template",
                hint="finish that one with its own command, or forget it with --restart",
                field="output",
            )
        done = before[0].counts
        output.note(f"going on: {done.completed + done.failed} of {done.total} have ended")
        return before[0]
    rows = read_rows(source)
    lines = with_shared(rows, shared) if template is None else templated(rows, template)
    with store.files.writing() as file:
        for line in encoded(lines):
            with replaced_error(store.files.folder):
                file.write(line)
        row = store.files.add(file, caller=CALLER, filename=source.name)
    plan = BatchPlan(caller=CALLER, endpoint=endpoint, input_file=row["id"], window=None, metadata={"run": key})
    return store.batches.create(plan)


def _write(
    store: BatchStore, batch: Batch, source: Path, out: Path, checked: dict[str, Any], *, is_table: bool
) -> dict[str, Any]:
    """Write the output and the report, which is returned. checked: what came of answers that another server gave."""
    from espalier.jobs.report import report_of  # noqa: PLC0415

    lines = store.results.lines(batch.id, "all")
    if not is_table and format_of(out) == ".jsonl":
        with replaced(out, hint=GOES_ON) as temporary, temporary.open("wb") as file:
            file.writelines(lines)
    else:
        write_rows(out, _rows(read_rows(source), lines, store.results.figures(batch.id)))
    report = report_of(store.results.figures(batch.id)) | ({"checked": checked} if checked else {})
    for kind, check in checked.items():
        how = "sent to the server and checked" if check["sent"] else "not sent, only checked"
        output.note(
            f"{kind}: {how}: {check['answers']} answers, {check['again']} asked for again, "
            f"{check['broken']} never valid"
        )
    with replaced(out.with_name(out.name + REPORT), hint=GOES_ON) as temporary:
        temporary.write_text(json.dumps(report, indent=1), encoding="ascii")
    return report


def _rows(
    rows: Iterator[dict[str, Any]], lines: Iterator[bytes], figures: Iterator[Mapping[str, Any]]
) -> Iterator[dict[str, Any]]:
    for row, line, item in zip(rows, lines, figures, strict=True):
        columns = {name: value for name, value in row.items() if name not in ("method", "url", "body")}
        yield answered(columns, json.loads(line), item)


@contextlib.contextmanager
def replaced_error(folder: Path) -> Iterator[None]:
    """Errors of writing there, as ours."""
    from espalier.store.batches.files import writable  # noqa: PLC0415  # the extra [server]

    with writable(folder):
        yield


def _key(source: Path, options: list[Any]) -> str:
    """A digest of the input and of what its requests are made with."""
    digest = hashlib.blake2b(json.dumps(options, sort_keys=True).encode(), digest_size=16)
    try:
        with source.open("rb") as file:
            while piece := file.read(1 << 20):
                digest.update(piece)
    except OSError as error:
        raise InputError(f"cannot read {str(source)!r}: {error.strerror}", field="input") from error
    return digest.hexdigest()


def _executor(name: str, engine: dict[str, Any]) -> dict[str, Any]:
    """The flags of the engine with what the executor implies. Raises InputError."""
    if name in (LOCAL, RAY):
        return engine
    if name != OPENAI:
        raise InputError(f"there is no executor {name!r}", hint=f"one of: {LOCAL}, {OPENAI}, {RAY}", field="executor")
    if not engine.get("url"):
        raise InputError("the address of the server is missing", hint="--url http://host:8000", field="url")
    if engine.get("engine") not in (None, OPENAI):
        raise InputError(
            "another engine than that of the executor was named", hint="leave --engine out", field="engine"
        )
    return {**engine, "engine": OPENAI}


def _cluster(executor: str, *, traces: bool, **given: Any) -> Cluster | None:
    """What is asked of a Ray cluster. Raises InputError, MissingDependency."""
    named = {name: value for name, value in given.items() if value is not None}
    if executor != RAY:
        if named:
            raise InputError(f"--{next(iter(named))} is for --executor ray", field=next(iter(named)))
        return None
    check_extra("ray")
    if traces:
        raise InputError(
            "with --executor ray no traces are kept: the actors, on any machine, open no database",
            hint='"espalier": {"trace": "summary"} in a body puts the trace into its answer',
            field="traces",
        )
    return Cluster(**named)


def _constraint_fields(wanted: AnswerFlags) -> dict[str, Any]:
    """Fields of the `espalier` of a body for what the flags ask for, which is checked here. Raises InputError and its
    kin, UnsupportedError."""
    app = app_with_store()
    request = api.make_request("", **wanted.options(app))
    fields: dict[str, Any] = {} if request.constraint is None else {"constraint": request.constraint.to_json()}
    if request.soft:
        fields["soft"] = [soft.to_json() for soft in request.soft]
    if wanted.constraint.schema is not None and wanted.constraint.schema_format is not None:
        fields["formats"] = wanted.constraint.schema_format
    return fields


def _shared_fields(
    max_tokens: int | None, temperature: float | None, seed: int | None, body: str | None
) -> dict[str, Any]:
    """Fields of every body."""
    fields: dict[str, Any] = {}
    if body is not None:
        try:
            fields = json.loads(body)
        except ValueError as error:
            raise InputError(f"--body is not JSON: {error}", field="body") from error
        if not isinstance(fields, dict):
            raise InputError("--body is no JSON object", field="body")
    given = {"max_tokens": max_tokens, "temperature": temperature, "seed": seed}
    return fields | {name: value for name, value in given.items() if value is not None}
