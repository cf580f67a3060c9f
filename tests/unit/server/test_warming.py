"""What a server does once before it answers, so that no request pays for it."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytest.importorskip("fastapi")

from tests.server_process import ROOT, clean_environment

PROGRAM = """
import gc
import threading
from numba.core.dispatcher import Dispatcher
from espalier.server.process.opening import _warm
from tests.server_app import client, fake_engine

def loaded():
    kernels = [one for one in gc.get_objects() if isinstance(one, Dispatcher)]
    return {f"{one.py_func.__module__}.{one.py_func.__name__}": len(one.signatures) for one in kernels}

engine = fake_engine('{"name": "b"}')
_warm(engine)
for one in threading.enumerate():
    if one.name == "espalier-filters":
        one.join()
before = loaded()
assert before
schema = {"type": "object", "properties": {"name": {"enum": ["a", "b"]}}, "additionalProperties": False}
with client(engine=engine) as http:
    for more in ({"json_schema": schema}, {"structured_outputs": {"regex": "[a-z]+"}}, {}):
        for ours in ({}, {"trace": "summary"}, {"trace": "steps"}):
            body = {"prompt": "x", "max_tokens": 9, "seed": 1, "espalier": ours, **more}
            assert http.post("/v1/completions", json=body).status_code == 200
            assert http.post("/v1/completions", json=body | {"temperature": 0}).status_code == 200
later = loaded()
print([name for name, count in later.items() if count != before.get(name, 0)])
"""

LONG_ROWS = """
import gc
import itertools
import threading
from numba.core.dispatcher import Dispatcher
import espalier
from espalier import Regex
from espalier.chat.prompt.template import ChatTemplate
from espalier.decoding.options import FAITHFUL
from espalier.decoding.strategies import STRATEGIES
from espalier.engines.fake import TEMPLATE, FakeStepModel, noise
from espalier.engines.local.engine import LocalEngine
from espalier.cli.doctor import GROUPS
from espalier.server.process.opening import _warm
from espalier.tokens.vocab import Vocab

WIDTH = 32000
passes = 0

class Counting(FakeStepModel):
    def extend(self, work):
        global passes
        passes += 1
        return super().extend(work)

def loaded():
    found = [one for one in gc.get_objects() if isinstance(one, Dispatcher)]
    return {f"{one.py_func.__module__}.{one.py_func.__name__}": len(one.signatures) for one in found}

more = [b"%d" % one for one in range(257, WIDTH)]
vocab = Vocab.from_tokens([*(bytes([b]) for b in range(256)), b"", *more], eos_ids=[256])
engine = espalier.LoadedEngine(LocalEngine(
    name="wide", model=Counting(lambda tokens: noise(tokens, WIDTH), width=WIDTH), vocab=vocab,
    encode=lambda text, *, add_special: [*text.encode()], template=ChatTemplate(TEMPLATE),
))
WARM
used = passes
for one in threading.enumerate():
    if one.name == "espalier-filters":
        one.join()
before = loaded()
assert before
neutral = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0, "repetition_penalty": 1.0}
samplers = (
    {"temperature": 0.0}, {"top_p": 0.9, "top_k": 0, "dry_multiplier": 0.8}, {"top_p": 0.9, "typical_p": 0.9},
    {"top_k": 5, "min_p": 0.05, "repetition_penalty": 1.2}, {"mirostat": 2}, {"temperature": 0.7},
)
constraints = None, Regex("[a-z ]{9,}")
for sampler, constraint, trace in itertools.product(samplers, constraints, ("off", "summary", "steps", "full")):
    for strategy in ("mask", "rejection"):
        made = engine.generate("abcabcabc", raw=True, max_tokens=3, seed=1, constraint=constraint, trace=trace,
                               strategy=strategy, **neutral | sampler)
        if made.trace is not None:
            made.trace.to_json()
for strategy in STRATEGIES.names():
    more = {"num_beams": 3} if strategy == "beam" else {"particles": 3} if strategy in FAITHFUL else {}
    engine.generate("abc", raw=True, max_tokens=3, seed=1, constraint=constraints[1], strategy=strategy, **more)
later = loaded()
assert later["espalier.sampling.fast.kernels.rows.draw_row"]
print(used, [name for name, count in later.items() if count != before.get(name, 0)])
"""


@pytest.mark.slow
@pytest.mark.parametrize(("warm", "passes"), [("_warm(engine)", 2), ("[group.load() for group in GROUPS]", 0)])
def test_the_first_request_over_a_real_vocabulary_compiled_a_kernel(warm: str, passes: int) -> None:
    """Rows longer than 8,192 ids take other kernels than the bytes of the fake model. The start asks the model for the
    passes that warm it, and no more; an installation asks no model."""
    done = subprocess.run(
        [sys.executable, "-c", LONG_ROWS.replace("WARM", warm)],
        cwd=ROOT,
        env=clean_environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.stdout, done.returncode) == (f"{passes} []\n", 0), done.stderr


def test_the_first_request_with_a_schema_was_refused_since_it_compiled_a_kernel() -> None:
    """After an installation that took seconds of a step that may take half a second."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], cwd=ROOT, env=clean_environment(), capture_output=True, text=True, check=False
    )
    assert (done.stdout, done.returncode) == ("[]\n", 0), done.stderr
