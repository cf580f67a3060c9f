"""Toy models and languages for beam search, and a beam search written anew for comparing: lists and sorts alone."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from espalier import SamplingConfig, Vocab
from espalier.constraints.compiler import Compiler
from espalier.constraints.spec import Spec
from espalier.decoding.beam.strategy import beam_plan
from espalier.decoding.options import Decoding
from espalier.decoding.plan import Job, Outcome, SampledToken
from espalier.decoding.step.record import Watch
from espalier.engines.fake import FakeStepModel, noise
from espalier.engines.scheduling.drive import drive
from espalier.sampling.chain import Chain
from espalier.sampling.draw import RandomStream
from espalier.sampling.fit import fit

PIECES = (b"a", b"b", b"c", b"ab", b"ca")
EOS = len(PIECES)
VOCAB = Vocab.from_tokens([*PIECES, b""], eos_ids=[EOS])
PROMPT = (0, 2)
PLAIN = {"repetition_penalty": 1.0}


class Toy(FakeStepModel):
    """Logits are noise of the tokens and a seed; counts how many sequences were held at most."""

    def __init__(self, seed: int, *, slots: int, vocab: Vocab = VOCAB, scale: float = 2.0) -> None:
        super().__init__(lambda tokens: noise((seed, *tokens), vocab.width, scale), width=vocab.width, slots=slots)
        self.most_held = self.passes = 0

    def extend(self, work):
        self.most_held, self.passes = max(self.most_held, self.live), self.passes + 1
        rows = super().extend(work)
        assert len({tuple(self._sequences[item.sequence]) for item in work}) == len(work)  # no text twice
        return rows


def job(
    *,
    constraint: Spec | None = None,
    filters=(),
    max_tokens=8,
    watch="off",
    vocab=VOCAB,
    seed=0,
    beams=4,
    length_penalty=1.0,
    early_stopping=False,
    num_return_sequences=1,
    **fields,
) -> Job:
    config = SamplingConfig(**(PLAIN | fields | {"max_tokens": max_tokens}))
    return Job(
        vocab=vocab,
        prompt=PROMPT,
        matcher=None if constraint is None else Compiler(vocab).compile(constraint).matcher(),
        chain=Chain(config, filters, fitted=fit(config, vocab, lambda text: [*text.encode()])),
        stream=RandomStream(seed),
        max_tokens=max_tokens,
        watch=Watch(watch, 3),
        options=Decoding(
            strategy="beam",
            num_beams=beams,
            length_penalty=length_penalty,
            early_stopping=early_stopping,
            num_return_sequences=num_return_sequences,
        ),
    )


def search(model: FakeStepModel, asked: Job) -> tuple[list[SampledToken], Outcome]:
    """Run it in as many sequences as there are beams, and see that nothing is left."""
    *taken, (_, ended) = list(drive(model, [beam_plan(asked)]))
    assert model.live == 0
    told = [one for _, one in taken]
    assert tuple(one.token for one in told) == ended.tokens
    assert "".join(one.text for one in told) + ended.tail == ended.text
    return told, ended


def found(ended: Outcome) -> list[tuple[tuple[int, ...], float]]:
    """Tokens and score of each text of a run, best first."""
    return [(one.tokens, one.score) for one in (ended, *ended.others)]


LogProbs = Callable[[tuple[int, ...]], Sequence[float]]


def log_probs(seed: int, vocab: Vocab = VOCAB, scale: float = 2.0) -> LogProbs:
    """The toy's ln p of every token after some generated ones."""

    def of(tokens: tuple[int, ...]) -> Sequence[float]:
        row = noise((seed, *PROMPT, *tokens), vocab.width, scale).astype(np.float64)
        return list(row - math.log(sum(math.exp(value) for value in row)))

    return of


def reference(
    gains: LogProbs,
    allows: Callable[[tuple[int, ...], int], bool],
    ends: Callable[[tuple[int, ...]], bool],
    *,
    beams: int,
    longest: int,
    length_penalty: float = 1.0,
    early_stopping: bool | str = False,
    wanted: int = 1,
) -> list[tuple[tuple[int, ...], float]]:
    """The hypotheses, best first, by the words of transformers' documentation of its beam search."""
    live = [((), 0.0)]
    done: list[tuple[tuple[int, ...], float]] = []
    for length in range(1, longest + 1):
        ways = [
            ((*tokens, token), total + gain)
            for tokens, total in live
            for token, gain in enumerate(gains(tokens))
            if gain > -math.inf and allows(tokens, token)
        ]
        ways.sort(key=lambda way: -way[1])
        ending = [ends(tokens) or length == longest for tokens, _ in ways]
        live = [way for way, is_over in zip(ways, ending, strict=True) if not is_over][:beams]
        done += [
            (way[0], way[1] / length**length_penalty)
            for way, is_over in zip(ways, ending, strict=True)
            if is_over and way in ways[:beams]
        ]
        done = sorted(done, key=lambda one: -one[1])[:beams]
        if not live:
            break
        if len(done) == beams:
            if early_stopping is True:
                break
            reach = longest if early_stopping == "never" and length_penalty > 0 else length
            if not live[0][1] / reach**length_penalty > done[-1][1]:
                break
    return done[:wanted]


def language(words: Iterable[str]) -> Callable[[tuple[int, ...], int], bool]:
    """Whether a token may follow, of a finite language: read from the words themselves."""
    texts = [word.encode() for word in words]

    def allows(tokens: tuple[int, ...], token: int) -> bool:
        said = b"".join(PIECES[one] for one in tokens)
        if token == EOS:
            return said in texts
        return any(text.startswith(said + PIECES[token]) for text in texts)

    return allows


def ends_at(*stops: str) -> Callable[[tuple[int, ...]], bool]:
    """Whether a text has ended: by EOS, or as it holds a stop text."""

    def ends(tokens: tuple[int, ...]) -> bool:
        text = b"".join(PIECES[one] for one in tokens if one != EOS).decode()
        return tokens[-1] == EOS or any(stop in text for stop in stops)

    return ends


def anything(tokens: tuple[int, ...], token: int) -> bool:
    return True
