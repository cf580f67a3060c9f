"""The SQL condition of a query, for SQLite's FTS5 and PostgreSQL's tsvector. Words are bound values, never SQL."""

from __future__ import annotations

from sqlalchemy import ColumnElement, and_, cast, column, false, func, literal, literal_column, not_, or_, select, table
from sqlalchemy.dialects.postgresql import TSQUERY

from espalier.store.search.query import Query, Term


def condition(
    query: Query, *, words: ColumnElement[str], number: ColumnElement[int], index: str, is_sqlite: bool
) -> ColumnElement[bool]:
    """words: the column that `word_column` made. number: the row's integer key. index: SQLite's FTS5 table of it."""

    def of(term: Term) -> ColumnElement[bool]:
        holds = _fts5(term, number, index) if is_sqlite else _tsvector(term, words)
        return not_(holds) if term.is_excluded else holds

    return or_(false(), *(and_(*map(of, group)) for group in query))


def _fts5(term: Term, number: ColumnElement[int], index: str) -> ColumnElement[bool]:
    fts = table(index, column("rowid"), column(index))
    phrase = f'"{" ".join(term.words)}"{"*" if term.is_beginning else ""}'
    return number.in_(select(fts.c.rowid).where(fts.c[index].op("MATCH")(phrase)))


def _tsvector(term: Term, words: ColumnElement[str]) -> ColumnElement[bool]:
    """Its index tells which rows have all words. Whether they stand together, the column tells: positions of a tsvector
    end at 16,383."""
    quoted = [f"'{word}'" for word in term.words]
    if term.is_beginning:
        quoted[-1] += ":*"
    vector = func.array_to_tsvector(func.string_to_array(words, literal_column("' '")))
    has_all = vector.op("@@", is_comparison=True)(cast(literal(" & ".join(quoted)), TSQUERY))
    if len(term.words) == 1:
        return has_all
    end = "" if term.is_beginning else " "
    together = func.strpos(func.concat(" ", words, " "), f" {' '.join(term.words)}{end}") > 0
    return and_(has_all, together)
