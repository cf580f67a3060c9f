"""What a beam search tells while it runs and what it writes down: agreement, records, scores, and what it refuses."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

import espalier
from espalier import Choice, SamplingConfig
from espalier.constraints.compiler import Compiler
from espalier.decoding.beam.strategy import beam_plan, check
from espalier.decoding.options import Decoding
from espalier.decoding.plan import SampledToken
from espalier.decoding.ports import Extend, Need
from espalier.decoding.text.stops import TextAssembler
from espalier.errors import BudgetExceeded, CapabilityError, InputError, SamplingError
from espalier.sampling.filters import TokenBan
from tests.unit.decoding.beam_toys import (
    EOS,
    PROMPT,
    VOCAB,
    Toy,
    anything,
    ends_at,
    found,
    job,
    log_probs,
    reference,
    search,
)

texts = st.lists(st.text("abc", min_size=1, max_size=5), min_size=1, max_size=8, unique=True)


def by_hand(model, asked):
    """Run a plan; what it tells, each with the live texts at that moment: those that the model's next pass extends."""
    plan, sequences, told, answer = beam_plan(asked), {}, [], None
    while True:
        try:
            happened = plan.send(answer)
        except StopIteration as end:
            return told, end.value
        answer = None
        if isinstance(happened, SampledToken):
            told.append([happened, None])
            continue
        assert isinstance(happened, Need)
        for branch in happened.free:
            model.free(sequences.pop(branch))
        for source, target in happened.fork:
            sequences[target] = model.fork(sequences[source])
        live = []
        for append in happened.append:
            if append.branch not in sequences:
                sequences[append.branch] = model.new()
            live.append((*model._sequences[sequences[append.branch]], *append.tokens)[len(PROMPT) :])
        for one in told:
            one[1] = one[1] or live
        answer = {
            append.branch: model._extend(Extend(sequence=sequences[append.branch], tokens=append.tokens))
            for append in happened.append
        }


@given(st.integers(0, 10**6), texts, st.integers(1, 4), st.sampled_from([False, True, "never"]))
def test_a_token_is_told_only_when_every_live_beam_has_it(seed, words, beams, early_stopping):
    asked = job(constraint=Choice(words), beams=beams, max_tokens=6, early_stopping=early_stopping)
    told, ended = by_hand(Toy(seed, slots=beams), asked)
    assert tuple(one.token for one, _ in told) == ended.tokens
    for place, (_, live) in enumerate(told):
        for tokens in live or ():
            assert tokens[: place + 1] == ended.tokens[: place + 1]


def test_what_all_beams_have_in_common_is_told_before_the_end():
    asked = job(constraint=Choice(["cbcbcba", "cbcbcbb"]), beams=2, max_tokens=9)
    told, ended = by_hand(Toy(2, slots=2), asked)
    early = [one.token for one, live in told if live is not None]
    assert VOCAB.decode(early) == b"cbcbcb"
    assert ended.text in ("cbcbcba", "cbcbcbb")


def test_a_finished_text_that_can_still_win_holds_back_what_it_does_not_say():
    """`c` is complete, and best, long before the longer text is."""
    asked = job(constraint=Choice(["c", "cbbbbbb"]), beams=2, max_tokens=9, early_stopping="never", length_penalty=0.0)
    told, ended = by_hand(Toy(2, slots=2), asked)
    assert ended.text == "c"
    assert [one.token for one, live in told if live is not None] == [2]


@given(st.integers(0, 10**6), st.integers(1, 4), st.sampled_from([0.0, 1.0, -0.5]))
def test_the_records_of_a_text_add_up_to_its_score(seed, beams, length_penalty):
    asked = job(
        constraint=Choice(["abab", "abca", "caab", "cc", "bb"]),
        beams=beams,
        num_return_sequences=beams,
        watch="steps",
        length_penalty=length_penalty,
        max_tokens=5,
        repetition_penalty=1.3,
        logit_bias={1: 2.0},
    )
    told, ended = search(Toy(seed, slots=beams), asked)
    assert ended.records == ()  # they were told
    every = [(ended, [token.record for token in told]), *((other, other.records) for other in ended.others)]
    for one, records in every:
        assert [record.token_id for record in records] == list(one.tokens)
        assert [record.step for record in records] == list(range(len(one.tokens)))
        total = math.fsum(record.resampled.logit for record in records)
        assert total / len(one.tokens) ** length_penalty == pytest.approx(one.score, abs=1e-5)
        for at, record in enumerate(records):
            gains = log_probs(seed)(one.tokens[:at])
            assert record.logprob == pytest.approx(gains[record.token_id], abs=1e-6)  # the model's own
            assert record.pre_masking[0].prob == pytest.approx(math.exp(max(gains)), abs=1e-6)
            assert record.resampled in record.post_chain
            assert record.was_changed == (not record.pre_masking[0].allowed)
            assert record.z_sampled is None
            assert not record.was_forced
            assert not record.was_rejected
            assert 0 <= record.removed_mass < 1
            assert 0 <= record.resampled.prob <= 1


def test_texts_share_the_records_of_what_they_have_in_common():
    asked = job(constraint=Choice(["cbbba", "cbbbb"]), beams=2, num_return_sequences=2, watch="steps", max_tokens=6)
    told, ended = search(Toy(1, slots=2), asked)
    assert [one.record for one in told[:4]] == list(ended.others[0].records[:4])
    assert all(one.record is other for one, other in zip(told[:4], ended.others[0].records, strict=False))


def test_levels_off_and_summary_build_no_more_than_they_must():
    told, ended = search(Toy(1, slots=4), job(num_return_sequences=4))
    assert [one.record for one in told] == [None] * len(told)
    assert all(one.records == () for one in ended.others)
    told, _ = search(Toy(1, slots=4), job(watch="summary"))
    assert all(one.record.pre_masking == one.record.post_chain == () for one in told)
    told, _ = search(Toy(1, slots=4), job(watch="full", constraint=Choice(["abab", "cc"])))
    assert all(one.record.distribution is not None for one in told)


def test_the_level_changes_nothing_of_what_is_found():
    options = {"constraint": Choice(["abab", "abca", "caab", "cc", "bb"]), "num_return_sequences": 4, "min_tokens": 3}
    for seed in range(10):
        results = [search(Toy(seed, slots=4), job(watch=level, **options))[1] for level in ("off", "steps", "full")]
        assert len({tuple(found(one)) for one in results}) == 1


def test_a_bans_records_say_who_banned():
    ban = TokenBan([0])
    told, _ = search(Toy(4, slots=4), job(watch="steps", filters=[ban], allowed_ids=[0, 1, 2, EOS]))
    for one in told:
        assert dict(one.record.removed_by).keys() <= {"allowed_ids", ban.name, "padding", "constraint"}
        assert math.fsum(mass for _, mass in one.record.removed_by) == pytest.approx(one.record.removed_mass, abs=1e-9)
        if one.record.was_changed:
            assert one.record.blame.member in ("allowed_ids", ban.name)


def penalised(gains, fields):
    """The config's fields on ln p, as transformers' processors have them."""

    def of(tokens):
        row = list(gains(tokens))
        said = [*PROMPT, *tokens]
        for token, bias in fields.get("logit_bias", {}).items():
            row[token] += bias
        for token in set(said):
            rate = fields.get("repetition_penalty", 1.0)
            row[token] = row[token] / rate if row[token] > 0 else row[token] * rate
        for token in set(tokens):
            row[token] -= fields.get("frequency_penalty", 0.0) * tokens.count(token)
            row[token] -= fields.get("presence_penalty", 0.0)
        if len(tokens) < fields.get("min_tokens", 0):
            row[EOS] = -math.inf
        allowed = fields.get("allowed_ids")
        return [gain if allowed is None or token in allowed else -math.inf for token, gain in enumerate(row)]

    return of


@pytest.mark.parametrize(
    "fields",
    [
        {"repetition_penalty": 1.2},
        {"repetition_penalty": 0.8, "logit_bias": {0: 1.5, 3: -2.0}},
        {"frequency_penalty": 0.4, "presence_penalty": 0.3},
        {"min_tokens": 3},
        {"allowed_ids": (0, 2, EOS)},
        {"logit_bias": {1: -math.inf, EOS: 0.7}, "repetition_penalty": 1.1},
        {"temperature": 0.1, "top_k": 1, "top_p": 0.1, "min_p": 0.9},
        {"temperature": 0.0},
    ],
    ids="-".join,
)
def test_penalties_biases_and_bans_hold_and_what_draws_has_no_part(fields):
    for seed in range(15):
        gains = penalised(log_probs(seed), fields)
        wanted = reference(gains, anything, ends_at(), beams=3, longest=6, wanted=3)
        _, ended = search(Toy(seed, slots=3), job(beams=3, num_return_sequences=3, max_tokens=6, **fields))
        assert [tokens for tokens, _ in found(ended)] == [tokens for tokens, _ in wanted]
        assert [score for _, score in found(ended)] == pytest.approx([score for _, score in wanted], abs=1e-5)


def test_min_tokens_gives_way_to_a_constraint():
    _, ended = search(Toy(1, slots=4), job(constraint=Choice(["b"]), min_tokens=5))
    assert (ended.text, ended.finish) == ("b", "stop")


def test_stop_ids_end_a_text_and_are_not_shown():
    for seed in range(10):
        gains = log_probs(seed)
        wanted = reference(gains, anything, lambda tokens: tokens[-1] in (EOS, 2), beams=3, longest=6, wanted=3)
        _, ended = search(Toy(seed, slots=3), job(beams=3, num_return_sequences=3, max_tokens=6, stop_ids=(2,)))
        assert [tokens for tokens, _ in found(ended)] == [tokens for tokens, _ in wanted]
        for one in (ended, *ended.others):
            assert one.stop == (2 if one.tokens[-1] == 2 else None)
            assert one.text == VOCAB.decode([token for token in one.tokens if token != 2]).decode()


def test_ignore_eos_goes_on_to_the_limit():
    _, ended = search(Toy(1, slots=4), job(ignore_eos=True, max_tokens=12))
    assert (len(ended.tokens), ended.finish) == (12, "length")
    assert EOS not in ended.tokens


def test_more_texts_than_beams_are_refused():
    with pytest.raises(InputError, match="num_return_sequences") as caught:
        check(Decoding(strategy="beam", num_beams=3, num_return_sequences=4), SamplingConfig())
    assert caught.value.field == "num_return_sequences"
    check(Decoding(strategy="beam", num_beams=3, num_return_sequences=3), SamplingConfig())


@pytest.mark.parametrize("penalty", [41, -41, 1e308])
def test_a_length_penalty_beyond_what_a_float_holds_is_refused(penalty):
    with pytest.raises(InputError) as caught:
        check(Decoding(strategy="beam", length_penalty=penalty), SamplingConfig())
    assert caught.value.field == "length_penalty"


@pytest.mark.parametrize(
    "fields",
    [{"mirostat": 2}, {"xtc_probability": 0.5}, {"typical_p": 0.5}, {"top_n_sigma": 1.0}, {"dynatemp_range": 0.2}],
    ids=lambda fields: next(iter(fields)),
)
def test_what_asks_for_drawing_is_refused_by_its_name(fields):
    with pytest.raises(SamplingError) as caught:
        check(Decoding(strategy="beam"), SamplingConfig(**fields))
    assert caught.value.field == next(iter(fields))


def test_more_beams_than_the_engine_has_sequences_are_refused():
    with espalier.load("fake") as engine:
        engine.engine.model._slots = 3
        with pytest.raises(CapabilityError) as caught:
            engine.generate("hi", strategy="beam", num_beams=4)
    assert caught.value.field == "num_beams"


WORDS = Choice(["yes", "yes, of course", "no", "never", "maybe", "nobody knows"])


def test_one_driver_and_the_scheduler_give_the_same_texts_scores_and_traces():
    options = {
        "strategy": "beam",
        "num_beams": 3,
        "num_return_sequences": 3,
        "max_tokens": 20,
        "constraint": WORDS,
        "seed": 1,
    }
    with espalier.load("fake") as engine:
        prompts = ["hi", "how are you", "who knows", "hi"]
        alone = engine.generate(prompts, **options)
        service = engine.serve(prefill_chunk=4)
        served = engine.generate(prompts, **options)
        service.close()
        assert engine.engine.model.live == 0
    for one, two in zip(alone, served, strict=True):
        assert (one.token_ids, one.text, one.score, one.trace) == (two.token_ids, two.text, two.score, two.trace)
        assert [(o.token_ids, o.score, o.trace) for o in one.others] == [
            (o.token_ids, o.score, o.trace) for o in two.others
        ]
        assert len(one.others) == 2
        assert one.trace.score == one.score
        assert all(other.verdict.valid and len(other.trace.steps) == len(other.token_ids) for other in one.others)


def test_a_limit_on_tokens_closes_the_beams_or_is_an_error():
    text = espalier.Regex("[a-z ]*[.]")
    with espalier.load("fake") as engine:
        options = {"strategy": "beam", "num_beams": 3, "max_tokens": 6, "constraint": text}
        closed = engine.generate("hi", on_budget="close", **options)
        assert closed.verdict.valid
        assert closed.finish_reason == "length"
        with pytest.raises(BudgetExceeded):
            engine.generate("hi", on_budget="error", **options)


def test_a_forks_matcher_is_its_own():
    compiled = Compiler(VOCAB).compile(Choice(["ab", "ca"]))
    asked = job(beams=2)
    for seed in range(10):
        matcher = compiled.matcher()
        kept = matcher.fork()
        search(Toy(seed, slots=2), replace(asked, matcher=matcher))
        assert (kept.mask() == compiled.matcher().mask()).all()


def test_a_forked_assembler_has_its_own_bytes_and_its_own_stop():
    first = TextAssembler(("stop",))
    first.feed("ñ".encode() + b"\xc3")
    second = first.fork()
    assert (first.feed(b"\xa9sto").text, second.feed(b"\xb1").text) == ("é", "ñ")
    assert first.feed(b"p").stop == "stop"
    assert second.feed(b"stand").stop is None
    assert (first.text, second.text) == ("ñé", "ññstand")
