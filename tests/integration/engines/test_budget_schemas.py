"""Schemas from the wild with small limits: every closed text validates, or the request is refused at the start."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from jsonschema.validators import validator_for

from espalier import JsonSchema, Vocab
from espalier.api import make_request
from espalier.engines.fake import FakeStepModel, noise
from espalier.engines.local.engine import LocalEngine
from espalier.errors import InputError, UnsupportedError

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[3]
REAL = ROOT.parent / "shared" / "data" / "jsonschemabench-dev.jsonl.gz"
PARTS, EACH = 4, 10
"""`python -m benchmarks budget` takes 500 schemas."""


@pytest.mark.skipif(not REAL.exists(), reason="the schemas from the wild are not here")
@pytest.mark.parametrize("part", range(PARTS))
def test_every_text_that_is_closed_validates(part):
    vocab = Vocab.from_tokenizer(str(ROOT / "models" / "demo"))
    model = FakeStepModel(lambda tokens: noise(tokens, vocab.width), width=vocab.width)
    engine = LocalEngine(name="noise", model=model, vocab=vocab, encode=lambda text, *, add_special: [0])
    with gzip.open(REAL, "rt", encoding="utf-8") as file:
        rows = [json.loads(line) for line in file][part :: 600 // EACH][:EACH]
    closed = 0
    for row in rows:
        schema = row["schema"]
        judge = validator_for(schema)(schema)
        for limit in (16, 48, 96):
            request = make_request(
                "x",
                constraint=JsonSchema(schema),
                max_tokens=limit,
                on_budget="close",
                seed=part,
                trace="off",
                raw=True,
                temperature=1.0,
                top_k=0,
            )
            try:
                *_, finished = engine.run([request])
            except (InputError, UnsupportedError):
                continue  # nothing was generated: neither is raised later than at the start
            assert judge.is_valid(json.loads(finished.result.text)), (row["id"], limit, finished.result.text)
            assert len(finished.result.token_ids) <= limit
            closed += finished.result.closed_by_budget
    assert closed > EACH // 2
