"""Toy engines that drive a logits processor as vLLM's V1 engine does, and a grammar backend as SGLang does.

Requests arrive, are preempted (they leave and return with their tokens), change places, and end. The logits are random.
Each engine checks each step: rows without a constraint are untouched, and those with one are masked as our own matcher,
walked beside it in this process, says.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from espalier.constraints.base import Compiled
from espalier.integrations.asked import read_asked
from espalier.tokens import mask as masks
from espalier.tokens.vocab import Vocab
from espalier.wiring import build_app
from tests.oracle import validator

PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 6},
        "age": {"type": "integer", "minimum": 0, "maximum": 99},
        "tags": {"type": "array", "items": {"enum": ["a", "b", "c"]}, "maxItems": 3},
    },
    "required": ["name", "age"],
    "additionalProperties": False,
}
ARITHMETIC = 'root ::= term ("+" term){0,3}\nterm ::= [0-9]{1,3} | "(" root ")"'
BANNED = ("no", "never")
Oracle = Callable[[str], bool]


def _is_person(text: str) -> bool:
    return validator(PERSON)(json.loads(text))


def _is_sum(text: str) -> bool:
    """By Python's own parser, after a look at the characters."""
    return re.fullmatch(r"[0-9+()]+", text) is not None and _balanced(text) and not re.search(r"\)[0-9(]|[0-9]\(", text)


def _balanced(text: str) -> bool:
    depth = 0
    for character in text:
        depth += {"(": 1, ")": -1}.get(character, 0)
        if depth < 0:
            return False
    return depth == 0


ASKED: Mapping[str, tuple[Mapping[str, Any], Oracle]] = {
    "schema": ({"json_schema": PERSON}, _is_person),
    "grammar": ({"grammar": ARITHMETIC}, _is_sum),
    "regex": (
        {"constraint": {"kind": "regex", "pattern": "[a-z]{2,5}(-[0-9]{1,3}){0,2}"}},
        lambda text: re.fullmatch("[a-z]{2,5}(-[0-9]{1,3}){0,2}", text) is not None,
    ),
    "choice": (
        {"constraint": {"kind": "choice", "options": ["yes", "yes, but", "no way", "perhaps é"]}},
        lambda text: text in ("yes", "yes, but", "no way", "perhaps é"),
    ),
    "composed": (
        {"constraint": {"kind": "regex", "pattern": "[a-z ]{3,12}"}, "bad_words": list(BANNED), "safety": "minimal"},
        lambda text: re.fullmatch("[a-z ]{3,12}", text) is not None and not any(one in text for one in BANNED),
    ),
    "preset": (
        {"json_schema": PERSON, "bad_words": ["zz"], "safety": "minimal", "preset": "safe_chat"},
        lambda text: _is_person(text) and "zz" not in text,
    ),
}
"""What a request asks for, and what its text must be, by code that is none of ours."""


def compile_asked(vocab: Vocab) -> dict[str, Compiled]:
    """What each request of `ASKED` compiles to, as the integrations read it."""
    app = build_app()
    compiled = {}
    for kind, (asked, _) in ASKED.items():
        constraint = read_asked({"espalier": asked}, app)
        assert constraint is not None
        compiled[kind] = app.compiler(vocab).compile(constraint.spec)
    return compiled


@dataclass(slots=True)
class ToyRequest:
    """kind: of ASKED, None for a request without a constraint. output: the list that the processor sees."""

    kind: str | None
    params: Any
    matcher: Any
    most: int
    output: list[int] = field(default_factory=list)
    has_ended: bool = False

    def text(self, vocab: Vocab) -> str:
        return vocab.decode(self.output).decode("utf-8")


def params_of(kind: str | None, **more: Any) -> Any:
    """Sampling params as vLLM's, as far as a processor reads them."""
    return SimpleNamespace(extra_args=None if kind is None else {"espalier": {**ASKED[kind][0], **more}})


def config_of(**given: Any) -> Any:
    """vLLM's configuration, as far as a processor reads it."""
    return (
        SimpleNamespace(
            speculative_config=None,
            scheduler_config=SimpleNamespace(async_scheduling=False),
            parallel_config=SimpleNamespace(rank=0),
            additional_config={},
            model_config=SimpleNamespace(),
        )
        if not given
        else SimpleNamespace(**{**vars(config_of()), **given})
    )


class ToyVllm:
    """The persistent batch of vLLM: rows in a list, holes filled by newcomers, then by moving the last rows; ids of the
    last step unknown until just before sampling where it schedules ahead."""

    def __init__(
        self, processor: Any, update: Any, moves: Any, vocab: Vocab, rng: random.Random, *, ahead: bool
    ) -> None:
        self.processor, self.update, self.moves = processor, update, moves
        self.vocab, self.rng, self.ahead = vocab, rng, ahead
        self.rows: list[ToyRequest] = []
        self.waiting: list[ToyRequest] = []
        self.done: list[ToyRequest] = []
        self.seen = {"preempted": 0, "moved": 0, "swapped": 0}

    def step(self) -> None:
        removed, added, moved = self._changes()
        is_changed = removed or added or moved
        late: list[tuple[ToyRequest, int]] = []
        if self.ahead:  # tokens of the last step are not on the host yet
            late = [(one, one.output[-1]) for one in self.rows if one.output]
            for one, _ in late:
                one.output[-1] = -1
        self.processor.update_state(
            self.update(batch_size=len(self.rows), removed=removed, added=added, moved=moved) if is_changed else None
        )
        for one, token in late:  # which are there before anything is sampled
            one.output[-1] = token
        if not self.rows:
            return
        logits = torch.randn((len(self.rows), self.vocab.width), generator=self._generator())
        before = logits.clone()
        after = self.processor.apply(logits)
        for place, one in enumerate(self.rows):
            self._take(one, before[place], after[place])

    def _generator(self) -> torch.Generator:
        return torch.Generator().manual_seed(self.rng.getrandbits(32))

    def _changes(self) -> tuple[list[int], list[Any], list[Any]]:
        holes = [i for i, one in enumerate(self.rows) if one.has_ended or len(one.output) >= one.most]
        self.done += [self.rows[i] for i in holes]
        for place, one in enumerate(self.rows):
            if place not in holes and self.rng.random() < 0.06:
                self.seen["preempted"] += 1
                holes.append(place)
                self.waiting.append(one)
        holes.sort(reverse=True)
        added: list[Any] = []
        rows: list[ToyRequest | None] = [None if i in holes else one for i, one in enumerate(self.rows)]
        for one in [two for two in self.waiting if self.rng.random() < 0.5]:
            self.waiting.remove(one)
            place = holes.pop() if holes else len(rows)
            rows[place : place + 1] = [one]
            added.append((place, one.params, [1, 2], one.output))
        moved: list[Any] = []
        for hole in sorted(holes):  # the last row goes to the first hole
            last = max((i for i, one in enumerate(rows) if one is not None), default=-1)
            if last > hole:
                rows[hole], rows[last] = rows[last], None
                holes.remove(hole)  # the move alone says that whoever was there has left
                moved.append((last, hole, self.moves.UNIDIRECTIONAL))
                self.seen["moved"] += 1
        kept = [one for one in rows if one is not None]
        if len(kept) > 1 and self.rng.random() < 0.25:
            first, second = self.rng.sample(range(len(kept)), 2)
            kept[first], kept[second] = kept[second], kept[first]
            moved.append((first, second, self.moves.SWAP))
            self.seen["swapped"] += 1
        self.rows = kept
        return holes, added, moved

    def _take(self, one: ToyRequest, before: torch.Tensor, after: torch.Tensor) -> None:
        if one.matcher is None:
            assert torch.equal(before, after), "a row without a constraint was changed"
            one.output.append(self.rng.randrange(3, self.vocab.width))
            return
        flags = torch.from_numpy(masks.unpack(one.matcher.mask(), self.vocab.width))
        assert torch.equal(after, before.masked_fill(~flags, -torch.inf)), "the mask is not that of our matcher"
        token = sampled(one.matcher, after, self.rng)
        one.matcher.advance(token)
        one.output.append(token)
        one.has_ended = token in self.vocab.eos_ids


def sampled(matcher: Any, logits: torch.Tensor, rng: random.Random) -> int:
    """A token: the most probable one (greedy), one drawn, or one towards the end of the text."""
    way = rng.random()
    if way < 0.4:
        return int(matcher.shortest_completion()[0])
    if way < 0.6:
        return int(logits.argmax())
    allowed = np.flatnonzero(np.isfinite(logits.numpy()))
    return int(rng.choice(list(allowed)))


def requests_of(rng: random.Random, compiled: Mapping[str, Compiled], count: int, **more: Any) -> list[ToyRequest]:
    """Random requests, some without a constraint."""
    found = []
    for _ in range(count):
        kind = rng.choice([*ASKED, None])
        matcher = None if kind is None else compiled[kind].matcher()
        found.append(
            ToyRequest(
                kind,
                params_of(kind, **more) if kind else params_of(None),
                matcher,
                most=rng.choice([6, 60]) if kind else 8,
            )
        )
    return found


class ToySglang:
    """The running batch of SGLang: masks are allocated for the batch by one grammar, filled row by row, moved, applied;
    then each grammar takes its token. A request that is retracted keeps its grammar and its tokens."""

    def __init__(self, backend: Any, vocab: Vocab, rng: random.Random) -> None:
        self.backend, self.vocab, self.rng = backend, vocab, rng
        self.rows: list[tuple[ToyRequest, Any]] = []
        self.waiting: list[tuple[ToyRequest, Any]] = []
        self.done: list[ToyRequest] = []
        self.seen = {"retracted": 0, "cached": 0, "rolled_back": 0}

    def arrive(self, one: ToyRequest, key: tuple[str, str] | None) -> None:
        grammar = None
        if key is not None:
            grammar, is_cached = self.backend.get_cached_or_future_value(key, False)
            if not is_cached:
                grammar = grammar.result()
                self.backend.set_cache(key, grammar.copy())
            self.seen["cached"] += is_cached
        self.waiting.append((one, grammar))

    def step(self) -> None:
        for pair in [pair for pair in self.rows if self.rng.random() < 0.05]:
            self.seen["retracted"] += 1
            self.rows.remove(pair)
            self.waiting.append(pair)
        for pair in [pair for pair in self.waiting if self.rng.random() < 0.5]:
            self.waiting.remove(pair)
            self.rows.append(pair)
        self.rng.shuffle(self.rows)
        if not self.rows:
            return
        logits = torch.randn(
            (len(self.rows), self.vocab.width), generator=torch.Generator().manual_seed(self.rng.getrandbits(32))
        )
        before = logits.clone()
        first = next((grammar for _, grammar in self.rows if grammar is not None), None)
        if first is not None:
            mask = first.allocate_vocab_mask(self.vocab.width, len(self.rows), logits.device)
            for place, (_, grammar) in enumerate(self.rows):
                if grammar is not None and not grammar.finished and not grammar.is_terminated():
                    grammar.fill_vocab_mask(mask, place)
            first.apply_vocab_mask(logits, first.move_vocab_mask(mask, logits.device))
        for place, (one, grammar) in enumerate(self.rows):
            self._take(one, grammar, before[place], logits[place])
        over = [pair for pair in self.rows if pair[0].has_ended or len(pair[0].output) >= pair[0].most]
        self.done += [one for one, _ in over]
        self.rows = [pair for pair in self.rows if pair not in over]

    def _take(self, one: ToyRequest, grammar: Any, before: torch.Tensor, after: torch.Tensor) -> None:
        if one.matcher is None:
            assert torch.equal(before, after), "a row without a constraint was changed"
            one.output.append(3)
            return
        flags = torch.from_numpy(masks.unpack(one.matcher.mask(), self.vocab.width))
        assert torch.equal(after, before.masked_fill(~flags, -torch.inf)), "the mask is not that of our matcher"
        token = sampled(one.matcher, after, self.rng)
        if self.rng.random() < 0.1:  # a draft that is not kept
            grammar.accept_token(token)
            grammar.rollback(1)
            self.seen["rolled_back"] += 1
        one.matcher.advance(token)
        grammar.accept_token(token)
        one.output.append(token)
        one.has_ended = token in self.vocab.eos_ids
        grammar.finished = one.has_ended
