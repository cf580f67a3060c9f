"""No victim is ended or refused while others attack, nor waits for long; the server ends on SIGTERM even then.

The short run takes attacks of each family. The full one takes all of `tests/hostile/attacks.py`, seven minutes for
each engine and way of keys: set ESPALIER_HOSTILE=all. `python -m benchmarks.hostile` prints how long the victims
wait.
"""

from __future__ import annotations

import os
import sys

import pytest

pytest.importorskip("fastapi")

from tests.hostile.attacks import ATTACKS
from tests.hostile.bodies import doubling, encoded
from tests.hostile.report import DRAIN, Run, run, summary
from tests.server_process import DEMO

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="memory and CPU time are read from /proc"),
]
SHORT = (
    "schema: doubling references 20",
    "regex: backtracking for the judge",
    "body: logit_bias of 1.9 MB",
    "tokens: 1.9 MB with pieces",
    "traces: into a locked store",
    "connection: leaves while compiling",
    "connection: half closed",
    "connection: 1,500 that say nothing",
    "origin: a page that uploads",
    "upload: files of 10 MB",
    "upload: a boundary of 60,000 bytes",
    "words: a language of 5000 letters",
)
ENDING_SECONDS = 60
"""For the process to end after the drain: far below what waits for it, and far above what a loaded machine takes."""


def check(found: Run) -> None:
    assert all(one.alive for one in found.found), summary(found)
    assert not [one for one in found.found if one.faults], summary(found)
    assert max(found.ended) <= DRAIN + ENDING_SECONDS, summary(found)


@pytest.mark.parametrize("keys", [False, True], ids=["no keys", "keys"])
def test_victims_of_some_attacks(keys: bool) -> None:
    """With keys, every third: they are looked at before what an attack is about."""
    attacks = [one for one in ATTACKS if one.name in SHORT]
    assert len(attacks) == len(SHORT)
    check(run(str(DEMO), attacks[::3] if keys else attacks, keys=keys, seconds=1.5))


@pytest.mark.skipif(os.environ.get("ESPALIER_HOSTILE") != "all", reason="ESPALIER_HOSTILE is not all")
@pytest.mark.parametrize("keys", [False, True], ids=["no keys", "keys"])
@pytest.mark.parametrize("model", [DEMO, DEMO / "demo.gguf"], ids=["transformers", "llama.cpp"])
def test_victims_of_every_attack(model: object, keys: bool) -> None:
    if str(model).endswith(".gguf"):
        pytest.importorskip("llama_cpp")
    check(run(str(model), ATTACKS, keys=keys, seconds=2.0))


def test_the_table_has_the_attacks_that_were_seen_and_a_hundred_more() -> None:
    assert len(ATTACKS) >= 120
    assert len({one.name for one in ATTACKS}) == len(ATTACKS)
    assert len(encoded(doubling(30))) < 6000, "such a request takes a few kilobytes"
