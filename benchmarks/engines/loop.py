"""Tokens per second of our whole loop against `model.generate`, greedy, the same ids, interleaved rounds.

Two models: the bundled one, and a random Llama of about 100 M parameters. Unconstrained with no trace against
`generate` with no processor; then what a constraint and a full trace cost on top.
"""

import statistics
import time
from collections.abc import Callable

import torch
import transformers

import espalier
from benchmarks.figures import note
from benchmarks.harness import in_turns, timed
from benchmarks.random_llama import random_llama
from espalier.engines.huggingface.model import TransformersStepModel
from espalier.engines.local.engine import LocalEngine
from espalier.integrations.transformers import ConstraintLogitsProcessor
from espalier.wiring import demo_model

ROUNDS = 7
SCHEMA = {"type": "array", "items": {"type": "integer"}, "minItems": 300}  # long enough not to end


def main() -> None:
    path = str(demo_model())
    model = transformers.AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32).eval()
    with espalier.load(path) as engine:
        tokenizer = transformers.AutoTokenizer.from_pretrained(path)
        compare("demo model", engine, model, tokenizer, new=128)
        big = random_llama(pad_token_id=0, tie_word_embeddings=False)
        step_model = TransformersStepModel(big)
        encode = lambda text, *, add_special: tokenizer(text, add_special_tokens=add_special)["input_ids"]  # noqa: E731
        vocab = espalier.Vocab.from_tokenizer(tokenizer, width=step_model.width)
        local = LocalEngine(name="random 100M", model=step_model, vocab=vocab, encode=encode)
        compare("random Llama, 100 M", espalier.LoadedEngine(local), big, tokenizer, new=32)


def compare(title, engine, model, tokenizer, *, new: int) -> None:  # type: ignore[no-untyped-def]
    prompt = "Write a long list of numbers, please."
    parameters = sum(p.numel() for p in model.parameters())
    ids = torch.tensor([engine.engine._encode(prompt, add_special=True)])
    spec = espalier.JsonSchema(SCHEMA)
    options = {"raw": True, "temperature": 0, "max_tokens": new}

    def theirs(processors: list) -> int:  # type: ignore[type-arg]
        with torch.inference_mode():
            out = model.generate(
                ids,
                attention_mask=torch.ones_like(ids),
                do_sample=False,
                max_new_tokens=new,
                min_new_tokens=new,
                pad_token_id=0,
                logits_processor=processors,
            )
        return int(out.shape[1] - ids.shape[1])

    def processor() -> list[ConstraintLogitsProcessor]:
        return [ConstraintLogitsProcessor(engine.engine.compiler.compile(spec))]

    runs: dict[str, Callable[[], int]] = {
        "generate": lambda: theirs([]),
        "ours": lambda: len(engine.generate(prompt, trace="off", ignore_eos=True, **options).token_ids),
        "ours, full trace": lambda: len(engine.generate(prompt, ignore_eos=True, **options).token_ids),
        "generate + processor": lambda: theirs(processor()),
        "ours, constrained": lambda: len(engine.generate(prompt, constraint=spec, trace="off", **options).token_ids),
        "ours, constrained, full trace": lambda: len(engine.generate(prompt, constraint=spec, **options).token_ids),
    }

    def speed(run: Callable[[], int]) -> float:
        count, spent = timed(run, time.perf_counter)
        return count / spent * 1e3

    speeds = in_turns({name: lambda _, run=run: speed(run) for name, run in runs.items()}, ROUNDS)
    base = statistics.median(speeds["generate"])
    print(f"{title}: {parameters / 1e6:.1f} M parameters, {new} tokens, medians of {ROUNDS}")
    middles = {name: statistics.median(values) for name, values in speeds.items()}
    for mine, other in (
        ("ours", "generate"),
        ("ours, constrained", "generate + processor"),
        ("ours, full trace", "ours"),
    ):
        values = {mine: middles[mine], other: middles[other]}
        note("Tokens per second beside transformers", f"{title}: {mine}", "tok/s", values, more_is_better=True)
    for name, median in middles.items():
        print(f"  {name:<32}{median:8.1f} tok/s   {median / base:5.2f} x generate")


if __name__ == "__main__":
    main()
