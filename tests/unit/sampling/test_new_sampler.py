"""What it takes to add a truncation: its function and `Sampler` in one module, and the generated line of its type."""

import os
import re
import shutil
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest

import espalier
from espalier import SamplingConfig
from espalier.sampling.config import FIELDS
from espalier.sampling.config_names import LLAMA_FIELDS, LLAMA_SAMPLERS, OPENAI_FIELDS
from espalier.sampling.samplers.registry import SAMPLERS

SOURCES = Path(espalier.__file__).parent

DECLARATION = """
EVERY = Sampler(
    name="every",
    llama="every",
    truncates=True,
    transform=lambda logits, context: np.where(
        np.arange(logits.size) % context.config.every == 0, logits, np.float32(-np.inf)
    ),
    fields=(Whole(name="every", default=0, off=0, high=9, hint="0 is off", llama="every_id"),),
)
"""
EDITS = (
    ("sampling/samplers/truncations.py", r"TRUNCATIONS = \((.*)\)", f"{DECLARATION}TRUNCATIONS = (\\1, EVERY)"),
    ("option_types.py", r"    min_keep: int = ", "    every: int = UNSET\n\\g<0>"),
    ("option_types.py", r"    min_keep: int\n", "    every: int\n\\g<0>"),
)
SCRIPT = """
import numpy as np
from espalier import SamplingConfig
from espalier.errors import SamplingError
from espalier.api import make_request
from espalier.cli.flags.sampling import read_fields
from espalier.decoding.beam.strategy import DRAWING
from espalier.sampling.chain import Chain
from espalier.sampling.config import DEFAULT_ORDER, NEUTRAL
from espalier.sampling.config_names import DRAWING_NAMES, from_llama, to_llama, to_openai

def refused(make):
    try:
        make()
    except SamplingError as error:
        return error.field
    raise AssertionError("nothing was refused")

config = SamplingConfig(every=3, top_k=0, top_p=1.0, min_p=0.0, repetition_penalty=1.0)
assert config.active == ("every", "temperature") and "every" not in SamplingConfig().active
assert np.flatnonzero(Chain(config).shape(np.zeros(8, dtype=np.float32)) > -np.inf).tolist() == [0, 3, 6]
assert DEFAULT_ORDER[-2:] == ("every", "temperature") and NEUTRAL["every"] == 0 and DRAWING["every"] == "every"
assert SamplingConfig.from_json(config.to_json()) == config
assert SamplingConfig(**read_fields(["every=3"])).every == 3
assert to_llama(config)["every_id"] == 3 and "every" in to_llama(config)["samplers"]
assert from_llama({"every_id": 3}).every == 3 and "every_id" in DRAWING_NAMES
assert refused(lambda: SamplingConfig(every=10)) == "every"
assert SamplingConfig(every=3, mirostat=2).replaced == ("every",)
assert refused(lambda: from_llama({"every_id": "a"})) == "every_id"
assert refused(lambda: to_openai(config)) == "every"
assert make_request("", every=3).sampling.every == 3
"""


@pytest.mark.slow
def test_a_truncation_takes_a_declaration_and_its_generated_type(tmp_path):
    """The other file is docs/sampling.md. Fields of requests follow from the declaration too: test_option_tables."""
    copy = tmp_path / "espalier"
    shutil.copytree(SOURCES, copy, ignore=shutil.ignore_patterns("__pycache__", "*.html", "*.js"))
    for name, old, new in EDITS:
        text, count = re.subn(old, new, (copy / name).read_text())
        assert count == 1, name
        (copy / name).write_text(text)
    ran = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr


def test_every_field_of_the_config_is_declared_and_every_declared_field_is_in_the_config():
    assert {one.name for one in fields(SamplingConfig) if one.init} == FIELDS.keys()


@pytest.mark.parametrize("sampler", SAMPLERS.values(), ids=lambda one: one.name)
def test_a_sampler_is_off_where_its_switches_are_neutral_and_on_where_its_first_is_not(sampler):
    off = {one.name: one.off for one in sampler.fields if one.off is not None}
    assert not sampler.is_on(SamplingConfig(**off))
    assert sampler.is_on(
        SamplingConfig(**off | {sampler.switch.name: 0.5 if sampler.switch.off != 0 else 1})
        if sampler.name != "typical_p"
        else SamplingConfig(typical_p=0.5)
    )


def test_no_two_fields_share_a_name_in_another_server():
    for names in (LLAMA_FIELDS, OPENAI_FIELDS, LLAMA_SAMPLERS):
        assert len(set(names.values())) == len(names)
