"""llama.cpp reads a GGUF file in a worker process first: a file on which it crashes is an error on every road to it."""

from __future__ import annotations

import os
import re
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("llama_cpp")
gguf = pytest.importorskip("gguf")

from espalier.constraints.compiler import Folders  # noqa: E402
from espalier.engine_table import open_engine, read_gguf_vocab  # noqa: E402
from espalier.engines.gguf.checks import check_generates, check_vocabulary  # noqa: E402
from espalier.engines.gguf.header import read_header  # noqa: E402
from espalier.engines.llamacpp import trial  # noqa: E402
from espalier.engines.options import EngineOptions  # noqa: E402
from espalier.errors import InputError  # noqa: E402
from tests import gguf_models as make  # noqa: E402
from tests.server_process import DEMO  # noqa: E402

SOURCES = Path(trial.__file__).parents[2]
ENDS = r"llama\.cpp ends the process that reads it \(SIG(ABRT|SEGV)\)"


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make.write_llama(tmp_path_factory.mktemp("gguf") / "good.gguf", make.bpe_words())


@pytest.fixture(scope="module")
def crashing(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A vocabulary of one tokenizer under the name of another: an assertion of llama.cpp fails."""
    data = make.write_llama(tmp_path_factory.mktemp("gguf") / "spm.gguf", make.spm_words()).read_bytes()
    key = b"tokenizer.ggml.model"
    model = struct.pack("<Q", len(key)) + key + struct.pack("<IQ", 8, 5) + b"llama"
    assert data.count(model) == 1
    path = tmp_path_factory.mktemp("gguf") / "crashing.gguf"
    # The text is a byte shorter; the name of another key, a byte longer, keeps everything after it in its place.
    renamed = model.replace(struct.pack("<Q", 5) + b"llama", struct.pack("<Q", 4) + b"bert")
    name = b"tokenizer.ggml.pre"
    other = struct.pack("<Q", len(name)) + name
    assert data.count(other) == 1
    path.write_bytes(data.replace(model, renamed).replace(other, struct.pack("<Q", len(name) + 1) + name + b"x"))
    return path


def test_the_file_passes_the_checks_of_its_header(crashing: Path) -> None:
    header = read_header(crashing)
    check_vocabulary(header, crashing.name)
    check_generates(header, crashing.name)


ROADS: dict[str, Callable[[Path], Any]] = {
    "an engine": lambda path: open_engine(str(path)),
    "a vocabulary": lambda path: read_gguf_vocab(str(path)),
    "a draft model": lambda path: open_engine(str(DEMO / "demo.gguf"), options=EngineOptions(draft_model=str(path))),
}


@pytest.mark.slow
@pytest.mark.parametrize("road", ROADS)
def test_a_file_that_crashes_llama_cpp_is_an_error(crashing: Path, road: str) -> None:
    with pytest.raises(InputError, match=ENDS) as caught:
        ROADS[road](crashing)
    assert caught.value.hint == "fetch the file again"


@pytest.mark.slow
@pytest.mark.parametrize(
    "command",
    [("generate", "-m", "{}", "hi"), ("serve", "-m", "{}", "--port", "0"), ("vocab", "{}")],
    ids=["generate", "serve", "vocab"],
)
def test_a_file_that_crashes_llama_cpp_is_a_line_of_the_command_line(
    crashing: Path, tmp_path: Path, command: tuple[str, ...]
) -> None:
    arguments = [part.format(crashing) for part in command]
    done = subprocess.run(
        [sys.executable, "-m", "espalier", *arguments],
        cwd=tmp_path,
        env=os.environ | {"XDG_DATA_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode in (1, 2), done.stderr
    assert re.search(ENDS, " ".join(done.stderr.split())), done.stderr
    assert "Traceback" not in done.stderr


def test_what_was_read_well_is_not_tried_again(good: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    header = read_header(good)
    trial.try_header(good, header, cache=tmp_path / "new")
    (remembered,) = (tmp_path / "new").iterdir()
    with monkeypatch.context() as patch:
        patch.setattr(trial, "Processes", None)
        trial.try_header(good, header, cache=tmp_path / "new")
        with pytest.raises(TypeError):
            trial.try_header(good, header, cache=tmp_path / "new", what="lora")
        remembered.unlink()
        with pytest.raises(TypeError):
            trial.try_header(good, header, cache=tmp_path / "new")


@pytest.mark.slow
def test_a_file_that_crashes_is_tried_every_time(crashing: Path, tmp_path: Path) -> None:
    for _ in range(2):
        with pytest.raises(InputError, match=ENDS):
            trial.try_header(crashing, read_header(crashing), cache=tmp_path)
    assert not [*tmp_path.iterdir()]


def test_another_header_or_another_size_is_another_file(good: Path, tmp_path: Path) -> None:
    data = good.read_bytes()
    longer, other = tmp_path / "longer.gguf", tmp_path / "other.gguf"
    longer.write_bytes(data + bytes(32))
    other.write_bytes(data.replace(b"<|im_end|>", b"<|im_ended", 1))
    assert len({read_header(path).digest for path in (good, longer, other)}) == 3


def test_an_engine_remembers_in_its_cache_folder(good: Path, tmp_path: Path) -> None:
    open_engine(str(good), folders=Folders(cache=tmp_path)).close()
    assert [*tmp_path.glob("*.gguf-tried")]


def test_an_adapter_is_tried_too(tmp_path: Path) -> None:
    path = make.write_lora(tmp_path / "lora.gguf")
    trial.try_header(path, read_header(path, what="lora"), cache=tmp_path, what="lora")
    assert [*tmp_path.glob("*.gguf-tried")]


def test_llama_cpp_opens_no_file_elsewhere() -> None:
    """Whatever calls these has tried the file before, or is the trial."""
    openers = re.compile(
        r"llama_model_load\w*\(|llama_adapter_lora_init\(|gguf_init\w*|llama_state_load\w*\(|\bLlama\("
    )
    users = {
        path.relative_to(SOURCES).as_posix()
        for path in SOURCES.rglob("*.py")
        if openers.search(path.read_text(encoding="utf-8"))
    }
    assert users == {"engines/llamacpp/weights.py", "engines/llamacpp/trial.py"}


def header_of(*shape: int, kind: int = 0) -> bytes:
    """A file with one tensor and 1 MiB of data."""
    name = b"token_embd.weight"
    entry = struct.pack("<Q", len(name)) + name + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, kind, 0)
    return b"GGUF" + struct.pack("<IQQ", 3, 1, 0) + entry + bytes(1 << 20)


@pytest.mark.parametrize(
    "shape",
    [
        (1 << 62, 4),  # its size in bytes is 2^66: 0 in 64 bits, as in CVE-2026-33298
        (4611686018427387903,),  # float32: 4 bytes below 2^64, which rounding up to a multiple of 32 makes 0
        ((1 << 64) - 32,),  # below 0 as a signed number
        (0, 1 << 40, 1 << 40),
        (1 << 16, 1 << 16, 1 << 16, 1 << 16),
        (9_000_000,),
    ],
)
def test_a_tensor_that_is_larger_than_the_file_is_refused_before_llama_cpp_multiplies(
    tmp_path: Path, shape: tuple[int, ...]
) -> None:
    path = tmp_path / "large.gguf"
    path.write_bytes(header_of(*shape))
    with pytest.raises(InputError, match=r"tensor 'token_embd\.weight' of .* values it is smaller than its tensors"):
        read_header(path)


def test_a_tensor_has_four_dimensions_at_most(tmp_path: Path) -> None:
    path = tmp_path / "deep.gguf"
    path.write_bytes(header_of(*[1] * 5))
    with pytest.raises(InputError, match="has 5 dimensions"):
        read_header(path)
    path.write_bytes(header_of(1, 1, 1, 1))
    assert read_header(path).types == {"token_embd.weight": 0}
