"""The errors of a step that leaves no token: they name what is in the way. It draws nothing."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from espalier.decoding.matcher_questions import Answers
from espalier.decoding.step.allowed import NEG_INF
from espalier.errors import DeadEnd, Stranded
from espalier.sampling.chain import Chain
from espalier.tokens.mask import Logits

APART = "change a member, so that some text satisfies all of them"


def dead_end(allowed: NDArray[np.bool_] | None, raw: Logits, chain: Chain, step: int, questions: Answers) -> DeadEnd:
    """The error that names what left no token: the members of the constraint, the first field of the config after whose
    ban none was left, or a filter. allowed: by the constraint alone. It is Stranded where the request itself asks for
    things that share no token."""
    left = raw > NEG_INF if allowed is None else allowed & (raw > NEG_INF)  # (V,) bool
    if not bool(left.any()):
        reason = f"no token is allowed at step {step} and the text is not complete"
        names = () if allowed is None or bool(allowed.any()) else questions.member_names()
        return stranded(names, reason) if names else DeadEnd(reason)
    for name, banned in chain.fitted.bans:
        left &= ~banned
        if not bool(left.any()):
            return Stranded(f"{name} bans every token that is left at step {step}", field=name)
    return DeadEnd(f"the filters ({', '.join(chain.filters.names)}) ban every token that is left at step {step}")


def stranded(names: Sequence[str], reason: str, *, hint: str = APART) -> Stranded:
    """The error for members of a constraint that allow no token in common."""
    return Stranded(f"{reason}: {' and '.join(names)} allow none in common", hint=hint, field="constraint")
