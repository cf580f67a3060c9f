"""No kernel is compiled or loaded within a text: what a constraint needs is loaded when it is compiled."""

from __future__ import annotations

import subprocess
import sys

from tests.server_process import ROOT, clean_environment

PROGRAM = """
import gc
from typing import Any
from numba.core.dispatcher import Dispatcher
import espalier
from espalier import AllOf, Choice, Gbnf, JsonObject, JsonSchema, Regex, Safety, Wordlist
from espalier.chat.prompt.template import ChatTemplate
from espalier.engines.fake import TEMPLATE, FakeStepModel, noise
from espalier.engines.local.engine import LocalEngine
from espalier.tokens.vocab import Vocab

WIDTH = 12000

def signatures():
    kernels = [each for each in gc.get_objects() if isinstance(each, Dispatcher)]
    return {f"{each.py_func.__module__}.{each.py_func.__name__}": len(each.signatures) for each in kernels}

class Watching(FakeStepModel):
    before = None

    def extend(self, work):
        if self.before is None:
            self.before = signatures()
        return super().extend(work)

more = [b"%d" % number for number in range(257, WIDTH)]
vocab = Vocab.from_tokens([*(bytes([byte]) for byte in range(256)), b"", *more], eos_ids=[256])
model = Watching(lambda tokens: noise(tokens, WIDTH), width=WIDTH)
engine = espalier.LoadedEngine(LocalEngine(
    name="watched", model=model, vocab=vocab, encode=lambda text, *, add_special: [*text.encode()],
    template=ChatTemplate(TEMPLATE),
))
item = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "string"}}, "required": ["a"]}
array = {"type": "array", "items": item, "uniqueItems": True, "maxItems": 4}
tool = {"type": "function", "function": {"name": "look", "parameters": {"properties": {"city": {"type": "string"}}}}}
schema = JsonSchema({"type": "object", "properties": {"a": array, "c": {"enum": ["x", 1, None]}}, "required": ["a"]})
safety = Safety("standard")
texts: dict[str, dict[str, Any]] = {
    "regex": {"constraint": Regex("[a-z]{4,9}")},
    "gbnf": {"constraint": Gbnf('root ::= "(" root ")" | "a"')},
    "choices": {"constraint": Choice(["yes", "no", "perhaps"])},
    "json object": {"constraint": JsonObject()},
    "schema": {"constraint": schema},
    "numbers": {"constraint": JsonSchema({"type": "array", "items": {"type": "number"}, "uniqueItems": True})},
    "budget": {"constraint": schema, "max_tokens": 60, "on_budget": "close"},
    "words": {"constraint": Wordlist(["the", "quick", "fox", "jumps"])},
    "tools": {"tools": [tool], "tool_choice": "required"},
    "safety": {"constraint": safety},
    "all": {"constraint": AllOf(schema, safety)},
    "rejections": {"constraint": schema, "strategy": "rejection", "trace": "full"},
    "summary": {"constraint": schema, "trace": "summary", "temperature": 0.0},
    "beam": {"constraint": Regex("[a-z]{4,9}"), "strategy": "beam", "num_beams": 3},
    "repeats": {"constraint": Regex("[ab]{20,30}"), "dry_multiplier": 0.8, "typical_p": 0.9},
    "free": {"trace": "steps"},
}
for name, options in texts.items():
    model.before = None
    result = engine.generate("abcabcabc", **{"max_tokens": 40, "seed": 1, "raw": "tools" not in options, **options})
    if result.trace is not None:
        result.trace.to_json()
    assert model.before, name
    later = {kernel: count for kernel, count in signatures().items() if count != model.before.get(kernel, 0)}
    if later:
        print(name, sorted(later))
"""


def test_the_first_text_of_a_constraint_compiled_a_kernel_at_a_step() -> None:
    """Single steps took 310 to 770 ms, where a kernel was compiled or read from disk."""
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM], cwd=ROOT, env=clean_environment(), capture_output=True, text=True, check=False
    )
    assert (run.stdout, run.returncode) == ("", 0), run.stderr
