"""Small GGUF files with random weights, made by the test that needs them: both tokenizers, several architectures.

A file is a function of its arguments. The module writes bytes; it knows neither llama.cpp nor the engine.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.llama_grammar import byte_spelling

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)  # token types of GGUF

CHATML = (
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
CORPUS = (
    '{"name": "Ada Lovelace", "age": 36, "email": "ada@example.org", "tags": ["math", "poetry"]}',
    '[1, 2.5, -3e10, true, false, null, {"nested": {"deep": [[]]}}]',
    "The quick brown fox jumps over the lazy dog; the dog does not mind at all.",
    "Una espaldera es un árbol guiado por una celosía: mañana, año, corazón.",
)
CHATML_SPECIALS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")


@dataclass(frozen=True, slots=True, kw_only=True)
class Words:
    """The vocabulary of a file. tokens, kinds: by id. model: `gpt2` (BPE) or `llama` (SPM). A special without an id is
    not written."""

    model: str
    pre: str
    tokens: tuple[str, ...]
    kinds: tuple[int, ...]
    merges: tuple[str, ...] = ()
    scores: tuple[float, ...] = ()
    bos: int | None = None
    eos: int | None = None
    eot: int | None = None
    unk: int | None = None
    add_bos: bool = False
    add_space_prefix: bool = False

    @property
    def width(self) -> int:
        return len(self.tokens)

    def padded(self, width: int) -> Words:
        """With `[PADn]` tokens of type UNUSED up to `width`, as converters fill a vocabulary."""
        extra = range(self.width, width)
        return replace(
            self,
            tokens=self.tokens + tuple(f"[PAD{i}]" for i in extra),
            kinds=self.kinds + (UNUSED,) * len(extra),
            scores=self.scores + (-1e4,) * len(extra) if self.scores else (),
        )


def bpe_words(
    *,
    specials: Sequence[str] = CHATML_SPECIALS,
    eos: str = "<|im_end|>",
    merges: int = 120,
    padded_to: int | None = None,
) -> Words:
    """A byte-level BPE: `specials` first, the 256 bytes, then what was merged. llama.cpp also ends at those of the
    specials whose text it knows: of the default ones, `<|im_end|>` (the EOS) and `<|endoftext|>`."""
    spelling = byte_spelling()
    pieces = Counter("".join(spelling[b] for b in piece.encode()) for text in CORPUS for piece in _pre_split(text))
    found = _merge(pieces, merges)
    tokens = [*specials, *(spelling[b] for b in range(256)), *(a + b for a, b in found)]
    kinds = [CONTROL] * len(specials) + [NORMAL] * (len(tokens) - len(specials))
    words = Words(
        model="gpt2",
        pre="gpt-2",
        tokens=tuple(tokens),
        kinds=tuple(kinds),
        merges=tuple(f"{a} {b}" for a, b in found),
        bos=0 if specials else None,
        eos=tokens.index(eos),
    )
    return words.padded(padded_to) if padded_to else words


def spm_words(*, merges: int = 120, padded_to: int | None = None) -> Words:
    """A SentencePiece vocabulary as Llama 2 has it: <unk>, <s>, </s>, <0x00>..<0xFF>, pieces by score, characters."""
    pieces = Counter("▁" + word for text in CORPUS for word in text.split(" "))
    found = _merge(pieces, merges)
    merged = [a + b for a, b in found]
    chars = sorted({c for piece in pieces for c in piece} | {chr(i) for i in range(33, 127)})
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{b:02X}>" for b in range(256)), *merged, *chars]
    kinds = [UNKNOWN, CONTROL, CONTROL, *([BYTE] * 256), *([NORMAL] * (len(merged) + len(chars)))]
    scores = [0.0] * 259 + [-float(rank) for rank in range(len(merged))] + [-1000.0 - i for i in range(len(chars))]
    words = Words(
        model="llama",
        pre="default",
        tokens=tuple(tokens),
        kinds=tuple(kinds),
        scores=tuple(scores),
        bos=1,
        eos=2,
        unk=0,
        add_bos=True,
        add_space_prefix=True,
    )
    return words.padded(padded_to) if padded_to else words


@cache
def large_words(width: int = 32_000) -> Words:
    """A byte-level BPE of that many tokens, trained on the word lists of the repository; skips without `tokenizers`."""
    tokenizers = pytest.importorskip("tokenizers")
    folder = Path(__file__).parents[1] / "wordlists"
    listed = [w for name in ("en.txt", "es.txt") for w in (folder / name).read_text(encoding="utf-8").split()]
    lines = [form for w in listed for form in (w, f" {w}", f" {w.capitalize()}", w.upper(), f'"{w}":', f"_{w}")]
    lines += [str(n) for n in range(1000)] + [" " * n for n in range(1, 17)] + list(CORPUS)
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=width,
        initial_alphabet=sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet()),
        special_tokens=list(CHATML_SPECIALS),
        show_progress=False,
    )
    tokenizer.train_from_iterator(lines, trainer)
    ids = tokenizer.get_vocab()
    tokens = tuple(sorted(ids, key=ids.__getitem__))
    merges = _read_merges(tokenizer)
    kinds = tuple(CONTROL if t in CHATML_SPECIALS else NORMAL for t in tokens)
    words = Words(model="gpt2", pre="gpt-2", tokens=tokens, kinds=kinds, merges=merges, bos=0, eos=2)
    return words.padded(width)


def write_llama(
    path: Path,
    words: Words,
    *,
    hidden: int = 64,
    feed_forward: int = 128,
    layers: int = 2,
    heads: int = 4,
    kv_heads: int = 2,
    context: int = 512,
    chat_template: str | None = None,
    scale: float = 0.2,
    seed: int = 0,
    dtype: type[np.floating[Any]] = np.float32,
    keys: dict[str, Any] | None = None,
    without: Sequence[str] = (),
) -> Path:
    """A Llama. scale: standard deviation of the weights. keys: further metadata, `llama.` is put in front of a key
    that has no dot. without: tensors to leave out."""
    writer = _writer(path, "llama", words, context=context, hidden=hidden, layers=layers, template=chat_template)
    _add_attention(writer, hidden=hidden, feed_forward=feed_forward, heads=heads, kv_heads=kv_heads)
    _add_keys(writer, "llama", keys or {})
    shapes = _transformer(words.width, hidden, feed_forward, layers, hidden // heads, heads, kv_heads)
    shapes["output.weight"] = (words.width, hidden)
    return _finish(writer, {n: s for n, s in shapes.items() if n not in without}, seed, scale, dtype)


def write_large(path: Path, *, dtype: type[np.floating[Any]] = np.float32, width: int = 32_000, seed: int = 0) -> Path:
    """A Llama of about 100 M parameters (400 MB as float32, 200 MB as float16): for benchmarks."""
    return write_llama(
        path,
        large_words(width),
        hidden=640,
        feed_forward=1728,
        layers=12,
        heads=10,
        kv_heads=10,
        context=4096,
        chat_template=CHATML,
        scale=0.05,
        seed=seed,
        dtype=dtype,
    )


def write_gemma3(path: Path, words: Words, *, window: int = 16, layers: int = 6, context: int = 512) -> Path:
    """A model with sliding-window attention in five of six layers."""
    hidden, feed_forward, heads, kv_heads, seed, scale = 64, 128, 4, 2, 0, 0.1
    head = hidden // heads
    writer = _writer(path, "gemma3", words, context=context, hidden=hidden, layers=layers)
    _add_attention(writer, hidden=hidden, feed_forward=feed_forward, heads=heads, kv_heads=kv_heads)
    writer.add_key_length(head)
    writer.add_value_length(head)
    writer.add_sliding_window(window)
    shapes = _transformer(words.width, hidden, feed_forward, layers, head, heads, kv_heads)
    for i in range(layers):
        for name, size in (
            ("post_attention_norm", hidden),
            ("post_ffw_norm", hidden),
            ("attn_q_norm", head),
            ("attn_k_norm", head),
        ):
            shapes[f"blk.{i}.{name}.weight"] = (size,)
    return _finish(writer, shapes, seed, scale)


def write_mamba(path: Path, words: Words, *, hidden: int = 32, layers: int = 2, context: int = 512) -> Path:
    """A recurrent model."""
    inner, kernel, state, rank = 2 * hidden, 4, 8, 2
    writer = _writer(path, "mamba", words, context=context, hidden=hidden, layers=layers)
    writer.add_feed_forward_length(0)
    writer.add_head_count(0)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_ssm_conv_kernel(kernel)
    writer.add_ssm_inner_size(inner)
    writer.add_ssm_state_size(state)
    writer.add_ssm_time_step_rank(rank)
    shapes: dict[str, tuple[int, ...]] = {"token_embd.weight": (words.width, hidden), "output_norm.weight": (hidden,)}
    for i in range(layers):
        parts = {
            "attn_norm.weight": (hidden,),
            "ssm_in.weight": (2 * inner, hidden),
            "ssm_conv1d.weight": (inner, kernel),
            "ssm_conv1d.bias": (inner,),
            "ssm_x.weight": (rank + 2 * state, inner),
            "ssm_dt.weight": (inner, rank),
            "ssm_dt.bias": (inner,),
            "ssm_a": (inner, state),
            "ssm_d": (inner,),
            "ssm_out.weight": (hidden, inner),
        }
        shapes |= {f"blk.{i}.{name}": shape for name, shape in parts.items()}
    return _finish(writer, shapes, 0, 0.2)


def write_bert(path: Path, *, hidden: int = 32, layers: int = 1, context: int = 64) -> Path:
    """An encoder for embeddings, with a WordPiece vocabulary."""
    tokens = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"▁{chr(c)}" for c in range(97, 123)))
    words = Words(
        model="bert", pre="jina-v2-en", tokens=tokens, kinds=(CONTROL,) * 5 + (NORMAL,) * 26, bos=2, eos=3, unk=1
    )
    writer = _writer(path, "bert", words, context=context, hidden=hidden, layers=layers)
    writer.add_feed_forward_length(2 * hidden)
    writer.add_head_count(2)
    writer.add_layer_norm_eps(1e-12)
    writer.add_causal_attention(False)
    writer.add_uint32("bert.pooling_type", 1)  # mean
    writer.add_token_type_count(2)
    writer.add_sep_token_id(3)
    writer.add_pad_token_id(0)
    writer.add_mask_token_id(4)
    shapes: dict[str, tuple[int, ...]] = {
        "token_embd.weight": (words.width, hidden),
        "token_types.weight": (2, hidden),
        "position_embd.weight": (context, hidden),
        "token_embd_norm.weight": (hidden,),
        "token_embd_norm.bias": (hidden,),
    }
    for i in range(layers):
        for name in ("attn_q", "attn_k", "attn_v", "attn_output"):
            shapes[f"blk.{i}.{name}.weight"] = (hidden, hidden)
            shapes[f"blk.{i}.{name}.bias"] = (hidden,)
        for name in ("attn_output_norm", "layer_output_norm"):
            shapes |= {f"blk.{i}.{name}.weight": (hidden,), f"blk.{i}.{name}.bias": (hidden,)}
        shapes |= {f"blk.{i}.ffn_up.weight": (2 * hidden, hidden), f"blk.{i}.ffn_up.bias": (2 * hidden,)}
        shapes |= {f"blk.{i}.ffn_down.weight": (hidden, 2 * hidden), f"blk.{i}.ffn_down.bias": (hidden,)}
    return _finish(writer, shapes, 0, 0.2)


def write_vocab_only(path: Path, words: Words) -> Path:
    """A file with a vocabulary and no weights."""
    writer = _writer(path, "llama", words, context=512, hidden=64, layers=2)
    _add_attention(writer, hidden=64, feed_forward=128, heads=4, kv_heads=2)
    return _finish(writer, {}, 0, 0.2)


def write_lora(
    path: Path,
    *,
    rank: int = 4,
    hidden: int = 64,
    layers: int = 2,
    arch: str = "llama",
    seed: int = 1,
    scale: float = 0.5,
) -> Path:
    """A LoRA adapter on the queries and outputs of `write_llama`'s model."""
    gguf = pytest.importorskip("gguf")
    writer = gguf.GGUFWriter(str(path), arch)
    writer.add_type("adapter")
    writer.add_string("adapter.type", "lora")
    writer.add_float32("adapter.lora.alpha", float(rank))
    shapes: dict[str, tuple[int, ...]] = {}
    for i in range(layers):
        for name in ("attn_q", "attn_output"):
            shapes[f"blk.{i}.{name}.weight.lora_a"] = (rank, hidden)
            shapes[f"blk.{i}.{name}.weight.lora_b"] = (hidden, rank)
    return _finish(writer, shapes, seed, scale)


def _writer(
    path: Path, arch: str, words: Words, *, context: int, hidden: int, layers: int, template: str | None = None
) -> Any:
    """A writer that has the vocabulary and what every architecture has."""
    gguf = pytest.importorskip("gguf")
    writer = gguf.GGUFWriter(str(path), arch)
    writer.add_name(path.stem)
    writer.add_context_length(context)
    writer.add_embedding_length(hidden)
    writer.add_block_count(layers)
    writer.add_tokenizer_model(words.model)
    writer.add_tokenizer_pre(words.pre)
    writer.add_token_list(words.tokens)
    writer.add_token_types(words.kinds)
    if words.scores:
        writer.add_token_scores(words.scores)
    if words.model == "gpt2":
        writer.add_token_merges(words.merges)
    specials = (
        (writer.add_bos_token_id, words.bos),
        (writer.add_eos_token_id, words.eos),
        (writer.add_eot_token_id, words.eot),
        (writer.add_unk_token_id, words.unk),
    )
    for add, token in specials:
        if token is not None:
            add(token)
    writer.add_add_bos_token(words.add_bos)
    writer.add_add_space_prefix(words.add_space_prefix)
    if template is not None:
        writer.add_chat_template(template)
    return writer


def _add_attention(writer: Any, *, hidden: int, feed_forward: int, heads: int, kv_heads: int) -> None:
    writer.add_feed_forward_length(feed_forward)
    writer.add_head_count(heads)
    writer.add_head_count_kv(kv_heads)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(hidden // heads)
    writer.add_rope_freq_base(10_000.0)


def _add_keys(writer: Any, arch: str, keys: dict[str, Any]) -> None:
    adders = {bool: writer.add_bool, int: writer.add_uint32, float: writer.add_float32, str: writer.add_string}
    for key, value in keys.items():
        adders[type(value)](key if "." in key else f"{arch}.{key}", value)


def _transformer(
    width: int, hidden: int, feed_forward: int, layers: int, head: int, heads: int, kv_heads: int
) -> dict[str, tuple[int, ...]]:
    """Names and shapes as numpy sees them (rows first): embedding, layers, final norm; the output is tied."""
    shapes: dict[str, tuple[int, ...]] = {"token_embd.weight": (width, hidden)}
    for i in range(layers):
        parts = {
            "attn_norm": (hidden,),
            "attn_q": (heads * head, hidden),
            "attn_k": (kv_heads * head, hidden),
            "attn_v": (kv_heads * head, hidden),
            "attn_output": (hidden, heads * head),
            "ffn_norm": (hidden,),
            "ffn_gate": (feed_forward, hidden),
            "ffn_up": (feed_forward, hidden),
            "ffn_down": (hidden, feed_forward),
        }
        shapes |= {f"blk.{i}.{name}.weight": shape for name, shape in parts.items()}
    shapes["output_norm.weight"] = (hidden,)
    return shapes


def _finish(
    writer: Any, shapes: dict[str, tuple[int, ...]], seed: int, scale: float, dtype: type[np.floating[Any]] = np.float32
) -> Path:
    """Write everything, the weights drawn from a normal distribution; norms are near 1, and a state decays."""
    generator = np.random.default_rng(seed)
    for name, shape in shapes.items():
        values = generator.standard_normal(shape, dtype=np.float32) * np.float32(scale)
        if name.endswith("norm.weight"):
            values = 1 + values * np.float32(0.5)
        elif name.endswith("ssm_a"):
            values = -np.exp(values)
        writer.add_tensor(name, values.astype(dtype) if len(shape) > 1 else values)
    path = Path(writer.path)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _pre_split(text: str) -> list[str]:
    """About as GPT-2 splits: a word, a number or a run of signs, each with the space in front of it."""
    regex = pytest.importorskip("regex")
    return list(regex.findall(r" ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+", text))


def _merge(pieces: Counter[str], count: int) -> list[tuple[str, str]]:
    """The `count` most frequent pairs, each merged before the next is looked for; ties go to the smaller pair."""
    split = {piece: list(piece) for piece in pieces}
    found: list[tuple[str, str]] = []
    for _ in range(count):
        pairs: Counter[tuple[str, str]] = Counter()
        for piece, parts in split.items():
            for pair in pairwise(parts):
                pairs[pair] += pieces[piece]
        if not pairs:
            break
        best = min(pairs, key=lambda pair: (-pairs[pair], pair))
        found.append(best)
        for piece, parts in split.items():
            split[piece] = _join(parts, best)
    return found


def _join(parts: list[str], pair: tuple[str, str]) -> list[str]:
    joined: list[str] = []
    for part in parts:
        # A part that was just joined never equals the left of the pair that made it: it is longer.
        if joined and (joined[-1], part) == pair:
            joined[-1] += part
        else:
            joined.append(part)
    return joined


def _read_merges(tokenizer: Any) -> tuple[str, ...]:
    import json

    merges = json.loads(tokenizer.to_str())["model"]["merges"]
    return tuple(m if isinstance(m, str) else " ".join(m) for m in merges)
