"""WORDLIST_SERVER_COMPAT: the routes with which the logging server's clients set a value for all requests that follow.

A body such as `{"temperature": 0.5}`; null leaves the value to the requests again. They reach every caller, so they
need a key that may read the metrics.
"""

from __future__ import annotations

import asyncio
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from espalier.errors import CapabilityError, Forbidden
from espalier.sampling.config_names import from_openai
from espalier.server.http.body import read_object
from espalier.server.http.errors import BadRequest
from espalier.server.http.wire import JsonResponse
from espalier.server.process.deps import cheap_caller_of, process_of
from espalier.server.process.state import Process

router = APIRouter(tags=["logging server"], include_in_schema=False)


@router.post("/set_overwrite_lmdb_path")
async def set_lmdb_path(request: Request) -> Response:
    """Store the hidden states of all requests that follow in this store."""
    return await _set(request, "lmdb_path")


@router.post("/set_overwrite_temperature")
async def set_temperature(request: Request) -> Response:
    """Use this temperature, whatever requests say."""
    return await _set(request, "temperature")


@router.post("/set_overwrite_top_p")
async def set_top_p(request: Request) -> Response:
    """Use this top_p, whatever requests say."""
    return await _set(request, "top_p")


async def _set(request: Request, name: str) -> Response:
    process, caller = process_of(request), cheap_caller_of(request)
    if not caller.may_read_metrics:
        raise Forbidden("this key may not change what others get", hint="may_read_metrics = true in the key file")
    if process.settings.workers > 1:
        raise CapabilityError(f"WORKERS is {process.settings.workers}, and this reaches one of them", hint="WORKERS=1")
    data = await read_object(request, process.settings)
    if set(data) != {name}:
        raise BadRequest(f"the body has the one field {name}", hint=f'{{"{name}": ...}}', field=name)
    value = data[name]
    if value is not None:
        await _check(process, name, value)
    before = getattr(process.overwrites, name)
    setattr(process.overwrites, name, value)
    message = f"{name} is left to the requests" if value is None else f"{name} is {value} for all requests"
    return JsonResponse({"success": True, "previous_value": before, "current_value": value, "message": message})


async def _check(process: Process, name: str, value: Any) -> None:
    """Raises BadRequest, SamplingError, CapabilityError, and what opening a store raises."""
    if name != "lmdb_path":
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise BadRequest(f"{name} should be a number", field=name)
        from_openai({name: value})
        return
    if not isinstance(value, str):
        raise BadRequest(f"{name} should be a text", field=name)
    if process.named_stores is None:
        raise CapabilityError("this server stores no hidden states", hint="set ACTIVATIONS_STORE", field=name)
    if not process.engine.capabilities.activations:
        raise CapabilityError(f"{process.engine.name} gives no hidden states", field=name)
    await asyncio.to_thread(process.named_stores.get, value)
