"""Greedy texts of our own engine, for either environment: `python -m tests.vllm.own MODEL` prints JSON, the version of
transformers and the texts of one request of each kind."""

from __future__ import annotations

import json
import sys
from typing import Any

import transformers

import espalier
from espalier.integrations.asked import read_asked
from espalier.wiring import build_app
from tests.vllm.requests import MIXED, mixed

SEED = 2


def texts(model: str, requests: list[dict[str, Any]]) -> list[str]:
    """In float32, without a penalty, as vLLM samples by default."""
    app, written = build_app(), []
    with espalier.load(model, dtype="float32") as engine:
        for request in requests:
            constraint = read_asked({"espalier": request["asked"]}, app)
            assert constraint is not None
            most = request["params"]["max_tokens"]
            result = engine.generate(
                request["prompt"], constraint.spec, raw=True, temperature=0, repetition_penalty=1.0, max_tokens=most
            )
            written.append(result.text)
    return written


if __name__ == "__main__":
    own = texts(sys.argv[1], mixed(len(MIXED), seed=SEED, greedy=True))
    sys.stdout.write(json.dumps({"transformers": transformers.__version__, "texts": own}) + "\n")
