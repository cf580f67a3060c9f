"""One step: from raw logits and a mask to a token and its record. The only writer of the stages.

It knows nothing about models, caches or strategies' order of calls.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from espalier.automata.blame import Blame
from espalier.errors import BadLogits, DeadEnd
from espalier.sampling.chain import Chain
from espalier.sampling.draw import RandomStream, draw
from espalier.sampling.filters import FilterContext
from espalier.tokens import mask as masks
from espalier.tokens.mask import Logits, Mask
from espalier.tokens.vocab import Vocab
from espalier.trace.measure import Measures, allowed_mass, measure, removed_by
from espalier.trace.records import Candidate, StepRecord

TraceLevel = Literal["off", "measures", "full"]
"""off: nothing recorded. measures: masses and entropies. full: candidates of every stage too."""
NEG_INF = np.float32(-np.inf)
NEAR = 4  # how many times k of the best of all are looked at for the k best allowed


class Watch(NamedTuple):
    """How much of a step is written down. top_k: candidates per stage at level `full`."""

    level: TraceLevel = "full"
    top_k: int = 10


class Decision(NamedTuple):
    """token: what was taken. prob: its probability in what was drawn from. record: None at level `off`."""

    token: int
    prob: float
    record: StepRecord | None


def decide(
    raw: Logits,
    mask: Mask | None,
    *,
    vocab: Vocab,
    chain: Chain,
    stream: RandomStream,
    context: FilterContext,
    watch: Watch,
    explain: Callable[[int], Blame | None] = lambda token: None,
    members: Callable[[], Sequence[tuple[str, Mask]]] = tuple,
) -> Decision:
    """Mask, then chain, then draw. `raw` is `(V,) float32` and is not changed; `mask` is `(W,) int32` or None.

    explain: why a token is refused, or None where that is not known; asked for the model's favourite if it is.
    members: the masks of a composition's members, in order of blame; nothing where there are none. Asked at level full.

    Raises BadLogits for NaN, +inf or nothing finite, DeadEnd where nothing is allowed.
    """
    top = float(raw.max())
    if not math.isfinite(top):
        what = "NaN" if math.isnan(top) else "an infinite logit" if top > 0 else "no finite logit"
        raise BadLogits(f"the model gave {what} at step {context.step}")
    allowed = _allowed(raw, mask, vocab)  # (V,) bool or None
    biased = chain.bias(raw, context)  # (V,) float32
    if biased is not raw:
        finite = biased > NEG_INF  # bans of filters shrink the allowed set
        allowed = finite if allowed is None else allowed & finite
    masked = biased if allowed is None else np.where(allowed, biased, NEG_INF)  # (V,) float32
    if allowed is not None and not bool((masked > NEG_INF).any()):
        raise DeadEnd(f"no token is allowed at step {context.step} and the text is not complete")
    shaped = chain.shape(masked)  # (V,) float32
    drawn = draw(shaped, stream)
    if watch.level == "off":
        return Decision(drawn.token, drawn.prob, None)
    numbers = measure(raw, allowed)
    z_sampled = None
    if not chain.config.is_greedy:
        z_sampled = allowed_mass(chain.heat(biased), allowed)
    stages = _Stages(raw, allowed, numbers, vocab, drawn.token, watch.top_k)
    full = watch.level == "full"
    favourite = int(np.argmax(raw))
    record = StepRecord(
        step=context.step,
        token_id=drawn.token,
        text=vocab.text_of(drawn.token),
        bytes=vocab.bytes_of(drawn.token),
        logprob=float(raw[drawn.token]) - numbers.log_total,
        pre_masking=stages.wanted() if full else (),
        post_grammar=stages.allowed() if full else (),
        post_chain=stages.sampled(drawn.ids, drawn.probs, shaped) if full else (),
        resampled=stages.candidate(drawn.token, drawn.prob, float(shaped[drawn.token])),
        allowed_count=int(np.count_nonzero(allowed)) if allowed is not None else raw.shape[0],
        removed_mass=numbers.removed_mass,
        tax_nats=numbers.tax_nats,
        z_sampled=z_sampled,
        entropy_before=numbers.entropy_before,
        entropy_after=numbers.entropy_after,
        is_special=drawn.token in vocab.special_texts,
        blame=explain(favourite) if full and allowed is not None and not allowed[favourite] else None,
        removed_by=_removed_by(raw, allowed, members()) if full and allowed is not None else (),
    )
    return Decision(drawn.token, drawn.prob, record)


def _allowed(raw: Logits, mask: Mask | None, vocab: Vocab) -> NDArray[np.bool_] | None:
    """The padding rule for a row without a constraint: ids past the tokenizer's last are forbidden all the same."""
    if mask is not None:
        return masks.unpack(mask, raw.shape[0])
    return vocab.real_ids if vocab.has_padding else None


def _removed_by(
    raw: Logits, allowed: NDArray[np.bool_], members: Sequence[tuple[str, Mask]]
) -> tuple[tuple[str, float], ...]:
    if not members:
        return ()
    return removed_by(raw, allowed, [(name, masks.unpack(mask, raw.shape[0])) for name, mask in members])


class _Stages:
    """Builds the candidate lists of one step; each holds the top k and always the chosen token."""

    def __init__(
        self,
        raw: Logits,
        allowed: NDArray[np.bool_] | None,
        numbers: Measures,
        vocab: Vocab,
        chosen: int,
        top_k: int,
    ) -> None:
        self._raw, self._allowed, self._numbers = raw, allowed, numbers
        self._vocab, self._chosen, self._k = vocab, chosen, top_k

    def candidate(self, token: int, prob: float, logit: float) -> Candidate:
        return Candidate(
            id=token,
            text=self._vocab.text_of(token),
            bytes=self._vocab.bytes_of(token),
            prob=prob,
            logit=logit if math.isfinite(logit) else None,
            allowed=self._allowed is None or bool(self._allowed[token]),
        )

    def wanted(self) -> tuple[Candidate, ...]:
        return self._list(self._raw, self._numbers.log_total)

    def allowed(self) -> tuple[Candidate, ...]:
        if self._allowed is None:
            return self.wanted()
        # Mostly the best allowed tokens are among the best of all; only else is the masked row looked through.
        near = [int(i) for i in _top(self._raw, NEAR * self._k) if self._allowed[i]][: self._k]
        if len(near) < self._k:
            return self._list(np.where(self._allowed, self._raw, NEG_INF), self._numbers.log_allowed)
        return self._candidates(near, self._raw, self._numbers.log_allowed)

    def sampled(self, ids: NDArray[np.intp], probs: NDArray[np.float64], shaped: Logits) -> tuple[Candidate, ...]:
        order = _top(probs, self._k)
        chosen = [int(i) for i in np.flatnonzero(ids == self._chosen) if i not in order]
        places = [*map(int, order), *chosen]
        return tuple(self.candidate(int(ids[i]), float(probs[i]), float(shaped[ids[i]])) for i in places)

    def _list(self, logits: Logits, log_sum: float) -> tuple[Candidate, ...]:
        ids = [int(i) for i in _top(logits, self._k) if logits[i] > NEG_INF]
        return self._candidates(ids, logits, log_sum)

    def _candidates(self, ids: list[int], logits: Logits, log_sum: float) -> tuple[Candidate, ...]:
        if self._chosen not in ids:
            ids.append(self._chosen)
        return tuple(self.candidate(i, math.exp(float(logits[i]) - log_sum), float(self._raw[i])) for i in ids)


def _top(values: NDArray[np.floating], k: int) -> NDArray[np.intp]:
    """The places of the k largest, largest first, ties by place. Never a full sort of V."""
    if k <= 0:
        return np.empty(0, dtype=np.intp)
    if k < values.shape[0]:
        edge = np.partition(values, values.shape[0] - k)[values.shape[0] - k]
        places = np.flatnonzero(values >= edge)  # may hold more than k, where the edge is tied
    else:
        places = np.arange(values.shape[0])
    return places[np.argsort(-values[places], kind="stable")][:k]
