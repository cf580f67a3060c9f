"""The table of strategies, `STRATEGIES`, by the names under which requests ask for them."""

from __future__ import annotations

from dataclasses import replace

from espalier.decoding.beam.strategy import BEAM
from espalier.decoding.drafts.strategy import DRAFT
from espalier.decoding.faithful.strategy import AWRS, BEST_OF, SMC
from espalier.decoding.jump.strategy import JUMP
from espalier.decoding.masking import MASK
from espalier.decoding.plan import Strategy
from espalier.decoding.rejection import REJECTION
from espalier.registry import Registry

STRATEGIES = Registry(
    "strategies",
    {
        "mask": MASK,
        "rejection": REJECTION,
        "jump": JUMP,
        "beam": BEAM,
        "best_of": BEST_OF,
        "smc": SMC,
        "awrs": AWRS,
        "draft": replace(DRAFT, make_take=MASK.make_take),  # the same tokens, however many passes they took
    },
    holds=Strategy,
)
