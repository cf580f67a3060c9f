"""Parsers of files that programs write: traces, replies, logs, models, tokenizers, batches, stores."""

from __future__ import annotations

import io
import re
import shutil
from contextlib import suppress
from pathlib import Path

import pytest

from tests.fuzz.parsers.law import Read
from tests.fuzz.parsers.target import through_file


def open_trace() -> Read:
    """Any file that `espalier trace` takes, as far as its sums and its page."""
    from espalier.trace.foreign.read import read
    from espalier.trace.page import render
    from espalier.trace.summary import summarise

    def read_trace(path: Path) -> object:
        trace = read(path).trace
        data = trace.to_json()
        return summarise(trace.steps, trace.constraint, trace.text, trace.rewinds), render(data)

    return through_file("trace.json", read_trace)


def open_log() -> Read:
    from espalier.trace.foreign.log_reader import LogReader

    return lambda data: list(LogReader(io.BytesIO(data)))


def open_reply() -> Read:
    from espalier.trace.foreign.merge import estimate
    from espalier.trace.foreign.read import trace_of
    from espalier.trace.foreign.responses import read_response

    def read(data: bytes) -> object:
        response = read_response(data)
        return trace_of(response)[0].to_json(), estimate(response).data

    return read


def open_stored_trace() -> Read:
    """The JSON of a stored trace; its compression is zlib's."""
    from espalier.store.packing import compress, unpack
    from espalier.trace.records import trace_of

    return lambda data: trace_of(unpack(compress(data), what="trace"), "the database").to_json()


def open_sidecar() -> Read:
    from espalier.trace import sidecar

    return through_file("trace.npz", lambda path: sidecar.load(path.with_suffix(".json"), steps=5))


def open_gguf() -> Read:
    from espalier.engines.gguf.checks import check_generates, check_vocabulary
    from espalier.engines.gguf.header import read_header
    from espalier.errors import InputError

    def read(path: Path) -> object:
        header = read_header(path)
        with suppress(InputError):
            check_vocabulary(header, path.name)
        return check_generates(header, path.name)

    return through_file("model.gguf", read)


def open_tokenizer() -> Read:
    pytest.importorskip("tokenizers")
    from espalier.tokens.vocab import Vocab

    return through_file("tokenizer.json", Vocab.from_tokenizer)


def open_sentencepiece() -> Read:
    pytest.importorskip("sentencepiece")
    from espalier.tokens.vocab import Vocab

    return through_file("tokenizer.model", Vocab.from_tokenizer)


def open_tekken() -> Read:
    """A tokenizer that mistral-common made of a file; what it does not make is not read."""
    tekken = pytest.importorskip("mistral_common.tokens.tokenizers.tekken")
    from espalier.tokens.vocab import Vocab

    def read(path: Path) -> object:
        tokenizer = None
        numbers = re.findall(rb"[0-9.]+", path.read_bytes())
        if any(len(number) > len("100000") for number in numbers):
            return None  # mistral-common makes as many tokens as its file says, whatever memory that takes
        with suppress(Exception):  # of mistral-common, which the caller of `from_tokenizer` calls
            tokenizer = tekken.Tekkenizer.from_file(path)
        return None if tokenizer is None else Vocab.from_tokenizer(tokenizer)

    return through_file("tekken.json", read)


def open_vocabulary(suffix: str) -> Read:
    from espalier.tokens.vocab_file import read_vocab_file

    return through_file(f"v{suffix}", read_vocab_file)


def open_model_config() -> Read:
    from espalier.engines.model_folder import check_folder

    return through_file("config.json", lambda path: check_folder(path.parent))


def open_weights_index() -> Read:
    """The index of safetensors files; their headers are read by transformers alone."""
    from espalier.engines.model_folder import check_folder

    return through_file("model.safetensors.index.json", lambda path: check_folder(path.parent))


def open_batch_lines() -> Read:
    from espalier.jobs.intake import LineReader

    return lambda data: list(LineReader("/v1/chat/completions").read(io.BytesIO(data)))


def open_batch_list() -> Read:
    from espalier.jobs.intake import ListReader, parse

    return lambda data: [parse(item) for item in ListReader(io.BytesIO(data))]


def open_rows(suffix: str) -> Read:
    if suffix == ".parquet":
        pytest.importorskip("pyarrow")
    from espalier.jobs.formats.rows import read_rows
    from espalier.jobs.formats.template import encoded

    return through_file(f"rows{suffix}", lambda path: list(encoded(read_rows(path, most=1 << 20))))


def open_chunk() -> Read:
    """A value of our store of activations: vectors."""
    from espalier.activations.store.layout import DamagedChunk, unpack

    def read(data: bytes) -> object:
        with suppress(DamagedChunk):  # its callers say where it lay
            return unpack(data)
        return None

    return read


def open_record() -> Read:
    """A value of our store of activations: the record of a request."""
    from espalier.activations.store.rebuild import database_of

    return database_of


def open_pickle() -> Read:
    """A value of the stores of others."""
    from espalier.activations.foreign.entry import BadEntry, entry_of
    from espalier.activations.foreign.pickles import load_inert, load_plain

    def read(data: bytes) -> object:
        for load in (load_plain, load_inert):
            with suppress(BadEntry):  # its caller says which entry it is
                entry_of("key", load(data)).to_json()
        return None

    return read


def open_lmdb() -> Read:
    """The pages of an LMDB file, read as far as they can be."""
    pytest.importorskip("lmdb")
    from espalier.activations.foreign.salvage import salvage

    def read(path: Path) -> object:
        target = path.parent / "salvaged"
        try:
            return salvage(path, target)
        finally:
            shutil.rmtree(target, ignore_errors=True)

    return through_file("data.mdb", read)
