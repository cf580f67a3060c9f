"""The kinds of soft constraints; importing this module fills `SOFT_KINDS`."""

from __future__ import annotations

from espalier.constraints.compiler import Compiler
from espalier.constraints.soft.spec import SOFT_KINDS, SoftJson, SoftKind, SoftWordlist
from espalier.sampling.filters import LogitFilter

# ruff: noqa: PLC0415  # functions import what they call, so that a spec can be parsed without it


def json_filter(spec: SoftJson, compiler: Compiler) -> LogitFilter:
    from espalier.constraints.soft.json_bias import json_filter as make_filter

    return make_filter(spec, compiler)


def word_filter(spec: SoftWordlist, compiler: Compiler) -> LogitFilter:
    from espalier.constraints.soft.word_bias import word_filter as make_filter

    return make_filter(spec, compiler)


SOFT_KINDS.fill(
    {
        "soft_json": SoftKind(spec=SoftJson, filter=json_filter),
        "soft_wordlist": SoftKind(spec=SoftWordlist, filter=word_filter),
    },
    holds=SoftKind,
)
