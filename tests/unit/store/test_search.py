"""Full-text search over generation logs: the same rows on both databases as a plain scan of the texts finds."""

from __future__ import annotations

import unicodedata
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import text

from espalier.errors import InputError
from espalier.store.generations import GenerationFilter
from espalier.store.open import Store
from espalier.store.retention import Limits
from espalier.store.search.query import read_query
from espalier.store.search.words import LONGEST, word_column, words_in
from tests.examples import examples

ROW: dict[str, Any] = {"request_id": "r", "caller": "anna", "model": "demo"}
WORDS = [
    "a",
    "ab",
    "abc",
    "Ünïcode",
    "straße",
    "STRASSE",
    "東京",
    "京",
    "x1",
    "1",
    "OR",
    "NOT",
    "near",
    "ﬁn",
    "ไทย",
    "한국",
]
GLUE = [" ", "-", "_", "  ", "\n", ".", "'", '"', " ¶ ", "\0", "\ud800"]

one_word = st.sampled_from(WORDS)
texts = st.lists(st.tuples(one_word, st.sampled_from(GLUE)), max_size=6).map(lambda p: "".join(w + g for w, g in p))
terms = st.tuples(st.lists(one_word.filter(lambda w: w != "OR"), min_size=1, max_size=3), st.booleans(), st.booleans())
queries = st.lists(st.lists(terms, min_size=1, max_size=3), min_size=1, max_size=3)


def plain_words(said: str) -> list[str]:
    """What the words of a text are, character by character."""
    found, now = [], ""
    spelled = unicodedata.normalize(
        "NFC", "".join(c for c in unicodedata.normalize("NFKD", said.casefold()) if unicodedata.category(c) != "Mn")
    )
    for c in spelled:
        if any(name in unicodedata.name(c, "") for name in ("CJK", "THAI")):
            found += [now, c]
            now = ""
        elif c.isalnum():
            now += c
        else:
            found.append(now)
            now = ""
    return [word for word in [*found, now] if word]


def has(rows: list[str], phrase: list[str], *, is_beginning: bool) -> bool:
    """Whether one of the texts has these words one after the other."""
    for words in map(plain_words, rows):
        for start in range(len(words) - len(phrase) + 1):
            part = words[start : start + len(phrase)]
            last = part[-1].startswith(phrase[-1]) if is_beginning else part[-1] == phrase[-1]
            if part[:-1] == phrase[:-1] and last:
                return True
    return False


def scan(rows: list[str], query: list[list[tuple[list[str], bool, bool]]]) -> bool:
    return any(
        all(has(rows, plain_words(" ".join(words)), is_beginning=star) is not no for words, star, no in group)
        for group in query
    )


def said(query: list[list[tuple[list[str], bool, bool]]]) -> str:
    return " OR ".join(
        " ".join(f'{"-" if no else ""}"{" ".join(words)}"{"*" if star else ""}' for words, star, no in group)
        for group in query
    )


@given(
    rows=st.lists(st.lists(texts, max_size=2), min_size=1, max_size=6), asked=st.lists(queries, min_size=1, max_size=4)
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=examples(40))
def test_a_search_finds_what_a_plain_scan_finds(store: Store, clock: Any, rows: list[list[str]], asked: Any) -> None:
    clock.now += 1
    began = clock.now
    ids = {store.save_generation({**ROW, "words": row}): row for row in rows}
    for query in asked:
        wanted = GenerationFilter(query=said(query), since=began)
        found = [row["id"] for row in store.generations(wanted, limit=100)]
        assert found == sorted((one for one, row in ids.items() if scan(row, query)), reverse=True), said(query)


@given(query=st.text(max_size=30) | st.text(alphabet="ab\"*-() :^{}OR\\'%_;&|!<", max_size=30))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=examples(40))
def test_no_text_is_a_wrong_query_but_one_without_words(store: Store, query: str) -> None:
    try:
        read_query(query)
    except InputError as error:
        assert error.field == "query"  # noqa: PT017
        assert not [part for part in query.split() if part != "OR" and words_in(part)]
        return
    store.generations(GenerationFilter(query=query), limit=5)


@pytest.mark.parametrize(
    "query", ["words : a", "a NEAR(b)", "{a b} : c", "'; DROP TABLE generation_logs; --", "a:*b & c"]
)
def test_syntax_of_a_database_is_words_here(store: Store, query: str) -> None:
    one = store.save_generation({**ROW, "words": [query]})
    assert [row["id"] for row in store.generations(GenerationFilter(query=query.replace("OR", "")), limit=9)] == [one]


def test_a_phrase_does_not_cross_texts_and_a_long_text_is_found_at_its_end(store: Store) -> None:
    long = " ".join(f"w{i}" for i in range(12_000))
    one = store.save_generation({**ROW, "words": ["the prompt", "the answer", f"{long} last words"]})
    for query, there in (
        ("prompt the", True),
        ('"prompt the"', False),
        ('"w11999 last words"', True),
        ("w12000", False),
    ):
        found = [row["id"] for row in store.generations(GenerationFilter(query=query), limit=9)]
        assert found == ([one] if there else []), query


def test_words_beyond_what_a_database_takes_are_cut(store: Store) -> None:
    store.save_generation({**ROW, "words": ["x" * 5_000, " ".join(f"é{i}" for i in range(400_000))]})
    assert store.generations(GenerationFilter(query="x" * LONGEST), limit=1)
    assert store.generations(GenerationFilter(query="e7"), limit=1)
    assert len(word_column(["a b " * 100_000])) <= 100_000


def test_a_deleted_row_is_found_no_more_and_its_number_is_not_used_again(store: Store) -> None:
    store.save_generation({**ROW, "words": ["older"]})
    store.save_generation({**ROW, "words": ["apple"]})
    with store.database.writing() as connection:
        connection.execute(text("DELETE FROM generation_logs WHERE words = 'apple'"))  # from a shell, past the index
    store.save_generation({**ROW, "words": ["pear"]})
    assert store.generations(GenerationFilter(query="apple"), limit=9) == []
    assert len(store.generations(GenerationFilter(query="pear"), limit=9)) == 1
    store.pruning("generations", Limits(rows=1)).run()
    assert store.generations(GenerationFilter(query="older"), limit=9) == []
    if store.database.is_sqlite:
        with store.database.reading() as connection:
            count = "SELECT count(*) FROM generation_logs_search WHERE generation_logs_search MATCH 'older'"
            assert connection.execute(text(count)).scalar_one() == 0
