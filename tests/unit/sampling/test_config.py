import json
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from espalier import SamplingConfig
from espalier.errors import SamplingError
from espalier.sampling.config import FIELDS


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("temperature", -0.1),
        ("temperature", math.nan),
        ("temperature", math.inf),
        ("temperature", True),
        ("temperature", "hot"),
        ("top_k", -1),
        ("top_k", 1.5),
        ("top_k", True),
        ("top_p", 1.01),
        ("top_p", -0.01),
        ("top_p", math.nan),
        ("min_p", 2),
        ("max_tokens", 0),
        ("max_tokens", -5),
        ("seed", -2),
        ("seed", 2**63),
        ("seed", 1.0),
        ("stop", ("",)),
        ("stop_ids", (-1,)),
        ("stop_ids", (True,)),
        ("sampler_order", ("top_k", "top_k")),
        ("sampler_order", ("heat",)),
    ],
)
def test_a_field_out_of_its_range_is_refused_by_name(field, value):
    with pytest.raises(SamplingError) as caught:
        SamplingConfig(**{field: value})
    assert caught.value.field == field
    assert field in str(caught.value)


def test_an_unknown_field_is_refused_and_the_known_ones_are_named():
    with pytest.raises(SamplingError, match="temprature") as caught:
        SamplingConfig.from_json({"temprature": 1})
    assert "temperature" in (caught.value.hint or "")


@given(
    st.floats(0, 10),
    st.integers(0, 500),
    st.floats(0, 1),
    st.floats(0, 1),
    st.none() | st.integers(0, 2**62),
    st.integers(1, 10_000),
    st.lists(st.text(min_size=1), max_size=3),
    st.permutations(["top_k", "top_p", "min_p"]),
)
def test_a_config_survives_json(temperature, top_k, top_p, min_p, seed, max_tokens, stop, order):
    config = SamplingConfig(
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        min_p=min_p,
        seed=seed,
        max_tokens=max_tokens,
        stop=tuple(stop),
        sampler_order=tuple(order),
    )
    assert SamplingConfig.from_json(config.to_json()) == config


def test_seed_minus_one_means_a_random_seed_and_a_single_stop_text_is_a_tuple():
    config = SamplingConfig(seed=-1, stop="END")
    assert config.seed is None
    assert config.stop == ("END",)


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"mirostat": 3}, "mirostat"),
        ({"mirostat": 1, "mirostat_tau": 0}, "mirostat_tau"),
        ({"min_tokens": 5, "max_tokens": 4}, "min_tokens"),
        ({"logit_bias": {1: math.inf}}, "logit_bias"),
        ({"logit_bias": {1: math.nan}}, "logit_bias"),
        ({"logit_bias": {-1: 1.0}}, "logit_bias"),
        ({"logit_bias": [[1, 2], [1, 3]]}, "logit_bias"),
        ({"bad_words": [""]}, "bad_words"),
        ({"allowed_ids": []}, "allowed_ids"),
        ({"n": 129}, "n"),
        ({"repetition_penalty": math.inf}, "repetition_penalty"),
        ({"repetition_window": -2}, "repetition_window"),
        ({"dry_base": 0.5}, "dry_base"),
        ({"dry_breakers": [""]}, "dry_breakers"),
    ],
)
def test_fields_that_do_not_go_together_or_make_no_sense_are_refused_by_name(fields, field):
    with pytest.raises(SamplingError) as caught:
        SamplingConfig(**fields)
    assert caught.value.field == field


def test_active_and_idle_say_what_runs_and_what_is_set_and_does_not():
    config = SamplingConfig(sampler_order=("temperature", "top_k", "xtc"), typical_p=0.5, xtc_probability=0.1)
    assert config.active == ("temperature", "top_k", "xtc")
    assert config.idle == ("penalties", "typical_p", "top_p", "min_p")
    off = SamplingConfig(xtc_probability=0.5, xtc_threshold=0.6, typical_p=1.0, repetition_window=0)
    assert off.active == ("top_k", "top_p", "min_p", "temperature")
    assert SamplingConfig(dry_multiplier=1.0, dry_window=0).active == SamplingConfig().active


HALF = "\udc80"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("repetition_penalty", 0),
        ("allowed_ids", 5),
        ("allowed_ids", 0),
        ("allowed_ids", b"ab"),
        ("allowed_ids", "12"),
        ("allowed_ids", {1: 2}),
        ("allowed_ids", [[1]]),
        ("allowed_ids", [10**5000]),
        ("allowed_ids", iter([])),
        ("stop_ids", object()),
        ("stop_ids", [1.0]),
        ("temperature", 10**400),
        ("temperature", 10**5000),
        ("top_k", 10**400),
        ("top_k", 2**53),
        ("min_keep", 10**5000),
        ("seed", 10**5000),
        ("max_tokens", 10**400),
        ("frequency_penalty", -(10**400)),
        ("mirostat", 10**5000),
        ("logit_bias", object()),
        ("logit_bias", 5),
        ("logit_bias", b"ab"),
        ("logit_bias", {1: 10**400}),
        ("logit_bias", {1: -(10**400)}),
        ("logit_bias", {"9" * 5000: 1.0}),
        ("logit_bias", {10**5000: 1.0}),
        ("logit_bias", {HALF: 1.0}),
        ("logit_bias", [object()]),
        ("logit_bias", [([], 1)]),
        ("logit_bias", {1: object()}),
        ("dry_breakers", (HALF,)),
        ("stop", (HALF,)),
        ("bad_words", (HALF,)),
        ("stop", object()),
        ("sampler_order", [["top_k"]]),
        ("sampler_order", None),
        ("sampler_order", [HALF]),
        ("ignore_eos", 10**5000),
        ("top_p", np.bool_(True)),
        ("temperature", np.float32("nan")),
        ("temperature", np.zeros(2)),
    ],
    ids=lambda value: value if isinstance(value, str) and value.isidentifier() else "value",
)
def test_whatever_is_wrong_is_a_sampling_error_that_can_be_printed(field, value):
    with pytest.raises(SamplingError) as caught:
        SamplingConfig(**{field: value})
    assert caught.value.field == field
    str(caught.value).encode()


@pytest.mark.parametrize("data", [[], None, "x", 5])
def test_what_is_no_mapping_is_no_config(data):
    with pytest.raises(SamplingError, match="mapping"):
        SamplingConfig.from_json(data)


def test_any_iterable_of_ids_is_gone_through_once():
    for given_ids in ([3, 1], (3, 1), iter([3, 1]), (i for i in (3, 1)), np.array([3, 1]), {3: 0, 1: 0}.keys()):
        config = SamplingConfig(allowed_ids=given_ids)
        assert sorted(config.allowed_ids) == [1, 3]
    assert SamplingConfig(allowed_ids={3, 1}, stop_ids=frozenset({9, 2})).to_json()["stop_ids"] == [2, 9]
    assert SamplingConfig(allowed_ids=range(2), stop_ids=np.int64(4)).stop_ids == (4,)


def test_only_ascii_digits_are_ids():
    config = SamplingConfig(logit_bias={"7": 1.0, "²": 2.0, "٣": 3.0})
    assert config.logit_bias == ((7, 1.0), ("²", 2.0), ("٣", 3.0))


def test_numpy_s_numbers_become_python_s():
    config = SamplingConfig(
        temperature=np.float32(0.5),
        top_p=np.float64(0.5),
        top_k=np.int64(5),
        seed=np.uint8(3),
        n=np.int32(2),
        min_p=Fraction(1, 4),
        logit_bias={np.int64(3): np.float32(0.5)},
        allowed_ids=[np.int32(4)],
    )
    assert SamplingConfig.from_json(json.loads(json.dumps(config.to_json()))) == config
    kinds = {type(value) for value in (config.temperature, config.top_p, config.top_k, config.seed, config.n)}
    assert kinds == {int, float}
    assert [type(x) for x in (*config.logit_bias[0], *config.allowed_ids)] == [int, float, int]


def test_an_unknown_sampler_is_said_to_be_unknown():
    with pytest.raises(SamplingError, match="unknown: temp"):
        SamplingConfig(sampler_order=("top_k", "temp"))


def test_a_default_is_what_its_own_check_makes_of_it():
    """So a config does not check the fields that are left at their defaults."""
    for name, option in FIELDS.items():
        checked = option.check(option.default)
        assert (checked, type(checked)) == (option.default, type(option.default)), name


def test_greedy_is_not_idle_without_its_name_in_the_order():
    assert SamplingConfig(temperature=0, sampler_order=("top_k",)).is_greedy
    assert "temperature" not in SamplingConfig(temperature=0, sampler_order=("top_k",)).idle
    assert "temperature" in SamplingConfig(temperature=0.5, sampler_order=("top_k",)).idle
