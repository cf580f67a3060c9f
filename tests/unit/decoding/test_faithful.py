"""What faithful sampling tells, holds, refuses and leaves behind; its law is in test_faithful_law.py."""

import math
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

import espalier
from espalier import Choice, Regex, SamplingConfig, Vocab
from espalier.api import make_request
from espalier.decoding.options import Decoding
from espalier.decoding.plan import Outcome, SampledToken
from espalier.decoding.strategies import STRATEGIES
from espalier.engines.base import FinishEvent
from espalier.engines.fake import FakeStepModel, noise
from espalier.engines.local.engine import LocalEngine
from espalier.engines.scheduling.drive import drive
from espalier.errors import DeadEnd, InputError, SamplingError
from espalier.sampling.filters import TokenBan
from tests.unit.decoding.test_faithful_law import FAITHFUL, GARDEN_PATH, LANGUAGES, Language, job, run, strategies

TRAP, LENGTHS, SPELLINGS, ANSWERS, SELDOM = LANGUAGES
FORCED = Language("forced", (b"a", b"b", b"c"), Regex("aab[abc]"), lambda said: {})
GOOD = {"temperature": 1.0, "seed": 3}


def every(outcome):
    return [outcome, *outcome.others]


def loaded(**more):
    vocab = Vocab.bytes()
    model = FakeStepModel(lambda tokens: noise(tokens, vocab.width), width=vocab.width, **more)
    return espalier.LoadedEngine(
        LocalEngine(name="noise", model=model, vocab=vocab, encode=lambda text, *, add_special: [*text.encode()])
    )


@strategies
def test_the_same_seed_gives_the_same_and_each_stream_of_it_another(strategy):
    def told(**more):
        return run(SELDOM.model(), job(SELDOM, strategy, 5, particles=6, num_return_sequences=3, **more))

    assert told() == told()
    assert len({tuple(one.tokens for one in every(told(stream=stream)[0])) for stream in range(6)}) > 1


@strategies
@pytest.mark.parametrize("level", ["summary", "steps", "full"])
def test_what_is_written_down_changes_nothing(strategy, level):
    for language in LANGUAGES:
        bare, _ = run(language.model(), job(language, strategy, 2, particles=5, num_return_sequences=5))
        watched, _ = run(language.model(), job(language, strategy, 2, particles=5, num_return_sequences=5, watch=level))
        assert [(one.tokens, one.weighing) for one in every(bare)] == [
            (one.tokens, one.weighing) for one in every(watched)
        ]


def test_smc_that_never_resamples_is_best_of():
    for seed in range(10):
        a, _ = run(ANSWERS.model(), job(ANSWERS, "best_of", seed, particles=8, num_return_sequences=8))
        b, _ = run(ANSWERS.model(), job(ANSWERS, "smc", seed, particles=8, num_return_sequences=8, ess_threshold=0.0))
        assert a == b
        assert a.weighing.resamplings == 0


def test_resampled_particles_have_one_weight_and_smc_says_how_often():
    outcomes = [run(GARDEN_PATH.model(), job(GARDEN_PATH, "smc", seed, particles=8))[0] for seed in range(10)]
    assert max(one.weighing.resamplings for one in outcomes) >= 2
    assert all(1 <= one.weighing.ess <= 8 for one in outcomes)


@strategies
def test_every_step_of_the_result_is_told_once_and_those_of_the_others_are_their_own(strategy):
    for language in LANGUAGES:
        outcome, told = run(
            language.model(), job(language, strategy, 4, particles=6, num_return_sequences=6, watch="steps")
        )
        assert all(isinstance(one, SampledToken) for one in told)
        assert tuple(one.token for one in told) == outcome.tokens
        assert "".join(one.text for one in told) + outcome.tail == outcome.text
        assert [(one.record.step, one.record.token_id) for one in told] == [*enumerate(outcome.tokens)]
        assert outcome.records == ()
        for one in outcome.others:
            assert [(record.step, record.token_id) for record in one.records] == [*enumerate(one.tokens)]
            matcher = language.matcher()
            for record in one.records:
                ids = {c.id: c.allowed for c in (*record.pre_masking, *record.post_grammar)}
                assert all(matcher.allows(token) == is_allowed for token, is_allowed in ids.items())
                matcher.advance(record.token_id)
            assert matcher.is_finished
            assert one.is_complete


def test_a_step_that_was_refused_first_says_so_and_why():
    found = []
    for seed in range(10):
        _, told = run(LENGTHS.model(), job(LENGTHS, "awrs", seed, particles=2, watch="steps"))
        found += [one.record for one in told]
    refused = [record for record in found if record.was_rejected]
    assert refused
    for record in refused:
        assert not record.rejected.allowed
        assert record.blame is not None
        assert record.rejected.id in {c.id for c in record.pre_masking}
    for record in found:
        assert (record.rejected is not None) == record.was_rejected
        assert 0 < record.z_sampled < 1


def test_what_all_particles_agree_on_is_told_before_the_end():
    plan = STRATEGIES.load("best_of").make_plan(job(FORCED, "best_of", 1, particles=8))
    model, told = FORCED.model(), []
    for _, event in drive(model, [plan]):
        told.append((model.live, event))
    early = [event.token for live, event in told if live and isinstance(event, SampledToken)]
    assert early[:3] == [0, 0, 1]


@strategies
def test_what_was_told_is_never_taken_back(strategy):
    """Of all texts that are returned, told or not, those that were told begin with what was told before the end."""
    for language in LANGUAGES:
        for seed in range(8):
            model = language.model(slots=5)
            plan = STRATEGIES.load(strategy).make_plan(job(language, strategy, seed, particles=5))
            tokens, last = [], None
            for _, event in drive(model, [plan]):
                if isinstance(event, Outcome):
                    last = event
                else:
                    tokens.append(event.token)
            assert last.tokens == tuple(tokens)


@strategies
@pytest.mark.parametrize("particles", [1, 2, 7])
def test_no_more_sequences_are_held_than_there_are_particles(strategy, particles):
    for language in (TRAP, LENGTHS, GARDEN_PATH):
        for seed in range(12):
            model = language.model(slots=particles)  # one more would be a LimitExceeded
            more = {} if strategy == "best_of" else {"ess_threshold": 1.0}
            run(model, job(language, strategy, seed, particles=particles, **more))


def test_only_what_still_grows_is_held():
    model, passes = LENGTHS.model(), []
    extend = model.extend
    model.extend = lambda work: (passes.append((model.live, len(work))), extend(work))[1]
    run(model, job(LENGTHS, "best_of", 3, particles=16))
    assert passes[0] == (1, 1)
    assert all(held == extended for held, extended in passes)
    assert passes[1][0] > passes[-1][0]


@strategies
def test_a_run_that_is_closed_frees_everything(strategy):
    model = TRAP.model()
    running = drive(model, [STRATEGIES.load(strategy).make_plan(job(TRAP, strategy, seed)) for seed in range(3)])
    next(running)
    running.close()
    assert model.live == 0


@strategies
def test_without_a_constraint_nothing_is_lost(strategy):
    outcome, told = run(
        TRAP.model(), job(TRAP, strategy, 1, particles=4, num_return_sequences=4, spec=False, max_tokens=3)
    )
    for one in every(outcome):
        assert one.weighing.log_weight == one.weighing.log_z == 0.0
        assert (one.weighing.ess, one.weighing.acceptance, one.weighing.resamplings) == (4, 1.0, 0)
        assert one.is_complete
        assert one.finish == ("stop" if one.tokens[-1] == 2 else "length")
    assert len(told) <= 3


@strategies
def test_a_text_that_the_limit_cut_weighs_nothing(strategy):
    """Of a{0,4}b only b and ab fit with their end into three tokens."""
    seen = Counter()
    for seed in range(60):
        outcome, _ = run(LENGTHS.model(), job(LENGTHS, strategy, seed, particles=8, max_tokens=3))
        if outcome.weighing.log_weight > -math.inf:
            assert outcome.text in ("b", "ab")
            assert outcome.finish == "stop"
        else:
            assert outcome.weighing.ess == 0
            assert (outcome.finish, outcome.is_complete) == ("length", False)
        seen[outcome.text] += 1
    assert seen["b"] > 20


@strategies
def test_where_all_are_cut_the_first_is_told_with_a_weight_of_nothing(strategy):
    outcome, told = run(TRAP.model(), job(TRAP, strategy, 3, max_tokens=2, particles=4, num_return_sequences=2))
    assert [one.token for one in told] == list(outcome.tokens)
    for one in every(outcome):
        assert one.finish == "length"
        assert not one.is_complete
        assert (one.weighing.log_weight, one.weighing.log_z, one.weighing.ess) == (-math.inf, -math.inf, 0.0)


@strategies
def test_stop_texts_and_stop_ids_end_each_particle_by_itself(strategy):
    for sampling, stops in (({"stop": ("1",)}, {"", "0", "00"}), ({"stop_ids": (1,)}, {"", "0", "00"})):
        found = set()
        for seed in range(12):
            outcome, _ = run(
                TRAP.model(),
                job(TRAP, strategy, seed, particles=4, num_return_sequences=4, spec=False, max_tokens=6,
                    sampling=sampling),
            )  # fmt: skip
            found |= {(one.text, one.stop) for one in every(outcome) if one.stop is not None}
        assert stops & {text for text, _ in found}
        assert all("1" not in text for text, _ in found)
        assert {stop for _, stop in found} <= {"1", 1}


@strategies
def test_bans_shrink_the_allowed_set_and_count_against_the_weight(strategy):
    """Without the token ab the spellings of the three texts have other probabilities, and no other tokens."""
    ab = 2
    for more in ({"filters": (TokenBan([ab], name="mine"),)}, {"sampling": {"logit_bias": {ab: -math.inf}}}):
        for seed in range(6):
            outcome, told = run(
                SPELLINGS.model(),
                job(SPELLINGS, strategy, seed, particles=4, num_return_sequences=4, watch="steps", **more),
            )
            for one in every(outcome):
                assert ab not in one.tokens
            if strategy == "best_of":
                one = outcome.others[0]
                lost, matcher = 0.0, SPELLINGS.matcher()
                for place, token in enumerate(one.tokens):
                    probs = SPELLINGS.probs(one.tokens[:place])
                    lost += math.log(sum(probs[t] for t in range(6) if t != ab and matcher.allows(t)))
                    matcher.advance(token)
                assert one.weighing.log_weight == pytest.approx(lost, abs=1e-5)
            assert all(c.id != ab for event in told for c in event.record.post_chain)


@strategies
def test_where_bans_leave_nothing_it_is_a_dead_end_that_frees_everything(strategy):
    model = TRAP.model()
    one = job(TRAP, strategy, 1, sampling={"logit_bias": {0: -math.inf, 1: -math.inf}})
    with pytest.raises(DeadEnd):
        run(model, one)
    assert model.live == 0


@strategies
def test_no_end_before_min_tokens_where_something_else_is_left(strategy):
    for seed in range(6):
        outcome, _ = run(
            ANSWERS.model(),
            job(ANSWERS, strategy, seed, particles=4, num_return_sequences=4, sampling={"min_tokens": 3}),
        )
        # After "no" only "!" goes on; "yes" and "maybe" have nothing else than their end after it.
        assert {one.text for one in every(outcome)} <= {"yes", "no!", "maybe"}


@strategies
def test_ignoring_eos_is_a_constraint_of_its_own(strategy):
    outcome, _ = run(
        TRAP.model(), job(TRAP, strategy, 1, particles=3, spec=False, max_tokens=4, sampling={"ignore_eos": True})
    )
    assert len(outcome.tokens) == 4
    assert 2 not in outcome.tokens
    assert outcome.weighing.log_weight < 0
    assert outcome.weighing.log_weight > -math.inf


def test_acceptance_is_tokens_taken_over_tokens_proposed():
    outcome, told = run(LENGTHS.model(), job(LENGTHS, "awrs", 1, particles=1, watch="steps"))
    assert 0 < outcome.weighing.acceptance < 1
    assert any(event.record.was_rejected for event in told)
    for strategy in ("best_of", "smc"):
        assert run(LENGTHS.model(), job(LENGTHS, strategy, 1))[0].weighing.acceptance == 1.0


def test_awrs_asks_for_what_it_draws_and_builds_no_mask_unless_much_is_refused():
    asked, built = [], []

    class Spy:
        def __init__(self, inner):
            self.inner = inner

        def allows(self, token):
            asked.append(token)
            return self.inner.allows(token)

        def mask(self):
            built.append(1)
            return self.inner.mask()

        def advance(self, token):
            self.inner.advance(token)

        def fork(self):
            return Spy(self.inner.fork())

        is_accepting = property(lambda self: self.inner.is_accepting)
        is_finished = property(lambda self: self.inner.is_finished)

    one = job(TRAP, "awrs", 1)
    run(TRAP.model(), replace(one, matcher=Spy(TRAP.matcher())))
    assert asked
    assert built == []
    # 250 tokens that are refused go before the two that are not.
    many = Language(
        "many",
        (b"a", b"b", *(bytes([c]) for c in range(256) if c not in b"ab")),
        Regex("[ab]"),
        lambda said: {b"a": -9, b"b": -9},
    )
    one = job(many, "awrs", 1, particles=1)
    outcome, _ = run(many.model(), replace(one, matcher=Spy(many.matcher())))
    assert built
    assert outcome.text in ("a", "b")


def test_awrs_finds_what_is_improbable_beyond_all_floats():
    far = Language(
        "far", (b"a", b"b", b"c"), Regex("[ab]"), lambda said: {b"a": -2000.0, b"b": -2000.7} if not said else {}
    )
    for strategy in FAITHFUL:
        outcome, _ = run(far.model(), job(far, strategy, 1, particles=4))
        assert outcome.text in ("a", "b")
        assert -2010 < outcome.weighing.log_weight < -1990


# The target after truncation.

TOP_2 = {"top_k": 2}


def truncated_law(language, sampling):
    """What the free chain gives to every complete text, renormalised: by enumeration."""
    chain_job = job(language, "mask", 0, sampling=sampling)
    found = {}

    def walk(matcher, chain, said, p):
        if matcher.is_finished:
            found[said] = p
            return
        if len(said) == language.max_tokens:
            return
        shaped = chain.shape(language.logits(said)).astype(np.float64)
        weights = np.exp(shaped - shaped.max())
        for token in np.flatnonzero(weights):
            if matcher.allows(int(token)):
                after, further = matcher.fork(), chain.fork()
                after.advance(int(token))
                further.on_token(int(token), float(weights[token] / weights.sum()))
                walk(after, further, (*said, int(token)), p * float(weights[token] / weights.sum()))

    chain_job.chain.start(chain_job.prompt)
    walk(language.matcher(), chain_job.chain, (), 1.0)
    total = math.fsum(found.values())
    return {said: p / total for said, p in found.items()}, total


@pytest.mark.slow
@strategies
@pytest.mark.parametrize("sampling", [{"top_k": 4}, {"min_p": 0.3}, {"mirostat": 2, "mirostat_tau": 3.0}], ids=str)
def test_the_truncated_target_is_the_free_chains_law_given_the_language(strategy, sampling):
    if "mirostat" in sampling:
        sampling = sampling | {"top_k": 0}
    law, total = truncated_law(SPELLINGS, sampling)
    seen, particles, model = Counter(), 16, SPELLINGS.model()
    estimates = []
    for seed in range(60):
        try:
            outcome, _ = run(
                model,
                job(SPELLINGS, strategy, seed, particles=particles, num_return_sequences=particles,
                    target="truncated", sampling=sampling),
            )  # fmt: skip
        except DeadEnd:
            estimates.append(0.0)
            continue
        assert outcome.weighing.target == "truncated"
        estimates.append(math.exp(outcome.weighing.log_z))
        seen.update(one.tokens for one in every(outcome))
    assert set(seen) <= set(law)
    gap = 0.5 * sum(abs(seen[said] / seen.total() - p) for said, p in law.items())
    assert gap < 0.15
    error = float(np.std(estimates)) / math.sqrt(len(estimates))
    assert abs(float(np.mean(estimates)) - total) < 5 * error + 1e-9


@strategies
def test_a_truncation_that_leaves_nothing_allowed_is_a_dead_end_that_says_so(strategy):
    model = LENGTHS.model()
    with pytest.raises(DeadEnd, match="truncation left nothing"):
        run(model, job(LENGTHS, strategy, 1, target="truncated", sampling={"top_k": 1}))
    assert model.live == 0


# What is refused, and what is neutral.


@pytest.mark.parametrize(
    ("field", "value"),
    [("top_k", 40), ("top_p", 0.9), ("min_p", 0.1), ("typical_p", 0.5), ("top_n_sigma", 2.0), ("xtc_probability", 0.5),
     ("mirostat", 2)],
)  # fmt: skip
@strategies
def test_truncations_are_refused_by_name_unless_they_are_the_target(strategy, field, value):
    eng = espalier.load("fake")
    with pytest.raises(SamplingError, match=field) as caught:
        eng.generate("hi", strategy=strategy, max_tokens=2, **{field: value})
    assert caught.value.field == field
    assert 'target="truncated"' in caught.value.hint
    result = eng.generate("hi", strategy=strategy, target="truncated", max_tokens=2, seed=1, **{field: value})
    assert result.weighing.target == "truncated"


@strategies
@pytest.mark.parametrize("target", ["full", "truncated"])
def test_what_draws_nothing_and_what_varies_is_refused(strategy, target):
    eng = espalier.load("fake")
    for field, value in (("temperature", 0.0), ("dynatemp_range", 0.5)):
        with pytest.raises(SamplingError) as caught:
            eng.generate("hi", strategy=strategy, target=target, max_tokens=2, **{field: value})
        assert caught.value.field == field
    with pytest.raises(InputError) as caught:
        eng.generate("hi", strategy=strategy, target=target, max_tokens=2, particles=2, num_return_sequences=3)
    assert caught.value.field == "num_return_sequences"


def test_truncations_that_nobody_gave_are_neutral_and_what_is_given_whole_is_taken_as_it_is():
    request = make_request("hi", strategy="smc")
    assert (request.sampling.top_k, request.sampling.top_p, request.sampling.min_p) == (0, 1.0, 0.0)
    request = make_request("hi", decoding=Decoding(strategy="awrs"), temperature=0.5)
    assert (request.sampling.top_k, request.sampling.temperature) == (0, 0.5)
    assert make_request("hi", strategy="smc", target="truncated").sampling == SamplingConfig()
    assert make_request("hi").sampling == SamplingConfig()
    assert make_request("hi", strategy="smc", top_p=0.5).sampling.top_p == 0.5
    whole = SamplingConfig(seed=4)
    assert make_request("hi", strategy="smc", sampling=whole).sampling is whole
    with pytest.raises(SamplingError) as caught:
        espalier.load("fake").generate("hi", strategy="smc", sampling=whole)
    assert caught.value.field == "top_k"


def test_a_presets_truncations_were_given_and_those_that_it_does_not_name_are_neutral():
    preset = espalier.Preset(name="mine", config={"temperature": 0.9, "top_p": 0.8})
    sampling = make_request("hi", strategy="smc", preset=preset).sampling
    assert (sampling.top_p, sampling.top_k, sampling.min_p) == (0.8, 0, 0.0)
    assert make_request("hi", strategy="smc", preset=preset, top_p=1.0).sampling.top_p == 1.0


# Both drivers, through an engine.

ASKED = [
    {"constraint": Choice(["yes", "yes!", "no"]), "seed": 5},
    {"constraint": Regex(r"\d{3}-[a-z]{4}"), "seed": 4, "trace": "summary", "num_return_sequences": 3},
    {"constraint": espalier.JsonObject(), "temperature": 1.5, "seed": 3, "max_tokens": 40, "trace": "off"},
    {"seed": 9, "max_tokens": 12, "n": 3},
    {"seed": 8, "max_tokens": 12, "target": "truncated", "stop": ["a", "b"]},
]


@strategies
@pytest.mark.parametrize("options", [{}, {"prefix_tokens": 0, "prefill_chunk": 3}, {"lanes": 2}], ids=str)
def test_it_is_the_same_alone_and_among_others(strategy, options):
    eng = loaded(slots=12)
    made = [
        request for more in ASKED
        for request in eng.requests("how", strategy=strategy, particles=4, **more)[0]
    ]  # fmt: skip
    alone = [event.result for one in made for event in eng.engine.run([one]) if isinstance(event, FinishEvent)]
    together = [event for event in eng.engine.run(made) if isinstance(event, FinishEvent)]
    assert [event.result for event in sorted(together, key=lambda event: event.index)] == alone
    served = eng.serve(**options)
    runnings = [served.submit(request) for request in made]
    results = [[*running][-1].result for running in runnings]
    served.close()
    assert results == alone
    assert eng.engine.model.live == 0


@strategies
def test_the_result_says_what_is_known_of_the_weights_and_the_trace_keeps_it(strategy, tmp_path):
    result = loaded().generate("hi", constraint=Choice(["yes", "no"]), strategy=strategy, particles=3, **GOOD)
    assert result.weighing.particles == 3
    assert result.trace.weighing["log_weight"] == result.weighing.log_weight
    assert result.verdict.valid
    cut = loaded().generate("hi", constraint=Regex("[a-z]{9}"), strategy=strategy, particles=3, max_tokens=2, **GOOD)
    assert cut.weighing.log_weight == -math.inf
    cut.trace.save(tmp_path / "cut.json")
    assert '"log_weight":null' in (tmp_path / "cut.json").read_text()
