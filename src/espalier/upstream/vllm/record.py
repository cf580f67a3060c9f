"""Makes a Trace of one output of a vLLM: of each token what the model wanted, what the constraint left, what was taken.

Three cases. Under a mask of vLLM's own the reply lists what was left, and the scores of the finished text what the
model wanted: the difference of the token's two logarithms is the tax. Under our processor the reply lists what the
model wanted, and what was left is known where the constraint can be followed over the vocabulary. Else the removed mass
lies between 0 and what the token leaves, and the note says what is not known.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from espalier.constraints.base import Matcher
from espalier.errors import EspalierError
from espalier.tokens import mask as masks
from espalier.tokens.vocab import Vocab
from espalier.trace.records import Trace
from espalier.trace.steps import Candidate, Exactness, StepRecord
from espalier.upstream.vllm.reply import ListedOutput, ListedStep, ListedToken
from espalier.upstream.vllm.request import VllmRequest
from espalier.upstream.vllm.server import VllmFacts, shows_mask
from espalier.upstream.xray.record import AGAIN, ALMOST, CANCELLED, LISTED, asked_constraint

FROM = "vllm"
"""`sampler` of the trace's sampling, and what the trace was made of."""
SETTINGS = ("temperature", "top_p", "top_k", "min_p", "seed", "max_tokens", "repetition_penalty", "frequency_penalty")
NO_ID = -1
SHOWN_AGAIN = "the server was asked again"
NO_SCORES = "vLLM lists what its own mask has left, and was not asked for what the model wanted (--refill)"
NO_RAW = "this vLLM lists probabilities after its logits processors (--logprobs-mode): what the mask left is not told"
AGAIN_NATS = 0.1
"""How far a tax may be off that comes from another forward pass: the mass of a large one would be known worse."""
CLOSE = 0.01
"""Nats within which two log probabilities of two passes count as equal."""
EVEN = 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowedConstraint:
    """What is known here of the constraint of a request. spec: as JSON, None where it cannot be read. matcher: at the
    start of the text; None where it cannot be followed, and why: the reason. vocab: None where it is not known."""

    spec: Mapping[str, Any] | None = None
    matcher: Matcher | None = None
    vocab: Vocab | None = None
    why: str = ""


class StepMasses(NamedTuple):
    """Bounds of the removed mass, how many tokens are allowed (0: unknown), and whether a candidate is."""

    least: float
    most: float
    allows: Callable[[ListedToken], bool | None]
    allowed_count: int = 0
    exactness: Exactness = "bounded"
    note: str = ""


def is_masked(output: ListedOutput, request: VllmRequest, facts: VllmFacts) -> bool:
    """Whether the reply lists what a mask of vLLM's own has left."""
    return not request.is_ours and (facts.masks_first or any(map(shows_mask, output.steps)))


def needs_scores(output: ListedOutput, request: VllmRequest, facts: VllmFacts) -> bool:
    """Whether what the model wanted is told by scores alone."""
    return bool(output.prompt_ids) and (not facts.is_raw or is_masked(output, request, facts))


def trace_of(
    output: ListedOutput,
    request: VllmRequest,
    facts: VllmFacts,
    followed: FollowedConstraint,
    *,
    scores: Sequence[ListedStep] | None = None,
    index: int = 0,
) -> Trace:
    """scores: of the tokens of the output; None where the server was not asked."""
    maker = _Maker(output, request, facts, followed, scores)
    count = min(len(output.ids), len(output.steps))
    records = [maker.record(place) for place in range(count)]
    text = b"".join(record.bytes for record in records).decode("utf-8", "replace")
    if "\ufffd" in text and output.text and not output.has_calls:
        text = "".join(output.text)  # whose tokens end inside characters
    counts = {name: sum(record.exactness == name for record in records) for name in ("exact", "bounded", "untraceable")}
    reasons = [maker.reason] if maker.reason else []
    if len(output.ids) != len(output.steps):
        reasons.append(f"the reply names {len(output.ids)} tokens and lists {len(output.steps)}")
    prompt = request.prompt_of(index)
    return Trace(
        steps=tuple(records),
        text=text,
        finish_reason=output.finish or (CANCELLED if output.is_cut else "stop"),
        model=output.model,
        prompt=prompt if isinstance(prompt, str) else _spell(output.prompt_ids, followed.vocab),
        asked=request.last_said(index),
        constraint=asked_constraint(request) if followed.spec is None else followed.spec,
        sampling={
            **{name: request.body[name] for name in SETTINGS if isinstance(request.body.get(name), int | float)},
            "sampler": FROM,
        },
        strategy="mask",
        prompt_ids=tuple(output.prompt_ids),
        setup={
            "traced": FROM,
            "steps": counts,
            "rejected": 0,
            "unknown": counts["untraceable"],
            "asked_again": int(scores is not None),
            **({"reason": "; ".join(reasons)} if reasons else {}),
        },
    )


class _Maker:
    def __init__(
        self,
        output: ListedOutput,
        request: VllmRequest,
        facts: VllmFacts,
        followed: FollowedConstraint,
        scores: Sequence[ListedStep] | None,
    ) -> None:
        self._output, self._scores, self._vocab = output, scores, followed.vocab
        self._is_masked, self._is_raw = is_masked(output, request, facts), facts.is_raw
        self._matcher = None if self._is_masked else followed.matcher
        self.reason = ""
        if self._is_masked and scores is None:
            self.reason = NO_SCORES
        elif not self._is_masked and self._matcher is None:
            self.reason = f"what the constraint allowed is not known: {followed.why}" if followed.why else ""
        if not facts.is_raw:
            self.reason = NO_RAW
        has_names = any(candidate.id is None for step in output.steps for candidate in step.top)
        self._ids = _ids_of_texts(scores or (), followed.vocab if has_names and scores is None else None)

    def record(self, place: int) -> StepRecord:
        token = self._output.ids[place]
        listed = _with_id(self._output.steps[place], token)
        wanted = self._wanted(place, listed)
        masses = self._masses(token, listed, wanted)
        own = None if wanted is None else self._own(token, wanted)
        chance = 0.0 if own is None else math.exp(min(own.logprob, 0.0))
        inside = max(1.0 - masses.least, 1e-300)
        pre = () if wanted is None else self._candidates(token, wanted.top, masses, lambda value: value)
        if self._is_masked:
            left = tuple(candidate for candidate in listed.top if candidate.is_allowed)
            post = self._candidates(token, left, masses._replace(allows=lambda candidate: True), lambda value: value)
        elif wanted is None:
            post = ()
        else:
            post = tuple(
                candidate
                for candidate in self._candidates(token, wanted.top, masses, lambda value: min(1.0, value / inside))
                if candidate.allowed
            )
        drawn = next((candidate for candidate in post if candidate.id == token), None)
        if self._is_masked:
            chance = math.exp(min(listed.token.logprob, 0.0))
        chosen = self._candidate(token, listed.token, chance, None, is_allowed=True)
        is_special = self._is_special(place)
        best = None if wanted is None else max(wanted.top, key=lambda candidate: candidate.logprob, default=None)
        is_best_allowed = None if best is None else masses.allows(best)
        return StepRecord(
            step=place,
            token_id=token,
            text=chosen.text,
            bytes=b"" if is_special else chosen.bytes,
            logprob=-math.inf if own is None else min(own.logprob, 0.0),
            is_special=is_special,
            pre_masking=pre,
            post_grammar=post,
            post_chain=(),
            resampled=chosen if drawn is None else drawn,
            allowed_count=masses.allowed_count,
            removed_mass=masses.least,
            tax_nats=-math.log1p(-min(masses.least, ALMOST)),
            z_sampled=None,
            entropy_before=0.0,
            entropy_after=0.0,
            exactness=masses.exactness,
            was_changed=None if is_best_allowed is None else not is_best_allowed,
            bounds=None if masses.exactness == "exact" else (masses.least, masses.most),
            is_unknown=masses.exactness == "untraceable",
            note=masses.note,
        )

    def _wanted(self, place: int, listed: ListedStep) -> ListedStep | None:
        """What the model wanted, by its own probabilities."""
        if self._scores is not None:
            return self._scores[place]
        return listed if self._is_raw and not self._is_masked else None

    def _own(self, token: int, wanted: ListedStep) -> ListedToken:
        return next((candidate for candidate in wanted.top if candidate.id == token), wanted.token)

    def _masses(self, token: int, listed: ListedStep, wanted: ListedStep | None) -> StepMasses:
        if wanted is None:
            return StepMasses(0.0, 1.0, lambda _: None, exactness="untraceable", note=self.reason)
        own = self._own(token, wanted)
        most = -math.expm1(min(own.logprob, 0.0))
        if not self._is_raw:
            return StepMasses(0.0, most, lambda _: None, note=self.reason)
        if self._is_masked:
            return _masses_of_lists(listed, own, most)
        if self._matcher is not None:
            masses = self._followed_masses(self._matcher, token, wanted)
            if masses is not None:
                return masses
        return StepMasses(0.0, most, lambda _: None, note=self.reason)

    def _followed_masses(self, matcher: Matcher, token: int, wanted: ListedStep) -> StepMasses | None:
        """By the constraint as it is followed here; None from where that loses its place on."""
        try:
            mask = matcher.mask()
            if not masks.test(mask, token):
                self._lose("the constraint, as it is followed here, refuses a token that was taken")
                return None
            matcher.advance(token)
        except EspalierError as error:
            self._lose(str(error))
            return None

        def allows(candidate: ListedToken) -> bool | None:
            number = self._id_of(candidate)
            return None if number == NO_ID else masks.test(mask, number)

        probs = {True: [0.0], False: [0.0], None: [0.0]}
        for candidate in wanted.top:
            probs[allows(candidate)].append(math.exp(min(candidate.logprob, 0.0)))
        inside, out = math.fsum(probs[True]), math.fsum(probs[False])
        # The token may stand before its place, where it is none of the best: the others are the best.
        last = min(
            (math.exp(candidate.logprob) for candidate in wanted.top if self._id_of(candidate) != token), default=1.0
        )
        count = masks.count(mask)
        rest = max(0.0, 1.0 - inside - out)
        open_mass = min(rest, max(0, count - (len(probs[True]) - 1)) * last)
        least = min(max(0.0, out, 1.0 - inside - open_mass), 1.0)
        most = max(least, min(1.0, 1.0 - inside))
        is_exact = most - least <= EVEN
        note = "" if is_exact else "the server listed the best tokens only"
        return StepMasses(least, most, allows, count, "exact" if is_exact else "bounded", note)

    def _lose(self, why: str) -> None:
        self._matcher, self.reason = None, f"what the constraint allowed is not known: {why}"

    def _candidates(
        self, token: int, top: Sequence[ListedToken], masses: StepMasses, share: Callable[[float], float]
    ) -> tuple[Candidate, ...]:
        """The best tokens, and the one that was taken."""
        best = sorted(top, key=lambda candidate: -candidate.logprob)
        kept = [
            candidate
            for rank, candidate in enumerate(best)
            if candidate.is_allowed and (rank < LISTED or self._id_of(candidate) == token)
        ]
        return tuple(
            self._candidate(
                self._id_of(candidate),
                candidate,
                share(math.exp(min(candidate.logprob, 0.0))),
                candidate.logprob,
                is_allowed=masses.allows(candidate) is not False,
            )
            for candidate in kept
        )

    def _candidate(
        self, number: int, listed: ListedToken, prob: float, logit: float | None, *, is_allowed: bool
    ) -> Candidate:
        text, spelled = listed.text, listed.text.encode() if listed.bytes is None else listed.bytes
        if self._vocab is not None and 0 <= number < self._vocab.width:
            text, spelled = self._vocab.text_of(number), self._vocab.bytes_of(number)
        return Candidate(id=number, text=text, bytes=spelled, prob=min(1.0, prob), logit=logit, allowed=is_allowed)

    def _id_of(self, candidate: ListedToken) -> int:
        return self._ids.get(candidate.text, NO_ID) if candidate.id is None else candidate.id

    def _is_special(self, place: int) -> bool:
        if self._vocab is not None:
            return self._output.ids[place] in self._vocab.special_texts
        is_last = place == len(self._output.ids) - 1
        return (
            is_last and self._output.finish in ("stop", "tool_calls") and not isinstance(self._output.stop_reason, str)
        )


def _masses_of_lists(listed: ListedStep, own: ListedToken, most: float) -> StepMasses:
    """By two lists of a position: what a mask has left, and `own`, the token in what the model wanted."""
    tax = max(0.0, min(listed.token.logprob, 0.0) - min(own.logprob, 0.0)) if listed.token.is_allowed else 0.0
    removed = -math.expm1(-tax)
    least = max(0.0, removed - AGAIN, -math.expm1(-max(0.0, tax - AGAIN_NATS)))
    left = [candidate for candidate in listed.top if candidate.is_allowed]
    ids, texts = {candidate.id for candidate in left}, {candidate.text for candidate in left if candidate.id is None}
    has_all = shows_mask(listed)
    last = min((candidate.logprob for candidate in left), default=-math.inf)

    def allows(candidate: ListedToken) -> bool | None:
        if candidate.id in ids:
            return True
        if candidate.text in texts:
            return None if "\ufffd" in candidate.text else True
        return False if has_all or candidate.logprob + tax > last + CLOSE else None

    return StepMasses(
        min(least, ALMOST),
        max(least, min(1.0, removed + AGAIN, most)),
        allows,
        len(left) if has_all else 0,
        note=SHOWN_AGAIN,
    )


def _spell(ids: Sequence[int], vocab: Vocab | None) -> str:
    """The prompt as text, special tokens included; "" where the vocabulary is not known."""
    if vocab is None:
        return ""
    parts = [vocab.bytes_of(number) or vocab.special_texts.get(number, "").encode() for number in ids]
    return b"".join(parts).decode("utf-8", "replace")


def _with_id(listed: ListedStep, token: int) -> ListedStep:
    """The list of a position with the id of the token that was taken."""
    own = listed.token
    top = tuple(
        candidate._replace(id=token)
        if candidate.id is None and (candidate.text, candidate.logprob) == (own.text, own.logprob)
        else candidate
        for candidate in listed.top
    )
    return ListedStep(own._replace(id=token), top)


def _ids_of_texts(scores: Sequence[ListedStep], vocab: Vocab | None) -> dict[str, int]:
    """The ids of tokens by their texts, of those that have their text alone."""
    named: dict[str, int] = {}
    pairs = [(candidate.text, candidate.id) for step in scores for candidate in step.top]
    if vocab is not None:
        pairs += [(vocab.text_of(number), number) for number in range(vocab.width)]
    for text, number in pairs:
        if number is not None and "\ufffd" not in text:
            named[text] = number if named.get(text, number) == number else NO_ID
    return named
