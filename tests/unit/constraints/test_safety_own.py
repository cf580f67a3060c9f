"""Filters of users' own patterns are built in worker processes where single steps of building them take long."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from espalier.confined import builds
from espalier.confined.builds import Builds
from espalier.confined.pool import is_supported
from espalier.constraints.compiler import Compiler
from espalier.constraints.safety import own
from espalier.constraints.safety.compile import compile_safety
from espalier.constraints.safety.own import NEAR_CHARACTERS, Own
from espalier.constraints.safety.parts import PatternPart
from espalier.constraints.safety.spec import Safety
from espalier.errors import EspalierError, LimitExceeded, SpecError
from espalier.time_limit import time_limit
from espalier.tokens.vocab import Vocab

pytestmark = pytest.mark.skipif(not is_supported(), reason="no worker processes on this system")
RARE = "".join(chr(0x4E00 + 7 * i) for i in range(NEAR_CHARACTERS + 1))
OWN = (
    Own(words=[("one two", 3), ("Wörd", 4)], texts=[], expressions=[]),
    Own(words=[("x", 0)], texts=[("a b", 1), ("éa", 2)], expressions=[("x[a-f]{2,5}|y+z", 3)]),
    Own(words=[], texts=[(RARE, 0)], expressions=[]),
)


class Here(Builds):
    """What a worker process is asked, answered in this one; counts the calls."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.asked, self._file = 0, folder / "built"

    def _far(self, run: str, given: Mapping[str, Any]) -> bytes:
        self.asked += 1
        failed = run({**given, "file": str(self._file)})
        if failed is not None:
            raise builds._error_of(failed)
        return self._file.read_bytes()


def arrays(part: PatternPart) -> list[np.ndarray]:
    return [part.dfa.table, part.dfa.cuts, part.dfa.busy, *part.segments]


@pytest.mark.parametrize("given", OWN)
def test_parts_of_a_process_are_those_that_are_built_here(
    given: Own, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(builds, "NEAR_SECONDS", 0.0)
    there = Here(tmp_path)
    with time_limit(60):
        found = given.built(there)
    assert there.asked == 1
    here = given.parts()
    assert len(found) == len(here)
    for one, other in zip(found, here, strict=True):
        assert one.rules == other.rules
        for a, b in zip(arrays(one), arrays(other), strict=True):
            assert a.dtype == b.dtype
            assert np.array_equal(a, b)


@pytest.mark.parametrize("text", ["[^x]|x", "(", "(?:a|b)*a(?:a|b){30}"])
def test_errors_of_a_process_are_those_that_are_raised_here(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = Own(words=[], texts=[], expressions=[(text, 0)])
    with pytest.raises((SpecError, LimitExceeded)) as here:
        given.parts()
    monkeypatch.setattr(builds, "NEAR_SECONDS", 0.0)
    with time_limit(60), pytest.raises(EspalierError) as there:
        given.built(Here(tmp_path))
    assert type(there.value) is type(here.value)
    assert (str(there.value), vars(there.value)) == (str(here.value), vars(here.value))


def test_a_pattern_of_a_thousand_rare_letters_is_not_tried_in_a_thread_of_the_server(tmp_path: Path) -> None:
    """Two thousand Chinese characters took 4.4 s of CPU time, up to 0.4 s of it between two looks at the limit."""
    there = Here(tmp_path)
    with time_limit(60):
        Own(words=[], texts=[], expressions=[("ab?c", 0)]).built(there)
        assert there.asked == 0
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(own, "custom_parts", lambda *given: pytest.fail("built here"))
            patched.setattr(there, "_far", lambda run, given: own._pack_parts([]))
            assert Own(words=[], texts=[], expressions=[(RARE, 0)]).built(there) == []


@pytest.mark.slow
def test_phrases_of_rare_letters_are_refused_before_their_table_is_made() -> None:
    """20,000 phrases of 7 Chinese characters asked for a table of 11 GB."""
    letters = [chr(0x4E00 + i) for i in range(20_000)]
    phrases = ["".join(letters[(i * 7 + k) % 20_000] for k in range(2)) + letters[i] for i in range(3000)]
    with pytest.raises(LimitExceeded, match="states times classes") as caught:
        Own(words=[], texts=[(one, 0) for one in phrases], expressions=[]).parts()
    assert "fewer different characters" in str(caught.value.hint)


@pytest.mark.slow
def test_a_filter_of_rare_letters_comes_from_a_process_and_holds() -> None:
    compiler = Compiler(Vocab.bytes())
    spec = Safety(patterns=[RARE[:6], RARE])
    with time_limit(60):
        compiled = compile_safety(spec, compiler)
    matcher = compiled.matcher()
    *begun, last = f"a{RARE[:6]}".encode()
    for byte in begun:
        matcher.advance(byte)
    assert not matcher.allows(last)
