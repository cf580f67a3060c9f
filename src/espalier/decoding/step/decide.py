"""One step: from raw logits and a token mask to a token and its record. Mask, sampler chain, draw, in this order.

::

    raw (V,)  ─────────────┐        mask (W,)                chain, stream
                           │           │                          │
    row.py        Row: favourite, bans, filters, min_tokens       │
                           │                                      │
                           ▼                                      ▼
    program.py    settings: biases, samplers in their order, as numbers
                           │
            kernels/rows.py│draw_row ──── -1 ────┐  the last digits of a sum would decide,
                           │                     │  or mirostat, a plug-in, nothing allowed
                           │              Chain.shape, pick      (sampling/samplers/)
                           ▼                     ▼
                  Draw: token, probability, logit, what it was drawn with
                           │
                           ├── level off ──▶ no record
    observed.py            ├── summary ────▶ sums now (kernels/steps.py), record when it is read
                           ├── steps, a common short row ──▶ sums and lists now, as a row of numbers
                           │                                 (kernels/listing.py), record when it is read
                           ├── steps, full, another short row ──▶ copies now, record and lists when they are read
                           └── a long row, filters, DRY, mirostat ──▶ record and lists now

An example. The row is ln of 0.5, 0.25, 0.125, 0.125, the mask allows tokens 1, 2 and 3, the config has `top_k=2` and
else nothing, and the stream's next number is 0.7. The favourite is token 0, which the mask refuses: `was_changed`. Z is
0.5, so the tax is ln 2. top_k keeps 1 and 2 (of the equal 2 and 3 the lower id), with 2/3 and 1/3. The sum of these in
order of id passes 0.7 at token 2: it is taken, with probability 1/3 and `logprob` ln 0.125.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from espalier.decoding.matcher_questions import NO_MATCHER, MatcherQuestions
from espalier.decoding.step.allowed import NEG_INF
from espalier.decoding.step.observed import lines_of, lists_at_once, observe, record_row
from espalier.decoding.step.record import Watch
from espalier.decoding.step.row import Draw, TokenDecision, row_of
from espalier.sampling.chain import Chain
from espalier.sampling.draw import DrawnToken, RandomStream
from espalier.sampling.fast.program import new_tuple
from espalier.sampling.filters import FilterContext
from espalier.tokens import mask as masks
from espalier.tokens.mask import Logits, Mask
from espalier.tokens.vocab import Vocab
from espalier.trace.records import StepRecord


def decide(
    raw: Logits,
    mask: Mask | None,
    *,
    vocab: Vocab,
    chain: Chain,
    stream: RandomStream,
    context: FilterContext,
    watch: Watch,
    questions: MatcherQuestions = NO_MATCHER,
) -> TokenDecision:
    """Mask, then chain, then draw. `raw` is `(V,) float32` and is not changed; `mask` is `(W,) int32` or None.

    Takes `chain.draws_per_token` numbers of the stream: first the chance of xtc, where xtc is on, then the draw. The
    chain is not changed: the caller calls `chain.on_token` with the token and its probability.

    questions: about the matcher that made the mask; asked for the record alone. Where the filters ban anything, a
    recorded step asks them a second time, one by one. Where nothing else is in the way, a record with lists is made
    when it is read: the step keeps a copy of a short row, of the mask and of the counts that penalties look at.

    Raises BadLogits for NaN, +inf or nothing finite, DeadEnd where nothing is allowed.
    """
    row = row_of(raw, vocab, chain, stream, context)
    lines = None if watch.table is None else lines_of(row, watch.table, questions)
    if lines is not None:
        draw = row.draw(mask, questions, watch.top_k, lines)
    else:
        draw = row.draw(mask, questions, max(1, watch.top_k) if watch.lists and lists_at_once(row, watch) else 0)
    if watch.refused is not None and mask is not None and not masks.test(mask, row.favourite):
        watch.refused[context.step] = row.favourite
    record = observe(row, mask, draw, None, watch, questions, lines) if watch.is_on else None
    return new_tuple(TokenDecision, (draw.token, draw.prob, record))


def decide_late(
    raw: Logits,
    mask: Callable[[], Mask],
    allows: Callable[[int], bool],
    *,
    vocab: Vocab,
    chain: Chain,
    stream: RandomStream,
    context: FilterContext,
    watch: Watch,
    questions: MatcherQuestions = NO_MATCHER,
) -> TokenDecision:
    """Chain, draw, and only where `allows` refuses the drawn token: mask, chain, draw again. The rest is as `decide`.

    mask: builds the mask, `(W,) int32`, of the tokens that `allows` allows. It is called once where the token was
    refused or the step is recorded, and else not at all. A second draw takes `chain.draws_per_token` numbers more. The
    blame is the reason why the drawn token was refused, or, where it was not, why the top choice was.
    """
    row = row_of(raw, vocab, chain, stream, context)
    show = max(1, watch.top_k) if watch.lists and lists_at_once(row, watch) else 0
    draw, rejected = row.draw(None, questions, show), None
    if not allows(draw.token):
        bits = mask()
        draw, rejected = row.draw(bits, questions, show), draw
    elif watch.is_on:
        bits = mask()
    if watch.refused is not None and not allows(row.favourite):
        watch.refused[context.step] = row.favourite
    if not watch.is_on:
        return TokenDecision(draw.token, draw.prob, None)
    return TokenDecision(draw.token, draw.prob, observe(row, bits, draw, rejected, watch, questions))


def record_forced(
    raw: Logits,
    token: int,
    mask: Mask | None,
    *,
    vocab: Vocab,
    chain: Chain,
    context: FilterContext,
    watch: Watch,
    questions: MatcherQuestions = NO_MATCHER,
) -> StepRecord | None:
    """The record of an allowed token that is taken without a draw; None at level `off`. Arguments as in `decide`.

    What the model wanted and what the constraint removed are as in any step. `post_chain` holds the token alone.
    `z_sampled` is the token's probability after penalties, bias and temperature over the whole vocabulary: the share of
    this step in the weight of the text. Raises BadLogits, DeadEnd.
    """
    if not watch.is_on:
        return None
    nothing = RandomStream(0, 0)  # nothing is drawn from it
    row = row_of(raw, vocab, chain, nothing, context)
    flags = row.allowed(mask).flags
    alive = row.biased > NEG_INF  # (V,) bool
    if not bool((alive if flags is None else alive & flags).any()):
        raise row.dead_end(mask, questions)
    logit = float(raw[token])
    drawn = DrawnToken(token, 1.0, logit, np.array([token]), np.ones(1), raw[[token]])
    return record_row(row, mask, Draw(token, 1.0, logit, None, drawn), None, watch, questions, was_forced=True)
