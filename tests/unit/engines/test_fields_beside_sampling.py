"""Mirostat beside truncations, and fields beside `sampling=` and `decoding=`: both are taken, and what has no effect is
named. Seen as: `SamplerConfig{TopK: 40, Mirostat: 2}` was refused, and `sampling=` with `seed=` too."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

import espalier
from espalier import Decoding, Preset, SamplingConfig
from espalier.api import make_request, try_preset
from espalier.errors import SamplingError
from espalier.sampling.config import FIELDS, NEUTRAL
from espalier.sampling.config_names import from_llama, llama_notes, to_llama

TRUNCATIONS = {
    "top_k": 40,
    "top_p": 0.9,
    "min_p": 0.1,
    "typical_p": 0.5,
    "top_n_sigma": 1.0,
    "xtc_probability": 0.5,
    "dynatemp_range": 0.3,
}
OTHER_VALUES: dict[str, Any] = {
    "temperature": 0.3,
    "dynatemp_range": 0.1,
    "dynatemp_exponent": 2.0,
    "top_k": 7,
    "top_p": 0.5,
    "min_p": 0.2,
    "typical_p": 0.4,
    "top_n_sigma": 2.0,
    "min_keep": 2,
    "xtc_probability": 0.1,
    "xtc_threshold": 0.2,
    "repetition_penalty": 1.3,
    "repetition_window": 9,
    "frequency_penalty": 0.2,
    "presence_penalty": 0.3,
    "dry_multiplier": 0.4,
    "dry_base": 1.5,
    "dry_allowed_length": 3,
    "dry_window": 5,
    "dry_breakers": ("!",),
    "mirostat": 1,
    "mirostat_tau": 3.0,
    "mirostat_eta": 0.2,
    "logit_bias": ((4, 1.0),),
    "bad_words": ("x",),
    "allowed_ids": (1, 2),
    "seed": 5,
    "n": 2,
    "min_tokens": 1,
    "max_tokens": 3,
    "stop": ("END",),
    "stop_ids": (3,),
    "ignore_eos": True,
    "extra": (),
    "sampler_order": ("temperature", "top_k"),
}


def test_the_values_below_cover_every_truncation_and_every_field() -> None:
    assert TRUNCATIONS.keys() == {*NEUTRAL, "dynatemp_range"}
    assert OTHER_VALUES.keys() == FIELDS.keys()


@pytest.mark.parametrize("mirostat", [1, 2])
@pytest.mark.parametrize("name", TRUNCATIONS)
def test_mirostat_with_a_truncation_in_one_config_was_refused(name: str, mirostat: int) -> None:
    both = SamplingConfig(mirostat=mirostat, **{name: TRUNCATIONS[name]})
    assert both == SamplingConfig(mirostat=mirostat)
    assert both.replaced == (name,)
    assert both.active == SamplingConfig(mirostat=mirostat).active
    assert SamplingConfig.from_json(both.to_json()) == both
    assert replace(both, seed=1).top_k == 0
    assert both.notes == (f"mirostat takes the place of {name}, which has no effect",)


def test_without_mirostat_and_at_off_nothing_is_replaced() -> None:
    assert SamplingConfig(**TRUNCATIONS).replaced == ()
    assert SamplingConfig(mirostat=2, top_k=0, top_p=1.0, min_p=0.0).replaced == ()


def test_every_edge_in_python_names_what_has_no_effect() -> None:
    note = "mirostat takes the place of top_k, which has no effect"
    preset = Preset(name="mine", config={"mirostat": 2, "top_k": 40})
    assert preset.to_json()["config"] == {"mirostat": 2, "top_k": 40}
    assert Preset.from_json(preset.to_json()) == preset
    assert try_preset(preset) == (note,)
    for options in (
        {"mirostat": 2, "top_k": 40},
        {"sampling": SamplingConfig(mirostat=2, top_k=40)},
        {"sampling": {"mirostat": 2, "top_k": 40}},
        {"sampling": SamplingConfig(mirostat=2), "top_k": 40},
        {"preset": preset},
        {"preset": preset, "seed": 1},
    ):
        request = make_request("hi", **options)
        assert request.notes == (note,), options
        assert request.sampling.top_k == 0
    with espalier.load("fake") as engine:
        with_top_k = engine.generate("hi", mirostat=2, top_k=1, seed=3, max_tokens=20)
        assert with_top_k.notes == (note,)
        assert with_top_k.text == engine.generate("hi", mirostat=2, seed=3, max_tokens=20).text


def test_in_llama_cpps_names_penalties_beside_mirostat_have_no_effect_either() -> None:
    config = from_llama({"mirostat": 2, "repeat_penalty": 1.2, "dry_multiplier": 0.5, "top_k": 5})
    assert config.replaced == ("top_k", "repetition_penalty", "dry_multiplier")
    assert (config.repetition_penalty, config.dry_multiplier, config.top_k) == (1.0, 0.0, 0)
    own = SamplingConfig(mirostat=2, presence_penalty=0.5)
    assert to_llama(own)["mirostat"] == 2  # it was refused for the default repetition penalty, which nobody had set
    assert llama_notes(own) == ("llama.cpp's mirostat runs without presence_penalty",)
    assert llama_notes(SamplingConfig(mirostat=2)) == ()


@pytest.mark.parametrize("name", OTHER_VALUES)
def test_a_field_beside_sampling_was_refused(name: str) -> None:
    base = SamplingConfig(temperature=0.9, seed=9, max_tokens=50)
    sampling = make_request("hi", sampling=base, **{name: OTHER_VALUES[name]}).sampling
    assert getattr(sampling, name) == OTHER_VALUES[name]
    for other in {"temperature", "seed", "max_tokens"} - {name}:
        assert getattr(sampling, other) == getattr(base, other)


def test_llama_cpps_names_count_beside_sampling_too_and_a_wrong_value_is_refused() -> None:
    base = espalier.DeterministicConfig
    assert make_request("hi", sampling=base, n_predict=7).sampling == replace(base, max_tokens=7)
    with pytest.raises(SamplingError, match="top_p"):
        make_request("hi", sampling=base, top_p=2)


def test_switching_mirostat_beside_sampling_moves_the_defaults_and_nothing_else() -> None:
    on = make_request("hi", sampling=SamplingConfig(temperature=0.5), mirostat=2)
    assert (on.sampling, on.notes) == (SamplingConfig(temperature=0.5, mirostat=2), ())
    off = make_request("hi", sampling=on.sampling, mirostat=0)
    assert off.sampling == SamplingConfig(temperature=0.5)


def test_a_field_beside_decoding_replaces_the_one_in_it() -> None:
    request = make_request("hi", decoding=Decoding(strategy="beam", num_beams=3), num_beams=2)
    assert request.decoding == Decoding(strategy="beam", num_beams=2)
