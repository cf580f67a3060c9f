"""The images of the Dockerfile and of deploy/ray.Dockerfile, as far as reading tells: what they copy is there, what
they install has a name, what they start and mount fits the user that they run as. `scripts/try_image.sh` builds one."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[3]
IMAGES = ("Dockerfile", "deploy/ray.Dockerfile")
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())


def instructions(name: str) -> list[tuple[str, str]]:
    """Each instruction of a Dockerfile with its arguments, continued lines joined, comments left out."""
    lines = [line for line in (ROOT / name).read_text().splitlines() if not line.startswith("#")]
    whole = re.sub(r"\\\n\s*", " ", "\n".join(lines))
    found = [line.partition(" ") for line in whole.splitlines() if line.strip()]
    return [(word, rest.strip()) for word, _, rest in found]


def copied(name: str) -> list[str]:
    """What is copied from the folder of the build."""
    rest = [shlex.split(rest) for word, rest in instructions(name) if word in ("COPY", "ADD")]
    return [one for words in rest if not words[0].startswith("--from") for one in words[:-1]]


@pytest.mark.parametrize("name", IMAGES)
def test_what_an_image_copies_is_there_and_is_sent_to_the_build(name: str) -> None:
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    assert ignored[0] == "*"
    sent = {line[1:] for line in ignored if line.startswith("!")}
    for one in copied(name):
        assert (ROOT / one).exists(), one
        assert one in sent, f"{one} is left out by .dockerignore"


def test_the_build_has_all_that_makes_the_wheel() -> None:
    wheel = PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]
    wanted = {
        *wheel["force-include"],
        *PROJECT["project"]["license-files"],
        PROJECT["project"]["readme"],
        "pyproject.toml",
    }
    wanted |= {one.partition("/")[0] for one in wheel["packages"]}
    assert wanted | {"constraints.txt"} <= set(copied("Dockerfile"))


@pytest.mark.parametrize("name", IMAGES)
def test_the_extras_that_an_image_names_exist(name: str) -> None:
    named = re.findall(r"EXTRAS=([\w,]+)", (ROOT / name).read_text())
    assert named
    assert {one for names in named for one in names.split(",")} <= PROJECT["project"]["optional-dependencies"].keys()


def test_the_image_of_ray_is_the_first_one_as_its_user_without_its_command() -> None:
    first, ray = dict(instructions(IMAGES[0])), instructions(IMAGES[1])
    assert ("ARG", "BASE=espalier") in ray
    assert ("FROM", "${BASE}") in ray
    assert [rest for word, rest in ray if word == "USER"] == ["0", first["USER"]]
    assert dict(ray)["ENTRYPOINT"] == "[]"
    extras = re.search(r"EXTRAS=([\w,]+)", (ROOT / IMAGES[1]).read_text())
    assert extras is not None
    assert {"ray", "postgres"} <= set(extras[1].split(","))


def test_the_volumes_of_kuberay_can_be_written_by_the_user_of_the_image() -> None:
    """A folder of the node belongs to root, and a claim to whom `fsGroup` says."""
    (made,) = [rest for word, rest in instructions("Dockerfile") if word == "RUN" and "useradd" in rest]
    user = re.search(r"--uid (\d+)", made)
    assert user is not None
    cluster = yaml.safe_load((ROOT / "deploy" / "rayservice.yaml").read_text())["spec"]["rayClusterConfig"]
    for group in (cluster["headGroupSpec"], *cluster["workerGroupSpecs"]):
        pod = group["template"]["spec"]
        assert pod["securityContext"]["fsGroup"] == int(user[1])
        nodes = {one["name"] for one in pod["volumes"] if "hostPath" in one}
        (before,) = pod["initContainers"]
        assert {one["name"] for one in before["volumeMounts"]} == nodes
        assert before["securityContext"]["runAsUser"] == 0
        assert before["command"] == ["chown", user[1], *(one["mountPath"] for one in before["volumeMounts"])]


@pytest.mark.parametrize("name", IMAGES)
def test_an_image_runs_as_a_user_of_no_rights_that_kubernetes_knows_by_number(name: str) -> None:
    words = instructions(name)
    users = [rest for word, rest in words if word == "USER"]
    assert users[-1].isdigit()
    assert int(users[-1]) >= 1000
    last = max(number for number, (word, _) in enumerate(words) if word == "USER")
    assert not {word for word, _ in words[last:]} & {"RUN", "COPY", "ADD"}
    assert not re.search(r"sudo|setuid|chmod [0-7]*7\b|curl[^\n]*\|", (ROOT / name).read_text())


def test_an_image_writes_only_below_its_own_folder_so_that_the_root_can_be_read_only() -> None:
    words = instructions("Dockerfile")
    values = dict(re.findall(r"(\w+)=(\S+)", " ".join(rest for word, rest in words if word == "ENV")))
    home = dict(words)["WORKDIR"]
    assert {values[name].startswith(home) for name in ("XDG_DATA_HOME", "ESPALIER_CACHE_DIR", "HF_HOME")} == {True}
    assert f"-v espalier:{home}" in (ROOT / "Dockerfile").read_text()
    assert not re.search(r"TOKEN|SECRET|PASSWORD|KEY", " ".join(values))


@pytest.mark.parametrize("name", IMAGES)
def test_the_linter_of_dockerfiles_finds_nothing(name: str) -> None:
    linter = shutil.which("hadolint", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}")
    if linter is None:
        pytest.skip("hadolint is not installed: it comes with the group supply")
    # DL3008: versions of Debian's packages are those of the day, as security updates are.
    done = subprocess.run([linter, "--ignore", "DL3008", ROOT / name], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")
