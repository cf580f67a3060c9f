"""`LogitRow`: the logits of one step and what a token is drawn with. It draws by one kernel, or by the plain functions.

It makes no record, and knows nothing about models, caches or the order in which a strategy calls it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from espalier.decoding.matcher_questions import Answers
from espalier.decoding.step.allowed import NEG_INF, allowed_bits, held_back, permitted, real
from espalier.decoding.step.dead_ends import dead_end
from espalier.decoding.step.stages import favourite_of
from espalier.errors import DeadEnd
from espalier.sampling.chain import Chain
from espalier.sampling.draw import DrawnToken, RandomStream, pick
from espalier.sampling.fast.candidates import kernels
from espalier.sampling.fast.program import Program, RowInputs, inputs_of, list_inputs, new_tuple, program_of
from espalier.sampling.filters import FilterContext
from espalier.sampling.samplers.context import TransformContext
from espalier.tokens import mask as masks
from espalier.tokens.mask import Logits, Mask
from espalier.tokens.vocab import Vocab
from espalier.trace.listed import StepLines
from espalier.trace.records import StepRecord


class TokenDecision(NamedTuple):
    """token: what was taken. prob: its probability in what was drawn from. record: None at level `off`."""

    token: int
    prob: float
    record: StepRecord | None

    def written(self) -> StepRecord:
        """The record of a watched step."""
        if self.record is None:
            raise AssertionError("a step that is recorded has no record")
        return self.record


class Draw(NamedTuple):
    """One token that was drawn."""

    token: int
    prob: float
    #: after the samplers
    logit: float
    #: what the kernel drew with; None where the plain functions drew
    inputs: RowInputs | None
    #: the candidates, where they were asked for
    drawn: DrawnToken | None


class Allowed(NamedTuple):
    """The tokens that a row allows under a mask."""

    #: of the constraint, `(W,) int32`
    mask: Mask | None
    #: with the bans of the config, `(W,) int32`; None for all
    bits: Mask | None
    #: the same with the bans of filters, `(V,) bool`
    flags: NDArray[np.bool_] | None
    #: `flags` before `min_tokens` held back ends
    before: NDArray[np.bool_] | None


class LogitRow(NamedTuple):
    """One row of logits, not changed, from `row_of`. It can be drawn from as often as a strategy likes."""

    #: `(V,) float32`
    raw: Logits
    vocab: Vocab
    chain: Chain
    stream: RandomStream
    context: FilterContext
    #: the most probable token
    favourite: int
    #: what the kernel is told; None where only the plain functions know what to do
    program: Program | None
    #: whether filters change the logits, or `min_tokens` holds back the ends of the text
    is_changed: bool
    #: after biases, bans of the config and filters, where `is_changed`
    changed: Logits | None

    @property
    def is_common(self) -> bool:
        """Whether only a constraint bans tokens here, so that one kernel sums up the step."""
        return self.program is not None and self.program.is_common and not self.is_changed

    @property
    def is_early(self) -> bool:
        """Whether `min_tokens` holds back the ends of the text."""
        return self.context.step < self.chain.config.min_tokens

    @property
    def biased(self) -> Logits:
        """After biases, bans of the config and filters, `(V,) float32`; `raw` itself where there are none."""
        return self.chain.fitted.apply(self.raw) if self.changed is None else self.changed

    def allowed(self, mask: Mask | None) -> Allowed:
        """mask: the constraint's, `(W,) int32`; None without one, or where it is not asked."""
        raw, biased = self.raw, self.biased
        bits = allowed_bits(raw, mask, self.vocab, self.chain)  # (W,) int32 or None
        flags = None if bits is None else masks.unpack(bits, raw.shape[0])  # (V,) bool or None
        if biased is not raw:
            finite = biased > NEG_INF  # bans of filters shrink the allowed set
            flags = finite if flags is None else flags & finite
        before = flags
        if self.is_early:
            flags = held_back(biased, flags, self.chain.fitted.ends)
            bits = None if flags is None else masks.from_bool(flags)
        return Allowed(mask, bits, flags, before)

    def draw(self, mask: Mask | None, questions: Answers, show: int = 0, lines: StepLines | None = None) -> Draw:
        """Draw under a mask. Takes `chain.draws_per_token` numbers of the stream: first the chance of xtc, where xtc is
        on, then the draw. show: where it is above 0, the candidates are listed, at least so many of the most probable.
        lines: where the kernel writes them, of a common row; otherwise they are in what is returned.

        Raises DeadEnd, naming the constraint, field or filter that left no token; then no number was taken.
        """
        row, _, chain, stream, _, favourite, program, _, _ = self
        chance = stream.next() if chain.needs_chance else 0.0
        uniform = stream.next()
        if program is not None:
            if chain.fitted.permitted is not None:  # bans of the config
                mask_left = allowed_bits(row, mask, self.vocab, chain)
            else:
                mask_left = real(None, self.vocab) if mask is None else mask
            bits, settings = mask_left, program.drawing
            if self.changed is not None:
                row, bits, settings = self.changed, self.allowed(mask).bits, program.drawing_biased
                favourite = int(row.argmax())
            inputs = inputs_of(row, bits, chain, program, settings, favourite, chance, uniform)
            if lines is not None:
                token, prob, logit = kernels("listing").draw_listed(*inputs, show, *lines)
                if token >= 0:
                    return new_tuple(Draw, (token, prob, logit, inputs, None))
            elif show:
                listed = list_inputs(inputs, show)
                if listed is not None:
                    return new_tuple(Draw, (*listed[:3], inputs, listed))
            else:
                token, prob, logit = kernels("rows").draw_row(*inputs)
                if token >= 0:
                    return new_tuple(Draw, (token, prob, logit, inputs, None))
        try:
            drawn = self.draw_plainly(mask, chance, uniform)
        except DeadEnd:
            stream.rollback(chain.draws_per_token)
            raise self.dead_end(mask, questions) from None
        return Draw(drawn.token, drawn.prob, drawn.logit, None, drawn)

    def draw_plainly(
        self, mask: Mask | None, chance: float, uniform: float, context: TransformContext | None = None
    ) -> DrawnToken:
        """Draw with the plain functions of the samplers, over the whole row. context: what they read, where the chain
        has gone on. Raises DeadEnd."""
        bits, biased = self.allowed(mask).bits, self.biased
        masked = biased if bits is None else np.where(masks.unpack(bits, biased.shape[0]), biased, NEG_INF)
        if not bool((masked > NEG_INF).any()):
            raise DeadEnd
        return pick(self.chain.shape(masked, chance, context), uniform)

    def dead_end(self, mask: Mask | None, questions: Answers) -> DeadEnd:
        """The error of a row that leaves no token under a mask."""
        allowed = permitted(mask, self.vocab, self.raw.shape[0])
        return dead_end(allowed, self.raw, self.chain, self.context.step, questions)


def row_of(raw: Logits, vocab: Vocab, chain: Chain, stream: RandomStream, context: FilterContext) -> LogitRow:
    """Raises BadLogits for NaN, +inf or nothing finite, and what filters raise."""
    is_changed = context.step < chain.config.min_tokens or bool(chain.filters.members)
    changed = chain.bias(raw, context) if is_changed else None
    favourite, program = favourite_of(raw, context.step), chain.kept(program_of)
    return new_tuple(LogitRow, (raw, vocab, chain, stream, context, favourite, program, is_changed, changed))
