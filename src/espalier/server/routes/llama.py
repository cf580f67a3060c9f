"""llama-server's routes: `POST /completion`, `POST /infill` and `GET /props`. `aliases.py` has `/completions`."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from espalier.errors import NotHere
from espalier.sampling.config_names import from_llama, to_llama
from espalier.server.answering.llama import LlamaChunks, finish_llama, whole_llama
from espalier.server.answering.replies import text_head
from espalier.server.answering.route import Dialect, answer
from espalier.server.asking.fim import fim_tokens
from espalier.server.asking.infill import ask_infill
from espalier.server.asking.llama import adapt_llama, ask_llama, read_llama
from espalier.server.asking.token_ids import known_vocab
from espalier.server.bodies.llama import InfillBody, LlamaBody
from espalier.server.bodies.openapi import STREAM
from espalier.server.http.errors import GENERATION_ERRORS, READING_ERRORS, documented
from espalier.server.http.query import parameter, query_of
from espalier.server.http.wire import JsonResponse
from espalier.server.process.deps import cheap_caller_of, process_of
from espalier.version import __version__

ROUTE = "/completion"
LLAMA = Dialect(
    route=ROUTE,
    operation="text_completion",
    body=LlamaBody,
    ask=ask_llama,
    head=text_head,
    whole=whole_llama,
    chunks=LlamaChunks,
    read=read_llama,
    adapt=adapt_llama,
    finish=finish_llama,
    done=b"",
)
INFILL = Dialect(
    route="/infill",
    operation="text_completion",
    body=InfillBody,
    ask=ask_infill,
    head=text_head,
    whole=whole_llama,
    chunks=LlamaChunks,
    finish=finish_llama,
    done=b"",
)
REPLY: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "llama-server's reply; a list of them for several outputs.",
        "content": {"application/json": {"schema": {"type": ["object", "array"]}}, **STREAM},
    }
}
PROPS_PARAMETERS = tuple(parameter(name, "Has no effect: there is one model.") for name in ("model", "autoload"))
router = APIRouter(tags=["llama-server"])


@router.post(
    ROUTE,
    responses={**REPLY, **documented(*GENERATION_ERRORS)},
    openapi_extra={"requestBody": {"$ref": "#/components/requestBodies/LlamaBody"}},
)
async def complete(request: Request) -> Response:
    """Continue a text or token ids, with llama-server's fields, defaults and reply; the stream has no [DONE]."""
    return await answer(request, LLAMA)


@router.post(
    "/infill",
    responses={**REPLY, **documented(*GENERATION_ERRORS)},
    openapi_extra={"requestBody": {"$ref": "#/components/requestBodies/InfillBody"}},
)
async def infill(request: Request) -> Response:
    """Fill the gap between two texts, where the model has tokens for it; else 501 naming those that it lacks."""
    try:
        fim_tokens(known_vocab(process_of(request).engine.engine, "model"))
    except NotHere:
        cheap_caller_of(request)  # nothing will run, so nothing else asks the gate
        raise
    return await answer(request, INFILL)


@router.get("/props", responses=documented(*READING_ERRORS), openapi_extra=query_of(*PROPS_PARAMETERS))
async def props(request: Request) -> Response:
    """The model, its chat template, context size and KV cache, and the default sampling of `/completion`."""
    process = process_of(request)
    cheap_caller_of(request)
    engine, can = process.engine.engine, process.engine.capabilities
    template, vocab = engine.template, engine.vocab
    return JsonResponse(
        {
            "default_generation_settings": {"n_ctx": can.max_context, "params": to_llama(from_llama({}))},
            "total_slots": can.max_sequences,
            "kv_unified": can.kv_unified,
            "model_alias": process.names[0],
            "chat_template": None if template is None else template.source,
            "eos_token": None if vocab is None else vocab.text_of(vocab.eos_ids[0]),
            "modalities": {"vision": False, "audio": False},
            "build_info": f"espalier {__version__}",
        }
    )
