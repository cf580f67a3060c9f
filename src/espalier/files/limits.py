"""Every kind of file that is read, with its limits: the table `READERS`, which docs/security.md shows.

A limit holds before anything of that size is allocated: bytes by the size of the file, depth and values by a look at
the text before it is parsed, the rest by the reader that is named.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from espalier.errors import InputError, SpecError, TemplateError, VocabError

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30


@dataclass(frozen=True, slots=True, kw_only=True)
class FileLimits:
    """One kind of file and its limits."""

    #: what errors call it
    noun: str
    #: the largest file
    bytes: int
    #: the class for a file that cannot be read
    error: type[InputError] = InputError
    #: what errors name
    field: str | None = None
    #: levels of brackets
    depth: int | None = None
    #: numbers, texts, lists and objects of a JSON text
    values: int | None = None
    #: the limit on its parts, in words
    count: str = ""
    #: what ends a reading that takes long; "by size" where every byte costs much the same
    time: str = "by size"


PROMPT = FileLimits(noun="prompt", bytes=64 * MIB)
TEXT = FileLimits(noun="text", bytes=64 * MIB)
SCHEMA = FileLimits(noun="schema", bytes=32 * MIB, depth=128, values=2_000_000)
CONSTRAINT = FileLimits(noun="constraint", bytes=32 * MIB, error=SpecError, depth=128, values=2_000_000)
TOOLS = FileLimits(noun="tools", bytes=32 * MIB, depth=128, values=2_000_000)
INSTANCES = FileLimits(noun="instances", bytes=64 * MIB, depth=128, values=2_000_000, count="1,000,000 documents")
GRAMMAR = FileLimits(noun="grammar", bytes=4 * MIB)
PRESET = FileLimits(noun="preset", bytes=MIB, field="preset", depth=64, values=1_000_000)
WORDS = FileLimits(
    noun="word list",
    bytes=64 * MIB,
    error=SpecError,
    field="lang",
    depth=64,
    values=4_000_000,
    count="2,000,000 words of 1,000 characters",
)
PHRASES = FileLimits(
    noun="list",
    bytes=64 * MIB,
    field="lists",
    count="20,000 phrases of 1,000 characters",
    time="the limit on compiling",
)
BATCH = FileLimits(
    noun="batch input",
    bytes=200 * MIB,
    field="file",
    depth=128,
    values=2_000_000,
    count="50,000 lines of 8,000,000 bytes; depth and values are those of a line",
)
TRACE = FileLimits(noun="trace", bytes=128 * MIB, depth=64, values=8_000_000)
SIDECAR = FileLimits(
    noun="sidecar", bytes=2 * GIB, count="5 arrays; 32 times the file's bytes unpacked, or 64 MiB; a row for each step"
)
LOG = FileLimits(
    noun="rejection log",
    bytes=4 * GIB,
    depth=64,
    values=4_000_000,
    count="64 MiB an event, 1,000 fields beside the events",
)
REPLY = FileLimits(noun="response", bytes=128 * MIB, field="response", depth=64, values=8_000_000)
STORED = FileLimits(
    noun="stored trace", bytes=128 * MIB, depth=64, values=8_000_000, count="the bytes are those unpacked"
)
TOKENIZER = FileLimits(
    noun="tokenizer.json",
    bytes=128 * MIB,
    error=VocabError,
    depth=64,
    values=8_000_000,
    count="ids below 2^20, pieces of 65,536 characters; a normalizer lengthens a text 128 times",
    time="5 s of a process of its own for expressions that are not known",
)
PIECES = FileLimits(noun="SentencePiece model", bytes=128 * MIB, error=VocabError, count="ids below 2^20")
VOCABULARY = FileLimits(
    noun="vocabulary", bytes=128 * MIB, error=VocabError, depth=64, values=8_000_000, count="4,000,000 tokens"
)
MODEL_JSON = FileLimits(
    noun="model file",
    bytes=32 * MIB,
    field="model",
    depth=64,
    values=2_000_000,
    count="numbers up to 2^31, 8,192 layers or experts, no more embeddings than weights",
)
TEMPLATE = FileLimits(
    noun="chat template",
    bytes=256 * KIB,
    error=TemplateError,
    field="messages",
    count="16 Mi characters of a text; 64 Mi in all, and 64 for each given",
    time="2 s of CPU for each rendering",
)
GGUF = FileLimits(
    noun="GGUF file",
    bytes=16 << 40,
    field="model",
    count="1 GiB of header, 65,536 keys, 65,536 tensors, 4,194,304 texts of a list, texts of 16 MiB",
)
FILTER = FileLimits(noun="automaton of a safety filter", bytes=16 * MIB, count="the states and classes that it states")
WORD_DFA = FileLimits(noun="automaton of a word list", bytes=64 * MIB, count="the states and classes that it states")
TRIE = FileLimits(noun="token trie", bytes=GIB, count="the nodes of its vocabulary")
SETTINGS = FileLimits(noun="settings file", bytes=MIB, field="ENV_FILE")
KEYS = FileLimits(noun="file of keys", bytes=MIB, field="API_KEYS_FILE", depth=64, values=1_000_000)
ACTIVATION_INDEX = FileLimits(
    noun="index of a store", bytes=64 * GIB, field="store", depth=64, values=4_000_000, count="a line is an entry"
)
ACTIVATION_OLD_INDEX = FileLimits(noun="index of a store", bytes=GIB, field="store", depth=64, values=16_000_000)
ACTIVATION_ENTRY = FileLimits(
    noun="entry of a store",
    bytes=64 * MIB,
    field="store",
    depth=64,
    values=1_000_000,
    count="16,000,000 characters of a text, 100,000 values of its messages",
)
QA_FILE = FileLimits(
    noun="QA file",
    bytes=64 * GIB,
    field="qa_output_path",
    depth=64,
    values=1_000_000,
    count="64 MiB a line, which the other limits are for",
)
CASES = FileLimits(
    noun="file of cases", bytes=MIB, field="cases", depth=64, values=100_000, count="10,000 cases; no aliases in YAML"
)

READERS: Mapping[str, FileLimits] = MappingProxyType(
    {
        "prompt": PROMPT,
        "text": TEXT,
        "schema": SCHEMA,
        "constraint": CONSTRAINT,
        "tools": TOOLS,
        "instances": INSTANCES,
        "grammar": GRAMMAR,
        "preset": PRESET,
        "word list": WORDS,
        "phrase list": PHRASES,
        "batch input": BATCH,
        "trace": TRACE,
        "sidecar": SIDECAR,
        "rejection log": LOG,
        "reply": REPLY,
        "stored trace": STORED,
        "tokenizer.json": TOKENIZER,
        "SentencePiece model": PIECES,
        "vocabulary file": VOCABULARY,
        "config of a model": MODEL_JSON,
        "chat template": TEMPLATE,
        "GGUF": GGUF,
        "token trie": TRIE,
        "safety automaton": FILTER,
        "word list automaton": WORD_DFA,
        "settings": SETTINGS,
        "keys": KEYS,
        "index of a store": ACTIVATION_INDEX,
        "older index of a store": ACTIVATION_OLD_INDEX,
        "entry of a store": ACTIVATION_ENTRY,
        "QA file": QA_FILE,
        "test cases": CASES,
    }
)


def size_text(count: int) -> str:
    """A number of bytes as the table shows it: `64 MiB`."""
    for unit, size in (("TiB", 1 << 40), ("GiB", GIB), ("MiB", MIB), ("KiB", KIB)):
        if count >= size:
            return f"{count / size:g} {unit}"
    return f"{count} bytes"
