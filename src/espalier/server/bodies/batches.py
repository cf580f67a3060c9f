"""The bodies of batch routes, and the replies, as OpenAI has them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, StringConstraints

from espalier.jobs.states import BatchState
from espalier.jobs.values import Batch
from espalier.server.bodies.base import Body

PAIRS = 16
MOST_PARTS = 10_000
Key = Annotated[str, StringConstraints(min_length=1, max_length=64)]
Text = Annotated[str, StringConstraints(max_length=512)]
LEAST_SECONDS, MOST_SECONDS = 3600, 2_592_000
"""How long OpenAI lets files be kept that expire."""
TIMES = ("in_progress", "finalizing", "completed", "failed", "expired", "cancelling", "cancelled")


class OutputExpiry(Body):
    anchor: Literal["created_at"]
    seconds: int = Field(ge=LEAST_SECONDS, le=MOST_SECONDS)


class BatchOptions(Body):
    """priority: higher ones are run first. paused: begins when it is resumed."""

    priority: int = Field(default=0, ge=-1_000_000, le=1_000_000)
    paused: bool = False


class BatchBody(Body):
    input_file_id: str
    endpoint: str
    completion_window: Annotated[str, StringConstraints(pattern=r"^[1-9][0-9]{0,2}h$")] = "24h"
    metadata: dict[Key, Text] | None = Field(default=None, max_length=PAIRS)
    output_expires_after: OutputExpiry | None = None
    espalier: BatchOptions | None = None


class PriorityBody(Body):
    priority: int = Field(ge=-1_000_000, le=1_000_000)


class UploadBody(Body):
    """bytes: of all parts together. mime_type: a hint."""

    bytes: int = Field(ge=1)
    filename: Annotated[str, StringConstraints(min_length=1, max_length=255)]
    purpose: Literal["batch"]
    mime_type: str | None = None
    expires_after: OutputExpiry | None = None


class CompleteBody(Body):
    """part_ids: in the order of the file. md5: of the whole file, in hexadecimal."""

    part_ids: list[str] = Field(min_length=1, max_length=MOST_PARTS)
    md5: str | None = None


def shown_file_id(file_id: str | None) -> str | None:
    """`file_…` of the store as `file-…`."""
    return None if file_id is None else file_id.replace("_", "-", 1)


def inner_file_id(shown: str) -> str:
    return shown.replace("-", "_", 1) if shown.startswith("file-") else shown


def file_json(row: Mapping[str, Any]) -> dict[str, Any]:
    """OpenAI's file object."""
    return {
        "id": shown_file_id(row["id"]),
        "object": "file",
        "bytes": int(row["bytes"]),
        "created_at": int(row["created"]),
        "expires_at": None if row["expires"] is None else int(row["expires"]),
        "filename": row["filename"],
        "purpose": row["purpose"],
        "status": "processed",
        "status_details": None,
    }


def batch_json(batch: Batch) -> dict[str, Any]:
    """OpenAI's batch object. The key `espalier` is there where something of ours is."""
    window = batch.plan.window
    data: dict[str, Any] = {
        "id": batch.id,
        "object": "batch",
        "endpoint": batch.plan.endpoint,
        "errors": None,
        "input_file_id": shown_file_id(batch.plan.input_file),
        "completion_window": None if window is None else f"{window / 3600:g}h",
        "status": str(batch.state),
        "output_file_id": shown_file_id(batch.output_file),
        "error_file_id": shown_file_id(batch.error_file),
        "created_at": int(batch.created),
        "expires_at": None if batch.expires is None else int(batch.expires),
        **{f"{name}_at": int(batch.at[name]) if name in batch.at else None for name in TIMES},
        "request_counts": {
            "total": batch.counts.total,
            "completed": batch.counts.completed,
            "failed": batch.counts.failed + batch.counts.stopped * (batch.state == BatchState.EXPIRED),
        },
        "metadata": None if batch.plan.metadata is None else dict(batch.plan.metadata),
        "model": batch.model,
        "usage": None,
    }
    if batch.errors:
        data["errors"] = {"object": "list", "data": [error.to_json() for error in batch.errors]}
    if batch.usage is not None:
        # Of a batch the parts of the sums are not counted, and clients expect the fields.
        details = {"input_tokens_details": {"cached_tokens": 0}, "output_tokens_details": {"reasoning_tokens": 0}}
        data["usage"] = {**batch.usage, **details}
    ours: dict[str, Any] = {}
    if batch.plan.priority or batch.is_paused:
        ours |= {"priority": batch.plan.priority, "paused": batch.is_paused}
    if batch.counts.invalid:  # OpenAI's counts have no place for it
        ours["invalid"] = batch.counts.invalid
    return {**data, "espalier": ours} if ours else data
