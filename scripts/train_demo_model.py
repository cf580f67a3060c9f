"""Train the bundled demo model from nothing: `python scripts/train_demo_model.py --out models/demo`.

With `--draft` it trains the small model beside it, which drafts for it: `models/demo-draft`, with the tokenizer of
`models/demo`.
The schedule counts tokens, never seconds, so a busy machine gives the same model, later.
"""

from __future__ import annotations

import argparse
import json
import os
import time
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
# Threads that spin slow each other down on a busy machine; those that never do wake late on an idle one.
os.environ.setdefault("GOMP_SPINCOUNT", "20000")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")

import torch
import transformers
from torch.nn.functional import cross_entropy

from demo_corpus import Sample, corpus
from export_demo_gguf import export
from make_demo_corpus import DEFAULT_SAMPLES, DEFAULT_SEED
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

END_OF_TEXT, IM_START, IM_END = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
THINK, END_THINK = "<think>", "</think>"
ADDED = (END_OF_TEXT, IM_START, IM_END, THINK, END_THINK)
CHAT_TEMPLATE = (
    # Tools are told as in training, by their names; calls are written as they are trained. A loop joins names, since
    # llama.cpp's own Jinja knows no path as an attribute of `map`.
    "{% set names = namespace(told='') %}"
    "{% for tool in tools or [] %}"
    "{% set names.told = (names.told + ', ' if names.told else 'You can use these tools: ') + tool.function.name %}"
    "{% endfor %}"
    "{% set told = names.told + '.' if names.told else '' %}"
    "{% if told and messages[0]['role'] != 'system' %}"
    "{{ '<|im_start|>system\\n' + told + '<|im_end|>\\n' }}"
    "{% endif %}"
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\\n' + (message['content'] or '') }}"
    "{% if told and loop.first and message['role'] == 'system' %}{{ '\\n' + told }}{% endif %}"
    "{% for call in message['tool_calls'] or [] %}"
    "{{ '\\n' if message['content'] or not loop.first else '' }}"
    "{{ '{\"name\": ' + (call.function.name | tojson) + ', \"args\": ' + (call.function.arguments | tojson) + '}' }}"
    "{% endfor %}"
    "{{ '<|im_end|>' + '\\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)


@dataclass(frozen=True, kw_only=True)
class Settings:
    """All that decides the weights."""

    seed: int = DEFAULT_SEED
    samples: int = DEFAULT_SAMPLES
    tokens: int = 9_000_000
    batch_tokens: int = 3072
    vocab: int = 2304
    hidden: int = 160
    layers: int = 4
    heads: int = 5
    feed_forward: int = 448
    positions: int = 1024
    muon_rate: float = 0.02
    adam_rate: float = 4e-3
    warmup_steps: int = 60
    flat_share: float = 0.4
    threads: int = 2


DEMO = Path("models/demo")
DRAFT = Settings(samples=24_000, tokens=1_200_000, hidden=48, layers=2, heads=2, feed_forward=128, threads=1)
"""The model that drafts for the demo model."""


@dataclass(kw_only=True)
class Row:
    """One sample as token ids; `wanted[t]` says whether ids[t] is text that the model must learn to write."""

    ids: list[int]
    wanted: list[bool]


@dataclass(kw_only=True)
class Outcome:
    """A trained model and what the card tells about the run."""

    model: Any
    tokenizer: Tokenizer
    report: dict[str, Any] = field(default_factory=dict)


def pieces(sample: Sample) -> list[tuple[str, bool]]:
    """The sample's text as (text, wanted) in order; joined, it is what the chat template renders."""
    if sample.text:
        return [(sample.text + END_OF_TEXT, True)]
    made: list[tuple[str, bool]] = []
    for role, content in sample.messages:
        if role == "assistant":
            made += [(f"{IM_START}assistant\n", False), (content + IM_END, True), ("\n", False)]
        else:
            made.append((f"{IM_START}{role}\n{content}{IM_END}\n", False))
    return made


def train_tokenizer(samples: Iterable[Sample], vocab: int) -> Tokenizer:
    """Byte-level BPE with SmolLM's way to split, which llama.cpp knows by the name `smollm`."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab,
        special_tokens=list(ADDED),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    texts = (text for sample in samples for text in ([sample.text] if sample.text else [m[1] for m in sample.messages]))
    tokenizer.train_from_iterator((text.replace(THINK, "").replace(END_THINK, "") for text in texts), trainer)
    stored = json.loads(tokenizer.to_str())
    for token in stored["added_tokens"]:
        # The thinking marks must survive `skip_special_tokens`: they part the thought from the answer.
        token["special"] = token["content"] not in (THINK, END_THINK)
    return Tokenizer.from_str(json.dumps(stored))


def encode(tokenizer: Tokenizer, samples: list[Sample], positions: int) -> list[Row]:
    """Rows of at most `positions` tokens."""
    parts = [pieces(sample) for sample in samples]
    flat = tokenizer.encode_batch_fast([text for part in parts for text, _ in part], add_special_tokens=False)
    coded = iter(flat)
    rows = []
    for part in parts:
        row = Row(ids=[], wanted=[])
        for _, wanted in part:
            ids = next(coded).ids
            row.ids += ids
            row.wanted += [wanted] * len(ids)
        rows.append(Row(ids=row.ids[:positions], wanted=row.wanted[:positions]))
    return rows


def split(samples: list[Sample], every: int) -> tuple[list[Sample], list[Sample]]:
    """Hold out about one in `every` of the samples that occur once, chosen by their text."""
    counts = Counter(samples)
    kept: list[Sample] = []
    held: list[Sample] = []
    for sample in samples:
        mark = zlib.crc32(repr(sample).encode())
        (held if counts[sample] == 1 and mark % every == 0 else kept).append(sample)
    return kept, held


Batch = tuple[torch.Tensor, torch.Tensor]


def collate(rows: list[Row]) -> Batch:
    """ids [B, T] padded with 0 at the right, labels [B, T] with -100 where nothing is to be learnt."""
    width = max(len(row.ids) for row in rows)
    ids = torch.zeros(len(rows), width, dtype=torch.long)  # [B, T] int64
    labels = torch.full((len(rows), width), -100, dtype=torch.long)  # [B, T] int64
    for index, row in enumerate(rows):
        line = torch.tensor(row.ids)  # [T] int64
        ids[index, : len(line)] = line
        labels[index, : len(line)] = torch.where(torch.tensor(row.wanted), line, -100)
    return ids, labels


def bucketed(rows: list[Row], batch_tokens: int) -> list[Batch]:
    """Batches of rows of like length, at most `batch_tokens` with padding (one row at least)."""
    made: list[Batch] = []
    group: list[Row] = []
    for row in sorted(rows, key=lambda row: len(row.ids)):
        if group and (len(group) + 1) * len(row.ids) > batch_tokens:
            made.append(collate(group))
            group = []
        group.append(row)
    if group:
        made.append(collate(group))
    return made


def stream(rows: list[Row], settings: Settings) -> Iterator[Batch]:
    """Batches without end; every pass over the rows has its own order."""
    rng = Random(f"order/{settings.seed}")
    while True:
        order = list(rows)
        rng.shuffle(order)
        for start in range(0, len(order), 6000):
            batches = bucketed(order[start : start + 6000], settings.batch_tokens)
            rng.shuffle(batches)
            yield from batches


def loss_of(model: Any, batch: Batch, reduction: str = "mean") -> Any:
    """Cross entropy in nats over the wanted tokens; the output layer runs at their positions only."""
    ids, labels = batch
    hidden = model.model(input_ids=ids[:, :-1], use_cache=False).last_hidden_state  # [B, T-1, D] float32
    labels = labels[:, 1:]
    at = labels != -100  # [B, T-1] bool
    return cross_entropy(model.lm_head(hidden[at]), labels[at], reduction=reduction)


def orthogonal(stack: torch.Tensor) -> torch.Tensor:
    """Newton-Schulz: the nearest matrix with singular values about 1, for each of stack [N, R, C]."""
    a, b, c = 3.4445, -4.7750, 2.0315
    flip = stack.shape[1] > stack.shape[2]
    x: torch.Tensor = stack.transpose(1, 2) if flip else stack
    x = x / (x.norm(dim=(1, 2), keepdim=True) + 1e-7)
    for _ in range(5):
        square = x @ x.transpose(1, 2)
        x = a * x + (b * square + c * square @ square) @ x
    return x.transpose(1, 2) if flip else x


class Muon:
    """Momentum, made orthogonal, for the layers' matrices. Equal shapes go through one batched product."""

    def __init__(self, matrices: list[torch.Tensor], momentum: float = 0.95, decay: float = 0.01) -> None:
        self.groups: dict[torch.Size, list[torch.Tensor]] = {}
        for matrix in matrices:
            self.groups.setdefault(matrix.shape, []).append(matrix)
        self.speed = {shape: torch.zeros(len(group), *shape) for shape, group in self.groups.items()}
        self.momentum, self.decay = momentum, decay

    @torch.no_grad()
    def step(self, rate: float) -> None:
        for shape, group in self.groups.items():
            push = torch.stack([matrix.grad for matrix in group if matrix.grad is not None])  # [N, R, C] float32
            speed = self.speed[shape]
            speed.lerp_(push, 1 - self.momentum)
            turned = orthogonal(push.lerp(speed, self.momentum))
            scale = rate * max(1.0, shape[0] / shape[1]) ** 0.5
            for matrix, move in zip(group, turned, strict=True):
                matrix.mul_(1 - rate * self.decay).add_(move, alpha=-scale)


# The library annotates its classes in part; from here on they are untyped on purpose.
LIBRARY: Any = transformers


def build_model(settings: Settings) -> Any:
    """A Llama with random weights."""
    config = LIBRARY.LlamaConfig(
        vocab_size=settings.vocab,
        hidden_size=settings.hidden,
        intermediate_size=settings.feed_forward,
        num_hidden_layers=settings.layers,
        num_attention_heads=settings.heads,
        num_key_value_heads=settings.heads,
        head_dim=settings.hidden // settings.heads,
        max_position_embeddings=settings.positions,
        rope_parameters={"rope_type": "default", "rope_theta": 10_000.0},
        rms_norm_eps=1e-5,
        tie_word_embeddings=True,
        bos_token_id=0,
        eos_token_id=2,
        pad_token_id=0,
    )
    return LIBRARY.LlamaForCausalLM(config)


def rate_at(step: int, done: float, settings: Settings) -> float:
    """The share of the full learning rate after `step` steps and `done` (0 to 1) of the tokens."""
    warm = min(1.0, (step + 1) / settings.warmup_steps)
    fall = max(0.0, done - settings.flat_share) / (1 - settings.flat_share)
    return warm * (1 - 0.98 * min(1.0, fall))


@torch.no_grad()
def held_out_loss(model: Any, rows: list[Row]) -> dict[str, float | int]:
    total, count = 0.0, 0
    for batch in bucketed(rows, 3072):
        total += float(loss_of(model, batch, "sum"))
        count += int((batch[1][:, 1:] != -100).sum())
    return {"nats_per_token": round(total / count, 4), "target_tokens": count}


def train(settings: Settings, *, tokenizer: Tokenizer | None = None, quiet: bool = False) -> Outcome:
    """From the seed to a model; the same settings and number of threads give the same weights. tokenizer: None trains
    one."""
    torch.set_num_threads(settings.threads)
    torch.manual_seed(settings.seed)
    torch.use_deterministic_algorithms(True)
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
    started, used = time.monotonic(), time.process_time()
    samples = list(corpus(settings.seed, settings.samples))
    kept, held = split(samples, 100)
    tokenizer = train_tokenizer(kept[:20_000], settings.vocab) if tokenizer is None else tokenizer
    rows = encode(tokenizer, kept, settings.positions)
    held_rows = encode(tokenizer, held[:1000], settings.positions)
    Random(settings.seed).shuffle(rows)
    model = build_model(settings)
    hidden = [p for name, p in model.named_parameters() if p.ndim == 2 and "embed" not in name]
    others = [p for name, p in model.named_parameters() if p.ndim != 2 or "embed" in name]
    muon = Muon(hidden)
    adam = torch.optim.AdamW(others, lr=settings.adam_rate, betas=(0.9, 0.95), weight_decay=0.0)
    prepared = time.monotonic() - started
    corpus_tokens = sum(len(row.ids) for row in rows)
    if not quiet:
        print(
            f"{len(kept)} samples, {corpus_tokens} tokens, {len(held)} held out, ready in {prepared:.0f} s", flush=True
        )
    seen, step, curve = 0, 0, []
    next_look = settings.tokens // 16
    recent = 0.0
    for batch in stream(rows, settings):
        rate = rate_at(step, seen / settings.tokens, settings)
        loss = loss_of(model, batch)
        torch.autograd.backward(loss)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for group in adam.param_groups:
            group["lr"] = settings.adam_rate * rate
        muon.step(settings.muon_rate * rate)
        adam.step()
        model.zero_grad(set_to_none=True)
        # Id 0 is the padding, and the end of plain documents: one token a document goes uncounted.
        seen += int((batch[0] != 0).sum())
        step += 1
        recent = 0.98 * recent + 0.02 * loss.item() if step > 1 else loss.item()
        if not quiet and step % 50 == 0:
            spent = time.monotonic() - started
            print(f"step {step} tokens {seen} loss {recent:.3f} rate {rate:.3f} {spent:.0f} s", flush=True)
        if seen >= next_look:
            next_look += settings.tokens // 16
            held_loss = held_out_loss(model, held_rows[:300])["nats_per_token"]
            curve.append({"tokens": seen, "held_out": held_loss})
            if not quiet:
                print(f"held-out {held_loss}", flush=True)
        if seen >= settings.tokens:
            break
    report = {
        "settings": asdict(settings),
        "parameters": sum(p.numel() for p in model.parameters()),
        "corpus": {"samples": len(samples), "trained_on": len(kept), "held_out": len(held), "tokens": corpus_tokens},
        "tokens_seen": seen,
        "steps": step,
        "curve": curve,
        "wall_seconds": round(time.monotonic() - started),
        "cpu_seconds": round(time.process_time() - used),
        "torch": torch.__version__,
    }
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(parameter.half().float())  # the values that both files will hold
    report["held_out"] = held_out_loss(model, held_rows)
    return Outcome(model=model, tokenizer=tokenizer, report=report)


def save(outcome: Outcome, out: Path, *, gguf: bool = True) -> None:
    """Write the checkpoint, the tokenizer, the GGUF and `training.json` into `out`."""
    out.mkdir(parents=True, exist_ok=True)
    settings = outcome.report["settings"]
    model = outcome.model
    model.generation_config = LIBRARY.GenerationConfig(bos_token_id=0, eos_token_id=[2, 0], pad_token_id=0)
    model.half().save_pretrained(out)
    tokenizer = LIBRARY.PreTrainedTokenizerFast(
        tokenizer_object=outcome.tokenizer,
        bos_token=END_OF_TEXT,
        eos_token=IM_END,
        pad_token=END_OF_TEXT,
        model_max_length=settings["positions"],
        clean_up_tokenization_spaces=False,
        chat_template=CHAT_TEMPLATE,
    )
    tokenizer.save_pretrained(out)
    # The name that every release of the library knows; version 5 writes its own.
    stored = json.loads((out / "tokenizer_config.json").read_text(encoding="utf-8"))
    stored.pop("backend", None)
    stored["tokenizer_class"] = "PreTrainedTokenizerFast"
    (out / "tokenizer_config.json").write_text(json.dumps(stored, indent=2) + "\n", encoding="utf-8")
    (out / "model.safetensors").chmod(0o644)
    if gguf:
        export(out, out / "demo.gguf")
    (out / "training.json").write_text(json.dumps(outcome.report, indent=2) + "\n", encoding="utf-8")


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--draft", action="store_true", help="train the small model that drafts")
    for name in ("seed", "samples", "tokens", "threads"):
        parser.add_argument(f"--{name}", type=int)
    options = parser.parse_args(argv)
    given = {name: getattr(options, name) for name in ("seed", "samples", "tokens", "threads")}
    settings = replace(
        DRAFT if options.draft else Settings(), **{name: value for name, value in given.items() if value is not None}
    )
    if options.draft:
        outcome = train(settings, tokenizer=Tokenizer.from_file(str(DEMO / "tokenizer.json")))
        save(outcome, options.out or DEMO.with_name("demo-draft"), gguf=False)
    else:
        outcome = train(settings)
        save(outcome, options.out or DEMO)
    print(json.dumps({key: outcome.report[key] for key in ("parameters", "steps", "wall_seconds", "held_out")}))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
