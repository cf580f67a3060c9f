"""`espalier activations`: captures hidden states into a store, and shows, exports and keeps such stores."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from espalier import api
from espalier.activations.foreign.salvage import salvage_pair
from espalier.activations.join import JoinedToken, join
from espalier.activations.store import care
from espalier.activations.store.base import ActivationStore
from espalier.activations.store.export import FORMS, export
from espalier.activations.store.record import RequestRecord
from espalier.cli import output
from espalier.cli.flags.activations import CaptureFlags, trace_path
from espalier.cli.flags.constraint import ConstraintFlags
from espalier.cli.flags.decoding import DecodingFlags
from espalier.cli.flags.groups import sub_app, with_flags
from espalier.cli.flags.inputs import Raw, System
from espalier.cli.flags.model import EngineFlags, Model, load
from espalier.cli.flags.sampling import SamplingFlags, check_single
from espalier.cli.flags.store import app_with_store
from espalier.columns import shown
from espalier.engines.base import FinishEvent
from espalier.errors import InputError
from espalier.trace.records import Trace

app = sub_app("Capture hidden states, and look after their stores.")
Store = Annotated[str, typer.Argument(help="The store's folder.", metavar="STORE")]
TEXT = 40
DAY = 86_400.0


@app.callback()
def group() -> None:
    """Capture hidden states, and look after their stores."""


@app.command("capture", short_help="Generate, and store the hidden states.")
@with_flags
def capture_command(
    prompts: Annotated[list[str], typer.Argument(help="Prompts; they run as one batch.", metavar="PROMPT...")],
    *,
    store: Annotated[
        str, typer.Option("--store", "-s", help="The store's folder; made if it is new.", metavar="STORE")
    ],
    model: Model = None,
    system: System = None,
    raw: Raw = False,
    capture: CaptureFlags,
    constraint: ConstraintFlags,
    sampling: SamplingFlags,
    decoding: DecodingFlags,
    engine: EngineFlags,
) -> None:
    """Generate for each prompt, store the hidden states and the trace, and print the keys of the stored requests."""
    asked = capture.options()
    loaded_app = app_with_store()
    requests = [
        api.make_request(
            prompt,
            constraint=constraint.spec(),
            preset=sampling.preset,
            presets=loaded_app.presets,
            system=system,
            raw=raw,
            trace="steps",
            activations=asked,
            **constraint.schema_options(loaded_app),
            **sampling.fields(),
            **decoding.options(),
        )
        for prompt in prompts
    ]
    for request in requests:
        check_single(request.sampling)
    with load(model, engine, loaded_app) as loaded:
        for request in requests:
            api.check_capabilities(loaded.engine, request)
        with ActivationStore(store, write=True) as target:
            for event in loaded.engine.run(requests):
                if isinstance(event, FinishEvent):
                    for key, captured in capture.stored(target, event.result):
                        record = captured.record
                        output.data(key)
                        output.note(
                            f"{len(record.positions)} positions of {len(record.layers)} layers: {_text(record)}"
                        )


@app.command("list", short_help="List the requests of a store.")
def list_command(store: Store, as_json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False) -> None:
    """List the requests of a store, oldest first."""
    with ActivationStore(store) as source:
        if as_json:
            output.data_json([{"key": key} | _brief(source.record(key)) for key in source.keys()])  # noqa: SIM118  # no dict
            return
        for key in source.keys():  # noqa: SIM118  # no dict
            record = source.record(key)
            moment = datetime.fromtimestamp(record.timestamp, UTC).strftime("%Y-%m-%d %H:%M:%S")
            size = f"{len(record.positions)}x{record.hidden}x{len(record.layers) * len(record.sites)}"
            output.data(f"{key}  {moment}  {size} {record.dtype}  {_text(record)}")
        size_ = source.size()
        output.note(f"{size_.requests:,} requests, {size_.used:,} bytes in use, {size_.file:,} in the file")


@app.command("show", short_help="Show a request: vectors beside what the constraint did.")
def show_command(
    store: Store,
    request: Annotated[str, typer.Argument(help="A key, its beginning, or a request id.", metavar="REQUEST")],
    *,
    trace: Annotated[
        str | None, typer.Option(help="Its trace, where the store has none: a .json of --trace.", metavar="FILE")
    ] = None,
    layer: Annotated[int | None, typer.Option(help="Whose vectors; default: the last one captured.")] = None,
    site: Annotated[str | None, typer.Option(help="Whose vectors; default: the first one captured.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="As JSON, with the vectors.")] = False,
) -> None:
    """Show for each token what the model wanted, what was rejected, what the constraint cost, and the vector that the
    token was drawn from."""
    with ActivationStore(store) as source:
        key = _key(source, request)
        captured = source.captured(key)
    record = captured.record
    joined = [*join(record, _trace(Path(store).expanduser(), record, trace))]
    chosen = None
    if record.has_activations:
        name = (site or record.sites[0], record.layers[-1] if layer is None else layer)
        chosen = captured.vectors.get(name)
        if chosen is None:
            raise InputError(
                f"{name[0]} {name[1]} was not captured", hint=f"layers {list(record.layers)}", field="layer"
            )
    if as_json:
        tokens = [_json(token) | {"vector": _vector(chosen, token)} for token in joined]
        output.data_json({"key": key, "record": record.to_json(), "tokens": tokens})
        return
    output.note(
        f"{key}: {record.model}, {record.input_length} + {len(record.response_ids)} tokens, trace {record.trace_id}"
    )
    output.data(f"{'t':>4}  {'token':<14}{'wanted':<14}{'rejected':<14}{'tax':>7}  {'norm of its vector':>18}")
    for joined_token in joined:
        step = joined_token.step
        wanted = _token(step.pre_masking[0].text) if step and step.pre_masking else "-"
        rejected = _token(step.rejected.text) if step and step.rejected else "-"
        taken, tax = (_token(step.text), f"{step.tax_nats:7.3f}") if step else (str(joined_token.token_id), f"{'-':>7}")
        vector = _vector(chosen, joined_token)
        norm = "-" if vector is None else f"{sum(x * x for x in vector) ** 0.5:.3f}"
        output.data(f"{joined_token.token:>4}  {taken:<14}{wanted:<14}{rejected:<14}{tax}  {norm:>18}")


@app.command("verify", short_help="Find damage in a store.")
def verify_command(store: Store) -> None:
    """Read every record and every chunk: checksums, shapes, indices. The exit code is 1 if anything is wrong."""
    with ActivationStore(store) as source:
        faults = 0
        for fault in care.verify(source):
            faults += 1
            output.data(f"{fault.key}: {fault.reason}")
        output.note(f"{source.size().requests:,} requests, {faults:,} faults")
    raise typer.Exit(1 if faults else 0)


@app.command("export", short_help="Write vectors for other programs.")
def export_command(
    store: Store,
    target: Annotated[str, typer.Argument(help="A new file, or a folder for Zarr.", metavar="OUTPUT")],
    form: Annotated[
        str | None, typer.Option("--format", help=f"{', '.join(FORMS)}; default: by the name.", metavar="FORM")
    ] = None,
    request: Annotated[list[str] | None, typer.Option(help="Only these; repeat it.", metavar="KEY")] = None,
) -> None:
    """Write vectors and records as safetensors, npz or Zarr, or an index of the requests as Parquet."""
    with ActivationStore(store) as source:
        keys = None if request is None else [_key(source, key) for key in request]
        count = export(source, target, form or Path(target).suffix.removeprefix("."), keys)
    output.note(f"{count:,} requests written to {target}")


@app.command("prune", short_help="Remove old requests.")
def prune_command(
    store: Store,
    *,
    older_than: Annotated[float | None, typer.Option(min=0, help="Those older than N days.", metavar="N")] = None,
    max_bytes: Annotated[int | None, typer.Option(min=0, help="The oldest, until at most N bytes are in use.")] = None,
    max_requests: Annotated[int | None, typer.Option(min=0, help="The oldest, until at most N are left.")] = None,
) -> None:
    """Remove requests, the oldest first, with their vectors and traces. `compact` then makes the file smaller."""
    if older_than is None and max_bytes is None and max_requests is None:
        raise InputError("nothing says what to remove", hint="--older-than, --max-bytes, --max-requests", field="prune")
    before = None if older_than is None else datetime.now(UTC).timestamp() - older_than * DAY
    _existing(store)
    with ActivationStore(store, write=True) as target:
        count = care.prune(target, before=before, max_bytes=max_bytes, max_requests=max_requests)
        kept = {target.record(key).trace_id for key in target.keys()}  # noqa: SIM118  # no dict
        for path in (target.path / "traces").glob("*.json"):
            if path.stem not in kept:
                path.unlink()
    output.note(f"{count:,} requests removed")


@app.command("compact", short_help="Give freed pages back to the disk.")
def compact_command(store: Store) -> None:
    """Replace the file by a compact copy. Nobody else may have the store open for writing."""
    before, after = care.compact(store)
    output.note(f"{before:,} bytes before, {after:,} after")


@app.command("salvage", short_help="Copy what is left of a damaged store.")
def salvage_command(
    store: Store,
    target: Annotated[str, typer.Argument(help="A new folder for the copy.", metavar="TARGET")],
    as_json: Annotated[bool, typer.Option("--json", help="Rows and losses as JSON.")] = False,
) -> None:
    """Copy what can still be read of a damaged LMDB store, ours or another program's, into a new one.

    The file is read page by page and never mapped, so that no damage ends the process. Each loss is listed. Of two
    environments, NAME and NAME_metadata, both are copied. Exit code 1: no row could be read.
    """
    copies = salvage_pair(store, target)
    if as_json:
        output.data_json({name: copy.to_json() for name, copy in copies.items()})
    for name, salvage_copy in copies.items():
        output.note(f"{name}: {salvage_copy.said}; losses: {len(salvage_copy.losses):,}")
        for loss in salvage_copy.losses:
            output.note(f"  {loss}")
    raise typer.Exit(0 if any(copy.rows for copy in copies.values()) else 1)


def _existing(store: str) -> None:
    """Raises InputError where there is no store: opening it for writing would make one."""
    ActivationStore(store).close()


def _key(store: ActivationStore, given: str) -> str:
    """The key that a user names by its beginning or by a request id. Raises InputError."""
    keys = [*store.keys(request_id=given)] or [key for key in store.keys() if key.startswith(given)]  # noqa: SIM118  # no dict
    if len(keys) != 1:
        raise InputError(
            f"{'no request is' if not keys else f'{len(keys)} requests are'} called {given}",
            hint="espalier activations list shows the keys",
            field="request",
        )
    return keys[0]


def _trace(store: Path, record: RequestRecord, given: str | None) -> Trace | None:
    """Raises InputError for a file that is no trace."""
    if given is not None:
        return Trace.load(given)
    if record.trace_id is None:
        return None
    path = trace_path(store, record.trace_id)
    if not path.is_file():
        output.note(f"the trace {record.trace_id} is not in the store: --trace names a file with it")
        return None
    return Trace.load(path)


def _json(token: JoinedToken) -> dict[str, Any]:
    step = token.step
    return {
        "token": token.token,
        "token_id": token.token_id,
        "own_row": token.own,
        "source_row": token.source,
        "text": step.text if step else None,
        "wanted": step.pre_masking[0].to_json() if step and step.pre_masking else None,
        "rejected": step.rejected.to_json() if step and step.rejected else None,
        "tax_nats": step.tax_nats if step else None,
    }


def _vector(values: Any, token: JoinedToken) -> list[float] | None:
    return None if values is None or token.source is None else [float(x) for x in values[token.source]]


def _brief(record: RequestRecord) -> dict[str, Any]:
    names = ("model", "timestamp", "input_length", "dtype", "request_id", "trace_id", "run_id", "prompt", "response")
    return {name: getattr(record, name) for name in names} | {
        "positions": len(record.positions),
        "layers": list(record.layers),
        "sites": list(record.sites),
        "hidden": record.hidden,
    }


def _text(record: RequestRecord) -> str:
    text = shown(record.response)
    return text if len(text) <= TEXT else text[: TEXT - 1] + "…"


def _token(text: str) -> str:
    return repr(text)[1:-1][:12]
