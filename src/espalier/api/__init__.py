"""The use cases, for every edge."""

from espalier.api.loaded import LoadedEngine
from espalier.api.requests import check_capabilities, check_text, make_request, soft_specs, split_prompts
from espalier.api.use_cases import compile, contract, default_app, generate, load  # noqa: A004  # as re.compile

__all__ = [
    "LoadedEngine",
    "check_capabilities",
    "check_text",
    "compile",
    "contract",
    "default_app",
    "generate",
    "load",
    "make_request",
    "soft_specs",
    "split_prompts",
]
