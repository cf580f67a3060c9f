"""`Row`: the logits of one step and what a token is drawn with. It draws by one kernel, or by the plain functions.

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
from espalier.sampling.fast.program import RowInputs, draw_inputs, inputs_of, list_inputs, new_tuple, program_of
from espalier.sampling.filters import FilterContext
from espalier.sampling.samplers.context import TransformContext
from espalier.tokens import mask as masks
from espalier.tokens.mask import Logits, Mask
from espalier.tokens.vocab import Vocab
from espalier.trace.records import StepRecord


class Decision(NamedTuple):
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


class Row:
    """One row of logits, `(V,) float32`, not changed. It can be drawn from as often as a strategy likes.

    Raises BadLogits for NaN, +inf or nothing finite.
    """

    __slots__ = (
        "_biased", "chain", "context", "favourite", "has_filters", "is_early", "program", "raw", "stream", "vocab",
    )  # fmt: skip

    def __init__(self, raw: Logits, vocab: Vocab, chain: Chain, stream: RandomStream, context: FilterContext) -> None:
        self.raw, self.vocab, self.chain, self.stream, self.context = raw, vocab, chain, stream, context
        #: the most probable token
        self.favourite = favourite_of(raw, context.step)
        self.has_filters = len(chain.filters) > 0
        #: whether `min_tokens` holds back the ends of the text
        self.is_early = context.step < chain.config.min_tokens
        #: what the kernel is told; None where only the plain functions know what to do
        self.program = chain.kept(program_of)
        self._biased: Logits | None = None

    @property
    def is_common(self) -> bool:
        """Whether only a constraint bans tokens here, so that one kernel sums up the step."""
        return self.program is not None and self.program.is_common and not (self.has_filters or self.is_early)

    @property
    def biased(self) -> Logits:
        """After biases, bans of the config and filters; `raw` itself where there are none."""
        if self._biased is None:
            self._biased = self.chain.bias(self.raw, self.context)
        return self._biased

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

    def draw(self, mask: Mask | None, questions: Answers, show: int = 0) -> Draw:
        """Draw under a mask. Takes `chain.draws_per_token` numbers of the stream: first the chance of xtc, where xtc is
        on, then the draw. show: where it is above 0, the candidates are listed, at least so many of the most probable.

        Raises DeadEnd, naming the constraint, field or filter that left no token; then no number was taken.
        """
        chain, stream, row, favourite, program = self.chain, self.stream, self.raw, self.favourite, self.program
        chance = stream.next() if chain.needs_chance else 0.0
        uniform = stream.next()
        if program is not None:
            bits, settings = real(None, self.vocab) if mask is None else mask, program.drawing
            if self.has_filters or self.is_early:
                row, bits, settings = self.biased, self.allowed(mask).bits, program.drawing_biased
                favourite = int(row.argmax())
            inputs = inputs_of(row, bits, chain, program, settings, favourite, chance, uniform)
            if show:
                listed = list_inputs(inputs, show)
                if listed is not None:
                    return new_tuple(Draw, (*listed[:3], inputs, listed))
            else:
                token, prob, logit = draw_inputs(inputs)
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

    def copied(self, raw: Logits) -> Row:
        """The same with other logits, for after the model has overwritten its own."""
        other = object.__new__(Row)
        other.raw, other.vocab, other.chain, other.stream = raw, self.vocab, self.chain, self.stream
        other.context, other.favourite = self.context, self.favourite
        other.has_filters, other.is_early, other.program = self.has_filters, self.is_early, self.program
        other._biased = None
        return other
