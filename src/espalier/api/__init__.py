"""The use cases, for every edge: load, generate, compile, contract, and requests built from what users pass. Start with
`use_cases.py` and `loaded.py`."""

from espalier.api.installed import plugins
from espalier.api.loaded import LoadedEngine
from espalier.api.requests import check_text, make_request, outputs_of, soft_specs, split_prompts
from espalier.api.use_cases import (
    PresetBuilder,
    compile,  # noqa: A004  # as re.compile
    contract,
    default_app,
    explain,
    generate,
    get_preset,
    load,
    schema_to_gbnf,
    to_llguidance,
    to_xgrammar,
    try_preset,
)
from espalier.engines.capabilities import check_capabilities

__all__ = [
    "LoadedEngine",
    "PresetBuilder",
    "check_capabilities",
    "check_text",
    "compile",
    "contract",
    "default_app",
    "explain",
    "generate",
    "get_preset",
    "load",
    "make_request",
    "outputs_of",
    "plugins",
    "schema_to_gbnf",
    "soft_specs",
    "split_prompts",
    "to_llguidance",
    "to_xgrammar",
    "try_preset",
]
