"""vLLM's and SGLang's interfaces as published, under their own names where those are not installed (`tests/doubles/`).

Import it before `espalier.integrations.vllm` and `.sglang`. Only the modules that each adapter needs get a double:
whoever asks whether vLLM is installed still learns that it is not.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path

FOLDER = Path(__file__).parent / "doubles"
VLLM = "vllm.v1.sample.logits_processor"
VLLM_V2 = "vllm.v1.worker.gpu.sample.logits_processor"
SGLANG = "sglang.srt.constrained.base_grammar_backend"
HAS_VLLM = find_spec("vllm") is not None
HAS_SGLANG = find_spec("sglang") is not None


def stand_in(name: str) -> None:
    """Import the double of a module under the module's name."""
    spec = spec_from_file_location(name, (FOLDER / name.replace(".", "/")).with_suffix(".py"))
    if spec is None or spec.loader is None:
        raise ImportError(f"{name} has no double in {FOLDER}")
    module = sys.modules[name] = module_from_spec(spec)
    spec.loader.exec_module(module)


for is_installed, name in ((HAS_VLLM, VLLM), (HAS_VLLM, VLLM_V2), (HAS_SGLANG, SGLANG)):
    if not is_installed and name not in sys.modules:
        stand_in(name)
