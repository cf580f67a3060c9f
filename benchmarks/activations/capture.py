"""Tokens per second with the response positions of all layers captured and written to a store, against without.

Both alternate in one process; time is CPU time of the process, the writer's thread included. Models: the demo one, and
one of about 100 M parameters with random weights, made here.
"""

from __future__ import annotations

import shutil
import statistics
import tempfile
from pathlib import Path

import espalier
from benchmarks.figures import note
from benchmarks.harness import Table, in_turns, ratio, timed
from benchmarks.random_llama import random_llama
from espalier.activations.store.base import ActivationStore
from espalier.activations.store.writer import QueuedWriter
from espalier.wiring import demo_model

TOKENS = {"demo": {1: 128, 8: 128}, "random": {1: 32, 8: 16}}
ROUNDS = 7
ASKED = espalier.Activations(positions="response")


def make_model(folder: Path) -> int:
    """A Llama with random weights and the demo model's tokenizer. Returns its parameters."""
    made = random_llama(
        vocab_size=2304,
        num_hidden_layers=14,
        max_position_embeddings=1024,
        tie_word_embeddings=True,
        bos_token_id=0,
        eos_token_id=2,
        pad_token_id=0,
    )
    made.save_pretrained(folder)
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        shutil.copy(demo_model() / name, folder)
    return sum(one.numel() for one in made.parameters())


def compare(engine: espalier.LoadedEngine, batch: int, tokens: int, writer: QueuedWriter) -> tuple[float, float, float]:
    """Tokens/s without and with, and the median of the rounds' ratios."""

    def generate(asked: espalier.Activations | None) -> int:
        prompts = [f"Number {number}" for number in range(batch)]
        results = engine.generate(prompts, max_tokens=tokens, ignore_eos=True, seed=1, trace="off", activations=asked)
        for one in results:
            if one.activations is not None:
                writer.put(one.activations)
        writer.flush()
        return sum(len(one.token_ids) for one in results)

    def speed(asked: espalier.Activations | None) -> float:
        count, spent = timed(lambda: generate(asked))
        return count / spent * 1e3

    found = in_turns({"without": lambda _: speed(None), "captured": lambda _: speed(ASKED)}, ROUNDS)
    without, captured = found.values()
    return statistics.median(without), statistics.median(captured), ratio(captured, without)


def main() -> None:
    table = Table({"model": "<12", "batch": ">6", "tokens/s": ">10.1f", "captured": ">10.1f", "ratio": ">7.3f"})
    with tempfile.TemporaryDirectory() as folder:
        random_model = Path(folder) / "random"
        millions = make_model(random_model) // 1_000_000
        for name, path in (("demo", demo_model()), (f"random {millions} M", random_model)):
            with (
                espalier.load(str(path)) as engine,
                ActivationStore(Path(folder) / f"{name}-store", write=True) as store,
                QueuedWriter(store) as writer,
            ):
                for batch, tokens in TOKENS[name.partition(" ")[0]].items():
                    without, captured, share = compare(engine, batch, tokens, writer)
                    speeds = {"captured": captured, "without": without}
                    note("Activations", f"{name}, batch of {batch}", "tok/s", speeds, more_is_better=True)
                    table.row(name, batch, without, captured, share)


if __name__ == "__main__":
    main()
