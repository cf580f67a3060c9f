"""The texts of a beam search: paths that share their beginnings, those that have ended, and what all of them agree on.

Scores are `sum of ln p / length ** length_penalty`, the length in generated tokens with the ending one, and a search
ends as transformers' does (`_beam_search` and `_check_early_stop_heuristic` in its generation/utils.py). The module
knows no logits and no constraints.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from espalier.constraints.base import Matcher
from espalier.decoding.stops import TextAssembler
from espalier.decoding.text_run import Ending
from espalier.sampling.chain import Chain
from espalier.trace.records import StepRecord


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Link:
    """A token and the way to it: texts with one beginning have the same links there. length: tokens, this one too."""

    before: Link | None
    token: int
    length: int
    record: StepRecord | None

    def since(self, length: int) -> list[Link]:
        """The links after the first `length`, in order."""
        found: list[Link] = []
        link: Link | None = self
        while link is not None and link.length > length:
            found.append(link)
            link = link.before
        return found[::-1]


@dataclass(slots=True, kw_only=True, eq=False)
class Beam:
    """A text that goes on, in its branch of the model. total: the sum of ln p. first: its first link that was not told
    yet, None where there is none. text: where there are stop texts."""

    branch: int
    total: float
    matcher: Matcher | None
    chain: Chain
    last: Link | None = None
    first: Link | None = None
    text: TextAssembler | None = None

    def path(self) -> list[Link]:
        """All of its tokens, in order."""
        return [] if self.last is None else self.last.since(0)

    def follow(self, link: Link) -> None:
        """Take one token more; a matcher that refuses it raises."""
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
class Heir:
    """A beam's next token. beam: its place among those of the step. total: the sum of ln p with it. text: with it,
    where there are stop texts. ending: None where the text goes on."""

    beam: int
    token: int
    total: float
    text: TextAssembler | None
    ending: Ending | None
    record: StepRecord | None = None


@dataclass(slots=True, kw_only=True, eq=False)
class Hypothesis:
    """A text that has ended. matcher: after its last token. first: as a beam's, when it ended."""

    last: Link
    first: Link | None
    score: float
    matcher: Matcher | None


@dataclass(slots=True, kw_only=True, eq=False)
class Pool:
    """The best hypotheses, as many as there are beams at most, best first; of equals the one that ended first.

    longest: how many tokens a text may have.
    """

    size: int
    length_penalty: float
    early_stopping: bool | Literal["never"]
    longest: int
    hypotheses: list[Hypothesis] = field(default_factory=list)

    def score(self, total: float, length: int) -> float:
        """Of a text of `length` tokens whose ln p add up to `total`."""
        return total / math.pow(length, self.length_penalty)

    def takes(self, score: float) -> bool:
        """Whether a hypothesis with this score is among the best."""
        return len(self.hypotheses) < self.size or score > self.hypotheses[-1].score

    def add(self, new: Hypothesis) -> None:
        """One that it takes; the worst leaves where there are too many."""
        self.hypotheses.append(new)
        self.hypotheses.sort(key=lambda one: -one.score)  # stable
        del self.hypotheses[self.size :]

    def is_done(self, best: float, length: int) -> bool:
        """Whether the search ends although beams are left: the best of them is of `length` tokens, and its ln p add up
        to `best`. True of early_stopping asks no more of it. False reckons with the score that it has now, "never" with
        the best that it can come to, as ln p only adds up to less."""
        if len(self.hypotheses) < self.size:
            return False
        if self.early_stopping is True:
            return True
        at_most = self.longest if self.early_stopping == "never" and self.length_penalty > 0 else length
        return self.score(best, at_most) <= self.hypotheses[-1].score


class Agreement:
    """What can be told of a text before it is known which one wins: as far as all that can still win are one."""

    def __init__(self) -> None:
        self.told = 0  # tokens

    def reach(self, beams: Sequence[Beam], pool: Pool) -> list[Link]:
        """What more they agree on, in order, now that every beam has a token more. All beams can win, and of what has
        ended the best alone: the others would have to become better than it."""
        all_of_them: list[Beam | Hypothesis] = [*beams, *pool.hypotheses[:1]]
        if not beams or any(one.first is not beams[0].first for one in all_of_them):
            return []
        paths = [one.last.since(self.told) for one in all_of_them if one.last is not None]
        same = 0
        while all(len(path) > same and path[same] is paths[0][same] for path in paths):
            same += 1
        self.told += same
        for one, path in zip(all_of_them, paths, strict=True):
            one.first = path[same] if len(path) > same else None
        return paths[0][:same]
