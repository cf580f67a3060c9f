"""The flags of llama.cpp's llama-cli and llama-completion, and what each is here. It parses nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from espalier.cli.llama.values import (
    read_bias,
    read_count,
    read_file,
    read_float,
    read_int,
    read_prompt_file,
    read_samplers,
    read_schema,
    read_schema_file,
    read_seed,
    read_switch,
    read_temperature,
)
from espalier.engines.options import EngineOptions
from espalier.fields import entries
from espalier.sampling.config import FIELDS
from espalier.sampling.fields import Whole
from espalier.upstream.llama_cli.arguments import FLAGS as SAMPLING
from espalier.upstream.llama_cli.open import FLAGS as ENGINE


@dataclass(frozen=True, slots=True, kw_only=True)
class LlamaFlag:
    """One flag of llama.cpp."""

    #: All its spellings.
    names: tuple[str, ...]
    #: What it sets: a field of llama-server's requests, an option of the engine, or a name of `INPUTS`; None where it
    #: asks for nothing that a text depends on.
    sets: str | None
    #: Reads the value that follows the flag; None for a switch.
    read: Callable[[str], Any] | None = None
    #: The value that a switch sets.
    value: Any = True
    #: What llama.cpp calls the value in its help.
    metavar: str = ""
    #: Whether each use of the flag adds a value.
    repeats: bool = False
    #: The environment variable that llama.cpp reads it from, without LLAMA_ARG_.
    env: str = ""
    #: Why a flag that would change the text is refused here.
    refused: str = ""


INPUTS: Mapping[str, str] = {
    "model": "`--model`",
    "prompt": "the prompt as an argument, with `\\n` and other escapes read",
    "system": "`--system`",
    "grammar": "`--grammar`, which takes GBNF text as well as a file",
    "schema": "`--schema` with `--closed`",
    "escapes": "with `--no-escape`, escapes in the prompt are left as they are",
    "conversation": "`-no-cnv` is `--raw`; else the chat template is used",
    "single_turn": "a command answers once",
    "special": "special tokens are shown by `scripts/llama_cli.py` alone",
    "display_prompt": "only `scripts/llama_cli.py` prints the prompt",
}
"""What flags set that is neither sampling nor an option of the engine -> how `espalier generate` says it."""


def _flag(*names: str, sets: str, read: Callable[[str], Any] | None = None, **details: Any) -> LlamaFlag:
    return LlamaFlag(names=names, sets=sets, read=read, **details)


def _without_effect(*names: str, metavar: str = "") -> LlamaFlag:
    return LlamaFlag(names=names, sets=None, read=str if metavar else None, metavar=metavar)


def _refuse_flag(*names: str, why: str, metavar: str = "N") -> LlamaFlag:
    return LlamaFlag(names=names, sets=None, read=str if metavar else None, metavar=metavar, refused=why)


def _sampling_flag(option: str) -> LlamaFlag:
    """The flag of a sampling option that is a number."""
    name = SAMPLING[option]
    usual = read_int if isinstance(FIELDS[option], Whole) else read_float
    return LlamaFlag(
        names=(name, *OTHER_NAMES.get(name, ())),
        sets=FIELDS[option].llama,
        read=READERS.get(option, usual),
        metavar="N",
        env=VARIABLES.get(name, ""),
    )


def _engine_flag(option: str) -> LlamaFlag:
    """The flag of an engine option that llama.cpp has under the same name."""
    entry = entries(EngineOptions)[option]
    name, *shorter = entry.field.flags
    return LlamaFlag(
        names=(name, *shorter, *OTHER_NAMES.get(name, ())),
        sets=option,
        read=read_count if entry.type is int else read_switch,
        metavar="N",
        env=VARIABLES.get(name, ""),
    )


OTHER_NAMES = {
    "--temp": ("--temperature",),
    "--n-predict": ("-n", "--predict"),
    "--seed": ("-s",),
    "--top-nsigma": ("--top-n-sigma",),
    "--typical": ("--typical-p",),
    "--gpu-layers": ("--n-gpu-layers",),
}
"""Further spellings of a flag."""
VARIABLES = {
    "--n-predict": "N_PREDICT",
    "--temp": "TEMPERATURE",
    "--top-k": "TOP_K",
    "--top-p": "TOP_P",
    "--min-p": "MIN_P",
    "--repeat-penalty": "REPEAT_PENALTY",
    "--presence-penalty": "PRESENCE_PENALTY",
    "--frequency-penalty": "FREQUENCY_PENALTY",
    "--ctx-size": "CTX_SIZE",
    "--threads": "THREADS",
    "--batch-size": "BATCH",
    "--gpu-layers": "N_GPU_LAYERS",
    "--flash-attn": "FLASH_ATTN",
}
"""The variables of those flags, without LLAMA_ARG_."""
READERS: Mapping[str, Callable[[str], Any]] = {"seed": read_seed, "temperature": read_temperature}
NO_SCALING = "the model's own scaling of positions is used"
NO_FETCH = "a model is a file here; none is fetched"
NO_TEMPLATE = "the template in the file is used; change it there"
NO_REASONING = "see --reasoning and --max-reasoning of `espalier generate`"

FLAGS: tuple[LlamaFlag, ...] = (
    # What is asked.
    _flag("-m", "--model", sets="model", read=str, metavar="FNAME", env="MODEL"),
    _flag("-p", "--prompt", sets="prompt", read=str, metavar="PROMPT"),
    _flag("-f", "--file", sets="prompt", read=read_prompt_file, metavar="FNAME"),
    _flag("-bf", "--binary-file", sets="prompt", read=read_file, metavar="FNAME"),
    _flag("-sys", "--system-prompt", sets="system", read=str, metavar="PROMPT"),
    _flag("-sysf", "--system-prompt-file", sets="system", read=read_prompt_file, metavar="FNAME"),
    _flag("-e", "--escape", sets="escapes"),
    _flag("--no-escape", sets="escapes", value=False),
    _flag("-cnv", "--conversation", sets="conversation"),
    _flag("-no-cnv", "--no-conversation", sets="conversation", value=False),
    _flag("-st", "--single-turn", sets="single_turn"),
    # Constraints.
    _flag("--grammar", sets="grammar", read=str, metavar="GRAMMAR"),
    _flag("--grammar-file", sets="grammar", read=read_file, metavar="FNAME"),
    _flag("-j", "--json-schema", sets="schema", read=read_schema, metavar="SCHEMA"),
    _flag("-jf", "--json-schema-file", sets="schema", read=read_schema_file, metavar="FILE"),
    # Sampling.
    *map(_sampling_flag, SAMPLING),
    _flag("--dry-sequence-breaker", sets="dry_sequence_breakers", read=str, metavar="STRING", repeats=True),
    _flag("-l", "--logit-bias", sets="logit_bias", read=read_bias, metavar="TOKEN_ID(+/-)BIAS", repeats=True),
    _flag("--ignore-eos", sets="ignore_eos"),
    _flag("--samplers", sets="samplers", read=read_samplers, metavar="SAMPLERS"),
    _flag("--sampler-seq", "--sampling-seq", sets="samplers", read=str, metavar="SEQUENCE"),
    _flag("-r", "--reverse-prompt", sets="stop", read=str, metavar="PROMPT", repeats=True),
    # The engine.
    *map(_engine_flag, ENGINE),
    _flag("-ctk", "--cache-type-k", sets="kv_type", read=str, metavar="TYPE", env="CACHE_TYPE_K"),
    _flag("-ctv", "--cache-type-v", sets="kv_type", read=str, metavar="TYPE", env="CACHE_TYPE_V"),
    _flag("--lora", sets="lora", read=str, metavar="FNAME", repeats=True),
    # What is printed.
    _flag("--display-prompt", sets="display_prompt"),
    _flag("--no-display-prompt", sets="display_prompt", value=False),
    _flag("-sp", "--special", sets="special"),
    # What no text depends on: terminals, logs, threads, memory.
    *map(
        _without_effect,
        (
            "--simple-io",
            "--warmup",
            "--no-warmup",
            "--perf",
            "--no-perf",
            "--jinja",
            "--log-disable",
            "--log-prefix",
            "--log-timestamps",
            "--offline",
            "--mlock",
            "--mmap",
            "--no-mmap",
            "--verbose-prompt",
            "--check-tensors",
            "--repack",
            "--no-repack",
            "--no-host",
            "--prompt-cache-all",
            "--prompt-cache-ro",
            "--swa-full",
            "--no-context-shift",
            "--no-log-prefix",
            "--no-log-timestamps",
        ),
    ),
    _without_effect("-v", "--verbose", "--log-verbose"),
    _without_effect("-mli", "--multiline-input"),
    _without_effect("-kvo", "--kv-offload"),
    _without_effect("-nkvo", "--no-kv-offload"),
    _without_effect("-bs", "--backend-sampling"),
    _without_effect("-co", "--color", metavar="[on|off|auto]"),
    _without_effect("-lv", "--verbosity", "--log-verbosity", metavar="N"),
    _without_effect("-tb", "--threads-batch", metavar="N"),
    _without_effect("-ub", "--ubatch-size", metavar="N"),
    _without_effect("-np", "--parallel", metavar="N"),
    _without_effect("-ptc", "--print-token-count", metavar="N"),
    _without_effect("-dt", "--defrag-thold", metavar="N"),
    _without_effect("-sm", "--split-mode", metavar="MODE"),
    _without_effect("-ts", "--tensor-split", metavar="N0,N1"),
    _without_effect("-mg", "--main-gpu", metavar="INDEX"),
    _without_effect("-dev", "--device", metavar="DEVICES"),
    _without_effect("-C", "--cpu-mask", metavar="M"),
    _without_effect("-Cr", "--cpu-range", metavar="LO-HI"),
    *(
        _without_effect(name, metavar="N")
        for name in (
            "--keep",
            "--numa",
            "--prio",
            "--poll",
            "--cpu-strict",
            "--prompt-cache",
            "--log-file",
            "--log-colors",
        )
    ),
    # What would change the text and cannot be done.
    *(
        _refuse_flag(name, why=NO_SCALING)
        for name in (
            "--rope-scaling",
            "--rope-scale",
            "--rope-freq-base",
            "--rope-freq-scale",
            "--yarn-orig-ctx",
            "--yarn-ext-factor",
            "--yarn-attn-factor",
            "--yarn-beta-slow",
            "--yarn-beta-fast",
        )
    ),
    _refuse_flag("-gan", "--grp-attn-n", why=NO_SCALING),
    _refuse_flag("-gaw", "--grp-attn-w", why=NO_SCALING),
    *(_refuse_flag(name, why="Espalier has no such sampler") for name in ("--adaptive-target", "--adaptive-decay")),
    _refuse_flag("--context-shift", why="a text ends where the context is full", metavar=""),
    _refuse_flag("-i", "--interactive", why="`espalier chat` talks", metavar=""),
    _refuse_flag("-if", "--interactive-first", why="`espalier chat` talks", metavar=""),
    *(
        _refuse_flag(name, why=NO_TEMPLATE, metavar="STRING")
        for name in ("--chat-template", "--chat-template-file", "--in-prefix", "--in-suffix")
    ),
    _refuse_flag("--in-prefix-bos", why=NO_TEMPLATE, metavar=""),
    *(_refuse_flag(name, why=NO_REASONING) for name in ("--reasoning-format", "--reasoning-budget")),
    _refuse_flag("-mu", "--model-url", why=NO_FETCH, metavar="URL"),
    _refuse_flag("-hf", "-hfr", "--hf-repo", why=NO_FETCH, metavar="REPO"),
    _refuse_flag("--lora-scaled", why="--lora FILE:SCALE", metavar="FNAME"),
    _refuse_flag("--control-vector", why="Espalier has no control vectors", metavar="FNAME"),
    _refuse_flag("--override-kv", why="the file's own values are used", metavar="KEY=TYPE:VALUE"),
    _refuse_flag("-mm", "--mmproj", why="prompts are text", metavar="FILE"),
)

BY_NAME: Mapping[str, LlamaFlag] = {name: flag for flag in FLAGS for name in flag.names}
