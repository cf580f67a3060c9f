"""What the proxy keeps is taken by every command for traces, as a file and from the database."""

from __future__ import annotations

import json

import httpx2
import pytest

pytest.importorskip("sqlalchemy")

from espalier.cli.main import main_code
from espalier.trace.records import Trace
from tests.proxies import behind, files_of, proxied, proxy_settings, server_settings
from tests.unit.server.proxy.test_xray_mode import BODY, llama


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    """A file of the output folder, the database, and the id of its trace there; with the proxy's own page of it."""
    folder = tmp_path_factory.mktemp("proxy")
    database = f"sqlite:///{folder}/traces.db"
    proxy = {"mode": "xray", "output_dir": folder}
    with (
        behind(llama) as server,
        proxied(
            proxy_settings(server.url, **proxy), settings=server_settings(database_url=database), is_kept=True
        ) as url,
    ):
        httpx2.post(url + "/completion", json=BODY, timeout=60).raise_for_status()
        (listed,) = httpx2.get(url + "/traces", timeout=60).json()["data"]
        page = httpx2.get(f"{url}/traces/{listed['id']}/page", timeout=60)
        playground = httpx2.get(f"{url}/traces/{listed['id']}", timeout=60)
    (file,) = files_of(folder)
    return file, database, listed, page, playground


def test_the_list_counts_rejected_and_unknown_steps(kept):
    _, _, listed, page, whole = kept
    assert (listed["rejected_steps"], listed["unknown_steps"], listed["tokens"]) == (1, 0, 2)
    assert page.status_code == 200
    assert "text/html" in page.headers["content-type"]
    assert Trace.from_json(whole.json()).steps[0].was_rejected


@pytest.mark.parametrize("source", ["file", "database"])
@pytest.mark.parametrize(
    ("command", "more", "code", "said"),
    [
        ("show", [], 0, "rejected"),
        ("show", ["--step", "0"], 0, "'!'"),
        ("diagnose", [], 0, ""),
        ("export", ["--format", "csv"], 0, "rejected"),
    ],
)
def test_each_command_reads_it(kept, source, command, more, code, said, capfd):
    file, database, listed, *_ = kept
    named = [str(file)] if source == "file" else [listed["id"], "--database", database]
    assert main_code(["trace", command, *named, *more]) == code
    out = capfd.readouterr().out
    assert said in out
    assert out.strip()


def test_it_becomes_a_page_of_its_own(kept, tmp_path):
    file, *_ = kept
    assert main_code(["trace", "html", str(file), str(tmp_path / "one.html")]) == 0
    assert "<html" in (tmp_path / "one.html").read_text()


def test_a_trace_is_equal_to_itself_and_not_to_another(kept, tmp_path, capfd):
    file, *_ = kept
    assert main_code(["trace", "diff", str(file), str(file)]) == 0
    other = json.loads(file.read_text())
    other["espalier"]["steps"][0]["token"]["id"] = 2
    (tmp_path / "other.json").write_text(json.dumps(other))
    assert main_code(["trace", "diff", str(file), str(tmp_path / "other.json")]) == 1
    assert capfd.readouterr().out


def test_a_replay_without_the_model_says_what_it_needs(kept, capfd):
    """Its trace has no whole distributions, and the grammar was enforced elsewhere."""
    file, *_ = kept
    assert main_code(["trace", "replay", str(file)]) == 2
    assert "-m" in capfd.readouterr().err
