"""What every server is asked: one schema whose texts never end early, the same sampling, prompts that share nothing."""

from __future__ import annotations

from typing import Any

from benchmarks.record import RECORD

SAMPLING: dict[str, Any] = {"temperature": 0.8, "top_k": 40, "top_p": 0.95, "min_p": 0.05}  # llama.cpp's own
SCHEMA: dict[str, Any] = {
    "type": "array",
    "minItems": 50,  # so that no text ends before it is cut
    "items": RECORD,
}


def prompt(burst: int, number: int) -> str:
    """A prompt of its own, different from its beginning on."""
    return f"{100 * burst + number} people: tell me about their accounts, and write down what each of them is called."
