"""The processor for vLLM, driven as its second model runner drives one: slots that are taken again, tokens on the
device, prompts in parts, preemptions, and rows of drafted tokens. Where vLLM is not installed, its interface as
published stands in."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from tests.engine_doubles import HAS_VLLM  # noqa: E402, I001

from vllm.v1.worker.gpu.sample.logits_processor import LogitsContext, LogitsProcessor, LogitsProcRequestState  # noqa: E402

from espalier.constraints.base import Compiled  # noqa: E402
from espalier.errors import CapabilityError  # noqa: E402
from espalier.integrations.vllm import ConstraintProcessor  # noqa: E402
from espalier.integrations.vllm.report import StepReport  # noqa: E402
from espalier.tokens import mask as masks  # noqa: E402
from espalier.tokens.vocab import Vocab  # noqa: E402
from espalier.wiring import demo_model  # noqa: E402
from tests.examples import examples  # noqa: E402
from tests.toy_engines import ASKED, ToyRequest, compile_asked, config_of, params_of, requests_of, sampled  # noqa: E402

BASE = "vllms-own-base-class" if HAS_VLLM else "recorded-interface"
against = pytest.mark.parametrize("base", [BASE])
VOCAB = Vocab.from_tokenizer(str(demo_model() / "tokenizer.json"))
SLOTS, LONGEST = 5, 256


class DemoProcessor(ConstraintProcessor):
    """On the vocabulary of the demo model."""

    @classmethod
    def vocab_of(cls, vllm_config: Any) -> Vocab:
        return VOCAB


@pytest.fixture(scope="module")
def compiled() -> dict[str, Compiled]:
    return compile_asked(VOCAB)


def states() -> LogitsProcRequestState:
    return LogitsProcRequestState(
        device=torch.device("cpu"),
        max_num_reqs=SLOTS,
        vocab_size=VOCAB.width,
        all_token_ids=SimpleNamespace(gpu=torch.zeros((SLOTS, LONGEST), dtype=torch.int32)),
        prompt_len=SimpleNamespace(np=np.zeros(SLOTS, dtype=np.int32)),
        prefill_len=SimpleNamespace(np=np.zeros(SLOTS, dtype=np.int32)),
        total_len=SimpleNamespace(gpu=torch.zeros(SLOTS, dtype=torch.int32)),
    )


@dataclass(slots=True)
class Running:
    """one: the request. slot: where it is. done: tokens of it that the model has read."""

    one: ToyRequest
    prompt: list[int]
    slot: int
    done: int = 0
    drafts: list[int] = field(default_factory=list)

    @property
    def tokens(self) -> list[int]:
        return self.prompt + self.one.output


class ToyRunnerV2:
    """vLLM's second runner, as far as a processor sees it: `add_requests`, then the rows of a step in any order, each
    with its slot, its position and its input; drafts are kept up to the first that is refused."""

    def __init__(self, processor: Any, rng: random.Random, *, drafts: int = 0) -> None:
        self.states, self.rng, self.drafts = states(), rng, drafts
        self.processor = processor(config_of(), self.states)
        self.waiting: list[ToyRequest] = []
        self.running: list[Running] = []
        self.done: list[ToyRequest] = []
        self.free = list(range(SLOTS))
        self.seen = {"preempted": 0, "parts": 0, "kept": 0, "refused": 0}

    def step(self) -> None:
        self._leave()
        self._arrive()
        if not self.running:
            return
        self.rng.shuffle(self.running)
        rows = [(one, place) for one in self.running for place in range(self._schedule(one) + 1)]
        slots = [one.slot for one in self.running]
        inputs = [one.drafts[place - 1] if place else one.tokens[one.done - 1] for one, place in rows]
        logits = torch.randn(
            (len(rows), VOCAB.width), generator=torch.Generator().manual_seed(self.rng.getrandbits(32))
        )
        before = logits.clone()
        after = self.processor.apply(
            logits,
            LogitsContext(
                expanded_idx_mapping=torch.tensor([one.slot for one, _ in rows], dtype=torch.int32),
                idx_mapping=torch.tensor(slots, dtype=torch.int32),
                idx_mapping_np=np.array(slots, dtype=np.int32),
                expanded_local_pos=torch.tensor([place for _, place in rows], dtype=torch.int32),
                input_ids=torch.tensor(inputs, dtype=torch.int32),
                pos=torch.tensor([one.done - 1 + place for one, place in rows], dtype=torch.int64),
                seq_lens_upper_bound_np=np.array([one.done for one in self.running]),
            ),
        )
        at = 0
        for one in self.running:
            count = len(one.drafts) + 1
            if one.done == len(one.tokens):
                self._take(one, before[at : at + count], after[at : at + count])
            at += count

    def _leave(self) -> None:
        for one in list(self.running):
            is_over = one.one.has_ended or len(one.one.output) >= one.one.most
            if not is_over and self.rng.random() >= 0.06:
                continue
            self.running.remove(one)
            self.free.append(one.slot)
            self.seen["preempted"] += not is_over
            (self.done if is_over else self.waiting).append(one.one)

    def _arrive(self) -> None:
        while self.waiting and self.free and self.rng.random() < 0.6:
            request = self.waiting.pop(0)
            one = Running(request, [1] * self.rng.randint(1, 9), self.free.pop())
            self.running.append(one)
            self.states.prompt_len.np[one.slot] = len(one.prompt)
            self.states.prefill_len.np[one.slot] = len(one.tokens)
            assert self.processor.add_request(one.slot, request.params) is (request.kind is not None)
        for one in self.running:  # what was staged
            self._write(one)
        self.processor.apply_staged_writes()

    def _write(self, one: Running) -> None:
        self.states.total_len.gpu[one.slot] = len(one.tokens)
        self.states.all_token_ids.gpu[one.slot, : len(one.tokens)] = torch.tensor(one.tokens, dtype=torch.int32)

    def _schedule(self, one: Running) -> int:
        """Read a part of what is missing; propose tokens after the last. Returns how many."""
        one.drafts = []
        is_new = one.done < self.states.prefill_len.np[one.slot]
        one.done = min(len(one.tokens), one.done + self.rng.randint(1, 4)) if is_new else len(one.tokens)
        self.seen["parts"] += one.done < len(one.tokens)
        if is_new or not self.drafts:
            return 0
        twin = None if one.one.matcher is None else one.one.matcher.fork()
        for _ in range(self.rng.randint(0, self.drafts)):
            token = self.rng.randrange(3, VOCAB.width)
            if twin is not None and not twin.is_finished and self.rng.random() < 0.8:
                token = twin.shortest_completion()[0]
                twin.advance(token)
            one.drafts.append(token)
        return len(one.drafts)

    def _take(self, one: Running, before: Any, after: Any) -> None:
        request = one.one
        for place in range(len(one.drafts) + 1):
            if request.has_ended:
                break
            if request.matcher is None:
                assert torch.equal(before[place], after[place]), "a row without a constraint was changed"
                request.output.append(self.rng.randrange(3, VOCAB.width))
                continue
            flags = torch.from_numpy(masks.unpack(request.matcher.mask(), VOCAB.width))
            assert torch.equal(after[place], before[place].masked_fill(~flags, -torch.inf)), "the mask is not ours"
            draft = one.drafts[place] if place < len(one.drafts) else None
            is_kept = draft is not None and bool(flags[draft]) and self.rng.random() < 0.8
            token = draft if is_kept and draft is not None else sampled(request.matcher, after[place], self.rng)
            request.matcher.advance(token)
            request.output.append(token)
            request.has_ended = token in VOCAB.eos_ids
            if draft is not None:
                self.seen["kept" if is_kept else "refused"] += 1
            if not is_kept:
                break
        self._write(one)


def schedule(seed: int, compiled: dict[str, Compiled], drafts: int) -> ToyRunnerV2:
    rng = random.Random(seed)
    engine = ToyRunnerV2(DemoProcessor, rng, drafts=drafts)
    coming = requests_of(rng, compiled, rng.randint(2, 9))
    total = len(coming)
    for _ in range(3000):
        if coming and rng.random() < 0.4:
            engine.waiting.append(coming.pop())
        engine.step()
        if len(engine.done) == total:
            break
    assert len(engine.done) == total
    for one in engine.done:
        if one.has_ended and one.kind is not None:
            assert ASKED[one.kind][1](one.text(VOCAB)), (seed, one.kind, one.text(VOCAB))
    return engine


def schedules(count: int, compiled: dict[str, Compiled], *, drafts: int, least: tuple[str, ...]) -> None:
    seen = dict.fromkeys(("preempted", "parts", "kept", "refused"), 0)
    for seed in range(count):
        for name, number in schedule(seed, compiled, drafts).seen.items():
            seen[name] += number
    assert all(seen[name] > 0 for name in least), seen


@against
def test_every_slot_keeps_its_own_constraint_through_random_schedules(base: str, compiled: dict[str, Compiled]) -> None:
    schedules(examples(24), compiled, drafts=0, least=("preempted", "parts"))


@against
def test_every_drafted_position_is_masked_as_what_follows_the_drafts_before_it(
    base: str, compiled: dict[str, Compiled]
) -> None:
    schedules(examples(24), compiled, drafts=4, least=("preempted", "parts", "kept", "refused"))


@pytest.mark.slow
@pytest.mark.parametrize("drafts", [0, 4])
@against
def test_hundreds_of_random_schedules(base: str, compiled: dict[str, Compiled], drafts: int) -> None:
    schedules(examples(500), compiled, drafts=drafts, least=("preempted", "parts"))


@against
def test_the_processor_is_of_the_class_that_the_second_runner_asks_for(base: str) -> None:
    assert issubclass(ConstraintProcessor, LogitsProcessor)
    assert isinstance(DemoProcessor(config_of(), states()), LogitsProcessor)


@against
def test_scheduling_ahead_and_drafts_are_taken(base: str) -> None:
    """The tokens are on the device when masks are made, and rows of drafts say what they follow."""
    DemoProcessor(config_of(scheduler_config=SimpleNamespace(async_scheduling=True)), states())
    DemoProcessor(config_of(speculative_config=SimpleNamespace(rejection_sample_method="standard")), states())


@against
def test_drafts_that_are_kept_whatever_a_mask_says_are_refused(base: str) -> None:
    with pytest.raises(CapabilityError, match="synthetic"):
        DemoProcessor(config_of(speculative_config=SimpleNamespace(rejection_sample_method="synthetic")), states())


@against
def test_steps_are_told_once_for_the_drafts_that_are_kept(base: str, compiled: dict[str, Compiled]) -> None:
    reports: list[StepReport] = []
    told = type("Told", (DemoProcessor,), {"reporter": staticmethod(reports.append)})
    for seed in range(examples(8)):
        engine = ToyRunnerV2(told, random.Random(seed), drafts=3)
        one = ToyRequest(
            "schema", params_of("schema", report=True, id=f"r{seed}"), compiled["schema"].matcher(), most=99
        )
        engine.waiting.append(one)
        for _ in range(400):
            engine.step()
            if engine.done:
                break
        engine.processor.add_request(0, params_of(None))  # the next ones in its slots
        for slot in range(1, SLOTS):
            engine.processor.add_request(slot, params_of(None))
        steps = [report.step for report in reports if report.id == f"r{seed}" and not report.left]
        assert steps == list(range(len(one.output)))
