"""Write the example that the playground opens with: a run of the demo model with the schema of the form and without it.

    python scripts/playground_example.py

Floats are rounded, so that the file is the same on another machine.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import espalier

ROOT = Path(__file__).resolve().parents[1]
PAGES = ROOT / "src" / "espalier" / "pages"
SEED = 6
"""Also the first seed of the form (`form.js`): one at which the model writes something else without the schema."""
PROMPT = "Generate user info"
CANDIDATES = 8
"""Of each stage of a step."""


def form_schema() -> str:
    """The schema that the form begins with."""
    found = re.search(r"  json: `(.*?)`", (PAGES / "form.js").read_text("utf-8"), re.DOTALL)
    if found is None:
        raise SystemExit("form.js has no example of a schema")
    return found[1]


def build_example(engine: Any) -> dict[str, Any]:
    """The example as JSON. engine: of the demo model."""
    common = {"seed": SEED, "max_tokens": 200}
    constrained = engine.generate(
        PROMPT, constraint=espalier.JsonSchema(json.loads(form_schema())), trace="steps", **common
    )
    free = engine.generate(PROMPT, **common)
    trace = constrained.trace.to_json()
    for step in trace["steps"]:
        for stage in ("pre_masking", "post_grammar", "post_chain"):
            step[stage] = step[stage][:CANDIDATES]
    wanted = {"steps": trace["steps"], "text": constrained.text, "verdict": trace["metadata"]["verdict"]}
    return round_floats(
        wanted
        | {
            "finish_reason": constrained.finish_reason,
            "seed": SEED,
            "prompt": PROMPT,
            "free": {"text": free.text, "finish_reason": free.finish_reason, "tokens": free.usage.completion_tokens},
        }
    )


def round_floats(value: Any) -> Any:
    """The value with floats of four significant digits."""
    if isinstance(value, float):
        return float(f"{value:.4g}")
    if isinstance(value, dict):
        return {name: round_floats(member) for name, member in value.items()}
    return [round_floats(member) for member in value] if isinstance(value, list | tuple) else value


def main() -> None:
    with espalier.load(str(ROOT / "models" / "demo")) as engine:
        example = build_example(engine)
    (PAGES / "example.json").write_text(json.dumps(example, separators=(",", ":"), ensure_ascii=False) + "\n", "utf-8")


if __name__ == "__main__":
    main()
