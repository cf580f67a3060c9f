"""The record of a token that was not drawn: its step as it would have been, and the token that was taken instead.

It knows neither why the token was forced nor who decided so.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from espalier.automata.reasons.blame import Blame
from espalier.decoding.stages import NEG_INF
from espalier.decoding.step import Watch, decide
from espalier.sampling.chain import Chain
from espalier.sampling.draw import RandomStream
from espalier.sampling.fast.draw_fast import heated
from espalier.sampling.filters import FilterContext
from espalier.tokens.mask import Logits, Mask
from espalier.tokens.vocab import Vocab
from espalier.trace.measure import allowed_mass
from espalier.trace.records import Candidate, StepRecord


def is_refused(raw: Logits, token: int, chain: Chain, context: FilterContext) -> bool:
    """Whether a ban of the config or a filter would not let this token be drawn from `(V,) float32`."""
    return bool(chain.bias(raw, context)[token] == NEG_INF)


def forced_step(
    raw: Logits,
    token: int,
    mask: Mask | None,
    *,
    vocab: Vocab,
    chain: Chain,
    context: FilterContext,
    watch: Watch,
    explain: Callable[[int], Blame | None] = lambda token: None,
    members: Callable[[], Sequence[tuple[str, Mask]]] = tuple,
    rule: Callable[[int], str | None] = lambda token: None,
) -> StepRecord | None:
    """As `decide`, for an allowed token that is taken without a draw; None at level `off`. Changes nothing.

    What the model wanted and what the constraint removed are as in any step. `post_chain` holds the token alone.
    `z_sampled` is the token's own probability after penalties, bias and temperature on the whole vocabulary: its share
    in the weight of the text (design, section 4). Raises BadLogits, DeadEnd.
    """
    if watch.level == "off":
        return None
    # Any stream will do: what is drawn from it is not taken.
    other = decide(
        raw, mask, vocab=vocab, chain=chain, stream=RandomStream(0, 0), context=context, watch=watch,
        explain=explain, members=members,
    ).record  # fmt: skip
    if other is None:
        raise AssertionError("a step that is watched has a record")
    log_total = float(raw[other.token_id]) - other.logprob  # ln of the sum of exp(logit)
    logprob = float(raw[token]) - log_total

    def candidate(prob: float) -> Candidate:
        return Candidate(
            id=token,
            text=vocab.text_of(token),
            bytes=vocab.bytes_of(token),
            prob=prob,
            logit=float(raw[token]) if math.isfinite(raw[token]) else None,
        )

    def holding(found: Sequence[Candidate], log_sum: float) -> Sequence[Candidate]:
        best = tuple(found)[: watch.top_k]  # what comes after them is the token that was drawn
        is_there = not found or any(one.id == token for one in best)
        return best if is_there else (*best, candidate(math.exp(float(raw[token]) - log_sum)))

    is_full = bool(other.pre_masking)
    return replace(
        other,
        token_id=token,
        text=vocab.text_of(token),
        bytes=vocab.bytes_of(token),
        logprob=logprob,
        pre_masking=holding(other.pre_masking, log_total),
        post_grammar=holding(other.post_grammar, log_total - other.tax_nats),
        post_chain=(candidate(1.0),) if is_full else (),
        resampled=candidate(1.0),
        z_sampled=None if other.z_sampled is None else _own_mass(raw, token, chain, context),
        is_special=token in vocab.special_texts,
        was_forced=True,
        rule=rule(token),
    )


def _own_mass(raw: Logits, token: int, chain: Chain, context: FilterContext) -> float:
    """p' of one token: over all tokens, what is banned among them as it was before."""
    row = chain.fitted.add(raw)
    if len(chain.filters):
        biased = chain.bias(raw, context)
        row = np.where(biased > NEG_INF, biased, row)  # (V,) float32
    only = np.zeros(raw.shape[0], dtype=np.bool_)  # (V,)
    only[token] = True
    return allowed_mass(heated(row, chain), only)
