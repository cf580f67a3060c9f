"""The keyword arguments of `generate` and `stream`, by name and type, for type checkers, editors and `help`.

A test holds the table to what `make_request`, `SamplingConfig` and `Decoding` take. It checks no value.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, TypedDict, TypeVar

from espalier.activations.capture.options import Activations
from espalier.constraints.soft.spec import SoftSpec
from espalier.constraints.spec import Spec
from espalier.decoding.options import FIELDS as DECODING
from espalier.decoding.options import Decoding, OnBudget, Target
from espalier.engines.base import SamplerName
from espalier.nearest import as_others_call_it, did_you_mean
from espalier.sampling.config import FIELDS as SAMPLING
from espalier.sampling.config import SamplingConfig
from espalier.sampling.config_names import FOREIGN as FOREIGN_SAMPLING
from espalier.sampling.config_names import LLAMA_OWN
from espalier.sampling.filters import LogitFilter
from espalier.sampling.presets.spec import Preset
from espalier.trace.recorders.protocol import Recorder
from espalier.trace.records import TraceLevel

AnyFunction = TypeVar("AnyFunction", bound=Callable[..., Any])


class GenerateOptions(TypedDict, total=False):
    """What `generate` and `stream` take beside the prompt; `LoadedEngine.generate` says what each does."""

    # What must hold.
    constraint: Spec | None
    grammar: Any
    json_schema: Any
    safety: Any
    soft: SoftSpec | Sequence[SoftSpec] | None
    filters: LogitFilter | Iterable[LogitFilter] | None
    schema_order: str | Sequence[str] | None
    closed: bool | None
    # The prompt.
    system: str | None
    raw: bool
    schema_in_prompt: bool
    # Tools and reasoning.
    tools: Any
    tool_choice: Any
    tool_format: str | None
    parallel_tool_calls: bool | None
    max_calls: int | None
    reasoning: Any
    max_reasoning: int | None
    # How tokens are chosen, as a whole.
    preset: Preset | str | None
    sampling: SamplingConfig | Mapping[str, Any] | None
    sampler: SamplerName
    strategy: str | None
    decoding: Decoding | None
    # What is recorded.
    trace: TraceLevel
    trace_top_k: int
    recorders: Recorder | Iterable[Recorder] | None
    request_id: str
    activations: Activations | Mapping[str, Any] | bool | None
    # The fields of SamplingConfig.
    temperature: float
    dynatemp_range: float
    dynatemp_exponent: float
    top_k: int
    top_p: float
    min_p: float
    typical_p: float
    top_n_sigma: float
    min_keep: int
    xtc_probability: float
    xtc_threshold: float
    repetition_penalty: float
    repetition_window: int
    frequency_penalty: float
    presence_penalty: float
    dry_multiplier: float
    dry_base: float
    dry_allowed_length: int
    dry_window: int
    dry_breakers: Sequence[str]
    mirostat: int
    mirostat_tau: float
    mirostat_eta: float
    logit_bias: Mapping[int, float] | Mapping[str, float] | Sequence[tuple[int | str, float]]
    bad_words: str | Sequence[str]
    allowed_ids: Sequence[int] | None
    seed: int | None
    n: int
    min_tokens: int
    max_tokens: int
    stop: str | Sequence[str]
    stop_ids: Sequence[int]
    ignore_eos: bool
    sampler_order: Sequence[str]
    extra: Mapping[str, Any]
    # The fields of Decoding.
    num_beams: int | None
    length_penalty: float
    early_stopping: bool | Literal["never"]
    num_return_sequences: int
    particles: int | None
    ess_threshold: float
    target: Target
    on_budget: OnBudget
    max_rewinds: int
    drafts: Sequence[str] | None


FOREIGN = FOREIGN_SAMPLING | {
    "schema": ("others", "constraint=JsonSchema(schema)"),
    "output_type": ("Outlines", "constraint=JsonSchema(output_type)"),
    "response_format": ("OpenAI", "constraint=JsonSchema(schema)"),
    "response_model": ("Instructor", "constraint=JsonSchema(Model)"),
    "guided_json": ("vLLM", "constraint=JsonSchema(schema)"),
    "guided_regex": ("vLLM", "constraint=Regex(pattern)"),
    "guided_choice": ("vLLM", "constraint=Choice([...])"),
    "guided_grammar": ("vLLM", "constraint=Gbnf(text)"),
    "structured_outputs": ("vLLM", "constraint=JsonSchema(schema)"),
    "json_object": ("others", "constraint=JsonObject()"),
    "regex": ("SGLang", "constraint=Regex(pattern)"),
    "ebnf": ("SGLang", "constraint=Gbnf(text)"),
    "choices": ("others", "constraint=Choice([...])"),
    "choice": ("others", "constraint=Choice([...])"),
    "do_sample": ("transformers", "temperature=0, or above 0 to draw"),
    "num_return": ("others", "n"),
    "logits_processor": ("transformers", "filters"),
    "logits_processors": ("vLLM", "filters"),
    "system_prompt": ("others", "system"),
    "functions": ("OpenAI", "tools"),
    "thinking": ("Anthropic", "reasoning"),
    "beam_width": ("vLLM", "num_beams"),
    "best_of": ("vLLM", 'strategy="best_of"'),
    "use_beam_search": ("vLLM", 'strategy="beam"'),
    "stream": ("OpenAI", "the method stream()"),
}
"""What other libraries call an argument -> whose name it is, and ours."""
OPTIONS = tuple(GenerateOptions.__annotations__)
"""The names, in the order of the table."""


def hint_for(name: str) -> str | None:
    """What an unknown argument may have meant: its name in another library, or the nearest of ours and llama.cpp's."""
    return as_others_call_it(name, FOREIGN) or did_you_mean(name, [*OPTIONS, *LLAMA_OWN])


def with_options(function: AnyFunction) -> AnyFunction:
    """The function with a signature that names every option and its default, for `help` and notebooks; its `**options`
    takes them."""
    signature = inspect.signature(function)
    kept = [
        parameter for parameter in signature.parameters.values() if parameter.kind is not inspect.Parameter.VAR_KEYWORD
    ]
    kept += [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=_default(name), annotation=hint.__forward_arg__)
        for name, hint in GenerateOptions.__annotations__.items()
    ]
    function.__signature__ = signature.replace(parameters=kept)  # type: ignore[attr-defined]  # inspect reads it
    return function


USUAL = {"sampler": "espalier", "trace": "steps", "trace_top_k": 10, "request_id": "", "raw": False,
         "schema_in_prompt": False}  # fmt: skip
"""Defaults of `make_request` that are not None."""


def _default(name: str) -> Any:
    if name in SAMPLING:
        return SAMPLING[name].default
    if name in DECODING:
        return getattr(Decoding(), name) if name != "strategy" else None
    return USUAL.get(name)
