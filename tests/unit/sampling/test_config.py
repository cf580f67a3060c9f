import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from espalier import SamplingConfig
from espalier.errors import SamplingError


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("temperature", -0.1), ("temperature", math.nan), ("temperature", math.inf), ("temperature", True),
        ("temperature", "hot"), ("top_k", -1), ("top_k", 1.5), ("top_k", True), ("top_p", 1.01), ("top_p", -0.01),
        ("top_p", math.nan), ("min_p", 2), ("max_tokens", 0), ("max_tokens", -5), ("seed", -2), ("seed", 2**63),
        ("seed", 1.0), ("stop", ("",)), ("stop_ids", (-1,)), ("stop_ids", (True,)), ("order", ("top_k", "top_k")),
        ("order", ("heat",)),
    ],
)  # fmt: skip
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
    st.floats(0, 10), st.integers(0, 500), st.floats(0, 1), st.floats(0, 1), st.none() | st.integers(0, 2**62),
    st.integers(1, 10_000), st.lists(st.text(min_size=1), max_size=3), st.permutations(["top_k", "top_p", "min_p"]),
)  # fmt: skip
def test_a_config_survives_json(temperature, top_k, top_p, min_p, seed, max_tokens, stop, order):
    config = SamplingConfig(
        temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p, seed=seed, max_tokens=max_tokens,
        stop=tuple(stop), order=tuple(order),
    )  # fmt: skip
    assert SamplingConfig.from_json(config.to_json()) == config


def test_seed_minus_one_means_a_random_seed_and_a_single_stop_text_is_a_tuple():
    config = SamplingConfig(seed=-1, stop="END")
    assert config.seed is None
    assert config.stop == ("END",)
