"""Refuses what an engine cannot do: the one check that engines, the API and the server share."""

from __future__ import annotations

from espalier.activations.capture.options import Activations
from espalier.constraints.joining.rule import without_filters
from espalier.decoding.options import branches_option
from espalier.decoding.plan import Strategy
from espalier.decoding.strategies import STRATEGIES
from espalier.engines.base import Capabilities, Request
from espalier.engines.protocols import Engine
from espalier.errors import CapabilityError

WITHOUT_LOGITS = "mask"
"""The only strategy for an engine without logits: it applies constraints in its own way."""


def check_capabilities(engine: Engine, request: Request) -> None:
    """Raises CapabilityError, naming the field of the request, before anything is rendered, compiled or generated;
    InputError and SamplingError for settings that the strategy cannot combine."""
    can, name = engine.capabilities, engine.name
    asked = request.constraint if can.logits else without_filters(request.constraint)
    if asked is not None and asked.kind not in can.constraints:
        raise CapabilityError(
            f"{name} cannot enforce {asked.kind}",
            hint=f"it can: {', '.join(sorted(can.constraints)) or 'none'}",
            field="constraint",
        )
    if request.sampler == "native" and not can.native_sampler:
        raise CapabilityError(
            f"{name} has no sampler of its own", hint="only the llama.cpp engine has one", field="sampler"
        )
    if request.activations is not None:
        _check_activations(name, can, request.activations)
    if request.tools and "tool_calls" not in can.constraints:
        raise CapabilityError(f"{name} cannot enforce tool calls", field="tools")
    if not can.logits:
        _check_without_logits(name, request)
    _check_strategy(name, can, request)


def _check_activations(name: str, can: Capabilities, asked: Activations) -> None:
    lacking = [site for site in asked.sites if site not in can.activations]
    if lacking:
        raise CapabilityError(
            f"{name} does not give its hidden states" + (f" of {lacking[0]}" if can.activations else ""),
            hint=f"it gives: {', '.join(can.activations)}"
            if can.activations
            else "load the model's folder (safetensors): the transformers engine gives them",
            field="activations",
        )


def _check_without_logits(name: str, request: Request) -> None:
    asked = {
        "soft": ("soft constraints cannot be applied", bool(request.soft)),
        "filters": ("filters cannot be applied", bool(request.filters)),
        "strategy": (f"{request.strategy} cannot be followed", request.strategy != WITHOUT_LOGITS),
        "prompt_top": ("the tokens of a prompt have no log probabilities", request.prompt_top is not None),
        "only_prompt": ("a prompt cannot be read alone", request.only_prompt),
        "line_seconds": ("a text cannot be ended at a line", request.line_seconds is not None),
        "on_budget": ("the end of a text cannot be planned", request.decoding.on_budget != "truncate"),
    }
    for field, (refusal, is_asked) in asked.items():
        if is_asked:
            raise CapabilityError(
                f"{name} gives no logits, so {refusal}",
                hint="leave it out, or use an engine that runs the model itself",
                field=field,
            )


def _check_strategy(name: str, can: Capabilities, request: Request) -> None:
    strategy: Strategy = STRATEGIES.load(request.strategy)
    strategy.check(request.decoding, request.sampling)
    if request.line_seconds is not None and request.strategy == "beam":
        raise CapabilityError(
            "the texts of a beam search do not end at a new line by the time", hint="use mask", field="line_seconds"
        )
    asked, most = strategy.sequences(request.decoding), can.max_sequences
    if asked > 1 and not can.fork:
        raise CapabilityError(f"{name} cannot follow several texts of one prompt", field="strategy")
    if most is not None and asked > most:
        raise CapabilityError(
            f"{request.strategy} wants {asked} sequences at once; {name} holds {most}",
            hint="ask for fewer, or load the model with more (sequences=)",
            field=branches_option(request.strategy),
        )
    if strategy.truncates and not can.truncate:
        raise CapabilityError(
            f"{name} cannot take tokens back, which {request.strategy} needs",
            hint="its cache is recurrent or has a sliding window; use mask",
            field="strategy",
        )
