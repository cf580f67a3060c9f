"""Reads bodies of llama-server's `/completion` into a `RequestDraft`. It runs nothing and knows no reply.

llama-server ignores unknown fields; here a warning names them, and unsupported fields are refused by name.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from fastapi import Request as HttpRequest

from espalier.engines.protocols import Engine
from espalier.engines.request_options import OF_SCHEMAS, given_options
from espalier.errors import CapabilityError
from espalier.sampling.config import MAX_N
from espalier.sampling.config_names import LLAMA_NAMES, LLAMA_OFF, from_llama, to_llama
from espalier.server.asking.assemble import assemble
from espalier.server.asking.constraint import join_safety, read_constraint
from espalier.server.asking.draft import ParsedRequest, RequestDraft
from espalier.server.asking.sampling import MAX_STOPS, check_lists, in_buckets, without_empty, without_unknown_samplers
from espalier.server.asking.token_ids import check_ids, known_vocab, text_of
from espalier.server.bodies.llama import LlamaBody
from espalier.server.bodies.openai import SharedBody
from espalier.server.http.body import read_object
from espalier.server.http.errors import BadRequest, UnsupportedParameter
from espalier.server.process.deps import caller_of, process_of
from espalier.server.process.state import Process
from espalier.server.settings import ServerSettings
from espalier.time_limit import check
from espalier.tokens.vocab import Vocab

NAMES = {
    "prompt_ids": "prompt",
    "max_tokens": "n_predict",
    "top_logprobs": "n_probs",
    "line_seconds": "t_max_predict_ms",
}
"""From the field that an error names to the field of the body."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedLlamaRequest(ParsedRequest):
    """body: as it was given. sampling: in llama.cpp's names, for the reply."""

    body: LlamaBody
    sampling: dict[str, Any]


async def read_llama(http: HttpRequest, settings: ServerSettings) -> dict[str, Any]:
    """The body, with a prompt of mixed texts and ids turned into token ids. Raises what `read_object` raises, and
    BadRequest for an id that is no token."""
    return await adapt_prompt(http, await read_object(http, settings))


async def adapt_prompt(http: HttpRequest, data: dict[str, Any]) -> dict[str, Any]:
    """As `adapt_llama`, in a thread where there is something to do."""
    process = process_of(http)
    if isinstance(data.get("prompt"), list):
        work = partial(adapt_llama, data, process)
        return await process.pools.bodies.run(work, owner=caller_of(http).name)
    return data


def adapt_llama(data: dict[str, Any], process: Process) -> dict[str, Any]:
    """The body, with a prompt of mixed texts and ids turned into token ids. Raises BadRequest for an id that is no
    token."""
    engine = process.engine.engine
    if not isinstance(data.get("prompt"), list) or engine.vocab is None:
        return data
    return {**data, "prompt": _prompts(data["prompt"], engine, engine.vocab)}


def _prompts(given: list[Any], engine: Engine, vocab: Vocab) -> list[Any]:
    """One prompt as a list of ids, or several prompts, each a text or a list of ids."""
    kinds = {type(part) for part in given}
    if int in kinds and kinds <= {int, str}:
        return _ids(given, engine, vocab, "prompt")
    return [
        _ids(part, engine, vocab, f"prompt[{i}]") if isinstance(part, list) else part for i, part in enumerate(given)
    ]


def _ids(given: list[Any], engine: Engine, vocab: Vocab, field: str) -> list[int]:
    """The token ids. A text at the start gets the BOS that the tokenizer adds; other texts get none."""
    ids: list[int] = []
    for place, part in enumerate(given):
        check()
        if isinstance(part, str):
            ids += engine.encode(part, add_special=place == 0)
        else:
            ids += check_ids([part], vocab, f"{field}[{place}]")
    if not ids:
        raise BadRequest(f"{field}: there is no token", field=field)
    return ids


def ask_llama(body: LlamaBody, process: Process) -> ParsedLlamaRequest:
    """Read a body of `/completion`. Raises InputError and its kin, each naming the field."""
    settings = process.settings
    if body.post_sampling_probs and not body.n_probs:
        raise BadRequest("post_sampling_probs needs n_probs", hint='"n_probs": 5', field="post_sampling_probs")
    if body.post_sampling_probs and not process.engine.capabilities.logits:
        raise CapabilityError(
            f"{process.engine.name} tells the probabilities before sampling only",
            hint="leave it out",
            field="post_sampling_probs",
        )
    if isinstance(body.stop, list) and len(body.stop) > MAX_STOPS:
        raise BadRequest(f"stop: at most {MAX_STOPS} texts", field="stop")
    if max(body.n or 1, body.n_cmpl or 1) > MAX_N:
        raise BadRequest(f"at most {MAX_N} outputs can be asked for", field="n" if body.n else "n_cmpl")
    check_lists(body, process)
    if body.n_indent and body.stream:
        raise UnsupportedParameter(
            "n_indent cuts a text that is complete, not a stream", hint='"stream": false', field="n_indent"
        )
    given = {name: value for name in LLAMA_NAMES - set(LLAMA_OFF) if (value := getattr(body, name)) is not None}
    if "stop" in given:
        given["stop"] = without_empty(given["stop"])
    reads_only = 0 in (body.n_predict, body.max_tokens)
    if reads_only:  # one token is asked of the sampling, and none is generated
        given |= {name: 1 for name in ("n_predict", "max_tokens") if name in given}
    given, skipped = without_unknown_samplers(given)
    asked = from_llama(given)
    config = in_buckets(asked, settings)
    constrained = read_constraint(
        SharedBody(grammar=body.grammar, json_schema=body.json_schema),
        max_bytes=settings.max_schema_bytes,
        formats=settings.schema_formats,
    )
    constraint = join_safety(constrained.spec, body.safety, max_bytes=settings.max_schema_bytes, own="safety")
    warnings = (*asked.notes, *skipped)
    if config.ignore_eos and constraint is not None:
        config = replace(config, ignore_eos=False)
        warnings += ("ignore_eos has no effect beside a constraint, which says where the text ends",)
    vocab = process.engine.engine.vocab
    top = (body.n_probs or 0) if vocab is None else min(body.n_probs or 0, vocab.width)
    texts, ids = _texts_and_ids(body.prompt, process)
    draft = RequestDraft(
        model=body.model,
        prompts=texts,
        ids=ids,
        constraint=constraint,
        options={"raw": True, "sampling": config} | given_options(body, OF_SCHEMAS),
        names={**NAMES, **({"n": "n_cmpl"} if body.n is None else {}), **constrained.names},
        stream=bool(body.stream),
        top_logprobs=top or None,
        has_most_top=vocab is None,
        token_ids=bool(body.return_tokens),
        told=body.told,
        warnings=warnings,
        request=({"only_prompt": True} if reads_only else {})
        | ({"line_seconds": late / 1000} if (late := body.t_max_predict_ms or 0) > 0 else {}),
    )
    return assemble(draft, process, partial(ParsedLlamaRequest, body=body, sampling=to_llama(config)))


def _texts_and_ids(given: Any, process: Process) -> tuple[tuple[str, ...], tuple[tuple[int, ...] | None, ...]]:
    """The prompts as texts, and the token ids of those that were given as ids."""
    if isinstance(given, str):
        return (given,), (None,)
    if not given:
        raise BadRequest("there is no prompt", field="prompt")
    is_alone = isinstance(given[0], int) and not any(isinstance(part, list) for part in given)
    several = [given] if is_alone else given
    texts: list[str] = []
    id_lists: list[tuple[int, ...] | None] = []
    for prompt in several:
        if not isinstance(prompt, str | list):
            raise UnsupportedParameter(
                "token ids among several prompts", hint="each prompt a text or a list", field="prompt"
            )
        ids = tuple(prompt) if isinstance(prompt, list) else None
        texts.append(
            prompt if isinstance(prompt, str) else text_of(prompt, known_vocab(process.engine.engine, "prompt"))
        )
        id_lists.append(ids)
    return tuple(texts), tuple(id_lists)
