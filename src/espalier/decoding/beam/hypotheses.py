"""The texts of a beam search: live beams, the pool of finished hypotheses, and the tokens that all of them share.

The score of a text is `sum of ln p / length ** length_penalty`; its length counts generated tokens, the last one too. A
search ends as in transformers (`_beam_search` and `_check_early_stop_heuristic` in its generation/utils.py). The module
knows no logits and no constraints.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from espalier.constraints.base import Matcher
from espalier.decoding.text.run import TextEnd
from espalier.decoding.text.stops import TextAssembler
from espalier.sampling.chain import Chain
from espalier.trace.records import StepRecord


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class TokenLink:
    """A token with a link to the one before it: texts that begin alike share links. length: in tokens, this one
    included."""

    before: TokenLink | None
    token: int
    length: int
    record: StepRecord | None
    #: The most probable token, if the constraint refused it.
    refused: int | None = None

    def since(self, length: int) -> list[TokenLink]:
        """The links after the first `length`, in order."""
        links: list[TokenLink] = []
        link: TokenLink | None = self
        while link is not None and link.length > length:
            links.append(link)
            link = link.before
        return links[::-1]


@dataclass(slots=True, kw_only=True, eq=False)
class Beam:
    """A text that goes on, in its branch of the model. total: the sum of ln p. first: its first link that was not
    streamed yet, None where there is none. text: finds stop texts, None where there are none."""

    branch: int
    total: float
    matcher: Matcher | None
    chain: Chain
    last: TokenLink | None = None
    first: TokenLink | None = None
    text: TextAssembler | None = None

    def path(self) -> list[TokenLink]:
        """All of its tokens, in order."""
        return [] if self.last is None else self.last.since(0)

    def follow(self, link: TokenLink) -> None:
        """Append a token. Raises TokenRefused where the matcher refuses it."""
        if self.matcher is not None:
            self.matcher.advance(link.token)
        self.chain.on_token(link.token)
        self.first, self.last = self.first or link, link

    def fork(self, branch: int) -> Beam:
        """An independent copy in another branch."""
        return Beam(
            branch=branch,
            total=self.total,
            matcher=None if self.matcher is None else self.matcher.fork(),
            chain=self.chain.fork(),
            last=self.last,
            first=self.first,
            text=self.text,  # a beam's next text is a fork of its own
        )


@dataclass(slots=True, kw_only=True, eq=False)
class Continuation:
    """A beam with one more token. beam: index of the beam in this step. total: the sum of ln p with the token. text:
    finds stop texts, with the token. ending: None where the text goes on."""

    beam: int
    token: int
    total: float
    text: TextAssembler | None
    ending: TextEnd | None
    record: StepRecord | None = None
    #: As in `TokenLink`.
    refused: int | None = None

    def link(self, before: TokenLink | None, length: int) -> TokenLink:
        """The token behind the one before it."""
        return TokenLink(before=before, token=self.token, length=length, record=self.record, refused=self.refused)


@dataclass(slots=True, kw_only=True, eq=False)
class Hypothesis:
    """A finished text. matcher: after the last token. first: as in `Beam`, when the text ended."""

    last: TokenLink
    first: TokenLink | None
    score: float
    matcher: Matcher | None


@dataclass(slots=True, kw_only=True, eq=False)
class Pool:
    """The best hypotheses, best first; of equal ones, the one that ended first. size: the most hypotheses, which is the
    number of beams. longest: the most tokens of a text."""

    size: int
    length_penalty: float
    early_stopping: bool | Literal["never"]
    longest: int
    hypotheses: list[Hypothesis] = field(default_factory=list)

    def score(self, total: float, length: int) -> float:
        """The score of a text of `length` tokens with the sum of ln p `total`."""
        return total / math.pow(length, self.length_penalty)

    def takes(self, score: float) -> bool:
        """Whether a hypothesis with this score would be among the best."""
        return len(self.hypotheses) < self.size or score > self.hypotheses[-1].score

    def add(self, new: Hypothesis) -> None:
        """Add a hypothesis that `takes` accepts. Drops the worst one where there are too many."""
        self.hypotheses.append(new)
        self.hypotheses.sort(key=lambda hypothesis: -hypothesis.score)  # stable
        del self.hypotheses[self.size :]

    def is_done(self, best: float, length: int) -> bool:
        """Whether the search ends while beams are left. best: the sum of ln p of the best beam, which has `length`
        tokens. With early_stopping True, a full pool ends the search. With False, the pool must beat the score that the
        best beam has now; with "never", the best score that it can still reach."""
        if len(self.hypotheses) < self.size:
            return False
        if self.early_stopping is True:
            return True
        at_most = self.longest if self.early_stopping == "never" and self.length_penalty > 0 else length
        return self.score(best, at_most) <= self.hypotheses[-1].score


class Agreement:
    """Finds tokens that can be streamed before the winner is known: the beginning that all possible winners share."""

    def __init__(self) -> None:
        self.streamed = 0  # tokens

    def reach(self, beams: Sequence[Beam], pool: Pool) -> list[TokenLink]:
        """The further links that all possible winners share, in order. Called when every beam has one more token. Every
        beam can win, and of the hypotheses only the best."""
        candidates: list[Beam | Hypothesis] = [*beams, *pool.hypotheses[:1]]
        if not beams or any(candidate.first is not beams[0].first for candidate in candidates):
            return []
        paths = [candidate.last.since(self.streamed) for candidate in candidates if candidate.last is not None]
        same = 0
        while all(len(path) > same and path[same] is paths[0][same] for path in paths):
            same += 1
        self.streamed += same
        for candidate, path in zip(candidates, paths, strict=True):
            candidate.first = path[same] if len(path) > same else None
        return paths[0][:same]
