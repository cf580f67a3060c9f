"""The keyword arguments of `generate` and `stream`, by name and type, for type checkers, editors and `help`.

Options that take plain values come from their declarations (`option_types.py`). A test holds the names to what
`make_request`, `SamplingConfig` and `Decoding` take. It checks no value.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias, TypeVar

from espalier.activations.capture.options import Activations
from espalier.constraints.soft.spec import SoftSpec
from espalier.constraints.spec import Gbnf
from espalier.decoding.options import OPTIONS as DECODING
from espalier.decoding.options import Decoding
from espalier.engines.base import Message
from espalier.engines.request_options import OPTIONS as REQUEST
from espalier.nearest import as_others_call_it, did_you_mean
from espalier.option_types import DecodingOptions, RequestOptions, SamplingOptions
from espalier.sampling.config import FIELDS as SAMPLING
from espalier.sampling.config import SamplingConfig
from espalier.sampling.config_names import LLAMA_OWN
from espalier.sampling.fields import Option
from espalier.sampling.filters import LogitFilter
from espalier.sampling.presets.spec import Preset
from espalier.trace.recorders.protocol import Recorder
from espalier.trace.records import TraceLevel

AnyFunction = TypeVar("AnyFunction", bound=Callable[..., Any])
Instance = TypeVar("Instance")
"""Of the type that is the constraint."""
OnePrompt: TypeAlias = str | Sequence[Message]
Prompts: TypeAlias = Sequence[str] | Sequence[Sequence[Message]]


class GenerateOptions(SamplingOptions, DecodingOptions, RequestOptions, total=False):
    """What `generate` and `stream` take beside the prompt; `LoadedEngine.generate` says what each does. What takes
    plain values is declared as an `Option`; the others are these."""

    # What must hold, beside the argument `constraint`.
    json_schema: Any
    regex: str | None
    choice: Sequence[str] | None
    grammar: Gbnf | str | None
    safety: Any
    soft: SoftSpec | Sequence[SoftSpec] | None
    filters: LogitFilter | Iterable[LogitFilter] | None
    # The prompt.
    system: str | None
    raw: bool
    # Tools and reasoning.
    tools: Any
    tool_choice: Any
    parallel_tool_calls: bool | None
    reasoning: Any
    # How tokens are chosen, as a whole.
    preset: Preset | str | None
    sampling: SamplingConfig | Mapping[str, Any] | None
    decoding: Decoding | None
    extra: Mapping[str, Any]
    # What is recorded.
    trace: TraceLevel
    trace_top_k: int
    recorders: Recorder | Iterable[Recorder] | None
    request_id: str
    activations: Activations | Mapping[str, Any] | bool | None


DECLARED: Mapping[str, Option] = {**REQUEST, **SAMPLING, **DECODING}
"""Every option that is declared as one, by name."""
FOREIGN = {name: (whose, option.name) for option in DECLARED.values() for name, whose in option.elsewhere} | {
    "schema": ("others", "json_schema"),
    "output_type": ("Outlines", "constraint"),
    "response_format": ("OpenAI", "json_schema"),
    "response_model": ("Instructor", "constraint"),
    "guided_json": ("vLLM", "json_schema"),
    "guided_regex": ("vLLM", "regex"),
    "guided_choice": ("vLLM", "choice"),
    "guided_grammar": ("vLLM", "grammar"),
    "structured_outputs": ("vLLM", "json_schema"),
    "json_object": ("others", "constraint=JsonObject()"),
    "ebnf": ("SGLang", "grammar"),
    "choices": ("others", "choice"),
    "vocab_lang": ("the word-list server", 'constraint=Wordlist(lang="es", top=3000)'),
    "vocab_n_words": ("the word-list server", 'constraint=Wordlist(lang="es", top=3000)'),
    "do_sample": ("transformers", "temperature=0, or above 0 to draw"),
    "logits_processor": ("transformers", "filters"),
    "logits_processors": ("vLLM", "filters"),
    "system_prompt": ("others", "system"),
    "functions": ("OpenAI", "tools"),
    "best_of": ("vLLM", 'strategy="best_of"'),
    "use_beam_search": ("vLLM", 'strategy="beam"'),
    "stream": ("OpenAI", "the method stream()"),
}
"""What other libraries call an argument -> whose name it is, and ours."""
OPTIONS = ("constraint", *(name for name in GenerateOptions.__annotations__ if name not in DECLARED), *DECLARED)
"""The names, in the order in which `help` shows them."""


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
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=_default(name), annotation=_annotation(name))
        for name in OPTIONS
        if name not in signature.parameters
    ]
    function.__signature__ = signature.replace(parameters=kept)  # type: ignore[attr-defined]  # inspect reads it
    return function


USUAL = {"trace": "steps", "trace_top_k": 10, "request_id": "", "raw": False}
"""Defaults of `make_request` that are not None and that no declaration states."""


def _annotation(name: str) -> str:
    return str(GenerateOptions.__annotations__[name].__forward_arg__)


def _default(name: str) -> Any:
    if name in DECLARED and name != "strategy":  # whose default may be an environment's
        return DECLARED[name].default
    return USUAL.get(name)
