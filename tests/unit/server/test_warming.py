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


def test_the_first_request_with_a_schema_was_refused_since_it_compiled_a_kernel() -> None:
    """After an installation that took seconds of a step that may take half a second."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], cwd=ROOT, env=clean_environment(), capture_output=True, text=True, check=False
    )
    assert (done.stdout, done.returncode) == ("[]\n", 0), done.stderr
