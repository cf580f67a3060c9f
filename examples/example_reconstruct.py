"""From hidden states to judged answers on the demo model: capture, rebuild the inference file, judge it.

python examples/example_reconstruct.py [--folder out]
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import espalier
from espalier.activations.reconstruct.run import reconstruct
from espalier.activations.store.base import ActivationStore
from espalier.activations.store.writer import QueuedWriter
from espalier.harness.qa.evaluate import evaluate

QUESTIONS = (
    ("Who wrote Hamlet?", "Shakespeare"),
    ("What is the capital of France?", "Paris"),
    ("How many legs has a spider?", "eight"),
)
FORM = "user: Answer in one sentence. Q:{}\n A:"
"""What HalluLens' server sent to a model."""


def main(arguments: list[str] | None = None) -> Path:
    """Returns the path of the inference file."""
    parser = argparse.ArgumentParser(description="Capture, rebuild the inference file, judge it.")
    parser.add_argument("--folder", default="out")
    parser.add_argument("--model")
    given = parser.parse_args(arguments)
    folder = Path(given.folder)
    folder.mkdir(parents=True, exist_ok=True)
    qa, output = folder / "qa.jsonl", folder / "generation.jsonl"
    with qa.open("w", encoding="utf-8") as file:
        file.writelines(json.dumps({"prompt": prompt, "answer": answer}) + "\n" for prompt, answer in QUESTIONS)
    with (
        espalier.load(given.model) as engine,
        ActivationStore(folder / "activations", write=True) as store,
        QueuedWriter(store) as writer,
    ):
        prompts = [FORM.format(prompt) for prompt, _ in QUESTIONS]
        for result in engine.generate(prompts, raw=True, max_tokens=24, seed=1, activations=True):
            if result.activations is not None:
                writer.put(result.activations)
    report = reconstruct(qa, folder / "activations", output)
    print(f"{report.written} of {report.rows} rows rebuilt from the layout {report.layout}")
    for name, one in evaluate(str(output)).means.items():
        print(f"{name}: {one.mean}")
    return output


if __name__ == "__main__":
    main()
