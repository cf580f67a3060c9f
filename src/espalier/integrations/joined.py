"""What a user of an adapter names, as one constraint: the arguments of `espalier.generate`, joined by the same rule.

It knows no engine and no vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from espalier.constraints.joining.named import named_constraint
from espalier.constraints.joining.presets import merged
from espalier.constraints.joining.rule import unenforced, with_bad_words
from espalier.constraints.matching.rewinding import check_only_masks
from espalier.constraints.spec import Spec
from espalier.errors import InputError
from espalier.sampling.presets.spec import Preset


class ConstraintWithNotes(NamedTuple):
    """spec: all that holds. notes: what does not hold, for the user."""

    spec: Spec
    notes: tuple[str, ...]


def joined(
    *,
    preset: Preset | None = None,
    bad_words: Sequence[str] = (),
    who: str = "this processor",
    elsewhere: str = "generate(suppress_tokens=...)",
    **named: Any,
) -> ConstraintWithNotes:
    """Join what a request asks for; only the constraint and the bad words of a preset hold.

    named: as `named_constraint` takes them. who, elsewhere: for messages: who enforces, and where tokens can be banned
    instead. Raises InputError and its subclasses, naming the argument, and CapabilityError for a constraint that takes
    text back.
    """
    spec = named_constraint(**named)
    notes: tuple[str, ...] = ()
    if preset is not None:
        spec, sampling, notes = merged(preset, constraint=spec)
        spec = with_bad_words(spec, sampling.bad_words)
        banned = [key for key, bias in sampling.logit_bias if bias == -math.inf]
        if banned:
            raise InputError(
                f"the preset {preset.name!r} bans tokens, which {who} cannot: {str(banned)[:80]}",
                hint=f"ban them with {elsewhere}, and leave them out of the preset",
                field="preset",
            )
        notes += (f"the sampling of the preset {preset.name!r} is not applied: give it to generate itself",)
    spec = with_bad_words(spec, bad_words)
    if spec is None:
        raise InputError("there is nothing to enforce", hint="a constraint, or a preset with one", field="constraint")
    check_only_masks(spec, "a logits processor", field="constraint")
    return ConstraintWithNotes(spec, (*notes, *unenforced(spec)))
