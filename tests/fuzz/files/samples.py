"""A small valid file of each kind, and the command or call that reads it.

The files are made in a folder of the process that asks, by the makers that the tests use.
"""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

from tests.fuzz.files.changes import damaged

Read = Callable[[Path, Random], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """name: of the file. files: makes the valid contents, one of which is damaged. read: reads the file at a path.
    beside: makes whole files that lie beside it, by name. damage: how it is damaged."""

    name: str
    files: Callable[[], Sequence[bytes | str]]
    read: Read
    beside: Callable[[], Mapping[str, bytes | str]]
    damage: Callable[[bytes, Random], bytes] = damaged


def command(*arguments: str) -> Read:
    """Runs the command line; `{}` stands for the file, `{folder}` for its folder."""

    def run(path: Path, _random: Random) -> object:
        from espalier.cli.main import main_code

        return main_code([one.replace("{folder}", str(path.parent)).replace("{}", str(path)) for one in arguments])

    return run


def one_of(*reads: Read) -> Read:
    return lambda path, random: random.choice(reads)(path, random)


def kept(*content: bytes | str) -> Callable[[], Sequence[bytes | str]]:
    return lambda: content


TRACE_READS = [
    command("trace", *words)
    for words in (
        ("show", "{}"),
        ("show", "{}", "--step", "2"),
        ("html", "{}", "-"),
        ("diagnose", "{}"),
        ("export", "{}"),
        ("export", "{}", "--format", "svg"),
        ("diff", "{}", "{folder}/other.json"),
        ("replay", "{}", "-m", "fake"),
    )
]
LOG_READS = (
    command("trace", "show", "{}", "--task", "7"),
    command("trace", "show", "{}"),
    command("trace", "merge", "{folder}/reply.json", "{}", "-"),
)
REPLY_READS = (
    command("trace", "show", "{}"),
    command("trace", "merge", "--estimate", "{}", "-"),
    command("trace", "merge", "{}", "{folder}/log.json", "-"),
    command("trace", "export", "{}"),
)
SHOWN_TOKENIZER = one_of(command("vocab", "{}"), command("vocab", "{}", "--search", "the dog", "--glitches"))
KEYS = '[[key]]\nname = "a"\nkey = "0123456789ab"\nconcurrent = 2\nexpires = 2030-01-01\n'
SETTINGS = "PORT=8001\nexport A='b c'\nSECRET_TOKEN=\"xyzxyzxyz\"\n"
PRESET = json.dumps({"name": "mine", "config": {"temperature": 0.5, "stop": ["x"]}, "grammar": "@json_object"})
GRAMMAR = 'root ::= "a" [0-9]{1,3} b*\nb ::= "x" | root "y"?  # c\n'


SCHEMA = {
    "type": "object",
    "properties": {"a": {"type": "integer", "minimum": 0}, "b": {"type": "array", "items": {"$ref": "#/$defs/t"}}},
    "required": ["a"],
    "additionalProperties": False,
    "$defs": {"t": {"type": "string", "pattern": "^[a-z]+$", "maxLength": 9}},
}
CONSTRAINTS: tuple[Any, ...] = (
    {"kind": "regex", "pattern": "[ab]+"},
    {"kind": "gbnf", "grammar": 'root ::= "a"'},
    {"kind": "choice", "options": ["a", "b"]},
    {"kind": "json_schema", "schema": SCHEMA},
    {"kind": "all_of", "parts": [{"kind": "regex", "pattern": "a*"}, {"kind": "ban", "texts": ["aa"]}]},
)
TOOLS = [{"type": "function", "function": {"name": "f", "description": "d", "parameters": SCHEMA}}]


def as_bytes(content: bytes | str) -> bytes:
    return content.encode() if isinstance(content, str) else content


def damaged_zip(content: bytes, random: Random) -> bytes:
    """A zip damaged as bytes, or written anew with one of its members damaged."""
    if random.random() < 0.4:
        return damaged(content, random)
    with zipfile.ZipFile(io.BytesIO(content)) as found:
        members = {name: found.read(name) for name in found.namelist()}
    name = random.choice(list(members))
    how = random.randrange(4)
    if how == 0:
        del members[name]
    elif how == 1:
        members[random.choice(("x", "x.npy", "../x.npy", "logits.npy"))] = members[name]
    elif how == 2:
        members[name] = bytes(random.choice((0, 1000, 4 << 20)))
    else:
        members[name] = damaged(members[name], random)
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as written:
        for one, data in members.items():
            written.writestr(one, data)
    return out.getvalue()


@cache
def _traces() -> tuple[bytes, bytes, bytes]:
    """A trace of steps, one of level full on bytes, and its sidecar."""
    import tempfile

    from espalier import load
    from espalier.constraints.spec import Regex
    from tests.traces import sample_trace

    with tempfile.TemporaryDirectory() as folder:
        plain = Path(folder, "a.json")
        sample_trace(12).save(plain)
        with load("fake") as engine:
            made = engine.generate("x", constraint=Regex("[ab]{4}"), max_tokens=5, seed=1, trace="full").trace
        path = Path(folder, "b.json")
        made.save(path)
        return plain.read_bytes(), path.read_bytes(), path.with_suffix(".npz").read_bytes()


@cache
def _foreign() -> tuple[str, str, str, str]:
    from tests.unit.trace.test_foreign import LOG, combined, reply, stream

    return json.dumps(reply()), stream(), LOG, json.dumps(combined())


@cache
def _tokenizers() -> tuple[bytes, ...]:
    from tests.tokenizers import byte_level_tokenizer, spm_byte_fallback_tokenizer

    return tuple(made().to_str().encode() for made in (byte_level_tokenizer, spm_byte_fallback_tokenizer))


def _configs() -> tuple[str, ...]:
    token = {"content": "<|im_end|>", "lstrip": False, "special": True}
    return json.dumps({"eos_token": token, "bos_token": None}), json.dumps({"eos_token": "<|im_end|>"})


def _model_configs() -> tuple[bytes, ...]:
    folder = Path(__file__).resolve().parents[3] / "models" / "demo"
    return ((folder / "config.json").read_bytes(),)


@cache
def _sentencepiece() -> bytes:
    from tests.tokenizers import sentencepiece_model

    return sentencepiece_model()


@cache
def _ggufs() -> tuple[bytes, ...]:
    import tempfile

    from tests.gguf_models import bpe_words, spm_words, write_llama, write_vocab_only

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "x.gguf")
        return (
            write_vocab_only(path, bpe_words()).read_bytes(),
            write_vocab_only(path, spm_words()).read_bytes(),
            write_llama(path, bpe_words()).read_bytes(),
        )


def _templates() -> tuple[str, ...]:
    from tests.gguf_models import CHATML

    demo = Path(__file__).resolve().parents[3] / "models" / "demo" / "chat_template.jinja"
    grown = (
        "{% set ns = namespace(x='a') %}{% for i in range(20) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}{{ ns.x[:9] }}"
    )
    return (
        CHATML,
        demo.read_text("utf-8"),
        grown,
        "{% for a in range(99) %}{% for b in range(99) %}{{ a*b }}{% endfor %}{% endfor %}",
    )


def _presets() -> tuple[str, ...]:
    from espalier.sampling.presets.catalogue import BUILTIN
    from espalier.sampling.presets.files import preset_text

    return tuple(preset_text(BUILTIN[name]) for name in ("tool_call", "safe_chat", "creative"))


def _packed(trace: bytes) -> bytes:
    from espalier.store.packing import pack

    return pack(json.loads(trace), what="trace")


def _unpack(path: Path, _random: Random) -> object:
    from espalier.store.packing import unpack

    return unpack(path.read_bytes(), what="trace")


def _read_folder(path: Path, _random: Random) -> object:
    from espalier.engines.model_folder import check_folder

    return check_folder(path.parent)


def _read_header(path: Path, _random: Random) -> object:
    from espalier.engines.gguf.checks import check_generates, check_vocabulary
    from espalier.engines.gguf.header import read_header

    header = read_header(path)
    check_vocabulary(header, path.name)
    return check_generates(header, path.name)


def _render(path: Path, _random: Random) -> object:
    from espalier.chat.prompt.template import ChatTemplate
    from espalier.files.limits import TEMPLATE
    from espalier.files.reading import read_text

    template = ChatTemplate(read_text(path, TEMPLATE), bos_token="<s>")
    messages = [{"role": "system", "content": "be brief"}, {"role": "user", "content": "hi"}]
    return template.render(messages, tools=TOOLS)


def _read_constraint(path: Path, _random: Random) -> object:
    from espalier.cli.flags.constraint import read_spec

    return read_spec(str(path)).to_json()


def _read_tools(path: Path, _random: Random) -> object:
    from espalier.chat.tools import read_tools
    from espalier.cli.flags.tools import read_tools_file

    return read_tools(read_tools_file(str(path)))


def _read_vocabulary(path: Path, _random: Random) -> object:
    from espalier.tokens.vocab_file import read_vocab_file

    return read_vocab_file(path)


def _read_keys(path: Path, _random: Random) -> object:
    from espalier.server.admit.auth import read_key_file

    return read_key_file(path)


def _sample(
    name: str,
    files: Callable[[], Sequence[bytes | str]],
    read: Read,
    beside: Callable[[], Mapping[str, bytes | str]] = dict,
    damage: Callable[[bytes, Random], bytes] = damaged,
) -> Sample:
    return Sample(name=name, files=files, read=read, beside=beside, damage=damage)


SAMPLES: Mapping[str, Sample] = {
    "trace": _sample("x.json", lambda: [_traces()[0]], one_of(*TRACE_READS), lambda: {"other.json": _traces()[0]}),
    "sidecar": _sample(
        "x.npz",
        lambda: [_traces()[2]],
        one_of(command("trace", "show", "{folder}/x.json"), command("trace", "replay", "{folder}/x.json")),
        lambda: {"x.json": _traces()[1]},
        damaged_zip,
    ),
    "rejection log": _sample(
        "log.json", lambda: [_foreign()[2]], one_of(*LOG_READS), lambda: {"reply.json": _foreign()[0]}
    ),
    "reply": _sample(
        "reply.json",
        lambda: [_foreign()[place] for place in (0, 1, 3)],
        one_of(*REPLY_READS),
        lambda: {"log.json": _foreign()[2]},
    ),
    "tokenizer.json": _sample("tokenizer.json", _tokenizers, SHOWN_TOKENIZER),
    "tokenizer config": _sample(
        "tokenizer_config.json",
        _configs,
        command("vocab", "{folder}", "--search", "a"),
        lambda: {"tokenizer.json": _tokenizers()[0]},
    ),
    "config": _sample("config.json", _model_configs, _read_folder, lambda: {"tokenizer.json": _tokenizers()[0]}),
    "width in a config": _sample(
        "config.json", _model_configs, command("vocab", "{folder}"), lambda: {"tokenizer.json": _tokenizers()[0]}
    ),
    "vocabulary file": _sample("v.json", kept('["a", "b ", "</s>"]', '{"a": 0, "b ": 1, "</s>": 2}'), _read_vocabulary),
    "SentencePiece model": _sample("tokenizer.model", lambda: [_sentencepiece()], SHOWN_TOKENIZER),
    "GGUF": _sample("x.gguf", _ggufs, one_of(command("vocab", "{}", "--search", "a"), _read_header)),
    "chat template": _sample("chat_template.jinja", _templates, _render),
    "preset": _sample("mine.toml", _presets, command("presets", "add", "{}", "--force")),
    "preset as JSON": _sample("mine.json", kept(PRESET), command("presets", "add", "{}", "--force")),
    "word list": _sample(
        "es.txt",
        kept("# es\nde\nque\nl'\nno\n"),
        command("wordlist", "check", "{folder}/t.txt", "--words", "{}"),
        lambda: {"t.txt": "que no"},
    ),
    "phrase list": _sample(
        "p.txt", kept("gut punch # a\nfool\n"), command("safety", "check", "a fool", "--list", "profanity={}")
    ),
    "grammar": _sample(
        "x.gbnf", kept(GRAMMAR), one_of(command("grammar", "check", "{}"), command("grammar", "print", "{}"))
    ),
    "schema": _sample(
        "s.json", kept(json.dumps(SCHEMA)), one_of(command("check", "{}"), command("grammar", "convert", "{}"))
    ),
    "instances": _sample(
        "i.jsonl",
        kept('{"a": 1}\n{"a": 2, "b": ["x"]}\n'),
        command("check", "{folder}/s.json", "--instances", "{}"),
        lambda: {"s.json": json.dumps(SCHEMA)},
    ),
    "constraint": _sample("c.json", lambda: [json.dumps(one) for one in CONSTRAINTS], _read_constraint),
    "tools": _sample("t.json", kept(json.dumps(TOOLS)), _read_tools),
    "settings": _sample("x.env", kept(SETTINGS), command("config", "show", "--env-file", "{}")),
    "keys": _sample("keys.toml", kept(KEYS), _read_keys),
    "stored trace": _sample("x.bin", lambda: [_packed(_traces()[0])], _unpack),
    "text": _sample(
        "t.txt",
        kept("que no, de"),
        command("wordlist", "check", "{}", "--words", "{folder}/es.txt"),
        lambda: {"es.txt": "que\n"},
    ),
}
"""By kind. What takes long is made when a kind is first drawn."""
