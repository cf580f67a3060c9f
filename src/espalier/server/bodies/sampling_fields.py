"""Sampling fields that both dialects have, OpenAI's with its extras and llama-server's, with one set of bounds.

`asking/` decides what values mean. A field whose bounds differ between the dialects stands in each dialect's body.
"""

from __future__ import annotations

from pydantic import Field

from espalier.server.bodies.base import Body


class SamplingFields(Body):
    """All of them are optional; null means "not given"."""

    temperature: float | None = Field(default=None, ge=0)
    top_p: float | None = Field(default=None, ge=0, le=1)
    top_k: int | None = Field(default=None, ge=-1)
    min_p: float | None = Field(default=None, ge=0, le=1)
    n: int | None = Field(default=None, ge=1)
    n_cmpl: int | None = Field(default=None, ge=1)
    n_predict: int | None = Field(default=None, ge=-1)
    stop: str | list[str] | None = None
    seed: int | None = None
    ignore_eos: bool | None = None
    repeat_penalty: float | None = Field(default=None, gt=0)
    repeat_last_n: int | None = Field(default=None, ge=-1)
    typical_p: float | None = None
    typ_p: float | None = None
    top_n_sigma: float | None = None
    min_keep: int | None = None
    xtc_probability: float | None = None
    xtc_threshold: float | None = None
    dynatemp_range: float | None = None
    dynatemp_exponent: float | None = None
    dry_multiplier: float | None = None
    dry_base: float | None = None
    dry_allowed_length: int | None = None
    dry_penalty_last_n: int | None = None
    dry_sequence_breakers: list[str] | None = None
    mirostat: int | None = None
    mirostat_tau: float | None = None
    mirostat_eta: float | None = None
    samplers: list[str] | str | None = None
