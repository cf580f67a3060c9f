"""JSON that is valid under a schema, as a Python value, and what it cost the model."""

from dataclasses import dataclass

import espalier


@dataclass
class User:
    name: str
    email: str
    age: int


with espalier.load("models/demo") as engine:
    result = engine.generate("Generate user info", constraint=espalier.JsonSchema(User), seed=2)
    print(result.parsed)
    print(result)
