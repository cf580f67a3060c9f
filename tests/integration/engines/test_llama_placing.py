"""On which device and how many threads a model runs: what is refused, and with which advice."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("llama_cpp")
pytest.importorskip("gguf")

from espalier.engines.llamacpp.context import default_threads
from espalier.engines.llamacpp.model import LlamaStepModel
from espalier.engines.llamacpp.weights import LlamaFile
from espalier.engines.options import DEFAULT, EngineOptions
from espalier.errors import CapabilityError, InputError
from tests import gguf_models as make


@pytest.fixture(scope="module")
def path(tmp_path_factory) -> Path:
    return make.write_llama(tmp_path_factory.mktemp("gguf") / "bpe.gguf", make.bpe_words())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "said", "field"),
    [
        ({"device": "cuda"}, "no GPU", "device"),
        ({"device": "cuda:1"}, "no GPU", "device"),
        ({"gpu_layers": 4}, "no GPU", "gpu_layers"),
        ({"device": "cpu", "gpu_layers": 4}, "the device is the CPU", "gpu_layers"),
        ({"device": "tpu"}, "unknown device", "device"),
        ({"device": f"cuda:{2**32}"}, "the number of cuda:4294967296 is at most", "device"),
    ],
)
def test_a_device_that_is_not_there_is_refused(path, options, said, field):
    import espalier.engines.llamacpp.library as llama_lib

    if said == "no GPU" and llama_lib.library().llama_supports_gpu_offload():
        pytest.skip("this build of llama.cpp has a GPU")
    with pytest.raises((InputError, CapabilityError), match=said) as caught:
        LlamaFile(path, EngineOptions(**options))
    assert caught.value.field == field
    LlamaFile(path, EngineOptions(device="cpu"))
    LlamaFile(path, EngineOptions(device="cpu", gpu_layers=0))


def test_a_build_for_a_gpu_replaces_llama_cpp_alone(path):
    """Without --no-deps numpy would be replaced, and built from source; pip's cache would give the old wheel again."""
    import llama_cpp

    if llama_cpp.llama_supports_gpu_offload():
        pytest.skip("this build of llama.cpp has a GPU")
    with pytest.raises(InputError) as caught:
        LlamaFile(path, EngineOptions(device="cuda"))
    assert caught.value.hint == (
        'CMAKE_ARGS="-DGGML_CUDA=on" pip install --force-reinstall --no-deps --no-cache-dir '
        f"--no-binary llama-cpp-python llama-cpp-python=={llama_cpp.__version__}"
    )


def test_more_threads_than_the_machine_can_have_are_refused(path, monkeypatch):
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    with pytest.raises(InputError, match="17 threads are too many for 2 CPUs") as caught:
        LlamaStepModel(LlamaFile(path, DEFAULT), EngineOptions(threads=17))
    assert caught.value.field == "threads"
    assert "at most 16" in caught.value.hint
    monkeypatch.setattr("os.cpu_count", lambda: 64)
    with pytest.raises(InputError, match="257 threads"):
        LlamaStepModel(LlamaFile(path, DEFAULT), EngineOptions(threads=257))


def test_a_small_model_runs_on_one_thread():
    assert default_threads(1_000_000) == 1
    assert default_threads(10**9) >= 1
