"""Damaged files of each kind through the public entry points: a result or an error of our tree, within 2 s of CPU time
and 2 s for each MiB, and 200 MB, or a finding."""

from __future__ import annotations

import io
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from pathlib import Path
from random import Random

from espalier.errors import EspalierError
from tests.fuzz.files.child import as_stderr, read_in_child
from tests.fuzz.files.samples import SAMPLES, as_bytes
from tests.fuzz.session import Finding, Totals


class FileFuzzer:
    """only: the kinds to try; all by default, or those that FUZZ_FILES names, separated by commas."""

    def __init__(self, only: tuple[str, ...] = ()) -> None:
        named = tuple(filter(None, os.environ.get("FUZZ_FILES", "").split(",")))
        self._kinds = only or named or tuple(SAMPLES)
        self._is_warm: set[str] = set()

    def one(self, seed: int, totals: Totals) -> None:
        random = Random(seed)
        kind = random.choice(self._kinds)
        sample = SAMPLES[kind]
        with tempfile.TemporaryDirectory(prefix="fuzz-files-") as folder, config_folder(folder):
            for name, whole in sample.beside().items():
                Path(folder, name).write_bytes(as_bytes(whole))
            path = Path(folder, sample.name)
            valid = as_bytes(random.choice(sample.files()))
            if kind not in self._is_warm:  # imports and caches are not what is measured
                self._is_warm.add(kind)
                path.write_bytes(valid)
                for other in range(2):
                    read_quietly(lambda number=other: sample.read(path, Random(number)))  # type: ignore[misc]
            content = sample.damage(valid, random)
            path.write_bytes(content)
            ending = read_in_child(lambda: sample.read(path, Random(seed)), size=len(content))
            totals.counts[f"{kind}: {ending.outcome}"] += 1
            totals.features[kind] += 1
            if ending.fault:
                kept = self._kept(seed, sample.name, content)
                totals.findings.append(Finding(seed=seed, fault=ending.fault, spec=kind, text=kept))

    def _kept(self, seed: int, name: str, content: bytes) -> str:
        """The damaged file, kept where FUZZ_KEEP says; the start of its content otherwise."""
        folder = os.environ.get("FUZZ_KEEP")
        if not folder:
            return content[:80].decode("utf-8", "replace")
        kept = Path(folder, f"{seed}-{name}")
        kept.parent.mkdir(parents=True, exist_ok=True)
        kept.write_bytes(content)
        return str(kept)


@contextmanager
def config_folder(folder: str) -> Iterator[None]:
    """What is read may write presets: here and not into the user's folder."""
    name = "ESPALIER_CONFIG_DIR"
    before = os.environ.get(name)
    os.environ[name] = folder
    try:
        yield
    finally:
        os.environ.pop(name)
        if before is not None:
            os.environ[name] = before


def read_quietly(work: Callable[[], object]) -> None:
    """Read a valid file in this process, so that the child finds everything imported."""
    out = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    with redirect_stdout(out), redirect_stderr(as_stderr()), suppress(EspalierError):
        work()
