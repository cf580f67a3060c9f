"""What a request body asks for, as values: a draft while the body is read, then the requests to an engine.

It reads no body and runs nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from espalier.constraints.soft.spec import SoftSpec
from espalier.constraints.spec import Spec
from espalier.engines.base import Request
from espalier.errors import EspalierError
from espalier.server.asking.decoding import Decoded


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """What a body asks for, before requests are made of it.

    sampling: only what was given, in our names. defaults: where nothing was said and no preset is named. options: of
    `make_request`. request: fields of the Request besides. ids: of the prompts that were given as token ids. names: by
    the field that an error of ours names, the field of the body. warnings: for the client.
    """

    prompts: tuple[str, ...] = ()
    ids: tuple[tuple[int, ...] | None, ...] = ()
    messages: tuple[Mapping[str, Any], ...] | None = None
    constraint: Spec | None = None
    soft: tuple[SoftSpec, ...] = ()
    sampling: Mapping[str, Any] = field(default_factory=dict)
    defaults: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    request: Mapping[str, Any] = field(default_factory=dict)
    usual_beams: tuple[int, str] | None = None
    names: Mapping[str, str] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    decoded: Decoded = field(default_factory=Decoded)


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """requests: every run of every prompt, in the order of the choices; n: runs of one prompt. returned: how many
    choices a run gives at most, its Result and that one's `others`. model: as the reply names it.

    top_logprobs: None without log probabilities, else how many besides the token. ends: ids that end an output and are
    no part of it. echo: what stands before each output. keep_trace: whether traces go to the store. report: whether the
    reply has a key `espalier`, with the trace of `shown_trace`; stream_steps: its steps come with their tokens.
    truncated: how many tokens each prompt lost, once it was cut.
    """

    requests: tuple[Request, ...]
    model: str
    n: int
    stream: bool
    include_usage: bool
    top_logprobs: int | None
    ends: frozenset[int]
    echo: tuple[str, ...]
    token_ids: bool
    keep_trace: bool
    report: bool
    shown_trace: Literal["none", "summary", "steps"]
    stream_steps: bool
    constraint: Spec | None
    names: Mapping[str, str]
    warnings: tuple[str, ...]
    truncated: tuple[int, ...] = ()
    returned: int = 1

    def named(self, error: EspalierError) -> EspalierError:
        """The error with the field as the body calls it."""
        error.field = self.names.get(error.field or "", error.field)
        return error
