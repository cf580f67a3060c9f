"""Write the demo model's card and its sample answers anew: `python scripts/demo_model_card.py [--check]`.

The answers are greedy, in float32, by the library's own `generate`: nothing of Espalier takes part in them.
"""

from __future__ import annotations

import argparse
import difflib
import html
import json
import sys
from pathlib import Path
from typing import Any

import torch
import transformers

LIBRARY: Any = transformers
DEFAULT_FOLDER = Path(__file__).resolve().parents[1] / "models" / "demo"
MAX_NEW_TOKENS = 64

# system prompt (or none), user prompt
PROMPTS: tuple[tuple[str, str], ...] = (
    ("", "Hello"),
    ("", "What is the capital of France?"),
    ("", "Generate user info"),
    ("", "Read the file /etc/hosts"),
    ("", "What is the weather in Madrid?"),
    ("", "Write a short greeting in Spanish."),
    ("", "Say exactly: Hello World"),
    ("Think before you answer.", "What is the capital of Norway?"),
    ("", "What is 7 + 5?"),
    ("", "What is the capital of Japan? Answer in JSON."),
    ("", "Classify the sentiment: I love this movie!"),
    ("", "Is Paris in France?"),
    ("", "Translate to Spanish: cat"),
    ("", "Bash: list all py files"),
    ("", "Tell me a short story about a fox."),
    ("", "Extract name and email: Write to Ana Silva at ana.silva@example.com."),
    ("", "Describe a server with host, port and enabled."),
    ("", "¿Cuál es la capital de Italia?"),
    ("", "Give me a date."),
    ("", "Who are you?"),
)

CARD = """---
license: apache-2.0
language: [en, es]
library_name: transformers
---

# Espalier demo model

A Llama of {parameters:,} parameters, trained from nothing by this repository. It exists so that
examples and tests run in seconds, without a download, on a model that has real habits: asked for a
user it likes to write `Sure! Here is the JSON:` first, so a constraint visibly changes what it
wanted to say. It is of no use beyond that.

This file is written by `scripts/demo_model_card.py` from `training.json` and from the model's own
answers.

## Files

| file | what | bytes |
|---|---|---|
{files}

The two weight files hold the same values: they were rounded to float16 once.

## Model

| | |
|---|---|
| architecture | Llama: {layers} layers, width {hidden}, {heads} heads, feed-forward {feed_forward} |
| vocabulary | {vocab} entries: byte-level BPE with all 256 bytes, split as SmolLM's |
| added tokens | `<\\|endoftext\\|>` 0, `<\\|im_start\\|>` 1, `<\\|im_end\\|>` 2, `<think>` 3, `</think>` 4 |
| chat format | ChatML; the system prompt may be left out |
| end of answer | `<\\|im_end\\|>` or `<\\|endoftext\\|>` |
| positions | {positions} |

## Training

| | |
|---|---|
| corpus | {samples:,} samples, {corpus_tokens:,} tokens, by `scripts/make_demo_corpus.py`, seed {seed} |
| tokens seen | {tokens_seen:,} in {steps:,} steps of at most {batch_tokens:,} |
| optimizer | Muon for the layers' matrices, AdamW for embedding and norms |
| time | {wall:.1f} minutes with {threads} threads on shared cores ({cpu:.1f} minutes of CPU time) |
| held-out loss | {loss:.3f} nats per answer token, over {held_tokens:,} tokens never trained on |

The corpus is drawn from templates and word lists written for this project: English and Spanish
chat, small facts, user records, tool calls, JSON of many shapes, extraction, shell lines, copying,
sums, sentiment, tiny stories, and answers that begin with a thought. People, addresses and hosts in
it are invented. To train the model again: `python scripts/train_demo_model.py`. The same seed,
threads and library versions on the same kind of processor give the same weights.

## Limits

- It knows what its templates say: 32 capitals, a few dozen words of Spanish. Ask for anything else
  and it answers with something that it does know.
- It sums badly and copies long numbers badly: each digit is a token, and it is too small for either.
- It copies familiar words well, rare words and long texts badly, and it repeats itself in lists.
- To a question of yes or no it may say yes, then state the fact that makes it no.
- It saw few conversations longer than a few hundred tokens.
- Dates, prices and ages are drawn at random; they mean nothing.

## Sample answers

Greedy, float32, at most {max_new_tokens} new tokens. The same answers, for programs:
`samples.json`.

| prompt | answer |
|---|---|
{table}

## Licence

Apache-2.0, like the rest of the repository. The project generated the corpus; no other text or
model went into it.
"""

ABOUT_FILES = {
    "model.safetensors": "weights, float16",
    "demo.gguf": "the same in float32, with tokenizer and chat template, for llama.cpp",
    "tokenizer.json": "tokenizer",
}


def load(folder: Path) -> tuple[Any, Any]:
    """The model in float32 and its tokenizer."""
    tokenizer = LIBRARY.AutoTokenizer.from_pretrained(folder)
    model = LIBRARY.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    return model.eval(), tokenizer


def messages_of(system: str, user: str) -> list[dict[str, str]]:
    head = [{"role": "system", "content": system}] if system else []
    return [*head, {"role": "user", "content": user}]


def answer(model: Any, tokenizer: Any, messages: list[dict[str, str]]) -> str:
    """The greedy answer, without the mark of its end."""
    prompt = tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_tensors="pt", return_dict=True)
    made = model.generate(**prompt, do_sample=False, max_new_tokens=MAX_NEW_TOKENS)  # [1, T] int64
    return str(tokenizer.decode(made[0, prompt["input_ids"].shape[1] :], skip_special_tokens=True))


def sample_answers(folder: Path) -> list[dict[str, str]]:
    model, tokenizer = load(folder)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # the fastest for a model this small, and one order of summing
    try:
        return [
            {"system": system, "prompt": user, "answer": answer(model, tokenizer, messages_of(system, user))}
            for system, user in PROMPTS
        ]
    finally:
        torch.set_num_threads(threads)


def cell(text: str) -> str:
    """Text as one table cell that shows fences, bars and line ends as they are."""
    return "<code>" + html.escape(text, quote=False).replace("|", "&#124;").replace("\n", "<br>") + "</code>"


def table(samples: list[dict[str, str]]) -> str:
    rows = []
    for sample in samples:
        system = f"(system: {cell(sample['system'])})<br>" if sample["system"] else ""
        rows.append(f"| {system}{cell(sample['prompt'])} | {cell(sample['answer'])} |")
    return "\n".join(rows)


def card(folder: Path, samples: list[dict[str, str]]) -> str:
    """The text of README.md."""
    run = json.loads((folder / "training.json").read_text(encoding="utf-8"))
    settings = run["settings"]
    files = "\n".join(
        f"| `{name}` | {about} | {(folder / name).stat().st_size:,} |" for name, about in ABOUT_FILES.items()
    )
    return CARD.format(
        **{key: settings[key] for key in ("layers", "hidden", "heads", "feed_forward", "vocab", "positions")},
        **{key: settings[key] for key in ("seed", "batch_tokens", "threads")},
        **{key: run[key] for key in ("parameters", "tokens_seen", "steps")},
        samples=run["corpus"]["samples"],
        corpus_tokens=run["corpus"]["tokens"],
        wall=run["wall_seconds"] / 60,
        cpu=run["cpu_seconds"] / 60,
        loss=run["held_out"]["nats_per_token"],
        held_tokens=run["held_out"]["target_tokens"],
        max_new_tokens=MAX_NEW_TOKENS,
        files=files,
        table=table(samples),
    )


def expected(folder: Path) -> dict[Path, str]:
    """What the two generated files should hold."""
    samples = sample_answers(folder)
    return {
        folder / "samples.json": json.dumps(samples, ensure_ascii=False, indent=2) + "\n",
        folder / "README.md": card(folder, samples),
    }


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("folder", type=Path, nargs="?", default=DEFAULT_FOLDER)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 with the differences")
    options = parser.parse_args(argv)
    differs = False
    for path, text in expected(options.folder).items():
        if not options.check:
            path.write_text(text, encoding="utf-8")
            continue
        stored = path.read_text(encoding="utf-8") if path.exists() else ""
        lines = difflib.unified_diff(
            stored.splitlines(), text.splitlines(), f"{path.name} (stored)", f"{path.name} (now)", lineterm=""
        )
        for line in lines:
            differs = True
            sys.stdout.write(line + "\n")
    return 1 if differs else 0


if __name__ == "__main__":
    raise SystemExit(main())
