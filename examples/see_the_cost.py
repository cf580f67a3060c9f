"""Where a constraint costs: the tax of each part of the document, and a page that shows every token."""

import json
from pathlib import Path

import espalier

schema = json.loads(Path("examples/user.schema.json").read_text(encoding="utf-8"))
with espalier.load("models/demo") as engine:
    result = engine.generate("Generate user info", constraint=espalier.JsonSchema(schema), seed=2)
    assert result.trace is not None  # `trace="off"` alone keeps none
    print(result.trace.by_path())
    result.trace.save("see_the_cost.html")
    print("see_the_cost.html shows each token: what the model wanted, what was allowed, what was taken")
