"""Reconstruction of inference files, row by row: the script and its arguments, the output, reports, the evaluation.

The store is written as HalluLens' logger writes it, and once by our own capture on the demo model.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest

pytest.importorskip("lmdb", reason="lmdb is not installed")

from espalier.activations.foreign.salvage import salvage
from espalier.cli.main import main_code
from espalier.wiring import demo_model
from tests.acceptance.users_documents.rows import rows_of
from tests.foreign_stores import logged, sha, write_pair

row = rows_of("inference-reconstruction")
ROOT = Path(__file__).resolve().parents[3]
SCRIPT = ROOT / "scripts" / "reconstruct_inference.py"
QUESTION = "What is the name of the actress who played the role of Sarah Packard?"
ANSWER = "Sarah Jessica Parker played the role of Sarah Packard."
QA_ROW: dict[str, Any] = {
    "index": 0,
    "title": "Example Article",
    "h_score_cat": 8,
    "pageid": 12345,
    "revid": 67890,
    "description": "Example description",
    "categories": ["Category1", "Category2"],
    "reference": "Example reference text...",
    "prompt": QUESTION,
    "answer": "Sarah Jessica Parker",
}
"""The document's example, without what the reconstruction adds."""
ENTRY = {
    "generation": ANSWER,
    "model": "meta-llama/Llama-3.1-8B-Instruct",
    "input_length": 15,
    "timestamp": 1703123456.789,
}
OTHER = {"prompt": "Who wrote Hamlet?", "answer": "Shakespeare"}
LOST = {"prompt": "Nobody logged this one?", "answer": "?"}


def write_example(folder: Path) -> Path:
    """The QA file and the log of the document's example, beside rows and entries that do not match."""
    (folder / "qa_data.jsonl").write_text("".join(json.dumps(one) + "\n" for one in (QA_ROW, OTHER, LOST)))
    logs = [
        logged(QUESTION, ANSWER, model=ENTRY["model"]) | {"trim_position": 11},
        logged(OTHER["prompt"], "Shakespeare.", model=ENTRY["model"], messages=[{"role": "user", "content": "x"}]),
        logged("Another experiment's question?", "Yes."),
    ]
    write_pair(folder / "activations.lmdb", logs)
    return folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_example(tmp_path)


def run(folder: Path, *more: str, qa: str = "qa_data.jsonl", store: str = "activations.lmdb") -> Any:
    """The document's command, in this folder."""
    command = [
        sys.executable,
        str(SCRIPT),
        "--qa_output_path",
        str(folder / qa),
        "--lmdb_path",
        str(folder / store),
        "--output_path",
        str(folder / "reconstructed_inference.jsonl"),
        *more,
    ]
    environ = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    return subprocess.run(command, env=environ, capture_output=True, text=True, timeout=300, check=False)


def written(folder: Path) -> list[dict[str, Any]]:
    lines = (folder / "reconstructed_inference.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


class Rebuilt(NamedTuple):
    """What one run of the document's command leaves behind."""

    folder: Path
    done: subprocess.CompletedProcess[str]


@pytest.fixture(scope="module")
def rebuilt(tmp_path_factory: pytest.TempPathFactory) -> Rebuilt:
    """The document's command on its example, run once; tests change nothing in its folder."""
    folder = write_example(tmp_path_factory.mktemp("rebuilt"))
    return Rebuilt(folder, run(folder))


@pytest.fixture(scope="module")
def verbose(tmp_path_factory: pytest.TempPathFactory) -> Rebuilt:
    folder = write_example(tmp_path_factory.mktemp("verbose"))
    return Rebuilt(folder, run(folder, "--verbose"))


@row(
    "1.1",
    "`reconstruct_inference.py --qa_output_path --lmdb_path --output_path`",
    differs="`python scripts/reconstruct_inference.py`, or `espalier reconstruct`",
)
def test_the_basic_command(rebuilt: Rebuilt) -> None:
    assert rebuilt.done.returncode == 0, rebuilt.done.stderr
    assert len(written(rebuilt.folder)) == 2


@pytest.mark.slow
@row("1.2", "`example_reconstruct.py`: an example of its use", differs="`examples/example_reconstruct.py`")
def test_the_example_script(tmp_path: Path) -> None:
    environ = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    command = [sys.executable, str(ROOT / "examples" / "example_reconstruct.py"), "--folder", str(tmp_path / "rebuilt")]
    done = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert list((tmp_path / "rebuilt").rglob("*.jsonl"))


@pytest.mark.parametrize(
    "lacking",
    [
        pytest.param(name, marks=row(f"1.{place}", f"`{name}` is required"))
        for place, name in enumerate(("--qa_output_path", "--lmdb_path", "--output_path"), 3)
    ],
)
def test_a_required_parameter(lacking: str, capfd: pytest.CaptureFixture[str]) -> None:
    given = {"--qa_output_path": "a", "--lmdb_path": "b", "--output_path": "c"}
    arguments = [part for name, value in given.items() if name != lacking for part in (name, value)]
    assert main_code(["reconstruct", *arguments]) == 2
    assert lacking in capfd.readouterr().err


@row("1.6", "`--verbose` is optional and logs details")
def test_verbose(rebuilt: Rebuilt, verbose: Rebuilt) -> None:
    assert len(verbose.done.stderr.splitlines()) > len(rebuilt.done.stderr.splitlines())


@row("1.7", "The example: paths in folders that are not there yet (output/…/reconstructed_generation.jsonl)")
def test_the_folders_of_the_output_are_made(folder: Path) -> None:
    target = folder / "output" / "precise_wikiqa_goodwiki_dynamic" / "Llama-3.1-8B-Instruct" / "reconstructed.jsonl"
    paths = ["--qa_output_path", str(folder / "qa_data.jsonl"), "--lmdb_path", str(folder / "activations.lmdb")]
    assert main_code(["reconstruct", *paths, "--output_path", str(target), "--verbose"]) == 0
    assert target.is_file()


@row("2.1", "Formats raw questions as the model was given them: `user: Answer in one sentence. Q:…\\n A:`")
def test_the_prompt_format(verbose: Rebuilt) -> None:
    assert sha(f"user: Answer in one sentence. Q:{QUESTION}\n A:") in verbose.done.stderr


@row("2.2", "Loads the questions and answers of the QA file (JSON Lines)")
def test_the_qa_file_is_read(rebuilt: Rebuilt) -> None:
    assert "2 of 3 rows matched" in rebuilt.done.stderr


@row("2.3", "Extracts metadata from the LMDB file: prompts, responses, model info")
def test_the_store_is_read(rebuilt: Rebuilt) -> None:
    assert "2 of 3 entries used (lmdb)" in rebuilt.done.stderr


@row("2.4", "Matches by the SHA-256 of the formatted prompt")
def test_it_matches_by_hash(rebuilt: Rebuilt, folder: Path) -> None:
    """The keys of the store are not looked at: a store with other keys gives the same."""
    logs = [logged(QUESTION, ANSWER, model=ENTRY["model"]) | {"trim_position": 11}]
    write_pair(folder / "other.lmdb", logs, keys=["key1"])
    run(folder, store="other.lmdb")
    assert written(folder)[0] == written(rebuilt.folder)[0]


@row("2.5", "Merges the QA fields with responses and metadata, and writes JSON Lines")
def test_the_output_of_the_document(rebuilt: Rebuilt) -> None:
    """The document's example entry, key by key in its order; the log of this row had a trim_position too."""
    first = written(rebuilt.folder)[0]
    assert first == {**QA_ROW, **ENTRY, "trim_position": 11}
    assert [*first] == [*QA_ROW, *ENTRY, "trim_position"]


FIELDS = {
    "generation": "the model's response",
    "model": "the model",
    "input_length": "number of input tokens",
    "timestamp": "when it was logged",
    "messages": "chat messages, if applicable",
    "trim_position": "response trim position, if applicable",
}


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=row(f"3.{place}", f"`{name}`: {meaning}"))
        for place, (name, meaning) in enumerate(FIELDS.items(), 1)
    ],
)
def test_a_field_of_the_output(name: str, rebuilt: Rebuilt) -> None:
    first, second = written(rebuilt.folder)
    assert {"generation", "model", "input_length", "timestamp", "trim_position"} <= set(first)
    expected = {**ENTRY, "trim_position": 11, "messages": [{"role": "user", "content": "x"}]}
    assert (second if name == "messages" else first)[name] == expected[name]
    assert "messages" not in first


@row("3.7", "All original QA fields are preserved")
def test_all_fields_are_preserved(rebuilt: Rebuilt) -> None:
    first = written(rebuilt.folder)[0]
    assert {name: first[name] for name in QA_ROW} == QA_ROW


@row("3.8", "Only prompts that have an entry in the LMDB are included")
def test_rows_without_an_entry_are_left_out(rebuilt: Rebuilt) -> None:
    assert [entry["prompt"] for entry in written(rebuilt.folder)] == [QUESTION, OTHER["prompt"]]
    assert LOST["prompt"] in rebuilt.done.stderr  # and told


@row("4.1", "No matches found: what to look at", differs="exit code 1, nothing written, and the error names a remedy")
def test_no_matches(folder: Path) -> None:
    (folder / "none.jsonl").write_text(json.dumps(LOST) + "\n")
    done = run(folder, qa="none.jsonl")
    assert done.returncode == 1
    assert "none of the 1 rows of the QA file has an entry in the store" in done.stderr
    assert "--template" in done.stderr
    assert not (folder / "reconstructed_inference.jsonl").exists()


@row("4.2", "LMDB not found")
def test_no_store(folder: Path) -> None:
    done = run(folder, store="nowhere.lmdb")
    assert done.returncode == 2
    assert "there is nothing at this path" in done.stderr


@row("4.3", "QA file not found")
def test_no_qa_file(folder: Path) -> None:
    done = run(folder, qa="nowhere.jsonl")
    assert done.returncode == 2
    assert "nowhere.jsonl" in done.stderr


@row("4.4", "`--verbose` shows the entries loaded, the hashes of formatted prompts, and matching statistics")
def test_what_verbose_shows(verbose: Rebuilt) -> None:
    said = verbose.done.stderr
    assert sha(f"user: Answer in one sentence. Q:{LOST['prompt']}\n A:") in said
    assert "2 of 3 rows matched; 2 rows written" in said
    assert "2 of 3 entries used" in said


@row(
    "4.5", "Verification: the number of entries matches expectations", differs="`--report FILE` has all counts as JSON"
)
def test_the_counts_can_be_verified(folder: Path) -> None:
    run(folder, "--report", str(folder / "report.json"))
    report = json.loads((folder / "report.json").read_text())
    assert (report["rows"], report["matched"], report["written"], report["entries"]) == (3, 2, 2, 3)
    assert report["written"] == len(written(folder))


@row("4.6", "Missing or corrupted entries are handled gracefully")
def test_corrupted_entries(folder: Path) -> None:
    import lmdb

    path = str(folder / "activations.lmdb_metadata")
    with lmdb.open(path, map_size=1 << 26) as base, base.begin(write=True) as writing:
        writing.put(sha("x").encode(), b"\x80\x04 no pickle")
    done = run(folder)
    assert done.returncode == 0
    assert "1 entries cannot be read" in done.stderr
    assert len(written(folder)) == 2


@row("4.7", "A damaged LMDB file", differs="beyond the document: `--salvage` reads what is left and lists each loss")
def test_a_damaged_file(folder: Path) -> None:
    data = folder / "activations.lmdb_metadata" / "data.mdb"
    raw = bytearray(data.read_bytes())
    data.write_bytes(raw[:4096])
    assert run(folder).returncode == 2
    raw[0:4096] = bytes(4096)  # the first meta page
    data.write_bytes(raw)
    done = run(folder, "--salvage")
    assert done.returncode == 0, done.stderr
    assert "losses: 1" in done.stderr
    assert len(written(folder)) == 2
    assert salvage(folder / "activations.lmdb_metadata", folder / "copy").rows == 3


@row(
    "5.1",
    "The file can be used by the evaluation as it is (PreciseQAEval: prompt, generation, answer)",
    differs="`espalier eval qa` writes the files and keys that HalluLens' evaluation writes",
)
def test_the_evaluation_reads_it(rebuilt: Rebuilt, tmp_path: Path) -> None:
    out = rebuilt.folder / "reconstructed_inference.jsonl"
    assert main_code(["eval", "qa", str(out), "--output", str(tmp_path / "results")]) == 0
    found = json.loads((tmp_path / "results" / "eval_results.json").read_text())
    assert found["model"] == "Llama-3.1-8B-Instruct"
    assert {"halu_Rate", "refusal_rate", "correct_rate"} <= set(found)


@row("5.2", "Columns prompt, generation and answer by pandas' read_json(lines=True)")
def test_pandas_reads_it(rebuilt: Rebuilt) -> None:
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    frame = pandas.read_json(rebuilt.folder / "reconstructed_inference.jsonl", lines=True)
    assert [*frame.generation] == [ANSWER, "Shakespeare."]
    assert {"prompt", "answer"} <= set(frame.columns)


@row("6.1", "Inference with activation logging, on the demo model: captured here, rebuilt, prompts formatted alike")
def test_captured_here_and_rebuilt(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    prompt = f"user: Answer in one sentence. Q:{OTHER['prompt']}\n A:"
    store = str(tmp_path / "logged")
    capture = ["activations", "capture", "-m", str(demo_model()), "--store", store, "--raw", "--max-tokens", "8"]
    assert main_code([*capture, prompt]) == 0
    capfd.readouterr()
    (tmp_path / "qa_data.jsonl").write_text(json.dumps(OTHER) + "\n")
    done = run(tmp_path, store="logged")
    assert done.returncode == 0, done.stderr
    (one,) = written(tmp_path)
    assert one["prompt"] == OTHER["prompt"]
    assert one["generation"]
    assert one["input_length"] > 0


@pytest.mark.slow
@row("6.2", "Large LMDB files may take some time", differs="10,000 entries in seconds, memory does not grow with them")
def test_many_entries(tmp_path: Path) -> None:
    count = 10_000
    write_pair(tmp_path / "activations.lmdb", [logged(f"q {n}", f"a {n}") for n in range(count)], map_size=1 << 28)
    (tmp_path / "qa_data.jsonl").write_text("".join(json.dumps({"prompt": f"q {n}"}) + "\n" for n in range(count)))
    assert run(tmp_path).returncode == 0
    assert [one["generation"] for one in written(tmp_path)] == [f"a {n}" for n in range(count)]
