"""Habits of the word-list server that its clients and settings rely on, most of them under WORDLIST_SERVER_COMPAT."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi")

import espalier
from espalier.constraints.compiler import Folders
from espalier.engines.fake import open_engine
from espalier.errors import InputError, SpecError
from espalier.lexicon.files import WordFiles, words_within
from espalier.server.admit.auth import check_uvicorn, read_keys
from espalier.server.routes.wordlist_server import adapt_wordlist_chat
from tests.server_app import client, settings

ROUTE = "/v1/chat/completions"
KEY = "a-good-long-secret"
ASK: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "hola"}], "max_tokens": 64}


@pytest.fixture
def engine(tmp_path: Path) -> espalier.LoadedEngine:
    (tmp_path / "xx.txt").write_text("# the words\nsol\nsol\nlun\nmar\n", encoding="utf-8")
    return espalier.LoadedEngine(open_engine(wish="sol lun mar.", folders=Folders(wordlists=tmp_path)))


def seed(engine: espalier.LoadedEngine | None = None, **more: str) -> Any:
    return client("Hola.", engine=engine, config=settings(wordlist_server_compat="true", **more))


def test_a_token_in_the_query_is_read() -> None:
    with seed(secret_token=KEY) as c:
        assert c.get(f"/v1/models?token={KEY}").status_code == 200
        assert c.get("/v1/models?token=wrong").status_code == 403
    with client(config=settings(secret_token=KEY)) as c:
        assert c.get(f"/v1/models?token={KEY}").status_code == 401


def test_every_chat_has_ten_beams_so_that_a_length_penalty_needs_no_number_of_them() -> None:
    own = ASK | {"espalier": {}}
    with seed() as c:
        for fields, strategy in (
            ({}, "beam"),
            ({"length_penalty": 1.4}, "beam"),
            ({"num_beams": 1}, "mask"),
            ({"temperature": 0.5}, "mask"),
        ):
            reply = c.post(ROUTE, json=own | fields)
            assert reply.status_code == 200, reply.text
            assert reply.json()["espalier"]["outputs"][0]["strategy"] == strategy, fields
    with client() as c:
        assert c.post(ROUTE, json=own | {"length_penalty": 1.4}).status_code == 400


def test_a_place_in_a_body_is_fastapi_s_list() -> None:
    with seed() as c:
        reply = c.post(ROUTE, json=ASK | {"messages": [{"role": "user", "content": [{"type": "image"}]}], "n": "x"})
        assert reply.json()["detail"][0]["loc"] == ["body", "n"]
        parts = ASK | {"messages": [{"role": "sir", "content": "x"}]}
        assert c.post(ROUTE, json=parts).json()["detail"][0]["loc"] == ["body", "messages", 0, "role"]


def test_system_messages_are_moved_to_the_front_and_joined() -> None:
    said = [
        {"role": "user", "content": "a"},
        {"role": "system", "content": "b"},
        {"role": "assistant", "content": "c"},
        {"role": "system", "content": "d"},
        {"role": "user", "content": "e"},
    ]
    found = adapt_wordlist_chat(ASK | {"messages": said})["messages"]
    assert [(one["role"], one["content"]) for one in found] == [
        ("system", "b\n\nd"),
        ("user", "a"),
        ("assistant", "c"),
        ("user", "e"),
    ]
    assert adapt_wordlist_chat(ASK)["messages"] == ASK["messages"]


def test_a_list_that_is_shorter_is_used_whole_with_a_warning(engine: espalier.LoadedEngine) -> None:
    body = ASK | {"vocab_lang": "xx", "vocab_n_words": 3000, "num_beams": 1, "temperature": 0}
    for config in (settings(), settings(wordlist_server_compat="true")):
        with client(engine=engine, config=config) as c:
            reply = c.post(ROUTE, json=body)
            assert reply.status_code == 200, reply.text
            assert "the list xx has 3 words, and all of them are used" in reply.headers["warning"]


def test_comments_and_duplicates_count_as_they_did_there(engine: espalier.LoadedEngine) -> None:
    """The first three lines hold one word; without WORDLIST_SERVER_COMPAT a number counts words."""
    body = ASK | {"vocab_lang": "xx", "vocab_n_words": 3, "num_beams": 1, "temperature": 0}
    with client(engine=engine, config=settings(wordlist_server_compat="true")) as c:
        assert set(c.post(ROUTE, json=body).json()["choices"][0]["message"]["content"].strip(". ").split()) == {"sol"}
    with client(engine=engine, config=settings()) as c:
        found = c.post(ROUTE, json=body).json()["choices"][0]["message"]["content"]
    assert found == "sol lun mar."
    assert words_within(["# a", "", "x", "X", "y"], 3) == 1


def test_one_bad_line_is_skipped_with_its_number_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    words = [f"wort{chr(97 + i)}" for i in range(20)]
    (tmp_path / "xx.txt").write_text("\n".join([*words[:3], "zwei worte", *words[3:]]), encoding="utf-8")
    assert WordFiles([tmp_path]).words("xx") == tuple(words)
    (told,) = caplog.messages
    assert told.startswith(f"skipped: line 4 of {tmp_path / 'xx.txt'} is not one word")
    (tmp_path / "yy.txt").write_text("ein satz\nnoch ein satz\n", encoding="utf-8")
    with pytest.raises(SpecError, match="line 1 of"):
        WordFiles([tmp_path]).words("yy")


def test_a_folder_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InputError) as found:
        WordFiles.standard(tmp_path / "nowhere")
    assert found.value.field == "ESPALIER_WORDLIST_DIR"


def test_the_cause_of_a_500_is_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    with seed() as c:
        reply = c.post(ROUTE, json=ASK | {"vocab_lang": "zz", "vocab_n_words": 5})
    assert (reply.status_code, set(reply.json())) == (500, {"detail"})
    (record,) = [one for one in caplog.records if one.levelno == logging.ERROR]
    assert "there is no word list for 'zz'" in record.getMessage()
    assert record.exc_info


@pytest.mark.parametrize("program", ["/usr/bin/uvicorn", "/x/uvicorn/__main__.py"])
def test_a_bare_uvicorn_on_a_public_address_with_the_default_token_does_not_start(program: str) -> None:
    weak, good, none = (settings(**one) for one in ({"secret_token": "changeme"}, {"secret_token": KEY}, {}))

    def start(config: Any, *arguments: str, host: str | None = None) -> None:
        environ = {} if host is None else {"UVICORN_HOST": host}
        check_uvicorn(config, read_keys(config), [program, "espalier.server.main:app", *arguments], environ)

    for config in (weak, none):
        for arguments, host in ((("--host", "0.0.0.0"), None), (("--host=0.0.0.0",), None), ((), "0.0.0.0")):
            with pytest.raises(InputError):
                start(config, *arguments, host=host)
        start(config)
        start(config, "--host", "127.0.0.1", host="0.0.0.0")
        start(config, "--uds", "/tmp/x", host="0.0.0.0")
    start(good, "--host", "0.0.0.0")
    check_uvicorn(weak, read_keys(weak), ["pytest", "--host", "0.0.0.0"], {})
