"""What doctor says of llama.cpp, from a process of its own, whatever lies in the folder and whatever that does."""

import sys

import pytest

from espalier.engines.llamacpp import report as llama_report


def stand_in(tmp_path, monkeypatch, script):
    """Another program in the place of Python."""
    path = tmp_path / "python"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    monkeypatch.setattr(llama_report.sys, "executable", str(path))


def test_a_module_in_the_folder_is_not_run(tmp_path, monkeypatch):
    pytest.importorskip("llama_cpp")
    (tmp_path / "ctypes.py").write_text("open('was_run', 'w'); raise SystemExit(0)\n")
    monkeypatch.chdir(tmp_path)
    found = llama_report.examine()
    assert found["can_run"] is True, found
    assert not (tmp_path / "was_run").exists()


@pytest.mark.skipif(sys.platform == "win32", reason="no shell")
@pytest.mark.parametrize(
    ("script", "said"),
    [("exit 0", "ended without a report"), ("echo hello", "ended without a report, and wrote: hello")],
)
def test_a_process_that_ends_well_and_reports_nothing_is_a_fault(tmp_path, monkeypatch, script, said):
    stand_in(tmp_path, monkeypatch, script)
    found = llama_report.examine()
    assert found["can_run"] is False
    assert found["fault"].endswith(said)
