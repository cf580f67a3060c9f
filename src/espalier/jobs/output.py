"""The lines of a batch's results, in OpenAI's form and in the word-list server's. It reads no database."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from espalier.jobs.values import ItemAnswer, Lease

Json = dict[str, Any]


def output_line(lease: Lease, answer: ItemAnswer) -> Json:
    """A line of the output or the error file, but for its `custom_id`, which the reader of the results adds."""
    response = None
    if answer.error is None:
        response = {"status_code": answer.status, "request_id": answer.request_id, "body": answer.body}
    return {
        "id": f"batch_req_{lease.batch.partition('_')[2]}_{lease.line}",
        "response": response,
        "error": None if answer.error is None else dict(answer.error),
    }


def with_custom_id(line: Mapping[str, Any], custom_id: str) -> Json:
    """The whole line, its fields in OpenAI's order."""
    return {"id": line["id"], "custom_id": custom_id, "response": line["response"], "error": line["error"]}


def never_run(batch: str, line: int, code: str) -> Json:
    """The line of an item that was cancelled, or whose batch expired: it has no result."""
    why = {
        "batch_cancelled": "the batch was cancelled before this item ran",
        "batch_expired": "the batch expired before this item ran",
    }[code]
    answer = ItemAnswer(status=0, body=None, request_id="", error={"code": code, "message": why})
    return output_line(Lease(batch=batch, line=line, fence=0), answer)


def wordlist_entry(job: str, index: int, line: Mapping[str, Any], custom_id: str | None) -> Json:
    """An item of the word-list server's results. A faulty one keeps its place, and says what was wrong. index: from
    0."""
    entry: Json = {"id": f"chatcmpl-batch-{job}-{index}"}
    body = (line["response"] or {}).get("body") or {}
    if line["error"] is None and 200 <= line["response"]["status_code"] < 300:
        entry |= {name: value for name, value in body.items() if name != "id"}
    else:
        error = line["error"] or body.get("error") or {}
        entry |= {"object": "error", "error": {name: error.get(name) for name in ("message", "param", "code")}}
    if custom_id is not None:
        entry["custom_id"] = custom_id
    return entry
