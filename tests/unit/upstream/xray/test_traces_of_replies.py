"""The trace of a whole reply: each figure of a step is that of the probabilities that our small server had."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from espalier.upstream.xray import record
from espalier.upstream.xray.follow import following
from espalier.upstream.xray.record import ROUNDED, _masses, combined_of, trace_of
from espalier.upstream.xray.wire.request import read_request
from tests.toy_llama_server import END, GRAMMAR, KNOWN, PLAIN, PROMPT, SPELLED, WIDTH, Server
from tests.unit.upstream.xray.test_record_parts import states
from tests.unit.upstream.xray.test_record_parts import step as listed_step

REQUEST = read_request("/completion", json.dumps({"prompt": "adc", "grammar": GRAMMAR}).encode())
SEEDS = range(1, 7)


def traced(server: Server, **more: Any) -> Any:
    output = server.output(model="m", **more)
    with following(output, KNOWN, None, count=0) as found:
        return trace_of(found, output, REQUEST, KNOWN)


def allowed_at(server: Server, place: int) -> list[bool]:
    here = Server(server.settings, tokens=server.tokens[:place])
    return [here.allows(token) for token in range(WIDTH)]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("heat", [1.0, 1.6])
def test_with_all_probabilities_each_figure_is_exact(seed: int, heat: float) -> None:
    server = Server(PLAIN | {"seed": seed, "temperature": heat}).generate()
    trace = traced(server)
    assert [step.token_id for step in trace.steps] == server.tokens
    assert trace.text.encode() == b"".join(SPELLED[token] for token in server.tokens)
    for place, step in enumerate(trace.steps):
        past = [*PROMPT, *server.tokens[:place]]
        probs = [math.exp(logprob) for logprob in server.logprobs(past)]
        allowed = allowed_at(server, place)
        inside = math.fsum(prob for prob, may in zip(probs, allowed, strict=True) if may)
        assert (step.step, step.exactness, step.bounds, step.note, step.is_unknown) == (place, "exact", None, "", False)
        assert step.removed_mass == pytest.approx(1 - inside, abs=1e-5)
        assert step.tax_nats == pytest.approx(-math.log(inside), rel=1e-3, abs=1e-5)
        assert step.allowed_count == sum(allowed)
        assert step.entropy_before == pytest.approx(-sum(prob * math.log(prob) for prob in probs), abs=1e-4)
        shares = [prob / inside for prob, may in zip(probs, allowed, strict=True) if may]
        assert step.entropy_after == pytest.approx(-sum(share * math.log(share) for share in shares), abs=1e-3)
        refused, token = server.refused[place], server.tokens[place]
        assert step.was_rejected == (refused is not None)
        best = sorted(range(WIDTH), key=lambda one: -probs[one])
        wanted = best[:10] + [
            one for one in dict.fromkeys([token, refused]) if one is not None and one not in best[:10]
        ]
        assert [one.id for one in step.pre_masking] == wanted
        assert [one.prob for one in step.pre_masking] == pytest.approx([probs[one] for one in wanted], abs=1e-5)
        assert [one.allowed for one in step.pre_masking] == [allowed[one] for one in wanted]
        assert [one.id for one in step.post_grammar] == [one for one in wanted if allowed[one]]
        assert [one.prob for one in step.post_grammar] == pytest.approx(
            [probs[one] / inside for one in wanted if allowed[one]], rel=1e-3
        )
        assert step.was_changed == (not allowed[best[0]])
        heated = [prob ** (1 / heat) * (allowed[one] or refused is None) for one, prob in enumerate(probs)]
        share = heated[token] / math.fsum(heated)
        assert (step.resampled.id, step.resampled.prob) == (token, pytest.approx(share, rel=1e-3))
        assert step.resampled.logit == pytest.approx(math.log(probs[token]), abs=1e-4) == step.logprob
        drawn = {one.id: one.prob for one in step.post_chain}
        assert drawn[token] == pytest.approx(share, rel=1e-3)
        assert len(drawn) <= 11
        if refused is not None:
            all_heated = math.fsum(prob ** (1 / heat) for prob in probs)
            assert step.rejected.id == refused
            assert step.rejected.prob == pytest.approx(probs[refused] ** (1 / heat) / all_heated, rel=1e-3)
        else:
            assert step.rejected is None
        assert (step.blame is not None) == (refused is not None or not allowed[best[0]])
        assert step.rule == ("root" if any(allowed[:END]) else None)
        assert step.is_special == (token == END)
        assert (step.text, step.bytes) == (KNOWN.vocab.text_of(token), SPELLED[token])
    assert trace.setup["steps"] == {"exact": len(server.tokens), "bounded": 0, "untraceable": 0}
    assert trace.setup["rejected"] == len([one for one in server.refused if one is not None])
    assert (trace.setup["unknown"], trace.setup["asked_again"], "reason" in trace.setup) == (0, 0, False)
    assert (trace.model, trace.prompt, trace.asked, trace.strategy) == ("m", "adc", "adc", "rejection")
    assert trace.finish_reason == ("stop" if server.tokens[-1] == END else "length")
    assert trace.constraint == {"kind": "gbnf", "grammar": GRAMMAR} | dict(trace.constraint)
    assert trace.sampling["temperature"] == pytest.approx(heat)
    assert trace.sampling["sampler"] == "llama-server"


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("told", [1, 3, 9])
@pytest.mark.parametrize("is_masked", [True, False])
def test_with_the_best_tokens_alone_the_removed_mass_has_its_narrowest_bounds(
    seed: int, told: int, is_masked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(record, "MASKED", WIDTH if is_masked else WIDTH - 1)
    server = Server(PLAIN | {"seed": seed}, told=told).generate()
    for place, step in enumerate(traced(server).steps):
        past = [*PROMPT, *server.tokens[:place]]
        probs = [math.exp(logprob) for logprob in server.logprobs(past)]
        allowed = allowed_at(server, place)
        best = sorted(range(WIDTH), key=lambda one: -probs[one])
        removed = math.fsum(prob for prob, may in zip(probs, allowed, strict=True) if not may)
        out = math.fsum(probs[one] for one in best[:told] if not allowed[one])
        rest, last = 1 - math.fsum(probs[one] for one in best[:told]), probs[best[told - 1]]
        may = sum(allowed[one] for one in best[told:]) if is_masked else WIDTH - told
        least = out + max(0.0, rest - may * last)
        most = min(out + rest, 1 - probs[server.tokens[place]])
        if most - least < 1e-5:
            continue
        assert step.exactness == "bounded"
        assert step.bounds == (pytest.approx(least, abs=1e-5), pytest.approx(most, abs=1e-5))
        assert step.bounds[0] - 1e-6 <= removed <= step.bounds[1] + 1e-6
        assert step.removed_mass == step.bounds[0]
        assert step.tax_nats == pytest.approx(-math.log1p(-step.bounds[0]))
        assert step.allowed_count == (sum(allowed) if is_masked else 0)
        assert step.note


def test_what_single_floats_may_have_lost_is_left_to_the_unlisted_tokens() -> None:
    """Of 13 tokens two are listed, which together have all; a server's sum of single floats drops small addends."""
    grammar = states('root ::= "ab" "c"*')
    tiny = _masses(listed_step(grammar, (0, 1.0), (1, 2e-9)), grammar)
    assert tiny.most == pytest.approx(12 * 2e-9, rel=1e-3), "no unlisted one has more than the last listed one"
    given = listed_step(grammar, (0, 0.96875), (1, 0.03125))
    assert given.reported is not None
    first, second = (math.exp(float(logprob)) for logprob in given.reported.logprobs)
    rest = max(0.0, 1 - first - second) + 13 * ROUNDED
    found = _masses(given, grammar)
    assert found.most - second == pytest.approx((second + rest) / (first + second + rest) - second, rel=1e-3)
    assert found.least == pytest.approx(second / (first + second + rest), abs=1e-12)
    given = listed_step(grammar, (0, 0.5), (1, 0.04))
    assert given.reported is not None
    first, second = (math.exp(float(logprob)) for logprob in given.reported.logprobs)
    refused = 1 - first - second - 13 * ROUNDED - second  # `ab` alone is allowed, and has no more than the last one
    least = (second + refused) / (first + second + refused + second)
    assert _masses(given, grammar).least == pytest.approx(least, abs=1e-10)


def test_the_combined_form_says_of_each_step_what_the_trace_says() -> None:
    server = next(
        one
        for seed in range(1, 99)
        if 0
        < len([*filter(None, (one := Server(PLAIN | {"seed": seed}, told=4).generate()).refused)])
        < len(one.tokens)
    )
    server.settings = server.settings | {"top_k": 0}
    full = Server(server.settings, tokens=server.tokens, refused=server.refused)
    for trace, known in ((traced(full), len(server.tokens)), (traced(server), None)):
        data = trace.to_json()
        made = combined_of(trace, data, text="said", request_id="r", created=5, timestamp="then")
        assert made["metadata"] == {"request_id": "r", "model": "m", "created": 5, "timestamp": "then"}
        unknown = sum(step.is_unknown for step in trace.steps)
        rejected = sum(step.was_rejected for step in trace.steps)
        assert known is None or known == len(trace.steps) - unknown
        told = len(trace.steps) - unknown
        assert made["summary"] == {
            "total_steps": len(trace.steps),
            "rejected_steps": rejected,
            "rejection_rate": rejected / told if told else None,
            "unknown_steps": unknown,
            "final_output": "said",
        }
        assert made["espalier"] is data
        for step, row, whole in zip(trace.steps, made["steps"], data["steps"], strict=True):
            assert (row["step"], row["token"]["id"]) == (step.step, step.token_id)
            assert [one["id"] for one in row["api_top_logprobs"]] == [one.id for one in step.pre_masking]
            assert [one["logprob"] for one in row["api_top_logprobs"]] == pytest.approx(
                [math.log(one.prob) for one in step.pre_masking]
            )
            sampled = row["rejection_sampling"]
            if step.is_unknown:
                assert sampled == {"was_rejected": None, "verdict": "unknown", "note": step.note}
            elif step.was_rejected:
                parts = ("rejected", "pre_masking", "post_grammar", "post_chain", "resampled")
                assert sampled == {"task_id": None, "slot_id": None, "was_rejected": True} | {
                    name: whole[name] for name in parts
                }
            else:
                assert sampled["was_rejected"] is False


def test_a_text_that_was_cut_was_cancelled() -> None:
    server = Server(PLAIN).generate()
    assert traced(server, finish=None).finish_reason == "stop"
    assert traced(server, finish=None, is_cut=True).finish_reason == "cancelled"
    lost = traced(server, settings=None, is_cut=True)
    assert lost.setup["reason"] == "the reply was cut before it told its settings"
    assert lost.setup["steps"]["untraceable"] == len(server.tokens) == lost.setup["unknown"]
    assert lost.constraint == {"kind": "gbnf", "grammar": GRAMMAR} | dict(lost.constraint or {})


def test_a_token_that_is_not_known_is_marked_and_adds_no_bytes() -> None:
    server = next(
        one for seed in range(1, 99) if 6 in (one := Server(PLAIN | {"seed": seed}, splits=True).generate()).tokens[1:]
    )
    output = server.stream()
    with following(output, KNOWN, None, count=0) as found:
        trace = trace_of(found, output, REQUEST, KNOWN)
    step = trace.steps[server.tokens.index(6)]
    assert (step.token_id, step.text, step.bytes, step.logprob) == (-1, "\ufffd", b"", -math.inf)
    assert (step.is_unknown, step.exactness) == (True, "untraceable")
    assert (step.pre_masking, step.post_grammar, step.post_chain) == ((), (), ())
    assert step.resampled.logit is None
    assert trace.setup["reason"] == "which token the server took here is not known"
    assert trace.finish_reason == output.finish


@pytest.mark.parametrize(
    ("settings", "sampling"),
    [
        (None, {"sampler": "llama-server"}),
        (
            {"temperature": -5.0, "top_k": 3, "samplers": ["a"], "stop": ["x"], "n_cmpl": 2},
            {"temperature": -5.0, "top_k": 3, "sampler": "llama-server"},
        ),
    ],
)
def test_settings_that_are_none_of_ours_are_told_as_they_are(settings: Any, sampling: dict[str, Any]) -> None:
    assert record._sampling(settings) == sampling
