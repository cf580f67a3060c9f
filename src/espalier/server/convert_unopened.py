"""Fields that only a part of the server opens: the word lists, thinking. A server without it refuses them."""

from __future__ import annotations

from collections.abc import Sequence

from espalier.server.errors import UnsupportedParameter
from espalier.server.schemas import SharedBody

UNOPENED = ("vocab_lang", "vocab_n_words", "vocab_constraint_mode",
            "vocab_soft_tier2_max_rank_multiplier", "vocab_soft_tier2_penalty", "vocab_soft_tier3_penalty",
            "enable_thinking")  # fmt: skip
"""Fields that a `Change` opens; what it does not open, it refuses."""
IDLE = {"enable_thinking": (False,)}
"""Values that ask for nothing."""


def refuse_unopened(body: SharedBody, opened: Sequence[str] = ()) -> None:
    """Refuse the fields of the word-list server but those that are opened. Raises UnsupportedParameter."""
    for name in UNOPENED:
        value = getattr(body, name)
        if name not in opened and value is not None and value not in IDLE.get(name, ()):
            raise UnsupportedParameter(f"{name} cannot be had here", hint="this server has no word lists", field=name)
