"""Keep texts out of an answer: a phrase of your own, and what the safety filter knows as a credential."""

import espalier

constraint = espalier.AllOf(espalier.JsonObject(), espalier.Ban(["example.com"]))
with espalier.load("models/demo") as engine:
    result = engine.generate("Generate user info", constraint=constraint, safety="minimal", seed=1, max_tokens=120)
    print(result.text)
    assert "example.com" not in result.text
