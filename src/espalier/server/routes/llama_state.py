"""What llama-server's clients ask about its state: `/slots` and `/lora-adapters`. Nothing is saved or swapped here."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from espalier.errors import NotHere
from espalier.server.http.errors import GENERATION_ERRORS, READING_ERRORS, documented
from espalier.server.http.query import parameter, query_of
from espalier.server.http.wire import JsonResponse
from espalier.server.process.deps import cheap_caller_of, process_of

SHOWN_SLOTS = 256
"""The most slots that are listed."""
LIST: dict[int | str, dict[str, Any]] = {
    200: {"description": "A list of objects.", "content": {"application/json": {"schema": {"type": "array"}}}}
}
SLOT_PARAMETERS = (
    parameter("fail_on_no_slot", "Has no effect: requests wait in one queue, and `/ready` says when it is full."),
    parameter("model", "Has no effect: there is one model."),
)
router = APIRouter(tags=["llama-server"])


@router.get("/slots", responses={**LIST, **documented(*READING_ERRORS)}, openapi_extra=query_of(*SLOT_PARAMETERS))
async def slots(request: Request) -> Response:
    """A slot for each sequence that can run at once, without its prompt: how many are busy with the
    caller's own requests, and how long a context is. Requests have no slot of their own here; the first ones are shown
    as busy. What others do is not shown."""
    process = process_of(request)
    own = process.running[cheap_caller_of(request).name]
    can, load = process.engine.capabilities, process.scheduler.load()
    busy = min(own, load.running)
    count = min(can.max_sequences or 1, SHOWN_SLOTS)
    return JsonResponse(
        [
            {"id": number, "n_ctx": can.max_context, "speculative": False, "is_processing": number < busy}
            for number in range(count)
        ]
    )


@router.post("/slots/{id_slot}", responses=documented(*GENERATION_ERRORS))
async def slot_action(request: Request, id_slot: str) -> Response:
    """501: the cache of a slot is neither saved, restored nor erased."""
    cheap_caller_of(request)
    raise NotHere("no slot can be saved, restored or erased", hint="prefixes are kept by themselves", field="id_slot")


@router.get("/lora-adapters", responses={**LIST, **documented(*READING_ERRORS)})
async def lora_adapters(request: Request) -> Response:
    """The LoRA adapters that the model was opened with, each with its scale."""
    process = process_of(request)
    cheap_caller_of(request)
    return JsonResponse(
        [
            {"id": number, "path": Path(adapter.path).name, "scale": adapter.scale}
            for number, adapter in enumerate(process.app.settings.options.lora)
        ]
    )


@router.post("/lora-adapters", responses=documented(*GENERATION_ERRORS))
async def change_lora_adapters(request: Request) -> Response:
    """501: scales are set when the model is opened, as runs of several callers share it."""
    cheap_caller_of(request)
    raise NotHere(
        "the scales of adapters are set when the model is opened", hint="ESPALIER_LORA=FILE:SCALE", field="scale"
    )
