"""Reads the sampling fields of a body into our names: OpenAI's fields with vLLM's extras, and llama-server's fields.

If a llama-server field is given, the samplers run in llama-server's order, or in the order of `samplers`. The defaults
stay OpenAI's. `max_tokens` becomes one of ALLOWED_MAX_NEW_TOKENS, if these are set.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pydantic import BaseModel

from espalier.errors import SamplingError
from espalier.sampling.config import DEFAULT_ORDER, MAX_N, SamplingConfig
from espalier.sampling.config_names import (
    LLAMA_FIELDS,
    LLAMA_NAMES,
    LLAMA_OTHER,
    OPENAI_DEFAULTS,
    OPENAI_FIELDS,
    OPENAI_NAMES,
    OPENAI_OTHER,
    UNLIMITED,
    from_llama,
    from_openai,
    skip_unknown_samplers,
)
from espalier.sampling.samplers.plugged import Extra, check_extra
from espalier.server.asking.naming import field_names
from espalier.server.bodies.openai import SharedBody
from espalier.server.http.errors import BadRequest
from espalier.server.process.state import Process
from espalier.server.settings import ServerSettings

OPENAI_OURS = {theirs: ours for ours, theirs in OPENAI_FIELDS.items()} | OPENAI_OTHER
LLAMA_OURS = {theirs: ours for ours, theirs in LLAMA_FIELDS.items()} | LLAMA_OTHER
WORDLIST_SERVER_BUCKETS = (64, 128, 256, 512)
"""The word-list server's values, used with WORDLIST_SERVER_COMPAT if nothing is set."""
MAX_STOPS = 64
MAX_WORDS = 1024
"""The most entries of a list of texts, each of which is looked for at every step."""
OF_TOKENS = ("stop_token_ids", "allowed_token_ids", "logit_bias")
"""Fields with an entry per token."""
OF_TEXTS = ("bad_words", "samplers", "dry_sequence_breakers")


def check_lists(body: BaseModel, process: Process) -> None:
    """Raises BadRequest, naming the field, for a list with too many entries."""
    for name in (*OF_TOKENS, *OF_TEXTS):
        given = getattr(body, name, None)
        vocab = process.engine.engine.vocab
        limit = MAX_WORDS if vocab is None or name not in OF_TOKENS else vocab.width
        if given is not None and len(given) > limit:
            raise BadRequest(f"{name} has {len(given)} entries; the limit is {limit}", field=name)


def read_extra(given: Mapping[str, Any]) -> Extra:
    """The fields of plug-ins' samplers. Raises SamplingError naming the field of the body, BrokenPlugin."""
    with field_names({"extra": "espalier.extra"}, otherwise="espalier.extra.{field}"):
        return check_extra(given)


def reads_only(body: SharedBody) -> bool:
    """Whether no token is asked for: the prompt is read, and measured where the body asks for that."""
    return 0 in (body.max_tokens, body.n_predict, getattr(body, "max_completion_tokens", None))


def without_empty(stop: str | list[str]) -> list[str]:
    """The stop texts; an empty one stops nothing, and many clients send it for none."""
    return [text for text in ([stop] if isinstance(stop, str) else stop) if text]


def without_unknown_samplers(llamas: dict[str, Any]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """llama-server's fields with the `samplers` that are here, and a warning that names the others."""
    if "samplers" not in llamas:
        return llamas, ()
    names, skipped = skip_unknown_samplers(llamas["samplers"])
    listed = ", ".join(repr(name[:40]) for name in skipped)
    return llamas | {"samplers": names}, ((f"samplers: not here, and skipped: {listed}",) if skipped else ())


def read_sampling(body: SharedBody) -> tuple[dict[str, Any], dict[str, Any], tuple[str, ...]]:
    """The sampling that the body gives, and the defaults for the rest, both in our names; and notes on llama-server's
    fields that have no effect. Raises SamplingError naming the body's field, BadRequest for fields that contradict each
    other."""
    given = {name: value for name in type(body).model_fields if (value := getattr(body, name)) is not None}
    if "stop" in given and not (stop := without_empty(given["stop"])):
        del given["stop"]
    elif "stop" in given:
        given["stop"] = stop
    theirs = {name: value for name, value in given.items() if name in OPENAI_NAMES}
    llamas = {name: value for name, value in given.items() if name in LLAMA_NAMES and name not in OPENAI_NAMES}
    for name in ("max_tokens", "max_completion_tokens"):
        if theirs.get(name) == -1:  # all that fit, as where it is not given
            del theirs[name]
        elif theirs.get(name) == 0:
            theirs[name] = 1  # which is not generated: see `reads_only`
        elif name in theirs and theirs[name] < 1:
            raise SamplingError(f"{name}: {theirs[name]} must be at least 0", hint="-1 for all that fit", field=name)
    if llamas.get("n_predict") == 0:
        llamas["n_predict"] = 1
    elif llamas.get("n_predict") == -1 and theirs.keys() & {"max_tokens", "max_completion_tokens"}:
        del llamas["n_predict"]  # all that fit within the other limit, as Jan sends it
    stops = theirs.get("stop")
    if isinstance(stops, list) and len(stops) > MAX_STOPS:
        raise BadRequest(f"stop: at most {MAX_STOPS} texts", field="stop")
    if theirs.get("n", 1) > MAX_N or llamas.get("n_cmpl", 1) > MAX_N:
        raise BadRequest(f"at most {MAX_N} outputs can be asked for", field="n" if "n" in theirs else "n_cmpl")
    config = from_openai(theirs)
    fields = {OPENAI_OURS[name]: getattr(config, OPENAI_OURS[name]) for name in theirs}
    defaults = dict(OPENAI_DEFAULTS)
    notes: tuple[str, ...] = ()
    if llamas:
        llamas, skipped = without_unknown_samplers(llamas)
        extra = from_llama(llamas)
        notes = (*extra.notes, *skipped)
        for name in llamas:
            ours = LLAMA_OURS[name]
            value = getattr(extra, ours)
            if ours in fields and fields[ours] != value:
                raise BadRequest(f"{name} contradicts another field", hint="leave one of them out", field=name)
            fields[ours] = value
        defaults["sampler_order"] = DEFAULT_ORDER
    if fields.get("max_tokens") == UNLIMITED and "n_predict" in llamas:
        del fields["max_tokens"]
    return fields, defaults, notes


def in_buckets(config: SamplingConfig, settings: ServerSettings) -> SamplingConfig:
    """The config with `max_tokens` rounded up to the next allowed value, or down to the largest. Raises SamplingError
    if `min_tokens` is larger."""
    buckets = settings.allowed_max_new_tokens or (WORDLIST_SERVER_BUCKETS if settings.wordlist_server_compat else ())
    if not buckets:
        return config
    return replace(config, max_tokens=next((bucket for bucket in buckets if bucket >= config.max_tokens), buckets[-1]))
