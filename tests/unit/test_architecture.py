"""The import contracts of pyproject.toml hold on this tree, and each catches what it is there for.

Every plant goes into a copy of the tree. import-linter runs in a process of its own, since it looks a
package up the way `import` does and this process already has ours.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

pytest.importorskip("importlinter", reason="import-linter is not installed")

ROOT = Path(__file__).resolve().parents[2]
RUN = "from importlinter.cli import lint_imports_command; lint_imports_command()"

RANKS = "ranks"
CYCLES = "no cycles, function-level imports included"
ENGINES = "engines do not know one another"
EDGES = "edges see engines through their protocol alone"
STRATEGIES = "strategies do not know one another"
CORE = "from grammar to decoding: no models, no server, no database, no HTTP client"
LLGUIDANCE = "llguidance is a peer in tests and benchmarks only"
NUMBA = "numba only where kernels are declared"
SETTINGS = "only wiring reads settings"
ROOMS = {
    f"rooms of {name}"
    for name in (
        "activations",
        "agents",
        "automata",
        "chat",
        "cli",
        "constraints",
        "sampling",
        "schema",
        "server",
        "trace",
    )
}
ALL = {RANKS, CYCLES, ENGINES, EDGES, STRATEGIES, CORE, LLGUIDANCE, NUMBA, SETTINGS, *ROOMS}


def lint(root: Path) -> dict[str, bool]:
    """Contract name -> kept, for the tree at `root`."""
    done = subprocess.run(
        [sys.executable, "-c", RUN, "--no-cache"],
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(root / "src"), "COLUMNS": "200", "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    verdicts = dict(re.findall(r"^(.+?) (KEPT|BROKEN)\b", done.stdout, flags=re.MULTILINE))
    assert verdicts, f"import-linter did not run:\n{done.stdout}{done.stderr}"
    assert done.returncode == (1 if "BROKEN" in verdicts.values() else 0), done.stdout
    return {name: verdict == "KEPT" for name, verdict in verdicts.items()}


def plant(root: Path, files: Mapping[str, str]) -> None:
    """Append to a module of the copy, or make it."""
    for name, source in files.items():
        target = root / "src" / "espalier" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        with target.open("a", encoding="utf-8") as file:
            file.write(f"\n{source}\n")


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    shutil.copytree(ROOT / "src", tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


def test_every_contract_holds_on_this_tree() -> None:
    assert lint(ROOT) == dict.fromkeys(ALL, True)


@pytest.mark.parametrize(
    ("contract", "files"),
    [
        pytest.param(RANKS, {"tokens/planted.py": "import espalier.engines.base"}, id="upward"),
        pytest.param(
            RANKS,
            {"trace/planted.py": "def late():\n    from espalier.constraints import spec\n    return spec"},
            id="upward-inside-a-function",
        ),
        pytest.param(RANKS, {"grammar/planted.py": "import espalier.tokens.mask"}, id="sideways"),
        pytest.param(
            RANKS,
            {
                "exports.py": "import espalier.cli.planted",
                "cli/planted.py": "",
                "chat/planted.py": "import espalier.exports",
            },
            id="upward-through-exports",
        ),
        pytest.param(RANKS, {"planted/__init__.py": ""}, id="unknown-package"),
        pytest.param(RANKS, {"planted.py": ""}, id="unknown-module"),
        pytest.param(
            CYCLES,
            {
                "tokens/planted_a.py": "import espalier.tokens.planted_b",
                "tokens/planted_b.py": "def late():\n    import espalier.tokens.planted_a",
            },
            id="cycle-by-a-function-level-import",
        ),
        pytest.param(
            ENGINES,
            {"engines/fake.py": "import espalier.engines.huggingface.planted", "engines/huggingface/planted.py": ""},
            id="engine-imports-engine",
        ),
        pytest.param(
            ENGINES, {"engines/local/planted.py": "import espalier.engines.fake"}, id="shared-module-imports-engine"
        ),
        pytest.param(EDGES, {"api/planted.py": "from espalier.engines.local.engine import LocalEngine"}, id="edge"),
        pytest.param(
            STRATEGIES,
            {"decoding/masking.py": "import espalier.decoding.rejection", "decoding/rejection.py": ""},
            id="strategy-imports-strategy",
        ),
        *(
            pytest.param(
                f"rooms of {package}", {f"{low}/planted.py": f"import {high}"}, id=f"up-the-rooms-of-{package}"
            )
            for package, low, high in (
                ("activations", "activations/foreign", "espalier.activations.reconstruct"),
                ("automata", "automata/languages", "espalier.automata.masks"),
                ("chat", "chat/wire", "espalier.chat.prompt"),
                ("cli", "cli/flags", "espalier.cli.trace"),
                ("constraints", "constraints/words", "espalier.constraints.soft"),
                ("sampling", "sampling/samplers", "espalier.sampling.fast"),
                ("schema", "schema/read", "espalier.schema.normal"),
                ("server", "server/bodies", "espalier.server.asking"),
                ("trace", "trace/foreign", "espalier.trace.recorders"),
            )
        ),
        *(
            pytest.param(f"rooms of {package}", {f"{package}/planted.py": ""}, id=f"an-unlisted-room-of-{package}")
            for package in ("constraints", "server")
        ),
        pytest.param(CORE, {"decoding/planted.py": "import torch"}, id="torch-in-decoding"),
        pytest.param(CORE, {"tokens/planted.py": "def late():\n    import transformers"}, id="transformers-in-tokens"),
        pytest.param(CORE, {"chat/planted.py": "from httpx import Client"}, id="http-client-in-chat"),
        pytest.param(LLGUIDANCE, {"constraints/planted.py": "import llguidance"}, id="llguidance-elsewhere"),
        pytest.param(LLGUIDANCE, {"engines/planted.py": "import llguidance.numpy"}, id="in-engines"),
        pytest.param(NUMBA, {"tokens/planted.py": "from numba import njit"}, id="numba-elsewhere"),
        pytest.param(
            SETTINGS,
            {"settings.py": "", "wiring.py": "", "cli/planted.py": "from espalier.settings import x"},
            id="settings-outside-wiring",
        ),
    ],
)
def test_a_planted_violation_breaks_its_contract(copy: Path, contract: str, files: Mapping[str, str]) -> None:
    plant(copy, files)
    assert lint(copy)[contract] is False


def test_what_is_allowed_breaks_nothing(copy: Path) -> None:
    plant(
        copy,
        {
            "__main__.py": "import espalier.cli",
            "settings.py": "import espalier.errors",
            "wiring.py": "import espalier.settings",
            "sampling/fast/kernels/planted.py": "from espalier.kernels import compiled",
            "engines/huggingface/planted.py": "import torch\nfrom espalier.engines import base, local",
            "engines/serving/planted.py": "import espalier.engines.base",
        },
    )
    assert lint(copy) == dict.fromkeys(ALL, True)
