"""What a request's sampling asks for, through a whole engine: n, bad_words, min_tokens, biases, penalties, mirostat."""

import numpy as np
import pytest

import espalier
from espalier import Choice, JsonObject, Regex, Vocab
from espalier.constraints.after.spec import After
from espalier.constraints.joining.rule import with_bad_words
from espalier.engines.fake import FakeStepModel, noise
from espalier.engines.local.engine import LocalEngine
from espalier.errors import DeadEnd, InputError, SamplingError

FREE = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0, "max_tokens": 30}


def engine_of(logits_of):
    vocab = Vocab.bytes()
    model = FakeStepModel(logits_of, width=vocab.width)
    encode = lambda text, *, add_special: list(text.encode())  # noqa: E731
    return espalier.LoadedEngine(LocalEngine(name="fake", model=model, vocab=vocab, encode=encode))


@pytest.fixture
def noisy():
    return engine_of(lambda tokens: noise(tokens, 257))


@pytest.fixture
def stuck():
    """It always wishes for "a", then "b", then the end."""
    row = np.full(257, -5.0, dtype=np.float32)
    row[[97, 98, 256]] = [6.0, 5.0, 4.0]
    return engine_of(lambda tokens: row.copy())


def test_n_outputs_are_a_flat_list_that_one_seed_repeats_and_one_stream_makes_each(noisy):
    found = noisy.generate("hi", n=3, seed=7, **FREE)
    assert [len(found), len({r.token_ids for r in found}), {r.seed for r in found}] == [3, 3, {7}]
    assert noisy.generate("hi", n=3, seed=7, **FREE) == found
    assert noisy.generate("hi", seed=7, **FREE).token_ids == found[0].token_ids
    several = noisy.generate(["hi", "ho"], n=3, seed=7, **FREE)
    assert [r.token_ids for r in several[:3]] == [r.token_ids for r in found]
    assert len(several) == 6


def test_n_outputs_without_a_seed_share_the_one_that_is_drawn(noisy):
    found = noisy.generate("hi", n=4, **FREE)
    assert len({r.seed for r in found}) == 1
    again = noisy.generate("hi", n=4, seed=found[0].seed, **FREE)
    assert [r.token_ids for r in again] == [r.token_ids for r in found]
    indices = {event.index for event in noisy.stream("hi", n=4, **FREE)}
    assert indices == {0, 1, 2, 3}


@pytest.mark.parametrize("constraint", [None, Regex("[ab]{4,8}"), Choice(["abba", "baab", "aaaa"])])
def test_bad_words_do_not_occur_across_token_borders(noisy, constraint):
    wild = FREE | {"max_tokens": 200}
    for result in noisy.generate("hi", n=20, seed=1, constraint=constraint, bad_words=["bb", "aaa"], **wild):
        assert "bb" not in result.text
        assert "aaa" not in result.text
        assert result.verdict.valid is not False or result.finish_reason == "length"


def test_bad_words_hold_before_and_after_a_marker(noisy):
    result = noisy.generate("hi", constraint=After("</think>", JsonObject()), bad_words=["x"], max_tokens=40)
    assert result.text
    assert "x" not in result.text
    assert with_bad_words(None, ()) is None
    assert with_bad_words(Regex("a"), ["b"]).members[0] == Regex("a")


def test_the_default_penalty_breaks_a_loop_and_one_leaves_it(stuck):
    loop = stuck.generate("x", temperature=0, repetition_penalty=1.0, max_tokens=9)
    assert loop.text == "a" * 9
    broken = stuck.generate("x", temperature=0, repetition_penalty=1.6, max_tokens=9)
    assert broken.text == "ab"  # 6 / 1.6 < 5 / 1 and 5 / 1.6 < 4
    seen = stuck.generate("aab", temperature=0, repetition_penalty=1.6, max_tokens=9)
    assert seen.text == ""  # the prompt counts
    counted = stuck.generate("aab", temperature=0, repetition_penalty=1.0, frequency_penalty=0.7, max_tokens=9)
    assert counted.text.startswith("aab")  # the prompt does not


def test_min_tokens_and_biases_by_text_and_id(stuck):
    ended = stuck.generate("x", temperature=0, logit_bias={256: 10.0})
    assert ended.usage.completion_tokens == 1
    later = stuck.generate("x", temperature=0, logit_bias={256: 10.0}, min_tokens=4, repetition_penalty=1.0)
    assert later.text == "aaaa"
    assert (
        stuck.generate("x", temperature=0, logit_bias={"z": 20.0}, max_tokens=3, repetition_penalty=1.0).text == "zzz"
    )
    assert stuck.generate("x", temperature=0, logit_bias=[["ab", None]]).text == ""
    assert stuck.generate("x", temperature=0, allowed_ids=[98, 256], repetition_penalty=1.0, max_tokens=2).text == "bb"


def test_ids_outside_the_vocabulary_are_refused_before_anything_is_generated(stuck):
    for fields in ({"logit_bias": {257: 1.0}}, {"allowed_ids": [999]}):
        with pytest.raises(SamplingError, match=r"outside 0\.\.256"):
            stuck.generate("x", **fields)
    with pytest.raises(DeadEnd, match="allowed_ids"):
        stuck.generate("x", constraint=Regex("b"), allowed_ids=[97, 256])
    with pytest.raises(SamplingError, match="bans every token that ends a text"):
        stuck.generate("x", constraint=Regex("a"), allowed_ids=[97])
    with pytest.raises(InputError, match="ignore_eos"):
        stuck.generate("x", bad_words=["b"], ignore_eos=True)


@pytest.mark.parametrize(
    "fields",
    [
        {"mirostat": 1},
        {"mirostat": 2, "mirostat_tau": 3.0},
        {"dry_multiplier": 1.0},
        {"xtc_probability": 0.5},
        {"typical_p": 0.5},
        {"top_n_sigma": 1.0},
        {"dynatemp_range": 0.4},
    ],
)
def test_each_sampler_runs_and_a_batch_gives_what_each_gives_alone(noisy, fields):
    options = {"seed": 3, "max_tokens": 25, **fields}
    batch = noisy.generate(["one", "two", "one"], **options)
    assert noisy.generate("two", **options).token_ids == batch[1].token_ids
    assert batch[0].token_ids == batch[2].token_ids


def test_a_bias_by_text_on_the_fake_engine_is_for_the_texts_bytes_alone():
    eng = espalier.load("fake")
    assert eng.generate("hi", temperature=0, logit_bias={"Z": 50.0}, max_tokens=3, repetition_penalty=1.0).text == "ZZZ"
    with pytest.raises(InputError, match="max_tokens"):
        eng.generate("hi", min_tokens=5, max_tokens=4)
