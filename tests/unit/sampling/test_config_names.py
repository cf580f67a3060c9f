"""llama.cpp's and OpenAI's names: what goes over comes back, and what cannot go is refused by name."""

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from espalier import SamplingConfig
from espalier.errors import SamplingError
from espalier.sampling.config import DEFAULT_ORDER
from espalier.sampling.config_names import (
    OPENAI_ORDER,
    UNLIMITED,
    from_llama,
    from_openai,
    own_option,
    to_llama,
    to_openai,
)

texts = st.text(min_size=1, max_size=5)
llama_configs = st.builds(
    SamplingConfig,
    temperature=st.floats(0.01, 5),
    dynatemp_range=st.floats(0, 2),
    dynatemp_exponent=st.floats(0, 3),
    top_k=st.integers(0, 500),
    top_p=st.floats(0, 1),
    min_p=st.floats(0, 1),
    typical_p=st.just(0.0) | st.floats(0.01, 0.99),
    top_n_sigma=st.floats(0, 5),
    min_keep=st.integers(0, 9),
    xtc_probability=st.floats(0, 1),
    xtc_threshold=st.floats(0, 1),
    repetition_penalty=st.floats(0.5, 2),
    repetition_window=st.integers(-1, 100),
    frequency_penalty=st.floats(-3, 3),
    presence_penalty=st.floats(-3, 3),
    dry_multiplier=st.floats(0, 2),
    dry_base=st.floats(1, 3),
    dry_allowed_length=st.integers(0, 9),
    dry_window=st.integers(-1, 99),
    dry_breakers=st.lists(texts, min_size=1, max_size=3).map(tuple),
    logit_bias=st.dictionaries(
        st.integers(0, 99) | texts.filter(lambda t: not t.isdigit()), st.floats(-9, 9) | st.just(-math.inf), max_size=3
    ).map(lambda d: tuple(d.items())),
    seed=st.none() | st.integers(0, 2**32 - 2),
    n=st.integers(1, 8),
    max_tokens=st.integers(1, 5000) | st.just(UNLIMITED),
    stop=st.lists(texts, max_size=2).map(tuple),
    ignore_eos=st.booleans(),
    sampler_order=st.permutations(DEFAULT_ORDER).map(tuple),
)
openai_configs = st.builds(
    SamplingConfig,
    temperature=st.floats(0, 2),
    top_p=st.floats(0, 1),
    top_k=st.integers(0, 99),
    min_p=st.floats(0, 1),
    frequency_penalty=st.floats(-2, 2),
    presence_penalty=st.floats(-2, 2),
    repetition_penalty=st.floats(0.5, 2),
    repetition_window=st.just(-1),
    logit_bias=st.dictionaries(st.integers(0, 99), st.floats(-100, 100), max_size=3),
    max_tokens=st.integers(50, 5000) | st.just(UNLIMITED),
    stop=st.lists(texts, max_size=2).map(tuple),
    seed=st.none() | st.integers(0, 2**62),
    n=st.integers(1, 8),
    min_tokens=st.integers(0, 50),
    stop_ids=st.lists(st.integers(0, 99), max_size=2).map(tuple),
    bad_words=st.lists(texts, max_size=2).map(tuple),
    allowed_ids=st.none() | st.lists(st.integers(0, 99), min_size=1, max_size=3).map(tuple),
    ignore_eos=st.booleans(),
    sampler_order=st.just(OPENAI_ORDER),
)


@given(llama_configs)
def test_what_llama_cpp_can_say_comes_back_from_it(config):
    said = json.loads(json.dumps(to_llama(config)))
    back = from_llama(said)
    assert back == config
    assert to_llama(back) == said


@given(openai_configs)
def test_what_openai_can_say_comes_back_from_it(config):
    said = json.loads(json.dumps(to_openai(config)))
    back = from_openai(said)
    assert back == config
    assert to_openai(back) == said


@pytest.mark.parametrize("version", [1, 2])
def test_mirostat_goes_to_llama_cpp_and_back(version):
    config = SamplingConfig(mirostat=version, repetition_penalty=1.0, mirostat_tau=4.0)
    assert from_llama(to_llama(config)) == config
    assert from_llama({"mirostat": version}).mirostat_tau == 5.0


def test_nothing_said_means_the_other_sides_defaults():
    llama = from_llama({})
    assert (llama.temperature, llama.repetition_penalty, llama.top_k, llama.max_tokens) == (0.8, 1.0, 40, UNLIMITED)
    assert llama.active == ("top_k", "top_p", "min_p", "temperature")
    assert from_openai({}).active == ()
    assert from_openai({"temperature": None, "stop": None, "n": None}) == from_openai({})
    assert from_llama({"temperature": None, "samplers": None, "n_probs": None}) == from_llama({})
    assert to_openai(from_openai({})) == {}


def test_openai_heats_before_it_truncates_as_vllm_does():
    config = from_openai({"temperature": 0.5, "top_p": 0.9, "top_k": 20, "min_p": 0.1, "frequency_penalty": 1})
    assert config.active == ("penalties", "temperature", "min_p", "top_k", "top_p")
    assert config.repetition_window == -1


def test_the_other_names_of_the_same_thing():
    assert from_llama({"typ_p": 0.5}).typical_p == 0.5
    assert from_llama({"top_n_sigma": -1, "top_k": -1, "seed": 2**32 - 1, "n_predict": -1}) == from_llama({"top_k": 0})
    assert from_llama({"logit_bias": [[5, False], ["Hi", 1.5]]}).logit_bias == ((5, -math.inf), ("Hi", 1.5))
    assert from_llama({"logit_bias": {"5": -1, "Hi": 1.5}}).logit_bias == ((5, -1.0), ("Hi", 1.5))
    assert from_llama({"n_probs": 0, "t_max_predict_ms": -1}) == from_llama({})
    assert from_openai({"max_completion_tokens": 7}).max_tokens == 7
    assert from_openai({"stop": "END"}).stop == ("END",)
    assert from_openai({"top_k": -1}).top_k == 0


@pytest.mark.parametrize(
    ("data", "field"),
    [
        ({"n_probs": 5}, "n_probs"),
        ({"t_max_predict_ms": 100}, "t_max_predict_ms"),
        ({"typ_p": 0}, "typical_p"),
        ({"repeat_penalty": -1}, "repeat_penalty"),
        ({"repeat_last_n": -2}, "repeat_last_n"),
        ({"n_predict": 0}, "n_predict"),
        ({"samplers": ["heat"]}, "samplers"),
        ({"samplers": "kq"}, "samplers"),
        ({"samplers": 3}, "samplers"),
        ({"samplers": ["top_k", "top_k"]}, "samplers"),
        ({"repetition_penalty": 1}, "repetition_penalty"),
        ({"temperature": math.nan}, "temperature"),
        ({"temperature": 0, "typ_p": 0.5}, "typical_p"),
        ({"temperature": 0, "samplers": ["top_k"]}, "samplers"),
        ({"stop": [""]}, "stop"),
        ({"typ_p": 0.5, "typical_p": 0.6}, "typical_p"),
    ],
)
def test_what_cannot_come_from_llama_cpp_is_refused_in_its_names(data, field):
    with pytest.raises(SamplingError) as caught:
        from_llama(data)
    assert caught.value.field == field
    assert field in str(caught.value)


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"allowed_ids": [1]}, "allowed_ids"),
        ({"bad_words": ["x"]}, "bad_words"),
        ({"min_tokens": 3}, "min_tokens"),
        ({"stop_ids": [1]}, "stop_ids"),
        ({"seed": 2**32}, "seed"),
        ({"dry_breakers": []}, "dry_breakers"),
        ({"temperature": 0, "typical_p": 0.5}, "typical_p"),
        ({"temperature": 0, "xtc_probability": 0.5}, "xtc_probability"),
        ({"max_tokens": 2**40}, "max_tokens"),
        ({"temperature": 0, "sampler_order": ["top_k"]}, "sampler_order"),
    ],
)
def test_what_llama_cpp_cannot_say_is_refused(fields, field):
    with pytest.raises(SamplingError) as caught:
        to_llama(SamplingConfig(**fields))
    assert caught.value.field == field


@pytest.mark.parametrize(
    ("data", "field"),
    [
        ({"logit_bias": {"5": 101}}, "logit_bias"),
        ({"logit_bias": {"five": 1}}, "logit_bias"),
        ({"logit_bias": [[5, 1]]}, "logit_bias"),
        ({"logit_bias": {"5": None}}, "logit_bias"),
        ({"frequency_penalty": 2.5}, "frequency_penalty"),
        ({"presence_penalty": -3}, "presence_penalty"),
        ({"max_tokens": 5, "max_completion_tokens": 6}, "max_completion_tokens"),
        ({"top_p": 2}, "top_p"),
        ({"stop_token_ids": [-1]}, "stop_token_ids"),
        ({"allowed_token_ids": []}, "allowed_token_ids"),
        ({"min_tokens": 5, "max_tokens": 4}, "min_tokens"),
        ({"typical_p": 0.5}, "typical_p"),
        ({"n": 0}, "n"),
    ],
)
def test_what_cannot_come_from_openai_is_refused_in_its_names(data, field):
    with pytest.raises(SamplingError) as caught:
        from_openai(data)
    assert caught.value.field == field


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"typical_p": 0.5}, "typical_p"),
        ({"dry_multiplier": 1}, "dry_multiplier"),
        ({"min_keep": 2}, "min_keep"),
        ({"xtc_probability": 1}, "xtc_probability"),
        ({"mirostat": 2, "repetition_window": -1}, "mirostat"),
        ({"dynatemp_range": 0.2, "top_k": 0, "top_p": 1, "min_p": 0, "repetition_window": -1}, "dynatemp_range"),
        ({"repetition_window": 64}, "repetition_window"),
        ({"sampler_order": DEFAULT_ORDER}, "sampler_order"),
        ({"logit_bias": {"Hi": 1}, "repetition_window": -1}, "logit_bias"),
        ({"logit_bias": {1: -math.inf}, "repetition_window": -1}, "logit_bias"),
        ({"frequency_penalty": 3, "repetition_window": -1}, "frequency_penalty"),
        ({"sampler_order": ["temperature"]}, "sampler_order"),
    ],
)
def test_what_openai_cannot_say_is_refused(fields, field):
    base = {} if "sampler_order" in fields else {"sampler_order": (*OPENAI_ORDER, "typical_p", "dry", "xtc")}
    with pytest.raises(SamplingError) as caught:
        to_openai(SamplingConfig(**base | fields))
    assert caught.value.field == field


@pytest.mark.parametrize("data", [[], None, "x"])
@pytest.mark.parametrize("read", [from_llama, from_openai])
def test_what_is_no_mapping_is_refused(read, data):
    with pytest.raises(SamplingError, match="mapping"):
        read(data)


def test_samplers_that_are_no_names_are_refused():
    for wrong in ([["x"]], [{}], [None]):
        with pytest.raises(SamplingError) as caught:
            from_llama({"samplers": wrong})
        assert caught.value.field == "samplers"


def test_penalties_that_are_switched_off_are_not_sent():
    config = SamplingConfig(
        temperature=1.0,
        top_k=0,
        top_p=1.0,
        min_p=0.0,
        repetition_penalty=1.3,
        frequency_penalty=5.0,
        presence_penalty=1.0,
        repetition_window=0,
    )
    sent = to_openai(config)
    assert not {"repetition_penalty", "frequency_penalty", "presence_penalty"} & sent.keys()
    assert not from_openai(sent).has_penalties


@pytest.mark.parametrize(
    "samplers",
    [
        ["top_k", "typ_p", "top_p", "temperature"],
        ["top-k", "TypP", "nucleus", "temp"],
        "top_k;typ_p;top_p;temperature",
        "topk;typ;topp;temp",
        "kypt",
    ],
)
def test_samplers_are_named_in_every_way_in_which_llama_cpp_names_them(samplers):
    order = ("top_k", "typical_p", "top_p", "temperature")
    assert from_llama({"samplers": samplers}).sampler_order == order
    assert own_option("samplers", samplers) == ("sampler_order", list(order))
    assert from_llama({"samplers": "edskypmxt"}) == from_llama({})  # llama.cpp's default sequence
