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
class Reader:
    """One kind of file. noun: what errors call it. by: the function that reads it, `module:function`. bytes: the
    largest file. depth: levels of brackets. values: numbers, texts, lists and objects of a JSON text. count: the limit
    on its parts, in words. time: what ends a reading that takes long; "by size" where every byte costs much the same.
    error: the class for a file that cannot be read. field: what errors name."""

    noun: str
    by: str
    bytes: int
    error: type[InputError] = InputError
    field: str | None = None
    depth: int | None = None
    values: int | None = None
    count: str = ""
    time: str = "by size"


PROMPT = Reader(noun="prompt", by="espalier.cli.flags.inputs:read_prompt", bytes=64 * MIB)
TEXT = Reader(noun="text", by="espalier.cli.flags.inputs:read_text", bytes=64 * MIB)
SCHEMA = Reader(
    noun="schema", by="espalier.cli.flags.schema:read_schema_argument", bytes=32 * MIB, depth=128, values=2_000_000
)
CONSTRAINT = Reader(
    noun="constraint", by="espalier.cli.flags.constraint:read_spec", bytes=32 * MIB, error=SpecError, depth=128,
    values=2_000_000,
)  # fmt: skip
TOOLS = Reader(noun="tools", by="espalier.cli.flags.tools:read_tools_file", bytes=32 * MIB, depth=128, values=2_000_000)
INSTANCES = Reader(
    noun="instances", by="espalier.constraints.json_schema.instances:read_instances", bytes=64 * MIB, depth=128,
    values=2_000_000, count="1,000,000 documents",
)  # fmt: skip
GRAMMAR = Reader(noun="grammar", by="espalier.cli.flags.constraint:read_grammar", bytes=4 * MIB)
PRESET = Reader(
    noun="preset", by="espalier.sampling.presets.files:read_preset", bytes=MIB, field="preset", depth=64,
    values=1_000_000,
)  # fmt: skip
WORDS = Reader(
    noun="word list", by="espalier.lexicon.files:read_words", bytes=64 * MIB, error=SpecError, field="lang", depth=64,
    values=4_000_000, count="2,000,000 words of 1,000 characters",
)  # fmt: skip
PHRASES = Reader(
    noun="list", by="espalier.constraints.safety.lists:read_list", bytes=64 * MIB, field="lists",
    count="20,000 phrases of 1,000 characters", time="the limit on compiling",
)  # fmt: skip
BATCH = Reader(
    noun="batch input", by="espalier.jobs.intake:LineReader", bytes=200 * MIB, field="file", depth=128,
    values=2_000_000, count="50,000 lines of 8,000,000 bytes; depth and values are those of a line",
)  # fmt: skip
TRACE = Reader(noun="trace", by="espalier.trace.records:Trace.load", bytes=128 * MIB, depth=64, values=8_000_000)
SIDECAR = Reader(
    noun="sidecar", by="espalier.trace.sidecar:load", bytes=2 * GIB,
    count="5 arrays; 32 times the file's bytes unpacked, or 64 MiB; a row for each step",
)  # fmt: skip
LOG = Reader(
    noun="rejection log", by="espalier.trace.foreign.log_reader:LogReader", bytes=4 * GIB, depth=64, values=4_000_000,
    count="64 MiB an event, 1,000 fields beside the events",
)  # fmt: skip
REPLY = Reader(
    noun="response", by="espalier.trace.foreign.merge:read_bytes", bytes=128 * MIB, field="response", depth=64,
    values=8_000_000,
)  # fmt: skip
STORED = Reader(
    noun="stored trace", by="espalier.store.packing:unpack", bytes=128 * MIB, depth=64, values=8_000_000,
    count="the bytes are those unpacked",
)  # fmt: skip
TOKENIZER = Reader(
    noun="tokenizer.json", by="espalier.tokens.readers:read_tokenizer", bytes=128 * MIB, error=VocabError, depth=64,
    values=8_000_000, count="ids below 2^20, pieces of 65,536 characters; a normalizer lengthens a text 128 times",
    time="5 s of a process of its own for expressions that are not known",
)  # fmt: skip
PIECES = Reader(
    noun="SentencePiece model", by="espalier.tokens.readers:read_tokenizer", bytes=128 * MIB, error=VocabError,
    count="ids below 2^20",
)  # fmt: skip
VOCABULARY = Reader(
    noun="vocabulary", by="espalier.tokens.vocab_file:read_vocab_file", bytes=128 * MIB, error=VocabError, depth=64,
    values=8_000_000, count="4,000,000 tokens",
)  # fmt: skip
MODEL_JSON = Reader(
    noun="model file", by="espalier.engines.model_folder:check_folder", bytes=32 * MIB, field="model", depth=64,
    values=2_000_000, count="numbers up to 2^31, 8,192 layers or experts, no more embeddings than weights",
)  # fmt: skip
TEMPLATE = Reader(
    noun="chat template", by="espalier.chat.prompt.template:ChatTemplate", bytes=256 * KIB, error=TemplateError,
    field="messages", count="16 Mi characters of a text; 64 Mi in all, and 64 for each given",
    time="2 s of CPU for each rendering",
)  # fmt: skip
GGUF = Reader(
    noun="GGUF file", by="espalier.engines.gguf.header:read_header", bytes=16 << 40, field="model",
    count="1 GiB of header, 65,536 keys, 65,536 tensors, 4,194,304 texts of a list, texts of 16 MiB",
)  # fmt: skip
FILTER = Reader(
    noun="automaton of a safety filter", by="espalier.constraints.safety.kept:kept_or_made", bytes=16 * MIB,
    count="the states and classes that it states",
)  # fmt: skip
WORD_DFA = Reader(
    noun="automaton of a word list", by="espalier.constraints.words.kept:kept_or_made", bytes=64 * MIB,
    count="the states and classes that it states",
)  # fmt: skip
TRIE = Reader(noun="token trie", by="espalier.tokens.trie:load_trie", bytes=GIB, count="the nodes of its vocabulary")
SETTINGS = Reader(noun="settings file", by="espalier.server.environment:read_environment", bytes=MIB, field="ENV_FILE")
KEYS = Reader(
    noun="file of keys", by="espalier.server.admit.auth:read_key_file", bytes=MIB, field="API_KEYS_FILE", depth=64,
    values=1_000_000,
)  # fmt: skip
ACTIVATION_INDEX = Reader(
    noun="index of a store", by="espalier.activations.foreign.lines:ZarrStore.found", bytes=64 * GIB, field="store",
    depth=64, values=4_000_000, count="a line is an entry",
)  # fmt: skip
ACTIVATION_OLD_INDEX = Reader(
    noun="index of a store", by="espalier.activations.foreign.lines:JsonStore.found", bytes=GIB, field="store",
    depth=64, values=16_000_000,
)  # fmt: skip
ACTIVATION_ENTRY = Reader(
    noun="entry of a store", by="espalier.activations.foreign.lines:JsonStore.found", bytes=64 * MIB, field="store",
    depth=64, values=1_000_000, count="16,000,000 characters of a text, 100,000 values of its messages",
)  # fmt: skip
QA_FILE = Reader(
    noun="QA file", by="espalier.activations.reconstruct.qa_file:read_rows", bytes=64 * GIB, field="qa_output_path",
    depth=64, values=1_000_000, count="64 MiB a line, which the other limits are for",
)  # fmt: skip
CASES = Reader(
    noun="file of cases", by="espalier.harness.cases.read:read_cases", bytes=MIB, field="cases", depth=64,
    values=100_000, count="10,000 cases; no aliases in YAML",
)  # fmt: skip

READERS: Mapping[str, Reader] = MappingProxyType(
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
