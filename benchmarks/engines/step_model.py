"""Tokens per second of a bare greedy loop over our StepModel against `model.generate`, greedy, interleaved rounds.

No chain, no constraint, no trace: what is left is the cost of the cache and of our side of a forward pass. Ratios
are medians of rounds, each round against its neighbour, by the clock and by CPU time: on a busy machine the second
is steadier. `python -m benchmarks.engines.step_model [--threads N] [--rounds N]`
"""

import argparse
import time
from collections.abc import Callable
from pathlib import Path

import torch
import transformers

from benchmarks.harness import in_turns, medians, ratio, timed
from benchmarks.random_llama import random_llama
from espalier.decoding.ports import Extend
from espalier.engines.huggingface.model import TransformersStepModel

DEMO = Path(__file__).parents[2] / "models" / "demo"


def main(rounds: int = 9) -> None:
    print(f"{torch.get_num_threads()} threads, medians of {rounds} rounds")
    if (DEMO / "config.json").is_file():
        demo = transformers.AutoModelForCausalLM.from_pretrained(DEMO, dtype=torch.float32).eval()
        compare("demo model", demo, rows=1, new=128, rounds=rounds)
        compare("demo model, 8 rows", demo, rows=8, new=64, rounds=rounds)
    big = random_llama(num_hidden_layers=12, num_key_value_heads=4, tie_word_embeddings=True)
    compare("random Llama", big, rows=1, new=24, rounds=rounds)
    compare("random Llama, 8 rows", big, rows=8, new=8, rounds=rounds)


def compare(title: str, model: transformers.PreTrainedModel, *, rows: int, new: int, rounds: int) -> None:
    model.generation_config.eos_token_id = None  # so that nothing ends early
    model.generation_config.pad_token_id = 0
    step = TransformersStepModel(model)
    generator = torch.Generator().manual_seed(0)
    prompts = torch.randint(0, step.width, (rows, 32), generator=generator)  # (rows, 32) int64

    def ours() -> list[list[int]]:
        sequences = [step.new() for _ in range(rows)]
        tokens = [tuple(prompt) for prompt in prompts.tolist()]
        said: list[list[int]] = [[] for _ in range(rows)]
        for _ in range(new):
            work = [Extend(sequence=s, tokens=t) for s, t in zip(sequences, tokens, strict=True)]
            for line, logits in zip(said, step.extend(work), strict=True):
                line.append(int(logits[0].argmax()))
            tokens = [(line[-1],) for line in said]
        for sequence in sequences:
            step.free(sequence)
        return said

    def theirs() -> list[list[int]]:
        mask = torch.ones_like(prompts)
        out = model.generate(prompts, attention_mask=mask, do_sample=False, max_new_tokens=new)
        return [line[32:] for line in out.tolist()]

    same = sum(a == b for a, b in zip(ours(), theirs(), strict=True))  # and both are warm now

    def spent(run: Callable[[], object]) -> tuple[float, float]:
        cpu, by_clock = timed(lambda: timed(run)[1], time.perf_counter)
        return by_clock / 1e3, cpu / 1e3

    times = in_turns({"ours": lambda _: spent(ours), "generate": lambda _: spent(theirs)}, rounds)
    parameters = sum(p.numel() for p in model.parameters())
    print(f"{title}: {parameters / 1e6:.1f} M parameters, {new} tokens a row, {same}/{rows} rows equal")
    for name, rows_of_times in times.items():
        print(f"  {name:<12}{rows * new / medians(rows_of_times)[0]:9.1f} tok/s")
    sides = {name: list(zip(*found, strict=True)) for name, found in times.items()}
    by_clock, by_cpu = (ratio(sides["generate"][side], sides["ours"][side]) for side in (0, 1))
    print(f"  ours / generate: {by_clock:.2f} by the clock, {by_cpu:.2f} by CPU time")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--threads", type=int, help="by default torch's own choice")
    parser.add_argument("--rounds", type=int, default=9)
    arguments = parser.parse_args()
    if arguments.threads:
        torch.set_num_threads(arguments.threads)
    main(arguments.rounds)
