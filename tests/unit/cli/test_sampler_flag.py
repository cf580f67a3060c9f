"""`--sampler` of `generate` and `chat`."""

import pytest

from espalier.cli.main import main_code


@pytest.mark.parametrize("command", [["generate", "x"], ["chat"]])
def test_a_sampler_that_there_is_not_is_refused_before_a_model_is_loaded(command, capfd):
    assert main_code([*command, "-m", "no-such-model", "--sampler", "best"]) == 2
    assert "--sampler: 'best' is none of espalier, native" in capfd.readouterr().err


def test_an_engine_without_a_sampler_of_its_own_refuses(capfd):
    assert main_code(["generate", "-m", "fake", "--sampler", "native", "x"]) == 2
    assert "only the llama.cpp engine has one" in capfd.readouterr().err
