"""What every plan asks of a matcher beside its mask: why a token is refused, what the members allow, how a text ended.

It knows nothing of how tokens are drawn.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from espalier.automata.reasons.blame import Blame
from espalier.constraints.base import Composite, Matcher, Ruled
from espalier.decoding.plan import FinishReason, Job, Outcome
from espalier.decoding.stops import TextAssembler
from espalier.decoding.token_limit import BudgetMatcher, exceeded
from espalier.errors import LimitExceeded, NotAvailable
from espalier.tokens.mask import Mask


def explained(matcher: Matcher | None, token: int) -> Blame | None:
    """Why the constraint refuses a token; None where it does not, and where that cannot be known."""
    if matcher is None or matcher.allows(token):
        return None  # padding or a filter's ban: not the constraint's doing
    try:
        return matcher.explain(token)
    except (NotAvailable, LimitExceeded):
        return None  # the record then says that it was refused, and not why


def member_masks(composite: Composite | None) -> Sequence[tuple[str, Mask]]:
    """The masks of a composition's members; none where there are none, or they cannot be had."""
    if composite is None:
        return ()
    try:
        return composite.member_masks()
    except (NotAvailable, LimitExceeded):
        return ()  # the record then says how much was removed, and not by whom


def ruler(matcher: Matcher | None) -> Callable[[int], str | None]:
    """Tells the rule in which a token that is allowed begins; None where the constraint has no rules, or cannot tell.
    To be made once for a sequence: the check is slow."""
    if not isinstance(matcher, Ruled):
        return lambda token: None

    def told(token: int) -> str | None:
        try:
            return matcher.rule_of(token)
        except (NotAvailable, LimitExceeded):
            return None  # the record then says what the token cost, and not where

    return told


def outcome(
    job: Job, generated: list[int], assembler: TextAssembler, finish: FinishReason, stop: str | int | None,
    *, mask_seconds: float | None = None,
) -> Outcome:  # fmt: skip
    """The end of a plan. Raises BudgetExceeded where the text is not complete, and was to be an error then."""
    tail = assembler.finish()
    matcher = job.matcher
    is_closed = isinstance(matcher, BudgetMatcher) and matcher.decided and matcher.is_finished
    is_complete = matcher is None or matcher.is_finished or (finish == "length" and matcher.is_accepting)
    if finish == "length" and not is_complete and matcher is not None and job.options.on_budget == "error":
        raise exceeded(matcher, len(generated))
    # The held-back tail can itself complete a stop text: none does, since `finish` is only reached without one.
    return Outcome(
        tokens=tuple(generated),
        text=assembler.text,
        tail=tail.text,
        finish="length" if is_closed else finish,
        stop=stop if stop is not None else tail.stop,
        # A stop text may end the output with more tokens taken than shown: then the matcher's state is not the text's.
        is_complete=is_complete,
        mask_seconds=mask_seconds,
        closed_by_budget=is_closed,
    )
