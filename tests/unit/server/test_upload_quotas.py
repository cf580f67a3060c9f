"""What one key may keep of uploads; a full disk; and that no reply names a folder of the server."""

from __future__ import annotations

import errno
import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, BinaryIO

import pytest

pytest.importorskip("fastapi", reason="the extra [server] is not installed")
pytest.importorskip("sqlalchemy")

from starlette.testclient import TestClient

from espalier.errors import DiskFull, EspalierError, InputError, OutputError
from espalier.jobs.worker import failed
from espalier.server.answering.messages.errors import messages_error
from espalier.server.answering.ollama.errors import ollama_error
from espalier.server.answering.stream_errors import write_error_event
from espalier.server.http.errors import error_body
from espalier.server.mcp.protocol import _write_error
from espalier.store.batches.files import Files
from espalier.wording import in_words, without_folders
from tests.server_app import client, settings

KEYS = '[[key]]\nname = "one"\nkey = "first-secret"\n[[key]]\nname = "two"\nkey = "second-secret"\n'
ONE, TWO = ({"authorization": f"Bearer {key}"} for key in ("first-secret", "second-secret"))


@pytest.fixture
def api(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[TestClient]:
    """It looks at its batches once, when it starts: the uploads stay what they are."""
    monkeypatch.setattr("espalier.jobs.worker.IDLE_SECONDS", 600.0)
    monkeypatch.setattr("espalier.jobs.worker.Worker.wake", lambda self: None)
    keys = tmp_path / "keys.toml"
    keys.write_text(KEYS)
    config = settings(
        batch_jobs="true",
        api_keys_file=str(keys),
        database_url=f"sqlite:///{tmp_path}/e.db",
        upload_bytes_per_key="3000",
        uploads_per_key="4",
    )
    with client(config=config) as found:
        yield found


def upload(api: TestClient, size: int, key: dict[str, str], path: str = "/v1/files") -> Any:
    return api.post(path, headers=key, data={"purpose": "batch"}, files={"file": ("a.jsonl", b"x" * size)})


@pytest.mark.parametrize("path", ["/v1/files", "/v1/batch/jobs"])
def test_one_key_cannot_fill_the_disk_and_others_go_on(api: TestClient, tmp_path: Path, path: str) -> None:
    def send(size: int, key: dict[str, str]) -> Any:
        files = {"file": ("a.json", b"x" * size)}
        return api.post(path, headers=key, data={"purpose": "batch"} if path == "/v1/files" else None, files=files)

    assert send(2000, ONE).status_code == 200
    refused = send(2000, ONE)
    assert refused.status_code == 429
    assert "3,000 bytes" in refused.text
    assert send(2000, TWO).status_code == 200
    assert sum(entry.stat().st_size for entry in (tmp_path / "batches").iterdir()) == 4000


def test_the_refusal_has_a_name_and_a_deleted_file_makes_room(api: TestClient) -> None:
    ids = [upload(api, 700, ONE).json()["id"] for _ in range(4)]
    refused = upload(api, 1, ONE)
    assert (refused.status_code, refused.json()["error"]["code"]) == (429, "upload_quota_full")
    assert "4 uploads" in refused.json()["error"]["message"]
    assert api.delete(f"/v1/files/{ids[0]}", headers=ONE).status_code == 200
    assert upload(api, 1, ONE).status_code == 200


def test_parts_of_uploads_count(api: TestClient) -> None:
    begun = {"bytes": 4000, "filename": "a", "purpose": "batch", "mime_type": "application/jsonl"}
    held = api.post("/v1/uploads", headers=ONE, json=begun).json()
    path = f"/v1/uploads/{held['id']}/parts"
    assert api.post(path, headers=ONE, files={"data": ("a", b"x" * 2000)}).status_code == 200
    assert api.post(path, headers=ONE, files={"data": ("a", b"x" * 2000)}).status_code == 429


def test_what_is_still_being_written_counts(tmp_path: Path) -> None:
    from espalier.store.batches.quota import UploadQuota, UploadQuotaFull
    from espalier.store.open import open_store

    with closing(open_store(f"sqlite:///{tmp_path}/e.db")) as store:
        quota = UploadQuota(store.database, most_bytes=100)
        with quota.writing("one") as first, quota.writing("one") as second, quota.writing("two") as other:
            first(60)
            with pytest.raises(UploadQuotaFull):
                second(60)
            other(90)
        with quota.writing("one") as again:
            again(100)


def test_a_full_disk_is_a_507_that_names_no_folder(
    api: TestClient, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def full(self: Files, file: BinaryIO, **_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", lambda fd: full(None, None))  # type: ignore[arg-type]
    reply = upload(api, 10, ONE)
    assert (reply.status_code, reply.json()["error"]["code"]) == (507, "disk_full")
    assert str(tmp_path) not in reply.text
    assert "batches" in reply.text


PATHS = (
    f"{Path.home()}/.local/share/espalier/batches",
    f"{Path.cwd()}/models/a b/model.gguf",
    f"{tempfile.gettempdir()}/x/e.db",
    "/var/lib/espalier/e.db",
    "/home/somebody/secret place/keys.toml",
)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("kind", [InputError, OutputError, DiskFull, EspalierError])
@pytest.mark.parametrize("form", ["cannot write to {!r}: no", "cannot read {!r}", "sqlite: {!r} is locked"])
def test_no_error_reply_has_a_folder_of_the_server(path: str, kind: type[EspalierError], form: str) -> None:
    error = kind(form.format(path), hint=f"look into {path!r}")
    name = path.rpartition("/")[2]
    shapes = (
        error_body(error),
        messages_error(error),
        ollama_error(error),
        _write_error("generate", error).model_dump(),
        *(write_error_event(error, where).decode() for where in ("/v1/responses", "/v1/messages", "/api/chat", "/x")),
        str(failed(error.code, in_words(error.message, "http"), status=400)),
    )
    for shape in shapes:
        text = shape if isinstance(shape, str) else json.dumps(shape)
        assert name in text
        assert path.rpartition("/")[0] not in text
    assert path in str(error)  # the log, and the command line, say where


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("/var/lib/a/e.db is locked", "e.db is locked"),
        ("sqlite:////var/lib/a/e.db cannot be written: full", "sqlite:///e.db cannot be written: full"),
        ("see (/tmp/a/b), /tmp/c/d; and /etc/x/y.", "see (b), d; and y."),
        ("no value at /properties/var/0", "no value at /properties/var/0"),
        ("POST /v1/files or http://host/var/x", "POST /v1/files or http://host/var/x"),
        ("a/var/b and ./tmp/x", "a/var/b and ./tmp/x"),
        ("5 / 2 or //", "5 / 2 or //"),
    ],
)
def test_only_folders_are_left_out(text: str, said: str) -> None:
    assert without_folders(text) == said


@pytest.mark.slow
def test_replies_to_errors_of_a_running_server_name_no_folder(api: TestClient, tmp_path: Path) -> None:
    """Whatever is asked wrongly, of whichever route."""
    from tests.server_app import make_app
    from tests.unit.server.test_every_route import declared

    for method, path in declared(make_app().routes):
        for body in ({"model": "/etc/x", "input_file_id": "file_0", "grammar": "x", "messages": [], "prompt": 5}, None):
            reply = api.request(method, path, headers=ONE, json=body)
            if reply.status_code >= 400:
                assert str(tmp_path) not in reply.text
                assert str(Path.cwd()) not in reply.text
                assert str(Path.home()) not in reply.text
