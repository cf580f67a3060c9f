"""Compare an event of a rejection log with the step of a reply that it would belong to.

An event can contradict the reply, agree with it (in the token taken, in the probabilities of the candidates, in a
rejection that the reply proves by itself), or say nothing. How much an agreement is worth is in bits: the less likely
it is by chance, the more. This module knows one event and one reply, and nothing of tasks.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from espalier.trace.foreign.estimate import Estimate, ranked_of
from espalier.trace.foreign.placing import PlacedSequence
from espalier.trace.foreign.responses import ApiStep, finite, spelled_bytes, whole

LOST = "\ufffd".encode()
"""The bytes that llama-server gives for a part of a character: they carry no information."""
SAME, OTHER = 0.005, 0.05
"""Nats: log probabilities within SAME are the same number, those beyond OTHER are two."""
TELLING = (1e-6, 0.999)
"""Probabilities between these tell one context from another; 1.0 is common to many."""
RAREST = 6.0
PER_PROBABILITY, MOST_FOR_PROBABILITIES = 4.0, 12.0
SAME_TOKEN = 10.0
"""Bits where the reply proves that this very token was rejected. That some token was, where the grammar allows one
token only, is common to all requests with that grammar."""
LEFT_OUT = 16
"""Characters, or tokens, at the end of a text that may not be in it."""
COMPARED = 50
"""The most candidates of an event that are compared."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EventComparison:
    """conflict: why the event cannot belong to the reply, "" if it can. by_id, by_text: whether the token taken is the
    reply's. probabilities: how many candidates have the reply's probability. is_proven: whether the reply itself proves
    that a token was rejected here; is_same_token: and that it was this one. bits: what all that is worth. drawn: the
    probability with which the event's token was drawn again, None if it does not say."""

    conflict: str = ""
    by_id: bool = False
    by_text: bool = False
    probabilities: int = 0
    is_proven: bool = False
    is_same_token: bool = False
    bits: float = 0.0
    drawn: float | None = None

    @property
    def agrees(self) -> bool:
        return self.by_id or self.by_text or self.probabilities > 0 or self.is_proven


NOTHING = EventComparison()


class Evidence:
    """The reply's side. estimates: one for each token of `placed`, None if the reply allows none. is_exact: whether
    candidates of the log are known to be those of the model before the mask, as in a log of Espalier; another
    probability is then a contradiction. text: of a reply without log probabilities, "" if it lacks a part; None for one
    with log probabilities."""

    def __init__(
        self,
        reply: PlacedSequence,
        estimates: Sequence[Estimate] | None,
        *,
        is_exact: bool = False,
        text: str | None = None,
    ) -> None:
        self.reply, self.estimates, self.is_exact, self.text = reply, estimates, is_exact, text
        self._counts = Counter(_key(step.id, _spell_step(step)) for step in reply.steps)

    def compare_next(self, event: Mapping[str, Any], at: int) -> tuple[EventComparison, int]:
        """The comparison with the next event of a task, and how far its tokens reach in the reply's text. at: how far
        those of its earlier events do."""
        compared = self.compare(event)
        resampled = event.get("resampled")
        word = resampled.get("text") if isinstance(resampled, Mapping) else None
        if not self.text or compared.conflict or not isinstance(word, str) or not word.strip() or "\ufffd" in word:
            return compared, at
        position = self.text.find(word.strip(), at)
        if position >= 0:
            bits = min(RAREST, float(len(word.strip()))) if any(character.isalnum() for character in word) else 0.0
            return replace(compared, by_text=True, bits=bits), position + len(word.strip())
        # What a stop string or a control token left out of the text stands at its end.
        step, total = event["step"], len(self.reply.steps) if self.reply.is_whole else None
        if len(self.text) - at < LEFT_OUT or (total is not None and step >= total - LEFT_OUT):
            return compared, at
        if not any(character.isalnum() for character in word):
            return compared, at
        return EventComparison(
            conflict=f"step {step} took {word!r}, which the text of the response does not go on with"
        ), at

    def compare(self, event: Mapping[str, Any]) -> EventComparison:
        position = event["step"]
        if position < 0:
            return EventComparison(conflict=f"step {position} is no step")
        if position >= len(self.reply.steps):
            if not self.reply.is_whole:
                return NOTHING
            return EventComparison(
                conflict=f"step {position} is beyond the {len(self.reply.steps)} tokens of the response"
            )
        if not self.reply.sure[position]:
            return NOTHING
        step = self.reply.steps[position]
        conflict, by_id, by_text = _same_token(event.get("resampled"), step, position)
        conflict = conflict or _find_refusal(event, step, position)
        same, other = _probabilities(event, step)
        if self.is_exact and other and not conflict:
            conflict = f"step {position} has other probabilities than the response"
        estimate = None if self.estimates is None else self.estimates[position]
        if estimate is not None and estimate.verdict == "accepted" and not conflict:
            conflict = f"step {position} cannot have had a rejection: {estimate.why}"
        if estimate is not None and not conflict and _is_another(event.get("rejected"), estimate.rejected, step):
            conflict = f"step {position} rejected another token than the likeliest, which was drawn"
        if conflict:
            return EventComparison(conflict=conflict)
        if other > same:
            same = 0
        bits = self._rarity(step) if by_id or by_text else 0.0
        bits += min(MOST_FOR_PROBABILITIES, PER_PROBABILITY * same)
        is_proven = estimate is not None and estimate.verdict == "rejected"
        is_same_token = estimate is not None and is_proven and _is_same(event.get("rejected"), estimate.rejected)
        bits += SAME_TOKEN * is_same_token
        resampled = event.get("resampled")
        return EventComparison(
            by_id=by_id,
            by_text=by_text,
            probabilities=same,
            is_proven=is_proven,
            is_same_token=is_same_token,
            bits=bits,
            drawn=finite(resampled.get("prob")) if isinstance(resampled, Mapping) else None,
        )

    def _rarity(self, step: ApiStep) -> float:
        """In bits, how rare the token is in the reply; punctuation and white space are common to all texts."""
        spelled = _spell_step(step)
        text = (spelled or b"").decode("utf-8", "replace")
        if not any(character.isalnum() for character in text):
            return 0.0
        return min(RAREST, math.log2(len(self.reply.steps) / self._counts[_key(step.id, spelled)]))

    def surprise(self, heat: float | None) -> list[float]:
        """For each token, in bits, at least how unlikely it was as a first draw: how far it is below the likeliest
        candidate. It sums to what another run of the same prompt, without a rejection, would have needed to give this
        text. heat: the temperature; 1 if unknown."""
        scale = 1.0 if heat is None or heat <= 0 else 1.0 / heat
        return [
            _behind(step) * scale if is_sure else 0.0
            for step, is_sure in zip(self.reply.steps, self.reply.sure, strict=True)
        ]

    def proves(self, position: int) -> bool:
        """Whether the reply itself proves that a token was rejected here."""
        return (
            self.estimates is not None and self.reply.sure[position] and self.estimates[position].verdict == "rejected"
        )


def _behind(step: ApiStep) -> float:
    if step.after or step.logprob is None or not (ranked := ranked_of(step)):
        return 0.0
    return max(0.0, float(ranked[0]["logprob"]) - step.logprob) / math.log(2)


def _same_token(resampled: Any, step: ApiStep, position: int) -> tuple[str, bool, bool]:
    """(a conflict, whether the ids are the same, whether the texts are). Where either side does not know its token,
    nothing follows."""
    if not isinstance(resampled, Mapping):
        return "", False, False
    number = whole(resampled.get("id"))
    if number is not None and step.id is not None:
        if number != step.id:
            return f"step {position} took token {number}, the response has {step.id}", False, False
        return "", True, False
    text = resampled.get("text")
    if step.is_missing or not isinstance(text, str):
        return "", False, False
    exact = spelled_bytes(resampled.get("bytes"))
    if exact is not None and step.bytes is not None and bytes(step.bytes) != LOST:
        same = exact == step.bytes
    else:
        same = text == step.text or (step.bytes is not None and text.encode("utf-8", "replace") == bytes(step.bytes))
    if not same and _is_end(text, step):
        return "", False, False
    return (
        ("", False, True) if same else (f"step {position} took {text!r}, the response has {step.text!r}", False, False)
    )


def _is_end(text: str, step: ApiStep) -> bool:
    """Whether both may be the token that ends the text, or another control token, which one side spells and the other
    leaves empty; the response spells it with brackets (`</s>`, `<|im_end|>`, `[/INST]`). A log may also leave half a
    character empty."""
    if text:
        return not step.text and not step.bytes
    spelled = step.text.strip()
    return not spelled or "\ufffd" in spelled or (spelled[0] in "<[" and spelled[-1] in ">]")


def _find_refusal(event: Mapping[str, Any], step: ApiStep, position: int) -> str:
    """A conflict if the event says that the reply's token was refused."""
    if step.id is None:
        return ""
    first = event.get("rejected")
    if isinstance(first, Mapping) and whole(first.get("id")) == step.id:
        return f"step {position} refused token {step.id}, which the response has"
    for candidate in event.get("post_grammar") or ():
        if (
            isinstance(candidate, Mapping)
            and whole(candidate.get("id")) == step.id
            and candidate.get("logit", 0.0) in (None, -math.inf)
        ):
            return f"step {position} masked token {step.id}, which the response has"
    return ""


def _probabilities(event: Mapping[str, Any], step: ApiStep) -> tuple[int, int]:
    """How many candidates have the same probability in the event and in the reply, and how many another."""
    listed = event.get("post_chain" if step.after else "pre_masking")
    known: dict[Any, float] = {}
    for candidate in step.top:
        value = finite(candidate.get("prob") if step.after else candidate.get("logprob"))
        if value is not None:
            known[_key(whole(candidate.get("id")), _bytes_of(candidate))] = value if not step.after else _ln(value)
    if not known or not isinstance(listed, list):
        return 0, 0
    nameless = all(isinstance(key, bytes) for key in known)
    # Without ids, several tokens of one spelling cannot be told apart, nor can those that end a text, which have none.
    spellings = Counter(_bytes_of(candidate) for candidate in (*listed, *step.top) if isinstance(candidate, Mapping))
    in_top = Counter(_bytes_of(candidate) for candidate in step.top)
    same = other = 0
    for candidate in listed[:COMPARED]:
        chance = finite(candidate.get("prob")) if isinstance(candidate, Mapping) else None
        if chance is None or not TELLING[0] <= chance <= TELLING[1]:
            continue
        spelled = _bytes_of(candidate)
        if nameless and (not spelled or spellings[spelled] - in_top[spelled] > 1 or in_top[spelled] > 1):
            continue
        value = known.get(spelled if nameless else _key(whole(candidate.get("id")), spelled))
        if value is not None:
            away = abs(math.log(chance) - value)
            same += away <= SAME
            other += away > OTHER
    return same, other


def _is_same(first: Any, estimated: Mapping[str, Any] | None) -> bool:
    if not isinstance(first, Mapping) or estimated is None:
        return False
    number, other = whole(first.get("id")), whole(estimated.get("id"))
    if number is not None and other is not None:
        return number == other
    return _bytes_of(first) == _bytes_of(estimated)


def _is_another(first: Any, estimated: Mapping[str, Any] | None, step: ApiStep) -> bool:
    """Whether the event rejected another token than the one that the reply proves to have been drawn; not where two
    are as likely."""
    if not isinstance(first, Mapping) or estimated is None or _is_same(first, estimated):
        return False
    if whole(estimated.get("id")) is None and LOST in _bytes_of(first):  # a part of a character: it may be any
        return False
    best = float(estimated["logprob"])
    return not any(
        _is_same(first, candidate) for candidate in ranked_of(step) if float(candidate["logprob"]) > best - SAME
    )


def _key(number: int | None, spelled: bytes | None) -> Any:
    return number if number is not None else spelled


def _spell_step(step: ApiStep) -> bytes | None:
    if step.is_missing:
        return None
    return step.text.encode("utf-8", "replace") if step.bytes is None else bytes(step.bytes)


def _bytes_of(candidate: Mapping[str, Any]) -> bytes:
    exact = spelled_bytes(candidate.get("bytes"))
    text = candidate.get("text", candidate.get("token", ""))
    return bytes(exact) if exact is not None else text.encode("utf-8", "replace") if isinstance(text, str) else b""


def _ln(chance: float) -> float:
    return math.log(chance) if chance > 0 else -math.inf
