"""What the wheel with all extras is made of: `python scripts/supply_chain.py sbom | licences | audit | lock`.

    sbom      CycloneDX 1.6 of this environment, without the tools of development, into out/sbom.json
    licences  a table; fails on one that is unknown, or that is not permissive and docs/dependencies.md does not explain
    audit     known vulnerabilities of requirements.lock, from PyPI; exit code 3 where that data cannot be had
    lock      writes requirements.lock: versions of constraints.txt with the digests of their files

The group `supply` of pyproject.toml brings the tools; `licences` needs none.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[1]
CONSTRAINTS, LOCK, SBOM = ROOT / "constraints.txt", ROOT / "requirements.lock", ROOT / "out" / "sbom.json"
DEPENDENCIES = ROOT / "docs" / "dependencies.md"
NAME, EXTRA = "espalier-llm", "all"
NO_DATA = 3
"""Exit code of `audit` where there is no advisory data: neither safe nor vulnerable."""
PERMISSIVE = {
    *("Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "BSL-1.0", "CNRI-Python", "ISC", "MIT", "MIT-0", "OLDAP-2.8"),
    *("PSF-2.0", "Apache-2.0 WITH LLVM-exception"),
}
SPELLINGS = {
    "apache": "Apache-2.0",
    "bsd": "BSD-3-Clause",
    "mit": "MIT",
    "isc": "ISC",
    "python software foundation": "PSF-2.0",
    "3-clause bsd": "BSD-3-Clause",
}
"""How packages name a licence whose identifier they do not give, without the words that all of them have."""
COMMON_WORDS = re.compile(r"\b(licen[sc]e|software|version|the|2\.0|\(iscl\))\b|,", re.IGNORECASE)


def distributions() -> tuple[dict[str, Distribution], list[str]]:
    """What the wheel with all extras needs on this machine, by name, and the names of what is not installed."""
    installed: dict[str, Distribution] = {}
    missing: set[str] = set()
    seen: set[tuple[str, frozenset[str]]] = set()
    waiting: list[tuple[str, frozenset[str]]] = [(NAME, frozenset({EXTRA}))]
    while waiting:
        name, extras = entry = waiting.pop()
        if entry in seen:
            continue
        seen.add(entry)
        try:
            package = installed[name] = distribution(name)
        except PackageNotFoundError:
            missing.add(name)
            continue
        for requirement in map(Requirement, package.requires or ()):
            marker = requirement.marker
            if marker is None or any(marker.evaluate({"extra": extra}) for extra in {"", *extras}):
                waiting.append((canonicalize_name(requirement.name), frozenset(requirement.extras)))
    return installed, sorted(missing)


def licence_of(package: Distribution) -> str:
    """As an SPDX expression where the package gives one or its words are known, otherwise its own words."""
    stated = package.metadata
    if stated["License-Expression"]:
        return str(stated["License-Expression"])
    words = [text.rpartition("::")[2].strip() for text in stated.get_all("Classifier") or () if "License ::" in text]
    first = str(stated["License"] or "").partition("\n")[0].strip()
    for text in [*words, first] if len(first) > 40 else [first, *words]:
        bare = " ".join(COMMON_WORDS.sub(" ", text).split()).lower()
        known = text if is_permissive(text) else SPELLINGS.get(bare)
        if known is not None:
            return known
    return first or " or ".join(words) or "unknown"


def is_permissive(expression: str) -> bool:
    """Whether every part of an SPDX expression is; of alternatives, one."""
    alternatives = (re.split(r"\s+AND\s+", part.strip("() ")) for part in re.split(r"\s+OR\s+", expression))
    return any(all(part.strip("() ") in PERMISSIVE for part in parts) for parts in alternatives)


def explained() -> dict[str, str]:
    """Licences that ask for more and are explained, by package, from the table of docs/dependencies.md."""
    _, _, section = DEPENDENCIES.read_text(encoding="utf-8").partition("## Licences")
    rows = re.findall(r"^\| ([^|]+?) \| ([^|]+?) \| [^|]+ \|$", section.partition("\n## ")[0], re.MULTILINE)
    return {name: licence for names, licence in rows for name in names.split(", ") if name not in ("package", "---")}


def licence_faults(packages: Mapping[str, Distribution]) -> Iterator[str]:
    known = explained()
    for name, package in sorted(packages.items()):
        licence = licence_of(package)
        if known.get(name, licence) != licence:
            yield f"{name}: docs/dependencies.md says {known[name]}, and the package {licence}"
        elif name not in known and not is_permissive(licence):
            yield f"{name}: {licence} is not permissive, or not known, and docs/dependencies.md does not explain it"


def llama_component() -> dict[str, Any]:
    """llama.cpp as a component: its source is inside llama-cpp-python's, which scanners do not look into."""
    table = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["espalier"]["llama-cpp"]
    build, commit = table["build"], table["commit"]
    return {
        "type": "library",
        "bom-ref": f"llama.cpp=={build}",
        "group": "ggml-org",
        "name": "llama.cpp",
        "version": build,
        "purl": f"pkg:github/ggml-org/llama.cpp@{build}",
        "cpe": f"cpe:2.3:a:ggml:llama.cpp:{build}:*:*:*:*:*:*:*",
        "licenses": [{"license": {"id": "MIT"}}],
        "externalReferences": [{"type": "vcs", "url": f"https://github.com/ggml-org/llama.cpp/tree/{commit}"}],
        "pedigree": {"commits": [{"uid": commit}]},
        "properties": [{"name": "espalier:built-by", "value": f"llama-cpp-python {table['bindings']}"}],
    }


def bill(listed: Mapping[str, Any], locked: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """What cyclonedx-py says of an environment, less what the wheel does not need, with digests and llama.cpp."""
    needs = {entry["ref"]: list(entry.get("dependsOn", ())) for entry in listed["dependencies"]}
    names = {part["bom-ref"]: canonicalize_name(part["name"]) for part in listed["components"]}
    wanted, _ = distributions()
    kept = {ref for ref, name in names.items() if name in wanted and name != NAME}
    root = listed["metadata"]["component"]["bom-ref"]
    llama = llama_component()
    components = []
    for part in listed["components"]:
        if part["bom-ref"] in kept:
            digests = [{"alg": "SHA-256", "content": digest} for digest in locked.get(names[part["bom-ref"]], ())]
            references = [{"type": "distribution", "url": "https://pypi.org/", "hashes": digests}] if digests else []
            components.append(part | {"externalReferences": [*part.get("externalReferences", ()), *references]})
    edges = {ref: [need for need in refs if need in kept] for ref, refs in needs.items() if ref in kept or ref == root}
    for ref, refs in edges.items():
        refs += [llama["bom-ref"]] if names.get(ref) == "llama-cpp-python" else []
    dependencies = [{"ref": ref, "dependsOn": sorted(refs)} for ref, refs in sorted(edges.items())]
    return {
        **listed,
        "components": [*components, llama],
        "dependencies": [*dependencies, {"ref": llama["bom-ref"], "dependsOn": []}],
    }


def read_lock(path: Path = LOCK) -> dict[str, tuple[str, list[str]]]:
    """Version and SHA-256 digests of each package of a lock file."""
    entry = r"^([A-Za-z0-9._-]+)==([^ ;\\\n]+)[^\n]*((?:\n    --hash=[^\n]*)*)"
    entries = re.findall(entry, path.read_text(encoding="utf-8"), re.MULTILINE)
    return {
        canonicalize_name(name): (version, re.findall(r"--hash=sha256:([0-9a-f]{64})", digests))
        for name, version, digests in entries
    }


def write_bill() -> int:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "environment.json"
        project = ("--pyproject", ROOT / "pyproject.toml", "--mc-type", "library")
        command = [sys.executable, "-m", "cyclonedx_py", "environment", sys.prefix, *project, "--output-reproducible"]
        subprocess.run([*map(str, command), "-o", str(path)], check=True)
        listed = json.loads(path.read_text(encoding="utf-8"))
    written = bill(listed, {name: digests for name, (_, digests) in read_lock().items()})
    _, missing = distributions()
    for name in missing:
        print(f"not installed, so not in the bill: {name}", file=sys.stderr)
    SBOM.parent.mkdir(exist_ok=True)
    SBOM.write_text(json.dumps(written, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    print(f"{SBOM.relative_to(ROOT)}: {len(written['components'])} components")
    return 1 if missing else 0


def print_licences() -> int:
    packages, missing = distributions()
    for name, package in sorted(packages.items()):
        print(f"{name:42} {package.version:16} {licence_of(package)}")
    faults = [*licence_faults(packages), *(f"{name}: it is not installed" for name in missing)]
    for fault in faults:
        print(fault, file=sys.stderr)
    return 1 if faults else 0


def audit() -> int:
    """pip-audit's own exit code, or NO_DATA."""
    command = [sys.executable, "-m", "pip_audit", "-r", str(LOCK), "--no-deps", "--disable-pip", "--format", "json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    try:
        reports = json.loads(done.stdout)["dependencies"]
    except (ValueError, KeyError):
        print(f"audit: no advisory data: {done.stderr.strip()[-300:]}", file=sys.stderr)
        return NO_DATA
    unknown = [report["name"] for report in reports if "skip_reason" in report]
    for report in reports:
        for fault in report.get("vulns", ()):
            print(f"{report['name']} {report['version']}: {fault['id']}, fixed in {', '.join(fault['fix_versions'])}")
    if unknown:
        shown = ", ".join(unknown[:3])
        print(f"audit: PyPI has no advisory data for {len(unknown)} of {len(reports)} ({shown}, …)", file=sys.stderr)
    return NO_DATA if unknown and not done.returncode else done.returncode


def write_lock() -> int:
    """For every system, as `uv` resolves it: what has no pin in constraints.txt is what other systems need."""
    command = [
        sys.executable,
        "-m",
        "uv",
        "pip",
        "compile",
        "pyproject.toml",
        "--extra",
        EXTRA,
        "-c",
        "constraints.txt",
    ]
    shape = ["--universal", "--python-version", "3.11", "--generate-hashes", "--no-header", "--no-annotate", "--quiet"]
    return subprocess.run([*command, *shape, "-o", str(LOCK)], cwd=ROOT, check=False).returncode


COMMANDS = {"sbom": write_bill, "licences": print_licences, "audit": audit, "lock": write_lock}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=COMMANDS)
    return COMMANDS[parser.parse_args().command]()


if __name__ == "__main__":
    raise SystemExit(main())
