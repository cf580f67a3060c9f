"""Who gets the reports of the processor: a function of the user's, our store, or both, as the configuration says."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from espalier.errors import InputError
from espalier.integrations.vllm.report import Reporter, StepReport


def reporter_of(config: Any, own: Reporter | None) -> Reporter | None:
    """What the configuration names, else the class's own; none on other ranks than the first, since all ranks sample
    the same tokens. Raises InputError, and what opening a store raises."""
    if getattr(getattr(config, "parallel_config", None), "rank", 0) != 0:
        return None
    options = getattr(config, "additional_config", None) or {}
    asked = options.get("espalier", {}) if isinstance(options, dict) else {}
    told = own if asked.get("reporter") is None else _import_reporter(str(asked["reporter"]))
    if asked.get("store") is None:
        return told
    from espalier.integrations.vllm.keeping import store_reporter  # noqa: PLC0415  # the extra [server]

    model = str(getattr(getattr(config, "model_config", None), "model", None) or "vllm")
    kept = store_reporter(str(asked["store"]), model=model)
    if told is None:
        return kept
    function = told

    def both(step: StepReport) -> None:
        kept(step)
        function(step)

    return both


def _import_reporter(name: str) -> Reporter:
    module, _, attribute = name.partition(":")
    try:
        reporter: Reporter = getattr(import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise InputError(
            f"the reporter {name!r} cannot be imported: {error}", hint="MODULE:FUNCTION", field="reporter"
        ) from error
    return reporter
