"""Word lists compiled at the start: when the server is ready, what it reports meanwhile, and what stops it."""

from __future__ import annotations

import logging
import threading
from typing import Any

import pytest

pytest.importorskip("fastapi")

import espalier
from espalier.constraints.cache import CACHE_LIMIT
from espalier.constraints.compiler import Compiler, Folders
from espalier.constraints.spec import Choice
from espalier.constraints.words.spec import Wordlist
from espalier.engines.fake import open_engine
from espalier.errors import InputError, LimitExceeded
from espalier.server.process.prebuild import wanted_lists
from tests.server_app import client, make_app, settings

LISTS = {"prebuild_prefix": "true", "prebuild_langs": "xx,yy", "prebuild_word_counts": "2,1"}


@pytest.fixture
def engine(tmp_path: Any) -> espalier.LoadedEngine:
    for lang in ("xx", "yy"):
        (tmp_path / f"{lang}.txt").write_text("sol\nlun\n", encoding="utf-8")
    return espalier.LoadedEngine(open_engine(wish="sol.", folders=Folders(wordlists=tmp_path)))


def until_ready(c: Any) -> Any:
    """Asks again until the lists are done; each of them is small."""
    while (reply := c.get("/ready")).json()["status"] == "prebuilding":
        pass
    return reply


def test_it_is_ready_once_all_lists_are_compiled(
    engine: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="espalier.server.process.prebuild")
    go, real = threading.Event(), Compiler.compile

    def slow(self: Compiler, *args: Any, **options: Any) -> Any:
        assert go.wait(60)
        return real(self, *args, **options)

    monkeypatch.setattr(Compiler, "compile", slow)
    with client(engine=engine, config=settings(**LISTS)) as c:
        waiting = c.get("/ready")
        assert c.get("/health").status_code == 200
        go.set()
        done = until_ready(c)
    assert (waiting.status_code, waiting.json()["status"]) == (503, "prebuilding")
    assert waiting.json()["prebuild"] == {"done": 0, "total": 4, "failed": {}}
    assert (done.status_code, done.json()["status"]) == (200, "ok")
    assert done.json()["prebuild"] == {"done": 4, "total": 4, "failed": {}}
    told = [record.getMessage() for record in caplog.records if record.name == "espalier.server.process.prebuild"]
    assert [message.split(" compiled")[0] for message in told] == [
        f"word list {name}" for name in ("xx/1", "xx/2", "yy/1", "yy/2")
    ]


def test_what_fails_is_an_error_in_the_log_and_shown(
    engine: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    real = Compiler.compile

    def failing(self: Compiler, spec: Any, **options: Any) -> Any:
        if getattr(spec, "lang", None) == "yy":
            raise LimitExceeded("too many states")
        return real(self, spec, **options)

    monkeypatch.setattr(Compiler, "compile", failing)
    with client(engine=engine, config=settings(**LISTS)) as c:
        reply = until_ready(c)
    assert reply.status_code == 200
    assert reply.json()["prebuild"]["done"] == 4
    assert set(reply.json()["prebuild"]["failed"]) == {"yy/1", "yy/2"}
    errors = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
    assert len(errors) == 2
    assert "too many states" in errors[0]


def test_a_prebuilt_list_is_not_compiled_again_however_much_comes_after(
    engine: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with client(engine=engine, config=settings(**LISTS)) as c:
        until_ready(c)
        compiler = engine.engine.compiler
        kept = compiler.compile(Wordlist(lang="xx", top=2))
        for number in range(CACHE_LIMIT + 2):
            compiler.compile(Choice((f"word {number}",)))
        assert compiler.compile(Wordlist(lang="xx", top=2)) is kept


def test_in_soft_mode_both_tiers_are_compiled(engine: Any) -> None:
    config = settings(
        **{**LISTS, "prebuild_word_counts": "1"}, vocab_constraint_mode="soft", vocab_soft_tier2_max_rank_multiplier="2"
    )
    with client(engine=engine, config=config) as c:
        assert until_ready(c).json()["prebuild"]["failed"] == {}
    assert len(engine.engine.compiler.cache) == 4


def test_without_the_setting_nothing_is_compiled_and_ready_says_nothing_of_it() -> None:
    assert wanted_lists(settings(prebuild_langs="es")) == ()
    with client() as c:
        assert "prebuild" not in c.get("/ready").json()


def test_a_name_that_is_no_language_stops_the_server_before_it_is_made() -> None:
    with pytest.raises(InputError) as caught:
        make_app(config=settings(prebuild_prefix="true", prebuild_langs="../etc"))
    assert caught.value.field == "PREBUILD_LANGS"
    assert "\n" not in str(caught.value)
    with pytest.raises(InputError, match="64 are kept"):
        wanted_lists(settings(prebuild_prefix="true", prebuild_langs=",".join(f"l{i}" for i in range(65))))


def test_a_list_that_is_not_there_stops_the_start(engine: Any) -> None:
    with (
        pytest.raises(InputError) as caught,
        client(engine=engine, config=settings(**LISTS | {"prebuild_langs": "zz"})),
    ):
        pass
    assert caught.value.field == "PREBUILD_LANGS"
    assert str(caught.value).startswith("PREBUILD_LANGS")
    assert "\n" not in str(caught.value)


def test_a_list_that_is_too_short_is_used_whole_and_the_log_says_so(
    engine: Any, caplog: pytest.LogCaptureFixture
) -> None:
    with client(engine=engine, config=settings(**LISTS | {"prebuild_word_counts": "3,2,9"})) as c:
        assert until_ready(c).json()["prebuild"] == {"done": 2, "total": 2, "failed": {}}
    told = [one for one in caplog.messages if one.startswith("PREBUILD_WORD_COUNTS")]
    assert told[0] == "PREBUILD_WORD_COUNTS: the list xx has 2 words, and all of them are used"
