"""The word-list server's batch jobs, `/v1/batch/jobs`: the same routes, statuses, replies and texts.

An upload is a JSON list of requests; generation parameters come in the query and hold for all of them, unless
`per_item=true` lets an item's own count. Results keep the order of the list; a faulty item says so in its place, and
token counts are true. List, cancel and delete are ours.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, BinaryIO, Literal

from fastapi import APIRouter, Request
from pydantic import ConfigDict, ValidationError
from starlette.responses import Response

from espalier.errors import InputError
from espalier.jobs.states import BatchState
from espalier.jobs.values import Batch, BatchPlan, Kind
from espalier.server.asking.words import known_words
from espalier.server.bodies.wordlist_server import InvalidWordlistBody, WordlistParameters
from espalier.server.http.errors import ErrorShape, NotFound, shape_where
from espalier.server.http.query import AFTER, limit_of, limit_parameter, query_of
from espalier.server.http.warnings import warning_header
from espalier.server.http.wire import JsonResponse
from espalier.server.routes.batch_store import PRIVATE, batch_store, in_store, streamed, upload, wake
from espalier.server.routes.wordlist_server import wordlist_server_error
from espalier.store.batches.open import BatchStore

PREFIX = "/v1/batch/jobs"
KIND: Kind = "seed"
ACCEPTED = "Batch job accepted and queued for processing."
PENDING, PROCESSING, COMPLETED, FAILED = "pending", "processing", "completed", "failed"
STATUSES: Mapping[BatchState, str] = {
    BatchState.VALIDATING: PENDING,
    BatchState.IN_PROGRESS: PROCESSING,
    BatchState.FINALIZING: PROCESSING,
    BatchState.CANCELLING: PROCESSING,
    BatchState.COMPLETED: COMPLETED,
    BatchState.FAILED: FAILED,
    BatchState.CANCELLED: FAILED,
    BatchState.EXPIRED: FAILED,
}
"""The four statuses that the server's clients know."""
DETAIL = {"application/json": {"schema": {"type": "object", "required": ["detail"]}}}
MEANINGS = {
    400: "The file or a parameter is wrong.",
    401: "The key is missing or wrong.",
    403: "This key may not do this.",
    404: "There is no such job, or no batch jobs here.",
    405: "The route does not take this method.",
    408: "The body did not arrive in time.",
    409: "The job runs.",
    413: "The file is too large.",
    415: "The body is no form.",
    422: "A parameter is not valid; `detail` names it.",
    429: "Too many requests.",
    500: "A fault in the server.",
    503: "The server is full, starting or closing.",
    507: "The disk is full.",
}
"""Of the errors of these routes, all with the body `{"detail": ...}`."""
router = APIRouter(
    tags=["word-list server"],
    responses={status: {"description": meaning, "content": DETAIL} for status, meaning in MEANINGS.items()},
)


class NotCompleted(InputError):
    """The job has no results yet."""


class JobParameters(WordlistParameters):
    """The query of a new job."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    vocab_constraint_mode: Literal["hard", "soft"] | None = None
    enable_thinking: bool | None = None
    per_item: bool | None = None


@router.post(PREFIX)
async def create_job(request: Request) -> Response:
    """Run a JSON list of chat requests in the background."""
    async with batch_store(request) as (process, store, caller):
        options = _options(request)
        lang, count, compiler = options.get("vocab_lang"), options.get("vocab_n_words"), process.engine.engine.compiler
        warnings: list[str] = []

        def keep(file: BinaryIO, filename: str, _: Mapping[str, str]) -> Batch:
            warnings.extend(known_words(lang, count, compiler, as_there=True)[1])
            row = store.files.add(file, caller=caller.name, filename=filename)
            plan = BatchPlan(
                caller=caller.name,
                endpoint="/v1/chat/completions",
                input_file=row["id"],
                kind=KIND,
                window=None,
                options=options,
            )
            return store.batches.create(plan, most_open=process.settings.batch_open_per_key)

        batch = await upload(request, process, store, caller, keep)
        wake(process)
        accepted = {"job_id": batch.id, "status": PENDING, "message": ACCEPTED}
        return JsonResponse(accepted, headers=warning_header(warnings))


@router.get(PREFIX, openapi_extra=query_of(limit_parameter(default=20, most=100), AFTER))
async def list_jobs(request: Request) -> Response:
    """The caller's jobs, newest first."""
    limit, after = limit_of(request, default=20, most=100), request.query_params.get("after")

    def work(store: BatchStore, caller: str) -> list[dict[str, Any]]:
        return [job_json(job) for job in store.batches.page(caller=caller, limit=limit, after=after, kind=KIND)]

    return JsonResponse({"jobs": await in_store(request, work)}, headers=PRIVATE)


@router.get(PREFIX + "/{job_id}")
async def get_job(request: Request, job_id: str) -> Response:
    """How a job stands."""
    return JsonResponse(await in_store(request, lambda store, caller: job_json(_job(store, job_id, caller))))


@router.get(PREFIX + "/{job_id}/results")
async def get_results(request: Request, job_id: str) -> Response:
    """The results of a completed job: a JSON list in the order of the input."""

    def work(store: BatchStore, caller: str) -> Any:
        job = _job(store, job_id, caller)
        status = STATUSES[job.state]
        if status != COMPLETED:
            raise NotCompleted(f"Job is not completed. Current status: {status}")
        return store.results.wordlist_list(job.id, given_ids=True)

    lines = await in_store(request, work)
    return streamed(lines, media_type="application/json", filename=f"{job_id}_output.json")


@router.post(PREFIX + "/{job_id}/cancel")
async def cancel_job(request: Request, job_id: str) -> Response:
    """Stop a job."""
    async with batch_store(request) as (process, store, caller):
        job = await process.pools.saving.run(lambda: _cancel(store, job_id, caller.name), owner=caller.name)
        wake(process)
        return JsonResponse(job_json(job))


@router.delete(PREFIX + "/{job_id}")
async def delete_job(request: Request, job_id: str) -> Response:
    """Delete a job that has ended, with its results."""

    def work(store: BatchStore, caller: str) -> bool:
        return store.batches.remove(_job(store, job_id, caller).id, caller=caller)

    return JsonResponse({"job_id": job_id, "deleted": await in_store(request, work)})


def job_json(job: Batch) -> dict[str, Any]:
    """A job as that server shows it."""
    return {"job_id": job.id, "status": STATUSES[job.state], "submitted_at": int(job.created), "error": _error(job)}


def jobs_shape(otherwise: ErrorShape) -> ErrorShape:
    """The replies to errors: `{"detail": ...}` on these routes, whatever WORDLIST_SERVER_COMPAT says."""
    return shape_where(lambda path, _: path.startswith(PREFIX), wordlist_server_error, otherwise)


def _options(request: Request) -> dict[str, Any]:
    """The parameters of the query. Raises InvalidWordlistBody; half of the vocabulary's pair is refused, not
    ignored."""
    given = {name: value for name, value in request.query_params.items() if name != "token"}
    try:
        parameters = JobParameters.model_validate(given).model_dump(exclude_none=True)
    except ValidationError as error:
        listed = error.errors(include_url=False, include_context=False, include_input=False)
        raise InvalidWordlistBody(
            [{"type": error["type"], "loc": ["query", *error["loc"]], "msg": error["msg"]} for error in listed]
        ) from None
    if ("vocab_lang" in parameters) != ("vocab_n_words" in parameters):
        missing = "vocab_n_words" if "vocab_lang" in parameters else "vocab_lang"
        raise InvalidWordlistBody(
            [{"type": "missing", "loc": ["query", missing], "msg": f"Give {missing} too, or neither"}]
        )
    if "max_tokens" in parameters:
        parameters["max_tokens"] = max(1, parameters["max_tokens"])
    return parameters


def _cancel(store: BatchStore, job_id: str, caller: str) -> Batch:
    job = _job(store, job_id, caller)
    cancelled = store.batches.cancel(job.id, caller=caller) or job
    if cancelled.state == BatchState.CANCELLED:  # nobody reads its upload any more
        store.files.remove(cancelled.plan.input_file, caller=caller)
    return cancelled


def _job(store: BatchStore, job_id: str, caller: str) -> Batch:
    batch = store.batches.get(job_id, caller=caller)
    if batch is None or batch.plan.kind != KIND:
        raise NotFound("Job not found.")
    return batch


def _error(job: Batch) -> str | None:
    if job.errors:
        first = job.errors[0]
        is_text = first.code.startswith("invalid_json")
        return f"Failed to parse JSON: {first.message}" if is_text else first.message
    stopped = {BatchState.CANCELLED: "The job was cancelled.", BatchState.EXPIRED: "The job expired."}
    return stopped.get(job.state)
