"""`/v1/uploads` with OpenAI's own client: parts in any order, checksums, what is wrong, what lists show."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path

import openai
import pytest

from tests.server_app import make_app, served, settings

LINE = json.dumps(
    {
        "custom_id": "a",
        "method": "POST",
        "url": "/v1/completions",
        "body": {"model": "fake", "prompt": "a", "max_tokens": 5},
    }
).encode()


@pytest.fixture(scope="module")
def sdk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[openai.OpenAI]:
    folder = tmp_path_factory.mktemp("uploads")
    config = settings(batch_jobs="true", database_url=f"sqlite:///{folder}/e.db", batch_max_bytes="100000")
    app = make_app(config=config)
    with served(app) as url, openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as sdk:
        yield sdk


def begin(sdk: openai.OpenAI, size: int = len(LINE)) -> str:
    upload = sdk.uploads.create(bytes=size, filename="in.jsonl", mime_type="application/jsonl", purpose="batch")
    assert (upload.object, upload.status, upload.bytes, upload.file) == ("upload", "pending", size, None)
    assert upload.expires_at == upload.created_at + 3600
    return upload.id


def add(sdk: openai.OpenAI, upload: str, data: bytes) -> str:
    part = sdk.uploads.parts.create(upload, data=data)
    assert (part.object, part.upload_id) == ("upload.part", upload)
    return part.id


def test_the_sdk_uploads_a_file_in_parts_that_a_batch_reads(sdk: openai.OpenAI, tmp_path: Path) -> None:
    path = tmp_path / "in.jsonl"
    path.write_bytes(LINE)
    done = sdk.uploads.upload_file_chunked(
        file=path, mime_type="application/jsonl", purpose="batch", part_size=50, md5=hashlib.md5(LINE).hexdigest()
    )
    assert done.status == "completed"
    assert done.file is not None
    assert sdk.files.content(done.file.id).read() == LINE
    batch = sdk.batches.create(input_file_id=done.file.id, endpoint="/v1/completions", completion_window="24h")
    assert batch.input_file_id == done.file.id


def test_parts_are_joined_as_they_are_named_and_lists_show_the_file_alone(sdk: openai.OpenAI) -> None:
    def listed() -> set[str]:
        """The uploaded files: the batch of another test may write its results meanwhile."""
        return {file.id for file in sdk.files.list(purpose="batch")}

    before = listed()
    upload = begin(sdk)
    second, first = add(sdk, upload, LINE[30:]), add(sdk, upload, LINE[:30])
    assert listed() == before
    done = sdk.uploads.complete(upload, part_ids=[first, second])
    assert done.file is not None
    assert sdk.files.content(done.file.id).read() == LINE
    assert listed() - before == {done.file.id}
    with pytest.raises(openai.NotFoundError):  # it is no upload any more
        sdk.uploads.complete(upload, part_ids=[first, second])


def test_a_cancelled_upload_takes_no_parts(sdk: openai.OpenAI) -> None:
    upload = begin(sdk)
    assert sdk.uploads.cancel(upload).status == "cancelled"
    with pytest.raises(openai.NotFoundError):
        sdk.uploads.parts.create(upload, data=LINE)


def test_what_is_wrong_is_named(sdk: openai.OpenAI) -> None:
    upload, other = begin(sdk), begin(sdk)
    part, foreign = add(sdk, upload, LINE), add(sdk, other, LINE)
    wrong = {
        "part_ids[0]": {"part_ids": [foreign]},
        "part_ids[1]": {"part_ids": [part, part]},
        "md5": {"part_ids": [part], "md5": "0" * 32},
        "part_ids": {"part_ids": []},
    }
    for param, body in wrong.items():
        with pytest.raises(openai.APIStatusError) as refused:
            sdk.uploads.complete(upload, **body)  # type: ignore[arg-type]
        assert refused.value.param == param
    short = begin(sdk, len(LINE) + 1)
    with pytest.raises(openai.BadRequestError, match="bytes"):
        sdk.uploads.complete(short, part_ids=[add(sdk, short, LINE)])
    with pytest.raises(openai.APIStatusError) as large:
        begin(sdk, 100_001)
    assert (large.value.status_code, large.value.param) == (413, "bytes")
    with pytest.raises(openai.NotFoundError):
        sdk.uploads.parts.create("upload_none", data=LINE)
    assert sdk.uploads.complete(upload, part_ids=[part]).status == "completed"
