"""requirements.lock, the licences of all extras, the software bill of materials, and which llama.cpp is inside."""

from __future__ import annotations

import ctypes
import json
import re
import subprocess
import sys
import tomllib
from email.message import Message
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from scripts import supply_chain

ROOT = Path(__file__).parents[2]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
LLAMA = PROJECT["tool"]["espalier"]["llama-cpp"]
ELSEWHERE = re.compile(r"cuda-|nvidia-|triton$|pywin32$|httpx2-jsfetch$")
"""What only other systems, or torch's build for GPUs, need: it is not in constraints.txt."""


def pins() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pairs = [line.split("==") for line in lines if "==" in line and not line.startswith("#")]
    return {canonicalize_name(name): version for name, version in pairs}


def test_the_lock_has_the_versions_of_the_constraints_and_a_digest_of_each_file() -> None:
    locked, pinned = supply_chain.read_lock(), pins()
    assert len(locked) > 120
    assert all(digests for _, digests in locked.values())
    assert {name for name in locked if name not in pinned and not ELSEWHERE.match(name)} == set()
    assert {name: version for name, (version, _) in locked.items() if pinned.get(name, version) != version} == {}


def test_the_lock_has_every_package_that_the_extras_name() -> None:
    extras = PROJECT["project"]["optional-dependencies"]
    named = [*PROJECT["project"]["dependencies"], *(text for texts in extras.values() for text in texts)]
    wanted = {canonicalize_name(Requirement(text).name) for text in named} - {supply_chain.NAME}
    assert wanted <= supply_chain.read_lock().keys()


def test_the_lock_has_all_that_is_needed_here() -> None:
    packages, missing = supply_chain.distributions()
    if missing:
        pytest.skip(f"not installed: {', '.join(missing)}")
    assert packages.keys() - {supply_chain.NAME} <= supply_chain.read_lock().keys()


def test_no_package_has_a_licence_that_is_unknown_or_unexplained() -> None:
    packages, _ = supply_chain.distributions()
    assert [*supply_chain.licence_faults(packages)] == []
    assert supply_chain.explained().keys() <= packages.keys() | supply_chain.read_lock().keys()


def package(**fields: str | list[str]) -> Any:
    stated = Message()
    for name, values in fields.items():
        for value in [values] if isinstance(values, str) else values:
            stated[name.replace("_", "-")] = value
    return SimpleNamespace(metadata=stated, version="1")


@pytest.mark.parametrize(
    ("fields", "licence", "is_permissive"),
    [
        ({"License_Expression": "MIT OR GPL-3.0-only"}, "MIT OR GPL-3.0-only", True),
        ({"License_Expression": "MIT AND GPL-3.0-only"}, "MIT AND GPL-3.0-only", False),
        ({"License_Expression": "(Apache-2.0) AND MIT"}, "(Apache-2.0) AND MIT", True),
        ({"License": "Apache License, Version 2.0"}, "Apache-2.0", True),
        ({"License": "BSD"}, "BSD-3-Clause", True),
        ({"Classifier": ["License :: OSI Approved :: MIT License"]}, "MIT", True),
        ({"License": "GPLv2"}, "GPLv2", False),
        ({"Classifier": ["License :: Other/Proprietary License"]}, "Other/Proprietary License", False),
        ({}, "unknown", False),
    ],
)
def test_a_licence_is_read_from_what_a_package_says(fields: Any, licence: str, is_permissive: bool) -> None:
    assert supply_chain.licence_of(package(**fields)) == licence
    assert supply_chain.is_permissive(licence) == is_permissive


def test_a_new_licence_is_a_fault_and_so_is_one_that_has_changed() -> None:
    faults = [*supply_chain.licence_faults({"new": package(License="GPLv3"), "certifi": package(License="GPLv3")})]
    assert len(faults) == 2
    assert "certifi: docs/dependencies.md says MPL-2.0, and the package GPLv3" in faults


def test_the_llama_cpp_of_the_bill_is_the_one_inside_the_bindings_that_are_pinned() -> None:
    assert LLAMA["bindings"] == pins()["llama-cpp-python"]
    assert re.fullmatch(r"b\d+", LLAMA["build"])
    page = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
    assert LLAMA["build"] in page
    assert LLAMA["commit"][:9] in page


def test_the_library_says_that_commit() -> None:
    llama_cpp = pytest.importorskip("llama_cpp")
    if llama_cpp.__version__ != LLAMA["bindings"]:
        pytest.skip(f"llama-cpp-python is {llama_cpp.__version__}")
    commit_of = llama_cpp.llama_cpp._lib.ggml_commit
    commit_of.restype = ctypes.c_char_p
    commit = commit_of().decode().removesuffix("-dirty")
    if commit == "unknown":
        pytest.skip("llama.cpp was built without git, so it does not know its commit")
    assert LLAMA["commit"].startswith(commit)


@pytest.mark.parametrize("cve", ["CVE-2026-27940", "CVE-2026-33298"])
def test_the_build_is_past_the_fix_that_the_page_names(cve: str) -> None:
    page = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
    (fixed,) = re.findall(rf"^\| {cve} \|[^|]+\| b(\d+) \|", page, re.MULTILINE)
    assert int(LLAMA["build"].removeprefix("b")) >= int(fixed)


LISTED: dict[str, Any] = {
    "bomFormat": "CycloneDX",
    "specVersion": "1.6",
    "metadata": {"component": {"bom-ref": "root-component", "name": "espalier-llm"}},
    "components": [
        {"bom-ref": "numpy==2", "name": "numpy", "version": "2"},
        {"bom-ref": "llama_cpp_python==0", "name": "llama_cpp_python", "version": "0"},
        {"bom-ref": "pytest==9", "name": "pytest", "version": "9"},
    ],
    "dependencies": [
        {"ref": "root-component", "dependsOn": ["llama_cpp_python==0", "numpy==2"]},
        {"ref": "llama_cpp_python==0", "dependsOn": ["numpy==2"]},
        {"ref": "numpy==2"},
        {"ref": "pytest==9"},
    ],
}


def test_the_bill_has_what_the_wheel_needs_with_digests_and_llama_cpp_by_its_release(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    names = ("espalier-llm", "numpy", "llama-cpp-python")
    monkeypatch.setattr(supply_chain, "distributions", lambda: (dict.fromkeys(names), []))
    bill = supply_chain.bill(LISTED, {"numpy": ["0" * 64]})
    assert [part["name"] for part in bill["components"]] == ["numpy", "llama_cpp_python", "llama.cpp"]
    numpy, _, llama = bill["components"]
    assert numpy["externalReferences"][0]["hashes"] == [{"alg": "SHA-256", "content": "0" * 64}]
    assert llama["purl"] == f"pkg:github/ggml-org/llama.cpp@{LLAMA['build']}"
    needs = {entry["ref"]: entry["dependsOn"] for entry in bill["dependencies"]}
    assert needs["llama_cpp_python==0"] == [llama["bom-ref"], "numpy==2"]
    assert "pytest==9" not in needs


@pytest.mark.slow
def test_the_bill_is_valid_cyclonedx(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("cyclonedx_py", reason="cyclonedx-bom is not installed: it comes with the group supply")
    from cyclonedx.schema import SchemaVersion
    from cyclonedx.validation.json import JsonStrictValidator

    monkeypatch.setattr(supply_chain, "SBOM", supply_chain.ROOT / "out" / "sbom-of-a-test.json")
    supply_chain.write_bill()
    text = supply_chain.SBOM.read_text(encoding="utf-8")
    supply_chain.SBOM.unlink()
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None
    assert "llama.cpp" in {part["name"] for part in json.loads(text)["components"]}


def pip_audit_that_says(monkeypatch: pytest.MonkeyPatch, code: int, said: str) -> None:
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: SimpleNamespace(returncode=code, stdout=said, stderr="no"))


@pytest.mark.parametrize(
    ("code", "report", "expected"),
    [
        (0, [{"name": "a", "version": "1", "vulns": []}], 0),
        (1, [{"name": "a", "version": "1", "vulns": [{"id": "CVE-1", "fix_versions": ["2"]}]}], 1),
        (0, [{"name": "a", "skip_reason": "not found"}], supply_chain.NO_DATA),
        (1, None, supply_chain.NO_DATA),
    ],
)
def test_an_audit_without_data_is_neither_safe_nor_vulnerable(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], code: int, report: Any, expected: int
) -> None:
    pip_audit_that_says(monkeypatch, code, "" if report is None else json.dumps({"dependencies": report}))
    assert supply_chain.audit() == expected
    assert ("no" in capsys.readouterr().err and "advisory data") if expected == supply_chain.NO_DATA else True


def test_a_command_that_is_none_is_refused() -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "scripts" / "supply_chain.py", "nothing"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
