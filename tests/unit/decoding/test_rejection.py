"""The law of `rejection`, beside that of `mask`, by enumeration and chi-squared; what it draws, builds and writes."""

from __future__ import annotations

import math

import numpy as np
import pytest

import espalier
from espalier import SamplingConfig, Vocab
from espalier.constraints.compiler import Compiler
from espalier.decoding.masking import MASK
from espalier.decoding.native import check_native
from espalier.decoding.plan import Job, SampledToken
from espalier.decoding.rejection import REJECTION
from espalier.decoding.step.decide import decide, decide_late
from espalier.decoding.step.record import Watch
from espalier.engines.fake import FakeStepModel
from espalier.engines.scheduling.drive import drive
from espalier.errors import BadLogits, CapabilityError, DeadEnd
from espalier.sampling.chain import Chain
from espalier.sampling.draw import RandomStream
from espalier.sampling.filters import FilterContext, TokenBan
from espalier.sampling.fit import fit
from espalier.tokens import mask as masks
from tests.toy_laws import CHAINS, EOS, LANGUAGES, PLAIN, TOKENS, distance, law, wish

VOCAB = Vocab.from_tokens(TOKENS, eos_ids=[EOS])
COMPILER = Compiler(VOCAB)
PLANS = {"mask": MASK, "rejection": REJECTION}
TEXTS = 2500


class Counting:
    """A matcher that counts its masks."""

    def __init__(self, inner):
        self._inner = inner
        self.masks = 0

    def mask(self):
        self.masks += 1
        return self._inner.mask()

    def __getattr__(self, name):
        return getattr(self._inner, name)


def job(language=None, seed=0, level="off", config=PLAIN, matcher=None, filters=(), vocab=VOCAB, max_tokens=8):
    if matcher is None and language is not None:
        matcher = COMPILER.compile(espalier.Choice(list(LANGUAGES[language]))).matcher()
    sampling = SamplingConfig(**config)
    return Job(
        vocab=vocab,
        prompt=(EOS,),
        matcher=matcher,
        chain=Chain(sampling, filters, fitted=fit(sampling, vocab, list)),
        stream=RandomStream(seed),
        max_tokens=max_tokens,
        watch=Watch(level, 5),
    )


def rows(language):
    return lambda tokens: np.log(np.array(wish(language, tokens[1:]))).astype(np.float32)


def run(strategy, language, **options):
    """The outcome and the records of one text; the model is a FakeStepModel of a known distribution."""
    made = job(language, **options)
    told, outcome = [], None
    model = FakeStepModel(rows(language or "no a first"), width=made.vocab.width)
    for _, happened in drive(model, [PLANS[strategy].make_plan(made)]):
        if isinstance(happened, SampledToken):
            told.append(happened.record)
        else:
            outcome = happened
    return outcome, told, made


def chi_squared(counts, law_, total):
    """The statistic and its degrees of freedom, small cells put together."""
    small = [key for key, p in law_.items() if p * total < 5]
    cells = [(counts.get(key, 0), p * total) for key, p in law_.items() if key not in small]
    rest = (sum(counts.get(key, 0) for key in small), math.fsum(law_[key] for key in small) * total)
    cells += [rest] if rest[1] > 0 else []
    return sum((seen - due) ** 2 / due for seen, due in cells if due > 0.5), len(cells) - 1


def bound(freedom, z=4.0):
    """Wilson and Hilferty's approximation of the quantile z standard deviations up: p = 3e-5."""
    return freedom * (1 - 2 / (9 * freedom) + z * math.sqrt(2 / (9 * freedom))) ** 3


@pytest.mark.parametrize("strategy", PLANS)
@pytest.mark.parametrize("config", CHAINS)
def test_texts_are_drawn_by_the_law_that_enumeration_gives(strategy, config):
    language = "no a first"
    wanted = law(strategy, language, CHAINS[config])
    assert math.fsum(wanted.values()) == pytest.approx(1.0, abs=1e-12)
    rows_of, counts = {}, {}  # a step at a time, called directly: a plan costs more
    compiled = COMPILER.compile(espalier.Choice(list(LANGUAGES[language])))
    sampling = SamplingConfig(**CHAINS[config])
    for seed in range(TEXTS):
        matcher, chain, stream, said = compiled.matcher(), Chain(sampling), RandomStream(seed), ()
        chain.start([EOS])
        while not matcher.is_finished:
            row = rows_of.setdefault(said, np.log(np.array(wish(language, said))).astype(np.float32))
            more = {
                "vocab": VOCAB,
                "chain": chain,
                "stream": stream,
                "watch": Watch("off"),
                "context": FilterContext(step=len(said), prompt=(), generated=()),
            }
            if strategy == "mask":
                found = decide(row, matcher.mask(), **more)
            else:
                found = decide_late(row, matcher.mask, matcher.allows, **more)
            matcher.advance(found.token)
            chain.on_token(found.token, found.prob)
            said = (*said, found.token)
        counts[said] = counts.get(said, 0) + 1
    assert set(counts) <= set(wanted)
    statistic, freedom = chi_squared(counts, wanted, TEXTS)
    assert freedom == 0 or statistic < bound(freedom), (statistic, freedom)


def test_the_test_of_a_law_can_tell_the_two_laws_apart():
    """With as many texts as above, `mask`'s law is refused for what `rejection` would draw."""
    one, two = (law(strategy, "no a first", CHAINS["top_k 2"]) for strategy in PLANS)
    counts = {text: p * TEXTS for text, p in two.items()}
    statistic, freedom = chi_squared(counts, one, TEXTS)
    assert statistic > bound(freedom)


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_laws_are_one_without_truncation_and_differ_with_it(language):
    apart = {name: distance(law("mask", language, c), law("rejection", language, c)) for name, c in CHAINS.items()}
    assert apart["no truncation"] < 1e-12
    assert apart["temperature 0.6"] < 1e-12
    assert max(apart.values()) > 0.05


def test_untraced_the_mask_is_built_only_where_a_token_was_refused():
    refusals = 0
    for seed in range(60):
        matcher = Counting(COMPILER.compile(espalier.Choice(list(LANGUAGES["nearly everything"]))).matcher())
        run("rejection", "nearly everything", seed=seed, matcher=matcher)
        _, told, _ = run("rejection", "nearly everything", seed=seed, level="steps")
        rejected = sum(record.was_rejected for record in told)
        assert matcher.masks == rejected
        refusals += rejected
    assert 0 < refusals < 120  # both ways were gone


def test_traced_each_step_builds_one_mask():
    matcher = Counting(COMPILER.compile(espalier.Choice(["ab"])).matcher())
    _, told, _ = run("rejection", "one word of two", matcher=matcher, level="summary")
    assert matcher.masks == len(told) == 3


@pytest.mark.parametrize("config", ["no truncation", "xtc 0.5 from 0.2", "mirostat 2, 1 bit"])
def test_every_draw_takes_the_chain_s_numbers_and_levels_change_no_token(config):
    for seed in range(20):
        wanted, told, made = run("rejection", "equal lengths", seed=seed, level="full", config=CHAINS[config])
        draws = sum(1 + record.was_rejected for record in told)
        assert made.stream.count == draws * made.chain.draws_per_token
        for level in ("off", "summary", "steps"):
            again, _, _ = run("rejection", "equal lengths", seed=seed, level=level, config=CHAINS[config])
            assert again.tokens == wanted.tokens


def step(row, allowed, *, step_number=0, seed=0, filters=(), level="steps", vocab=VOCAB, **fields):
    config = SamplingConfig(**PLAIN | fields)
    mask = masks.from_ids(sorted(allowed), vocab.width)
    return decide_late(
        np.array(row, dtype=np.float32),
        lambda: mask,
        lambda token: masks.test(mask, token),
        vocab=vocab,
        chain=Chain(config, filters, fitted=fit(config, vocab, lambda text: [ord(c) - 97 for c in text])),
        stream=RandomStream(seed),
        context=FilterContext(step=step_number, prompt=(), generated=()),
        watch=Watch(level, 5),
    )


def test_a_refused_draw_is_written_with_its_probability_in_what_it_was_drawn_from():
    wished = [0.5, 0.2, 0.15, 0.1, 0.05]
    row = [math.log(p) for p in wished]
    seen = set()
    for seed in range(200):
        found = step(row, {1, 3}, seed=seed, top_k=3)
        record = found.record
        assert record.was_rejected == (record.rejected is not None)
        assert record.was_changed
        if record.rejected is None:
            assert found.token == 1  # of {0, 1, 2}, which the free chain leaves, the only one allowed
            assert {c.id: c.prob for c in record.post_chain} == pytest.approx({0: 50 / 85, 1: 20 / 85, 2: 15 / 85})
            assert record.resampled.prob == pytest.approx(20 / 85)
        else:
            seen.add(record.rejected.id)
            assert record.rejected.id in (0, 2)
            assert record.rejected.prob == pytest.approx(wished[record.rejected.id] / 0.85)
            assert not record.rejected.allowed
            assert {c.id: c.prob for c in record.post_chain} == pytest.approx({1: 2 / 3, 3: 1 / 3})
            assert record.resampled.prob == pytest.approx({1: 2 / 3, 3: 1 / 3}[found.token])
            assert record.rejected.id in {c.id for c in record.pre_masking}
        assert {c.id: c.prob for c in record.post_grammar} == pytest.approx({1: 2 / 3, 3: 1 / 3})
        assert found.prob == record.resampled.prob
    assert seen == {0, 2}


def test_a_refused_draw_is_blamed_and_not_the_favourite_that_was_not_drawn():
    told = [one for seed in range(40) for one in run("rejection", "no a first", seed=seed, level="steps")[1]]
    rejected = [one for one in told if one.was_rejected]
    assert rejected
    for one in rejected:
        assert one.blame is not None
        assert one.blame.member == "choice"
        assert not one.rejected.allowed
    drawn = {one.rejected.id for one in rejected}
    assert len(drawn) > 2


def test_greedy_takes_the_best_that_is_allowed():
    row = [math.log(p) for p in (0.5, 0.1, 0.25, 0.1, 0.05)]
    found = step(row, {1, 3, 2}, temperature=0.0)
    assert (found.token, found.prob, found.record.rejected.id) == (2, 1.0, 0)
    assert found.record.rejected.prob == 1.0
    assert step(row, {0, 1}, temperature=0.0).record.rejected is None
    for language in LANGUAGES:
        one, two = (run(name, language, config=PLAIN | {"temperature": 0.0})[0] for name in PLANS)
        assert one.tokens == two.tokens


def test_min_tokens_holds_the_end_back_and_a_constraint_wins_over_it():
    row = [0.0, 0.0, 0.0, 0.0, 20.0]
    early = step(row, {1, EOS}, min_tokens=3)
    assert early.token == 1
    assert (early.record.allowed_count, early.record.was_changed) == (1, True)
    assert step(row, {1, EOS}, min_tokens=3, step_number=3).token == EOS
    assert step(row, {EOS}, min_tokens=3).token == EOS
    assert step(row, {EOS}, min_tokens=3, level="off").token == EOS


def test_bans_of_the_config_and_of_filters_hold_in_the_free_chain_too():
    row = [9.0, 8.0, 0.0, 0.0, 0.0]
    for more in (
        {"allowed_ids": [2, 3]},
        {"logit_bias": {0: -math.inf, 1: -math.inf}},
        {"filters": [TokenBan([0, 1])]},
    ):
        for level in ("off", "steps"):
            for seed in range(10):
                found = step(row, {0, 1, 2}, seed=seed, level=level, **more)
                assert found.token == 2
                if found.record is not None and found.record.rejected is not None:
                    assert found.record.rejected.id in (3, 4)


def test_padding_is_drawn_by_neither_chain():
    vocab = Vocab.from_tokens(TOKENS, eos_ids=[EOS], width=40)
    row = np.zeros(40)
    row[10:] = 50.0
    for seed in range(20):
        found = step(row, {1}, seed=seed, vocab=vocab)
        assert found.token == 1
        assert found.record.rejected is None or found.record.rejected.id < 5
        assert found.record.removed_mass == pytest.approx(1.0)


def test_a_dead_end_and_bad_logits_are_typed_errors_that_say_why():
    with pytest.raises(DeadEnd, match="no token is allowed at step 2"):
        step([0.0] * 5, set(), step_number=2, level="off")
    with pytest.raises(DeadEnd, match="allowed_ids"):
        step([0.0] * 5, {1}, allowed_ids=[3])
    with pytest.raises(BadLogits, match="NaN"):
        step([math.nan] * 5, {1})


def test_without_a_constraint_it_is_the_free_chain_and_ignore_eos_is_kept():
    for seed in range(20):
        one, two = (run(name, None, seed=seed, level="steps")[0] for name in PLANS)
        assert one == two
        for level in ("off", "steps"):
            ignoring, told, _ = run("rejection", None, seed=seed, level=level, config=PLAIN | {"ignore_eos": True})
            assert EOS not in ignoring.tokens
            assert len(ignoring.tokens) == 8
            assert not any(record.was_rejected for record in told if record)


def test_the_native_sampler_which_has_this_order_takes_its_name_and_no_other():
    config = SamplingConfig()
    for name in ("mask", "rejection"):
        check_native(config, strategy=name, soft=0, filters=0, stream=0)
    with pytest.raises(CapabilityError, match="strategy"):
        check_native(config, strategy="beam", soft=0, filters=0, stream=0)


def test_an_engine_s_request_for_it_is_traced_as_such():
    with espalier.load("fake") as engine:
        options = {"constraint": espalier.Regex(r"[0-9]{4} [a-z]{4}"), "temperature": 1.0, "seed": 4, "max_tokens": 20}
        result = engine.generate("hi", strategy="rejection", **options)
        assert result.trace.strategy == "rejection"
        assert result.verdict.valid
        rejected = [s for s in result.trace.steps if s.was_rejected]
        assert rejected
        summary = result.trace.summary()
        assert summary["rejected_steps"] == len(rejected)
        assert summary["rejected_rate"] == len(rejected) / len(result.trace.steps)
        assert type(result.trace).from_json(result.trace.to_json()) == result.trace
