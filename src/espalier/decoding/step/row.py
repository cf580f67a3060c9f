"""`Row`: the logits of one step and what a token is drawn with; `Decision`: what comes of them. It makes no record."""

from __future__ import annotations

from typing import NamedTuple

from espalier.decoding.step.allowed import real
from espalier.decoding.step.record import Watch
from espalier.decoding.step.stages import SHORT
from espalier.sampling.chain import Chain
from espalier.sampling.draw import RandomStream
from espalier.sampling.fast.whole import drawn
from espalier.sampling.filters import FilterContext
from espalier.sampling.history import Counts
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


class Row(NamedTuple):
    """One row of logits, `(V,) float32`, and what a token is drawn with. favourite: the most probable token."""

    raw: Logits
    vocab: Vocab
    chain: Chain
    stream: RandomStream
    context: FilterContext
    favourite: int

    def draw(self, mask: Mask | None) -> tuple[int, float] | None:
        """As `drawn_quickly`."""
        return drawn_quickly(self.raw, mask, *self[1:])

    def counts(self, watch: Watch) -> Counts | None:
        """What has to be kept of the chain to decide again later; None where that cannot be done, and where it
        shall not be: the row is too long to be copied, nothing is listed, or the record is read at once."""
        can_wait = watch.lists and not watch.at_once and self.raw.shape[0] <= SHORT
        return self.chain.counts() if can_wait else None

    def kept(self) -> Row:
        """The same with a copy of the logits, which the model overwrites."""
        return Row(self.raw.copy(), *self[1:])

    def then(self, counts: Counts, began: int) -> Row:
        """The same before the token was drawn."""
        stream = RandomStream.at(self.stream.seed, self.stream.stream, began)
        return self._replace(chain=self.chain.then(counts), stream=stream)


def drawn_quickly(
    raw: Logits,
    mask: Mask | None,
    vocab: Vocab,
    chain: Chain,
    stream: RandomStream,
    context: FilterContext,
    favourite: int,
) -> tuple[int, float] | None:
    """A token and its probability; None where one kernel cannot draw it, and then no number of the stream was used."""
    if len(chain.filters) or context.step < chain.config.min_tokens:
        return None
    return drawn(raw, real(mask, vocab), chain, stream, favourite)
