"""docs/fields.md says what the tables of fields say."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("fastapi")

from scripts.fields_table import document

DOCS = Path(__file__).parents[3] / "docs" / "fields.md"


def test_the_document_of_fields_is_the_one_that_the_tables_print() -> None:
    assert DOCS.read_text(encoding="utf-8") == document(), "python scripts/fields_table.py > docs/fields.md"
