"""The word-list server's fields on our chat route, and its faults, which must not return."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("fastapi")

from starlette.testclient import TestClient

import espalier
from espalier.chat.prompt.template import ChatTemplate
from espalier.constraints.compiler import Folders
from espalier.engines.fake import open_engine
from tests.server_app import client, events, fake_engine, settings

ROUTE = "/v1/chat/completions"
ASK: dict[str, Any] = {"messages": [{"role": "user", "content": "hola"}], "temperature": 0, "max_tokens": 60}
ES = ASK | {"vocab_lang": "es", "vocab_n_words": 3000}


@pytest.fixture(scope="module")
def spanish() -> Iterator[TestClient]:
    """The model wishes for words of the list, of which xylophon is none."""
    with client("Hola xylophon amigo.") as found:
        yield found


def content(reply: Any) -> str:
    assert reply.status_code == 200, reply.text
    return str(reply.json()["choices"][0]["message"]["content"])


def words_of(lang: str, count: int) -> set[str]:
    return set(fake_engine().engine.compiler.words.words(lang)[:count])


def refusal(reply: Any) -> tuple[int, str | None]:
    return reply.status_code, reply.json()["error"]["param"]


def test_every_word_is_of_the_list(spanish: TestClient) -> None:
    text = content(spanish.post(ROUTE, json=ES))
    found = "".join(c if c.isalpha() else " " for c in unicodedata.normalize("NFC", text).lower()).split()
    assert found
    assert set(found) <= words_of("es", 3000)


def test_it_streams(spanish: TestClient) -> None:
    reply = spanish.post(ROUTE, json=ES | {"stream": True})
    data = events(reply.text)
    assert data[-1] == "[DONE]"
    deltas = [json.loads(one)["choices"][0]["delta"].get("content", "") for one in data[:-1]]
    assert "".join(deltas) == content(spanish.post(ROUTE, json=ES))


@pytest.mark.parametrize(("given", "missing"), [("vocab_lang", "vocab_n_words"), ("vocab_n_words", "vocab_lang")])
def test_fault_4_half_of_the_pair_is_refused_and_not_ignored(spanish: TestClient, given: str, missing: str) -> None:
    reply = spanish.post(ROUTE, json=ASK | {given: ES[given]})
    assert refusal(reply) == (400, missing)
    assert missing in reply.json()["error"]["message"]


@pytest.mark.parametrize(
    ("changed", "field"),
    [
        ({"vocab_lang": "xx"}, "vocab_lang"),
        ({"vocab_lang": "../es"}, "vocab_lang"),
        ({"vocab_lang": ""}, "vocab_lang"),
        ({"vocab_n_words": 0}, "vocab_n_words"),
        ({"vocab_n_words": -3}, "vocab_n_words"),
        ({"vocab_n_words": "3000"}, "vocab_n_words"),
        ({"vocab_constraint_mode": "medium"}, "vocab_constraint_mode"),
        ({"vocab_soft_tier3_penalty": 2.0}, "vocab_soft_tier3_penalty"),
        (
            {"vocab_constraint_mode": "soft", "vocab_soft_tier2_max_rank_multiplier": 0.5},
            "vocab_soft_tier2_max_rank_multiplier",
        ),
        ({"vocab_constraint_mode": "soft", "vocab_soft_tier2_penalty": 9.0}, "vocab_soft_tier2_penalty"),
        ({"vocab_constraint_mode": "soft", "vocab_soft_tier3_penalty": 0.0}, "vocab_soft_tier3_penalty"),
        ({"vocab_constraint_mode": "soft", "vocab_lang": "xx"}, "vocab_lang"),
        ({"response_format": {"type": "json_object"}}, "vocab_lang"),
        ({"num_beams": 0}, "num_beams"),
        ({"num_beams": 129}, "num_beams"),
        ({"length_penalty": 0.7}, "length_penalty"),
        ({"num_beams": 1, "early_stopping": True}, "early_stopping"),
    ],
)
def test_fault_13_what_a_client_asks_wrongly_is_a_400_naming_its_field(
    spanish: TestClient, changed: dict[str, Any], field: str
) -> None:
    assert refusal(spanish.post(ROUTE, json=ES | changed)) == (400, field)


def test_details_of_a_list_without_the_list_are_refused(spanish: TestClient) -> None:
    assert refusal(spanish.post(ROUTE, json=ASK | {"vocab_soft_tier3_penalty": 2.0}))[1] == "vocab_soft_tier3_penalty"
    assert refusal(spanish.post(ROUTE, json=ASK | {"vocab_constraint_mode": "soft"}))[1] == "vocab_constraint_mode"


def test_one_beam_and_a_custom_id_change_nothing(spanish: TestClient) -> None:
    more = {"num_beams": 1, "length_penalty": 1.0, "custom_id": "row-7"}
    assert content(spanish.post(ROUTE, json=ES | more)) == content(spanish.post(ROUTE, json=ES))


def test_soft_mode_makes_other_words_dearer_and_forbids_none(spanish: TestClient) -> None:
    soft = ES | {"vocab_constraint_mode": "soft"}
    assert content(spanish.post(ROUTE, json=soft | {"vocab_soft_tier3_penalty": 0.1})) == "Hola xylophon amigo."
    assert content(spanish.post(ROUTE, json=soft | {"vocab_soft_tier3_penalty": 50.0})) != "Hola xylophon amigo."


def test_the_settings_give_the_mode_and_the_penalties() -> None:
    config = settings(vocab_constraint_mode="soft", vocab_soft_tier3_penalty="0.1")
    with client("Hola xylophon.", config=config) as found:
        assert content(found.post(ROUTE, json=ES)) == "Hola xylophon."
        assert content(found.post(ROUTE, json=ES | {"vocab_constraint_mode": "hard"})) != "Hola xylophon."


def test_a_list_and_a_pattern_hold_together(spanish: TestClient) -> None:
    text = content(spanish.post(ROUTE, json=ES | {"structured_outputs": {"regex": "[a-z]{4} [a-z]{5}"}}))
    first, second = text.split(" ")
    assert (len(first), len(second)) == (4, 5)
    assert {first, second} <= words_of("es", 3000)


# The faults of the word-list server, by their numbers.


@pytest.fixture
def folder(tmp_path: Any) -> Any:
    """A list in which a rare word begins a frequent one; the rank of each is its line."""
    (tmp_path / "xx.txt").write_text("sol\nsolar\nlun\n", encoding="utf-8")
    return tmp_path


def listed(folder: Any, wish: str, **options: Any) -> Any:
    engine = espalier.LoadedEngine(open_engine(wish=wish, folders=Folders(wordlists=folder)))
    return client(engine=engine, **options)


def test_fault_1_a_rare_word_that_begins_a_frequent_one_is_not_allowed(folder: Any) -> None:
    (folder / "xx.txt").write_text("solar\nsol\n", encoding="utf-8")
    with listed(folder, "sol.") as found:
        text = content(found.post(ROUTE, json=ASK | {"vocab_lang": "xx", "vocab_n_words": 1}))
    assert set(text.lower().replace(".", " ").split()) == {"solar"}


def test_fault_2_a_text_does_not_end_within_a_word(folder: Any) -> None:
    with listed(folder, "so") as found:
        reply = found.post(ROUTE, json=ASK | {"vocab_lang": "xx", "vocab_n_words": 3})
    assert reply.json()["choices"][0]["finish_reason"] == "stop"
    assert "".join(c if c.isalpha() else " " for c in content(reply)).lower().split()[-1] in {"sol", "solar", "lun"}


def test_fault_3_capitals_names_and_marks_can_be_had(folder: Any) -> None:
    with listed(folder, "Sol; Ada.") as found:
        ours = {"kind": "wordlist", "lang": "xx", "top": 3, "names": ["Ada"], "separators": ";"}
        assert content(found.post(ROUTE, json=ASK | {"espalier": {"constraint": ours}})) == "Sol; Ada."
    with listed(folder, "Sol. Lun.") as found:
        assert content(found.post(ROUTE, json=ASK | {"vocab_lang": "xx", "vocab_n_words": 3})) == "Sol. Lun."


def test_fault_10_changeme_is_no_token() -> None:
    from espalier.server.admit.auth import WEAK

    assert "changeme" in WEAK


def test_fault_12_a_list_that_was_edited_counts_without_a_restart_and_a_bom_is_no_letter(folder: Any) -> None:
    ask = ASK | {"vocab_lang": "xx", "vocab_n_words": 1}
    with listed(folder, "sol.") as found:
        assert content(found.post(ROUTE, json=ask)).lower().startswith("sol")
        (folder / "xx.txt").write_text("luna\n", encoding="utf-8-sig")
        assert "luna" in content(found.post(ROUTE, json=ask)).lower()


def test_fault_14_content_in_parts_is_read(spanish: TestClient) -> None:
    parts = [{"role": "user", "content": [{"type": "text", "text": "hola"}]}]
    assert content(spanish.post(ROUTE, json=ES | {"messages": parts})) == content(spanish.post(ROUTE, json=ES))


# Thinking

SWITCHED = (
    "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}{% if enable_thinking %}<think>{% else %}<think></think>{% endif %}{% endif %}"
)


def thinking(wish: str) -> Any:
    engine = open_engine(wish=wish)
    engine._template = ChatTemplate(SWITCHED)
    engine._turns._template = engine._tool_turns._template = engine._template
    return client(engine=espalier.LoadedEngine(engine))


def test_a_template_with_a_switch_thinks_where_that_is_asked_for(spanish: TestClient) -> None:
    with thinking("no words</think>hola.") as found:
        thoughtful = found.post(ROUTE, json=ES | {"enable_thinking": True}).json()["choices"][0]["message"]
        plain = found.post("/apply-template", json={"messages": ASK["messages"], "enable_thinking": False}).json()
    assert thoughtful["reasoning"] == "no words"
    assert thoughtful["content"] == "hola."
    assert plain["prompt"].endswith("<think></think>")


def test_thinking_of_a_model_without_markers_is_told(spanish: TestClient) -> None:
    reply = spanish.post(ROUTE, json=ASK | {"enable_thinking": True})
    assert reply.status_code == 200
    assert "enable_thinking has no effect" in reply.headers["warning"]
    assert spanish.post(ROUTE, json=ASK | {"enable_thinking": False}).status_code == 200
