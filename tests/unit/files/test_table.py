"""The table of readers in docs/security.md is the code's, and each reader refuses what is above its limit."""

from __future__ import annotations

import io
import itertools
import json
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from espalier.activations.foreign.open import open_store
from espalier.activations.foreign.store import DamagedEntry
from espalier.activations.reconstruct.qa_file import read_rows
from espalier.chat.prompt.template import ChatTemplate
from espalier.cli.flags import inputs
from espalier.cli.flags.constraint import read_grammar, read_spec
from espalier.cli.flags.inputs import read_text
from espalier.cli.flags.schema import read_schema_argument
from espalier.cli.flags.tools import read_tools_file
from espalier.constraints.compiler import Compiler, Folders
from espalier.constraints.json_schema import instances
from espalier.constraints.safety.compile import filter_of
from espalier.constraints.safety.lists import read_list
from espalier.constraints.safety.parts import forget_parts
from espalier.constraints.safety.spec import Safety
from espalier.constraints.words.compile import wordlist_language
from espalier.constraints.words.spec import Wordlist
from espalier.engines.gguf.header import read_header
from espalier.engines.model_folder import check_folder
from espalier.errors import EspalierError, InputError, OutputError, TooLarge
from espalier.files import limits
from espalier.files.limits import READERS, FileLimits, size_text
from espalier.harness.cases.read import read_cases
from espalier.lexicon.files import read_words
from espalier.sampling.presets.files import read_preset
from espalier.server.admit.auth import read_key_file
from espalier.server.environment import read_environment
from espalier.store.packing import unpack
from espalier.tokens.readers import read_tokenizer
from espalier.tokens.trie import load_trie
from espalier.tokens.vocab import Vocab
from espalier.tokens.vocab_file import read_vocab_file
from espalier.trace import sidecar
from espalier.trace.foreign.merge import merge_files, read_bytes
from espalier.trace.foreign.responses import read_response
from espalier.trace.records import Trace

DOCS = Path(__file__).resolve().parents[3] / "docs" / "security.md"
HEADER = "| kind | bytes | depth | values | other counts | time | error |"
GIB = 1 << 30


def rows() -> dict[str, str]:
    lines = DOCS.read_text("utf-8").splitlines()
    start = lines.index(HEADER) + 2
    table = itertools.takewhile(lambda line: line.startswith("|"), lines[start:])
    return {line.split("|")[1].strip(): line for line in table}


def row(kind: str, reader: FileLimits) -> str:
    depth, values = ("" if one is None else f"{one:,}" for one in (reader.depth, reader.values))
    cells = (kind, size_text(reader.bytes), depth, values, reader.count, reader.time)
    return f"| {' | '.join(cells)} | `{reader.error.__name__}` |".replace("|  |", "| |").replace("|  |", "| |")


def test_the_table_of_the_docs_is_that_of_the_code() -> None:
    assert rows() == {kind: row(kind, reader) for kind, reader in READERS.items()}


def as_tokenizer(path: Path) -> None:
    read_tokenizer(path)


READ: dict[str, Callable[[Path], object]] = {
    "text": lambda path: read_text(str(path), "text"),
    "schema": lambda path: read_schema_argument(str(path), read_text),
    "constraint": lambda path: read_spec(str(path)),
    "tools": lambda path: read_tools_file(str(path)),
    "instances": lambda path: read_text(str(path), "instances"),
    "grammar": lambda path: read_grammar(str(path)),
    "preset": read_preset,
    "word list": read_words,
    "phrase list": read_list,
    "trace": Trace.load,
    "rejection log": lambda path: merge_files(reply(path.parent), path),
    "reply": read_bytes,
    "tokenizer.json": as_tokenizer,
    "SentencePiece model": as_tokenizer,
    "vocabulary file": read_vocab_file,
    "config of a model": lambda path: check_folder(path.parent),
    "settings": lambda path: read_environment({}, env_file=str(path)),
    "keys": read_key_file,
    "QA file": lambda path: [*read_rows(path)],
    "test cases": read_cases,
}
"""Readers of a path; the others have a test each."""
OTHERS = {
    "index of a store",
    "older index of a store",
    "entry of a store",
    "prompt",
    "batch input",
    "sidecar",
    "stored trace",
    "chat template",
    "GGUF",
    "token trie",
    "safety automaton",
    "word list automaton",
}
NAMES = {
    "test cases": "c.yaml",
    "vocabulary file": "v.json",
    "config of a model": "config.json",
    "tokenizer.json": "tokenizer.json",
}
BEGINS = {"tokenizer.json": b"{", "config of a model": b"{", "keys": b"[", "schema": b"{"}


def reply(folder: Path) -> Path:
    path = folder / "reply.json"
    step = {"token": "a", "logprob": -0.1, "top_logprobs": []}
    path.write_text(json.dumps({"choices": [{"logprobs": {"content": [step]}}]}), encoding="utf-8")
    return path


def test_every_row_is_tried() -> None:
    assert set(READ) | OTHERS == set(READERS)


@pytest.mark.parametrize("kind", READ)
def test_a_file_above_the_limit_is_refused_before_it_is_read(kind: str, tmp_path: Path) -> None:
    path = tmp_path / NAMES.get(kind, "x")
    with path.open("wb") as file:
        file.write(BEGINS.get(kind, b"a"))
        file.truncate(READERS[kind].bytes + 1)  # a hole, which takes no room
    with pytest.raises(TooLarge, match=f"is larger than {size_text(READERS[kind].bytes)}") as caught:
        READ[kind](path)
    assert path.name in str(caught.value)


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("index of a store", "meta/index.jsonl"),
        ("older index of a store", "metadata.json"),
        ("entry of a store", "activations/k.json"),
    ],
)
def test_a_file_of_a_store_above_the_limit_is_refused_before_it_is_read(kind: str, name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    with path.open("wb") as file:
        file.truncate(READERS[kind].bytes + 1)  # a hole
    if kind != "entry of a store":
        with pytest.raises(TooLarge, match="is larger than"):
            [*open_store(tmp_path).found()]
        return
    (tmp_path / "metadata.jsonl").write_text('{"key": "k", "prompt": "p"}\n', "utf-8")
    (found,) = open_store(tmp_path).found()
    assert isinstance(found, DamagedEntry)
    assert "is larger than" in found.reason


DEEP = {"vocabulary file", "trace", "reply", "schema", "constraint", "tools", "tokenizer.json", "config of a model"}


@pytest.mark.parametrize("kind", sorted(DEEP))
@pytest.mark.parametrize(
    ("text", "said"), [('{"a":' * 999 + "1" + "}" * 999, "deeply"), ("[" + "[]," * 9_000_000, "values")]
)
def test_a_text_of_many_levels_or_values_is_refused_before_it_is_parsed(
    kind: str, text: str, said: str, tmp_path: Path
) -> None:
    if said == "values" and READERS[kind].bytes < len(text):
        pytest.skip("larger than such a file may be")
    path = tmp_path / NAMES.get(kind, "x")
    path.write_text(text if kind != "tokenizer.json" or said == "deeply" else '{"a":' + text, encoding="utf-8")
    with pytest.raises(TooLarge, match=said):
        read_response(read_bytes(path)) if kind == "reply" else READ[kind](path)


def test_a_prompt_from_a_pipe_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inputs, "READERS", {**READERS, "prompt": FileLimits(noun="prompt", bytes=5)})
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"123456")))
    with pytest.raises(TooLarge, match="the prompt standard input is larger than 5 bytes"):
        inputs.read_prompt("-")


def bomb(path: Path, count: int) -> None:
    """A sidecar of that many rows of zeros, which shrink to a thousandth."""
    rows_ = {
        "logits": np.zeros((count, 4096), np.float16),
        "tops": np.zeros(count, np.float32),
        "masks": np.zeros((count, 128), np.int32),
        "places": np.arange(count, dtype=np.int32),
        "tokens": np.zeros(count, np.int32),
    }
    np.savez_compressed(path, **rows_)


def test_a_sidecar_that_is_a_bomb_is_refused_before_it_is_unpacked(tmp_path: Path) -> None:
    bomb(tmp_path / "x.npz", 9000)
    assert (tmp_path / "x.npz").stat().st_size < 200_000
    with pytest.raises(TooLarge, match=r"would unpack to 7\d,\d{3},\d{3} bytes"):
        sidecar.load(tmp_path / "x.json", steps=9000)
    with pytest.raises(InputError, match="has 9000 rows, and its trace 3 steps"):
        sidecar.load(tmp_path / "x.json", steps=3)


def rewritten(path: Path, name: str, data: bytes) -> None:
    with zipfile.ZipFile(path) as found:
        members = {one: found.read(one) for one in found.namelist()}
    members[name] = data
    with zipfile.ZipFile(path, "w") as made:
        for one, content in members.items():
            made.writestr(one, content)


HEAD = b"\x93NUMPY\x01\x00v\x00"
ARRAY = "{'descr': '%s', 'fortran_order': False, 'shape': (%s,), }"


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "cannot read the sidecar"),
        (b"\x93NUMPY\x01\x00", "cannot read the sidecar"),
        (b"\x93NUMPY\x02\x00" + bytes(100), "version 1.0"),
        (HEAD + (ARRAY % ("|O", 2)).encode().ljust(117) + b"\n", "shape or type"),
        (HEAD + (ARRAY % ("<i4", 2_000_000_000)).encode().ljust(117) + b"\n", "not as long"),
        (HEAD + b"{'descr': ('<i4', (".ljust(117) + b"\n", "shape or type"),
        (HEAD + b"__import__('os').abort()".ljust(118), "cannot read the sidecar"),
    ],
)
def test_a_sidecar_with_a_damaged_array_is_one_line(tmp_path: Path, data: bytes, said: str) -> None:
    bomb(tmp_path / "x.npz", 2)
    rewritten(tmp_path / "x.npz", "tokens.npy", data)
    with pytest.raises(InputError, match=said):
        sidecar.load(tmp_path / "x.json", steps=2)


def test_a_sidecar_that_is_cut_or_has_many_members_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.npz"
    bomb(path, 2)
    whole = path.read_bytes()
    for count in (0, 10, 100, len(whole) - 1):
        path.write_bytes(whole[:count])
        with pytest.raises(InputError, match="no zip file, or cut"):
            sidecar.load(tmp_path / "x.json", steps=2)
    with zipfile.ZipFile(path, "w") as made:
        for number in range(1000):
            made.writestr(f"{number}.npy", b"")
    with pytest.raises(InputError, match="does not hold logits"):
        sidecar.load(tmp_path / "x.json", steps=2)


@pytest.mark.slow
def test_a_stored_trace_that_is_a_bomb_is_refused() -> None:
    packer = zlib.compressobj()
    packed = b"".join(packer.compress(b" " * (1 << 20)) for _ in range(129)) + packer.flush()
    with pytest.raises(OutputError, match="larger than"):
        unpack(packed, what="trace")
    with pytest.raises(OutputError, match="cut"):
        unpack(zlib.compress(b"{}")[:-3], what="trace")


def test_a_chat_template_has_a_limit() -> None:
    with pytest.raises(TooLarge):
        ChatTemplate("a" * (limits.TEMPLATE.bytes + 1))


def gguf(*, keys: int, tensors: int, rest: bytes) -> bytes:
    return b"GGUF" + (3).to_bytes(4, "little") + tensors.to_bytes(8, "little") + keys.to_bytes(8, "little") + rest


def text(data: bytes, count: int | None = None) -> bytes:
    return (len(data) if count is None else count).to_bytes(8, "little") + data


KEY, TEXT, LIST = text(b"a.b"), (8).to_bytes(4, "little"), (9).to_bytes(4, "little")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (gguf(keys=1 << 63, tensors=0, rest=b""), "ends before"),
        (gguf(keys=70_000, tensors=0, rest=bytes(2_000_000)), "limit is 65,536"),
        (gguf(keys=1, tensors=0, rest=text(b"a", 1 << 62) + bytes(99)), "ends within"),
        (gguf(keys=1, tensors=0, rest=KEY + LIST + LIST + bytes(99)), "list of lists"),
        (gguf(keys=1, tensors=0, rest=KEY + LIST + TEXT + b"\xff" * 8), "ends within"),
        (gguf(keys=1, tensors=0, rest=KEY + TEXT + text(b"", 1 << 40)), "ends within"),
        (gguf(keys=2, tensors=0, rest=(KEY + (4).to_bytes(4, "little") + bytes(4)) * 2), "twice"),
        (gguf(keys=1, tensors=0, rest=text(b"k" * 100_000) + (99).to_bytes(4, "little") + bytes(99)), "unknown type"),
    ],
)
def test_a_gguf_header_that_lies_is_one_short_line(tmp_path: Path, content: bytes, said: str) -> None:
    path = tmp_path / "x.gguf"
    path.write_bytes(content)
    with pytest.raises(InputError, match=said) as caught:
        read_header(path)
    assert len(str(caught.value)) < 500


def test_a_gguf_of_large_texts_is_refused_by_their_size(tmp_path: Path) -> None:
    path = tmp_path / "x.gguf"
    begin = gguf(keys=1, tensors=0, rest=KEY + (8).to_bytes(4, "little") + text(b"", 1 << 30))
    with path.open("wb") as file:
        file.write(begin)
        file.truncate(1 << 31)  # a hole
    with pytest.raises(InputError, match="a text of 1,073,741,824 bytes"):
        read_header(path)


def test_a_token_trie_that_is_not_its_own_is_built_again(tmp_path: Path) -> None:
    vocab = Vocab.bytes()
    made = load_trie(vocab, tmp_path)
    (path,) = tmp_path.iterdir()
    with path.open("r+b") as file:
        file.truncate(GIB * 64)
    assert np.array_equal(load_trie(vocab, tmp_path).skip, made.skip)
    assert path.stat().st_size < 10_000
    path.unlink()
    path.symlink_to("/dev/zero")
    assert np.array_equal(load_trie(vocab, tmp_path).skip, made.skip)


def test_a_safety_automaton_that_is_none_is_made_again(tmp_path: Path) -> None:
    filter_of.cache_clear()
    forget_parts()
    spec = Safety("minimal", exclude=[one.name for one in Safety("minimal").built_in() if one.part != "code_injection"])
    wanted = filter_of(spec, tmp_path).tables.table
    (path,) = tmp_path.iterdir()
    with path.open("r+b") as file:
        file.truncate(GIB * 64)
    forget_parts()
    filter_of.cache_clear()
    assert np.array_equal(filter_of(spec, tmp_path).tables.table, wanted)
    assert path.stat().st_size < READERS["safety automaton"].bytes


def test_a_word_list_automaton_that_is_none_is_made_again(tmp_path: Path) -> None:
    compiler = Compiler(Vocab.bytes(), folders=Folders(cache=tmp_path))
    wanted = wordlist_language(Wordlist(lang="en", top=1_000), compiler).table
    (path,) = tmp_path.iterdir()
    with path.open("r+b") as file:
        file.truncate(GIB * 64)
    assert np.array_equal(wordlist_language(Wordlist(lang="en", top=1_000), compiler).table, wanted)
    assert path.stat().st_size < READERS["word list automaton"].bytes


def test_no_limit_is_an_error_of_ours_for_a_server() -> None:
    assert issubclass(TooLarge, InputError)
    assert issubclass(TooLarge, EspalierError)
    assert TooLarge("x").http_status == 400


def test_documents_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(instances, "MAX_DOCUMENTS", 3)
    with pytest.raises(TooLarge, match="more than 3 documents"):
        instances.read_instances("{}\n" * 4, "x")
    with pytest.raises(TooLarge, match="x, line 2 is nested too deeply"):
        instances.read_instances("{}\n" + "[" * 200 + "]" * 200, "x")
