"""The processor for vLLM, driven as its V1 engine drives one. Where vLLM is not installed, its interface as published
stands in: the tests' names say which of the two it was."""

from __future__ import annotations

import math
import random
import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from vllm.v1.sample.logits_processor import BatchUpdate, LogitsProcessor, MoveDirectionality  # noqa: E402

from espalier.constraints.base import Compiled  # noqa: E402
from espalier.constraints.spec import Regex  # noqa: E402
from espalier.errors import CapabilityError, InputError  # noqa: E402
from espalier.integrations.rows.device import forbid_inplace, spread, spread_there, taxes  # noqa: E402
from espalier.integrations.vllm import ConstraintProcessor  # noqa: E402
from espalier.integrations.vllm.report import StepReport  # noqa: E402
from espalier.integrations.vllm.reporter import reporter_of  # noqa: E402
from espalier.tokens import mask as masks  # noqa: E402
from espalier.tokens.vocab import Vocab  # noqa: E402
from espalier.wiring import demo_model  # noqa: E402
from tests.engine_doubles import HAS_VLLM  # noqa: E402
from tests.examples import examples  # noqa: E402
from tests.toy_engines import ASKED, ToyRequest, ToyVllm, compile_asked, config_of, params_of, requests_of  # noqa: E402

CPU = torch.device("cpu")
BASE = "vllms-own-base-class" if HAS_VLLM else "recorded-interface"
against = pytest.mark.parametrize("base", [BASE])
VOCAB = Vocab.from_tokenizer(str(demo_model() / "tokenizer.json"))


class DemoProcessor(ConstraintProcessor):
    """On the vocabulary of the demo model."""

    @classmethod
    def vocab_of(cls, vllm_config: Any) -> Vocab:
        return VOCAB


@pytest.fixture(scope="module")
def compiled() -> dict[str, Compiled]:
    return compile_asked(VOCAB)


def processor(cls: type[ConstraintProcessor] = DemoProcessor, **config: Any) -> ConstraintProcessor:
    return cls(config_of(**config), CPU, False)


def schedule(seed: int, compiled: dict[str, Compiled]) -> ToyVllm:
    """One random schedule, run to its end."""
    rng = random.Random(seed)
    engine = ToyVllm(processor(), BatchUpdate, MoveDirectionality, VOCAB, rng, ahead=rng.random() < 0.5)
    coming = requests_of(rng, compiled, rng.randint(2, 7))
    total = len(coming)
    for _ in range(2000):
        if coming and rng.random() < 0.4:
            engine.waiting.append(coming.pop())
        engine.step()
        if len(engine.done) == total:
            break
    assert len(engine.done) == total
    for one in engine.done:
        if one.has_ended and one.kind is not None:
            text = one.text(VOCAB)
            assert ASKED[one.kind][1](text), (seed, one.kind, text)
    return engine


def run(engine: ToyVllm) -> None:
    for _ in range(50):
        engine.step()


def schedules(count: int, compiled: dict[str, Compiled]) -> None:
    seen = {"preempted": 0, "moved": 0, "swapped": 0, "ended": 0}
    for seed in range(count):
        engine = schedule(seed, compiled)
        for name, number in engine.seen.items():
            seen[name] += number
        seen["ended"] += sum(one.has_ended for one in engine.done)
    assert min(seen.values()) > 0, seen


@against
def test_every_row_keeps_its_own_constraint_through_random_schedules(base: str, compiled: dict[str, Compiled]) -> None:
    schedules(examples(60), compiled)


@pytest.mark.slow
@against
def test_hundreds_of_random_schedules(base: str, compiled: dict[str, Compiled]) -> None:
    schedules(examples(1000), compiled)


@against
def test_the_processor_is_of_the_base_class_and_changes_greedy_choices(base: str) -> None:
    made = processor()
    assert isinstance(made, LogitsProcessor)
    assert made.is_argmax_invariant() is False


def update(added: Any = (), removed: Any = (), moved: Any = ()) -> Any:
    return BatchUpdate(batch_size=len(added), removed=list(removed), added=list(added), moved=list(moved))


@against
def test_a_preempted_request_returns_with_its_tokens(base: str, compiled: dict[str, Compiled]) -> None:
    made, output = processor(), list(VOCAB.encoder("yes") if VOCAB.encoder else ())
    made.update_state(update(added=[(0, params_of("choice"), [1], output)]))
    found = made.apply(torch.zeros((1, VOCAB.width)))[0]
    matcher = compiled["choice"].matcher()
    for token in output:
        matcher.advance(token)
    assert np.array_equal(np.isfinite(found.numpy()), masks.unpack(matcher.mask(), VOCAB.width))


@pytest.mark.parametrize(
    ("params", "said"),
    [
        ({"extra_args": {"espalier": {"json_schema": {"type": "nothing"}}}}, "type"),
        ({"extra_args": {"espalier": {"grammar": "root ::= root"}}}, "root"),
        ({"extra_args": {"espalier": {"constraint": {"kind": "regex", "pattern": "(?<=a)b"}}}}, ""),
        ({"extra_args": {"espalier": {"jsonschema": {}}}}, "jsonschema"),
        ({"extra_args": {"espalier": {}}}, "nothing to enforce"),
        ({"extra_args": {"espalier": "{"}}, "not JSON"),
        ({"extra_args": {"espalier": 3}}, "object"),
        ({"extra_args": {"espalier": {"preset": "no such"}}}, "no such"),
        ({"extra_args": {"espalier": {"bad_words": "x"}}}, "bad_words"),
        ({"min_tokens": 3}, "min_tokens"),
        ({"ignore_eos": True}, "ignore_eos"),
        ({"bad_words": ["x"]}, "bad_words"),
        ({"allowed_token_ids": [1]}, "allowed_token_ids"),
        ({"structured_outputs": object()}, "structured_outputs"),
        ({"use_beam_search": True}, "beam"),
        ({"beam_width": 4}, "beam"),
        ({"logit_bias": {5: -float("inf")}}, "logit_bias"),
    ],
)
@against
def test_what_cannot_be_enforced_is_refused_when_the_request_arrives(base: str, params: Any, said: str) -> None:
    given = SimpleNamespace(**{"extra_args": {"espalier": {"grammar": 'root ::= "a"'}}, **params})
    with pytest.raises(ValueError, match=r"espalier: .*") as caught:
        DemoProcessor.validate_params(given)
    assert said in str(caught.value)


@against
def test_requests_that_ask_nothing_of_us_may_have_any_params(base: str) -> None:
    DemoProcessor.validate_params(SimpleNamespace(extra_args=None, min_tokens=3, ignore_eos=True))
    DemoProcessor.validate_params(SimpleNamespace(extra_args={"other": 1}))


@against
def test_speculative_decoding_is_refused_with_the_reason(base: str) -> None:
    with pytest.raises(CapabilityError, match="several tokens"):
        processor(speculative_config=object())


AHEAD = {
    "scheduler_config": SimpleNamespace(async_scheduling=True),
    "model_config": SimpleNamespace(logits_processors=["espalier.integrations.vllm:ConstraintProcessor"]),
}


@against
def test_scheduling_ahead_is_taken_where_the_runner_fills_in_the_tokens(
    base: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the first runner does for processors that are named in its settings."""
    batch = SimpleNamespace(InputBatch=SimpleNamespace(update_async_output_token_ids=None))
    monkeypatch.setitem(sys.modules, "vllm.v1.worker.gpu_input_batch", batch)
    processor(**AHEAD)
    with pytest.raises(CapabilityError, match="does not tell them to this logits processor") as caught:
        processor(**{**AHEAD, "model_config": SimpleNamespace(logits_processors=None)})  # a plug-in
    assert caught.value.hint is not None
    assert "--no-async-scheduling" in caught.value.hint


@against
def test_scheduling_ahead_is_refused_where_the_runner_fills_in_no_tokens(
    base: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch = SimpleNamespace(InputBatch=SimpleNamespace())
    monkeypatch.setitem(sys.modules, "vllm.v1.worker.gpu_input_batch", batch)
    with pytest.raises(CapabilityError, match="schedules ahead"):
        processor(**AHEAD)


@against
def test_a_constraint_that_fails_in_the_engine_ends_its_own_request_alone(
    base: str, caplog: pytest.LogCaptureFixture
) -> None:
    """It was not validated, so it reaches the engine: nothing of it is generated, and the others go on."""
    reports: list[StepReport] = []
    made = processor(type("Told", (DemoProcessor,), {"reporter": staticmethod(reports.append)}))
    bad = SimpleNamespace(extra_args={"espalier": {"grammar": "root ::= <nosuchtoken>", "id": "seven"}})
    malformed = SimpleNamespace(extra_args={"espalier": {"grammer": ""}})
    added = [(0, bad, [1], []), (1, params_of("choice"), [1], []), (2, malformed, [1], [])]
    made.update_state(update(added=added))
    with caplog.at_level("ERROR"):
        found = made.apply(torch.zeros((3, VOCAB.width)))
    for row in (0, 2):
        assert torch.isfinite(found[row]).nonzero().flatten().tolist() == [VOCAB.eos_ids[0]]
    assert torch.isfinite(found[1]).sum() > 1
    assert "seven" in caplog.text
    assert [(one.id, "nosuchtoken" in one.failure) for one in reports] == [("seven", True), ("", False)]


@against
def test_a_row_that_another_processor_left_without_tokens_ends_and_is_told(
    base: str, caplog: pytest.LogCaptureFixture
) -> None:
    made, output = processor(), list[int]()
    made.update_state(update(added=[(0, params_of("choice"), [1], output)]))
    found = made.apply(torch.full((1, VOCAB.width), -torch.inf))
    assert torch.isfinite(found[0]).nonzero().flatten().tolist() == [VOCAB.eos_ids[0]]
    with caplog.at_level("ERROR"):
        made.update_state(None)
    assert "every allowed token had been banned" in caplog.text


@against
def test_a_token_that_is_not_told_ends_the_row(base: str, caplog: pytest.LogCaptureFixture) -> None:
    made = processor()
    made.update_state(update(added=[(0, params_of("choice"), [1], [-1])]))
    with caplog.at_level("ERROR"):
        found = made.apply(torch.zeros((1, VOCAB.width)))
    assert torch.isfinite(found[0]).nonzero().flatten().tolist() == [VOCAB.eos_ids[0]]
    assert "async scheduling" in caplog.text


@against
def test_tax_and_removed_mass_of_each_step_are_told_on_request(base: str, compiled: dict[str, Compiled]) -> None:
    reports: list[StepReport] = []
    made = processor(type("Told", (DemoProcessor,), {"reporter": staticmethod(reports.append)}))
    output: list[int] = []
    made.update_state(
        update(added=[(1, params_of("schema", report=True, id="a"), [1], output), (0, params_of("schema"), [1], [])])
    )
    matcher, expected = compiled["schema"].matcher(), []
    rng = np.random.default_rng(3)
    for step in range(200):
        if matcher.is_finished:
            break
        logits = rng.normal(size=(2, VOCAB.width)).astype(np.float32) * 4
        allowed = masks.unpack(matcher.mask(), VOCAB.width)
        p = np.exp(logits[1].astype(np.float64) - logits[1].max())
        z = p[allowed].sum() / p.sum()
        expected.append((step, int(allowed.sum()), -np.log(z), 1 - z))
        made.update_state(None)
        made.apply(torch.from_numpy(logits))
        output.append(matcher.shortest_completion()[0])
        matcher.advance(output[-1])
    made.update_state(update(removed=[1]))
    assert {one.id for one in reports} == {"a"}
    assert reports.pop() == StepReport(id="a", step=len(output), left="finished")
    found = [(one.step, one.allowed_count, one.tax_nats, one.removed_mass) for one in reports]
    assert len(found) == len(output) > 10
    assert np.allclose(found, expected, atol=1e-9)


@against
def test_a_request_whose_row_another_one_takes_is_told_to_have_left(base: str) -> None:
    """vLLM moves the last row into the place of one that has finished, and lists neither as removed."""
    reports: list[StepReport] = []
    made = processor(type("Told", (DemoProcessor,), {"reporter": staticmethod(reports.append)}))
    first, second = (params_of("choice", report=True, id=name) for name in "ab")
    made.update_state(update(added=[(0, first, [1], [5]), (1, second, [1], [])]))
    made.update_state(update(moved=[(1, 0, MoveDirectionality.UNIDIRECTIONAL)]))
    assert [(one.id, one.left) for one in reports] == [("a", "unfinished")]


@against
def test_logits_of_a_part_of_a_prompt_are_no_step_of_a_report(base: str) -> None:
    """A long prompt is read in parts, and the runner asks for masks after each of them."""
    reports: list[StepReport] = []
    made = processor(type("Told", (DemoProcessor,), {"reporter": staticmethod(reports.append)}))
    output: list[int] = []
    made.update_state(update(added=[(0, params_of("choice", report=True, id="a"), [1] * 90, output)]))
    for _ in range(3):
        made.apply(torch.randn((1, VOCAB.width)))
        made.update_state(None)
    assert not reports
    output.append(int(made.apply(torch.randn((1, VOCAB.width)))[0].argmax()))
    made.update_state(None)
    made.apply(torch.randn((1, VOCAB.width)))
    assert [one.step for one in reports] == [0]


@against
def test_a_report_beside_a_bias_is_refused(base: str) -> None:
    given = params_of("choice", report=True)
    given.logit_bias = {5: 1.0}
    with pytest.raises(ValueError, match="the bias first"):
        DemoProcessor.validate_params(given)


@against
def test_a_reporter_can_be_named_in_the_configuration(base: str) -> None:
    assert reporter_of(config_of(additional_config={"espalier": {"reporter": "builtins:print"}}), None) is print
    with pytest.raises(InputError, match="cannot be imported"):
        processor(additional_config={"espalier": {"reporter": "no.such:thing"}})


@against
def test_a_constraint_may_come_as_json_text(base: str) -> None:
    DemoProcessor.validate_params(SimpleNamespace(extra_args={"espalier": '{"json_schema": {"type": "integer"}}'}))


def test_masks_are_spread_alike_by_numpy_and_by_the_device() -> None:
    rng = np.random.default_rng(5)
    for width in (1, 31, 32, 33, 257, 4099):
        packed = rng.integers(-(2**31), 2**31, size=(3, masks.words(width)), dtype=np.int32)
        expected = np.stack([masks.unpack(row, width) for row in packed])
        assert np.array_equal(spread(packed, width, CPU).numpy(), expected)
        assert np.array_equal(spread_there(torch.from_numpy(packed), width, CPU).numpy(), expected)


def test_masks_of_some_rows_leave_the_others_alone() -> None:
    packed = np.array([[0b101], [0b010]], dtype=np.int32)
    logits = torch.zeros((4, 3))
    forbid_inplace(logits, [3, 1], packed)
    assert torch.isfinite(logits).int().tolist() == [[1, 1, 1], [0, 1, 0], [1, 1, 1], [1, 0, 1]]


def test_the_tax_of_a_row_without_tokens_is_infinite() -> None:
    assert taxes(torch.zeros((1, 4)), torch.full((1, 4), -torch.inf)) == ([float("inf")], [True])


def test_a_row_is_changed_where_its_greatest_logit_is_forbidden() -> None:
    raw = torch.tensor([[1.0, 3.0, 2.0], [1.0, 3.0, 2.0]])
    masked = raw.clone()
    forbid_inplace(masked, [0, 1], np.array([[0b101], [0b011]], dtype=np.int32))
    costs, changed = taxes(raw, masked)
    assert changed == [True, False]
    assert [math.exp(-cost) for cost in costs] == pytest.approx([0.3348, 0.7553], abs=1e-4)


def test_the_oracles_of_the_toy_engine_can_fail(compiled: dict[str, Compiled]) -> None:
    assert not any(oracle("nope!") for kind, (_, oracle) in ASKED.items() if kind not in ("schema", "preset"))
    assert not ASKED["schema"][1]('{"name": "seven letters", "age": 3}')
    wrong = ToyRequest("choice", params_of("regex"), compiled["choice"].matcher(), most=9)
    engine = ToyVllm(processor(), BatchUpdate, MoveDirectionality, VOCAB, random.Random(1), ahead=False)
    engine.waiting = [wrong]
    with pytest.raises(AssertionError, match="not that of our matcher"):
        run(engine)


def test_a_regex_of_bytes_is_masked_as_its_matcher_says_at_another_width() -> None:
    """The logits may be wider than the vocabulary: padding ids are never allowed."""

    class Wide(DemoProcessor):
        @classmethod
        def vocab_of(cls, vllm_config: Any) -> Vocab:
            return Vocab.bytes()

    made = processor(Wide)
    spec = Regex("[ab]+").to_json()
    made.update_state(update(added=[(0, SimpleNamespace(extra_args={"espalier": {"constraint": spec}}), [1], [])]))
    found = made.apply(torch.zeros((1, 300)))
    assert torch.isfinite(found[0]).nonzero().flatten().tolist() == [97, 98]
