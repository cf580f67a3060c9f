"""Settings: lists, the word-list server's names, `.env` files, who wins, and one clear line for a wrong value."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("dotenv", reason="the extra [server] is not installed")

from espalier.cli.flags.server import read_server
from espalier.engines.options import EngineOptions
from espalier.errors import InputError
from espalier.fields import entries
from espalier.server.environment import export_for_libraries, read_environment, unread_names
from espalier.server.settings import FIELDS, SECRETS, ServerSettings, settings_of
from espalier.settings import VARIABLES
from espalier.wiring import build_app

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(autouse=True)
def _empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for entry in FIELDS.values():
        for name in entry.variables:
            monkeypatch.delenv(name, raising=False)


def of(**given: str) -> ServerSettings:
    return settings_of(given)


def test_lists_are_separated_by_commas_and_sorted_where_order_means_nothing():
    settings = of(PREBUILD_LANGS="es, de,", ALLOWED_MAX_NEW_TOKENS="256,64,64,128", MODEL_ALIAS="b,a")
    assert settings.prebuild_langs == ("es", "de")
    assert settings.allowed_max_new_tokens == (64, 128, 256)
    assert settings.model_alias == ("b", "a")


def test_an_empty_value_is_no_value():
    settings = of(SECRET_TOKEN="", MAX_INPUT_TOKENS="", PREBUILD_LANGS="", PORT=" ")
    assert (settings.secret_token, settings.max_input_tokens, settings.prebuild_langs) == (None, None, ())
    assert settings.port == 8010


def test_none_takes_a_limit_away():
    assert of(RETENTION_ROWS="none").retention_rows is None


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"PORT": "abc"}, "PORT=abc: a whole number from 0 on"),
        ({"PORT": "70000"}, "PORT=70000: at most 65535"),
        ({"UVICORN_WORKERS": "0"}, "WORKERS=0: a whole number from 1 on"),
        ({"PREBUILD_WORD_COUNTS": "3000,x"}, "PREBUILD_WORD_COUNTS=x: "),
        ({"ALLOWED_MAX_NEW_TOKENS": "0"}, "ALLOWED_MAX_NEW_TOKENS=0: a whole number from 1 on"),
        ({"VOCAB_CONSTRAINT_MODE": "harsh"}, "VOCAB_CONSTRAINT_MODE=harsh: one of hard, soft"),
        ({"CORS_ORIGINS": "example.org"}, "CORS_ORIGINS=example.org: 'example.org' is no origin"),
        ({"ROOT_PATH": "api"}, "ROOT_PATH=api: it begins with a slash"),
        ({"VOCAB_SOFT_TIER2_PENALTY": "9"}, "VOCAB_SOFT_TIER2_PENALTY is above VOCAB_SOFT_TIER3_PENALTY"),
    ],
)
def test_a_wrong_value_is_one_line_that_names_the_variable(given, says):
    with pytest.raises(InputError) as caught:
        settings_of(given)
    assert caught.value.message.startswith(says)
    assert "\n" not in str(caught.value)


def test_no_secret_is_shown(monkeypatch):
    settings = of(SECRET_TOKEN="the-secret-itself", DATABASE_URL="postgresql://u:the-secret-itself@h/d")
    assert "the-secret-itself" not in repr(settings) + str(settings)
    with pytest.raises(InputError) as caught:
        ServerSettings(secret_token=["the-secret-itself"])
    assert "the-secret-itself" not in str(caught.value)
    assert {"secret_token", "database_url"} == SECRETS


def test_the_environment_wins_over_the_file_by_whatever_name(tmp_path, monkeypatch):
    (tmp_path / ".env").write_text("MODEL_NAME=from-file\nPORT=1\nUVICORN_WORKERS=3\nLOG_LEVEL=debug\n")
    monkeypatch.setenv("ESPALIER_MODEL", "from-environment")
    monkeypatch.setenv("PORT", "2")
    settings = settings_of(read_environment().values)
    assert (settings.model_name, settings.port, settings.workers) == ("from-environment", 2, 3)
    assert settings.log_level == "DEBUG"
    found = read_environment(flags={"WORKERS": "4"})
    assert (settings_of(found.values).workers, found.origins["WORKERS"]) == (4, "flag")
    assert found.origins["LOG_LEVEL"] == ".env"


def test_an_empty_variable_of_the_environment_hides_the_one_in_the_file(tmp_path):
    (tmp_path / ".env").write_text("SECRET_TOKEN=from-file\n")
    assert settings_of(read_environment({"SECRET_TOKEN": ""}).values).secret_token is None


def test_comments_quotes_and_a_byte_order_mark_are_read_as_other_tools_read_them(tmp_path):
    (tmp_path / "x.env").write_text(
        "\ufeffPORT=9000 # the port\nexport HOST=\"::1\"\nSECRET_TOKEN='a#b $HOME'\nROOT_PATH=   # none\n",
        encoding="utf-8",
    )
    values = read_environment({}, env_file="x.env").values
    assert (values["PORT"], values["HOST"], values["SECRET_TOKEN"], values["ROOT_PATH"]) == (
        "9000",
        "::1",
        "a#b $HOME",
        "",
    )


def test_a_file_that_is_named_must_be_there():
    for given in ({"env_file": "nowhere.env"}, {"environ": {"ENV_FILE": "nowhere.env"}}):
        with pytest.raises(InputError, match=r"there is no file nowhere\.env"):
            read_environment(**{"environ": {}, **given})
    assert read_environment({}).file is None


def test_the_word_list_servers_names_of_core_settings_reach_the_core(tmp_path):
    (tmp_path / ".env").write_text("TORCH_DTYPE=bf16\nWORDLIST_DIR=wordlists\nDEVICE_MAP=cpu\nESPALIER_CACHE_DIR=off\n")
    core = build_app(environ=read_environment({}).values).settings
    assert (core.options.dtype, core.options.device) == ("bfloat16", "cpu")
    assert (core.wordlist_dir, core.cache_dir) == (Path("wordlists"), None)
    stronger = read_environment({"ESPALIER_DTYPE": "float32"})
    assert stronger.values["ESPALIER_DTYPE"] == "float32"


OLD, NEW = "SEED_COMPAT", "WORDLIST_SERVER_COMPAT"


@pytest.mark.parametrize(
    ("stronger", "wanted"), [({}, True), ({OLD: "false"}, False), ({OLD: ""}, False), ({NEW: "false"}, False)]
)
def test_the_old_name_of_a_setting_still_works(tmp_path, stronger, wanted):
    (tmp_path / ".env").write_text(f"{OLD}=true\n")
    found = read_environment(stronger)
    assert settings_of(found.values).wordlist_server_compat is wanted
    assert unread_names(found, {NEW}) == []


def test_the_old_name_of_a_setting_is_told_the_new_one_at_the_start(tmp_path, capfd):
    assert not read_environment({NEW: "true"}).notes
    (tmp_path / ".env").write_text(f"{OLD}=true\n")
    _, read = read_server({}, None)
    assert read.wordlist_server_compat
    assert f"{OLD} is now called {NEW}; the old name still works in this release" in capfd.readouterr().err


def test_an_unknown_espalier_name_in_the_file_is_refused(tmp_path):
    (tmp_path / ".env").write_text("ESPALIER_MODLE=x\n")
    with pytest.raises(InputError, match="unknown setting ESPALIER_MODLE"):
        build_app(environ=read_environment({}).values)


@pytest.mark.parametrize(("value", "reasoning"), [("True", "auto"), ("false", "none"), ("", "")])
def test_the_word_list_servers_switch_of_thinking_is_read(value, reasoning):
    values = read_environment({"ENABLE_THINKING": value}).values
    assert values.get("ESPALIER_REASONING", "") == reasoning
    assert (
        read_environment({"ENABLE_THINKING": value, "ESPALIER_REASONING": "think"}).values["ESPALIER_REASONING"]
        == "think"
    )


def test_what_means_nothing_here_is_said_and_what_cannot_be_done_is_refused():
    found = read_environment({"STATIC_KV_CACHE": "false", "PAD_TO_MULTIPLE_OF": "16", "DEVICE_MAP": "auto"})
    assert [note.partition(" ")[0] for note in found.notes] == ["STATIC_KV_CACHE", "PAD_TO_MULTIPLE_OF"]
    for name, value in (("DEVICE_MAP", "balanced"),):
        with pytest.raises(InputError) as caught:
            read_environment({name: value})
        assert caught.value.field == name
    assert read_environment({"TRUST_REMOTE_CODE": "false"}).notes == ()
    (note,) = read_environment({"TRUST_REMOTE_CODE": "true"}).notes
    assert note.startswith("TRUST_REMOTE_CODE has no effect")


def test_a_misspelt_name_in_the_file_is_found_and_libraries_names_are_not(tmp_path, monkeypatch):
    (tmp_path / ".env").write_text("SECRET_TOKN=x\nHF_TOKEN=hf_y\nPORT=1\nTORCH_DTYPE=auto\n")
    found = read_environment({})
    assert unread_names(found, {"PORT"}) == ["SECRET_TOKN"]
    monkeypatch.setenv("HF_TOKEN", "")
    monkeypatch.delenv("HF_TOKEN")
    export_for_libraries(found)
    import os

    assert os.environ["HF_TOKEN"] == "hf_y"
    assert "SECRET_TOKN" not in os.environ
    monkeypatch.delenv("HF_TOKEN")


def test_the_example_names_every_setting_and_its_default():
    lines = (ROOT / ".env.example").read_text(encoding="utf-8").splitlines()
    named = {}
    for line in lines:
        name, sign, value = line.removeprefix("#").strip().partition("=")
        if sign and name.isupper() and " " not in name:
            named[name] = value.partition(" #")[0].strip()
    for entry in FIELDS.values():
        assert entry.variables[0] in named, f"{entry.variables[0]} is not in .env.example"
    core = {name for name in named if name.startswith("ESPALIER_")}
    assert core <= set(VARIABLES)
    options = set(entries(EngineOptions))
    for name, entry in VARIABLES.items():  # options of an engine may be left to docs/llamacpp.md
        assert name in named or entry.name in options or name == "ESPALIER_MODEL", f"{name} is not in .env.example"
    # As it stands the example is valid, and changes nothing but what it says.
    defaults = settings_of({})
    shown = settings_of({name: value for name, value in named.items() if name != "SECRET_TOKEN"})
    different = {name for name in FIELDS if getattr(shown, name) != getattr(defaults, name)}
    assert different == set()


def test_the_example_as_a_file_is_read(tmp_path):
    found = read_environment({}, env_file=str(ROOT / ".env.example"))
    assert settings_of(found.values) == settings_of({})
    assert found.notes == ()


@pytest.mark.parametrize(("given", "level"), [("WARN", "WARNING"), ("warn", "WARNING"), ("fatal", "ERROR")])
def test_levels_have_the_other_names_of_python_s_logging_too(given: str, level: str) -> None:
    assert settings_of({"LOG_LEVEL": given}).log_level == level
