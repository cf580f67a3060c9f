"""The parsers that are fuzzed, by name. Each has a folder of valid inputs, `corpus/NAME/`."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from tests.fuzz.parsers import bodies, files, languages
from tests.fuzz.parsers.target import ParserTarget

BODY = 2048
BINARY = 16_384

PARSERS: Mapping[str, ParserTarget] = {
    "gbnf": ParserTarget(open=languages.open_gbnf, longest=512),
    "lark": ParserTarget(open=languages.open_lark, longest=512),
    "regex": ParserTarget(open=languages.open_regex, longest=256),
    "compiled-regex": ParserTarget(open=languages.open_compiled_regex, longest=96),
    "schema": ParserTarget(open=languages.open_schema, longest=512),
    "shorthand": ParserTarget(open=languages.open_shorthand),
    "constraint": ParserTarget(open=languages.open_constraint),
    "preset": ParserTarget(open=languages.open_preset),
    "cases-yaml": ParserTarget(open=partial(languages.open_cases, ".yaml")),
    "cases-toml": ParserTarget(open=partial(languages.open_cases, ".toml")),
    "words": ParserTarget(open=languages.open_words),
    "keys": ParserTarget(open=languages.open_keys),
    "chat": ParserTarget(open=bodies.open_chat, longest=BODY),
    "completions": ParserTarget(open=bodies.open_completion, longest=BODY),
    "responses": ParserTarget(open=bodies.open_responses, longest=BODY),
    "messages": ParserTarget(open=bodies.open_messages, longest=BODY),
    "llama": ParserTarget(open=bodies.open_llama, longest=BODY),
    "ollama": ParserTarget(open=bodies.open_ollama, longest=BODY),
    "tgi": ParserTarget(open=bodies.open_tgi, longest=BODY),
    "openai-stream": ParserTarget(open=bodies.open_openai_stream, longest=BODY),
    "llama-stream": ParserTarget(open=bodies.open_llama_stream, longest=BODY),
    "proxied-request": ParserTarget(open=bodies.open_proxied_request, longest=BODY),
    "proxied-event": ParserTarget(open=bodies.open_proxied_event, longest=BODY),
    "mcp": ParserTarget(open=bodies.open_mcp, longest=1100),
    "tool-call": ParserTarget(open=bodies.open_tool_call, longest=1024),
    "trace": ParserTarget(open=files.open_trace, longest=4096),
    "log": ParserTarget(open=files.open_log, longest=4096),
    "reply": ParserTarget(open=files.open_reply, longest=4096),
    "stored-trace": ParserTarget(open=files.open_stored_trace, longest=BINARY),
    "sidecar": ParserTarget(open=files.open_sidecar, longest=BINARY),
    "gguf": ParserTarget(open=files.open_gguf, longest=BINARY),
    "tokenizer": ParserTarget(open=files.open_tokenizer, longest=BINARY),
    "sentencepiece": ParserTarget(open=files.open_sentencepiece, longest=BINARY),
    "tekken": ParserTarget(open=files.open_tekken, longest=65_536),
    "vocabulary-text": ParserTarget(open=partial(files.open_vocabulary, ".txt")),
    "vocabulary-json": ParserTarget(open=partial(files.open_vocabulary, ".json")),
    "model-config": ParserTarget(open=files.open_model_config),
    "weights-index": ParserTarget(open=files.open_weights_index),
    "batch-lines": ParserTarget(open=files.open_batch_lines),
    "batch-list": ParserTarget(open=files.open_batch_list),
    "rows-csv": ParserTarget(open=partial(files.open_rows, ".csv")),
    "rows-parquet": ParserTarget(open=partial(files.open_rows, ".parquet"), longest=BINARY),
    "chunk": ParserTarget(open=files.open_chunk, longest=BINARY),
    "record": ParserTarget(open=files.open_record),
    "pickle": ParserTarget(open=files.open_pickle),
    "lmdb": ParserTarget(open=files.open_lmdb, longest=65_536),
}
