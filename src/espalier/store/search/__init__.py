"""Full-text search over rows that have a column of words: what a word is, what a query says, and its SQL condition.

It knows no table. SQLite searches with FTS5, PostgreSQL with tsvector; both find the same rows, because texts are cut
into words here and not by the database. Start with `query.py`.
"""
