"""All samplers, in the default order. The config's fields, the names in other servers and the chain follow from them.

To add a sampler: a pure function and its `Sampler` in the module of its kind (a new kind is a module of its own, and a
place in `SAMPLERS`), `python scripts/option_tables.py`, which writes the type of its options, and a row in
docs/sampling.md.
"""

from __future__ import annotations

from espalier.sampling.samplers.dry import DRY
from espalier.sampling.samplers.penalties import PENALTIES
from espalier.sampling.samplers.sampler import Sampler, Transform
from espalier.sampling.samplers.temperature import TEMPERATURE
from espalier.sampling.samplers.truncations import TRUNCATIONS

SAMPLERS: dict[str, Sampler] = {sampler.name: sampler for sampler in (PENALTIES, DRY, *TRUNCATIONS, TEMPERATURE)}
"""llama.cpp's order: penalise and truncate the model's own distribution, then apply the temperature."""

TRANSFORMS: dict[str, Transform] = {name: sampler.transform for name, sampler in SAMPLERS.items()}
UNTRUNCATED = frozenset(name for name, sampler in SAMPLERS.items() if not sampler.truncates)
"""Samplers that remove no token: p' of docs/strategies.md is made with these."""
