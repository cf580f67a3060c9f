"""Vocabularies that are kept in the store: `espalier vocab --keep`, `--kept`, `--forget`, and `kept:FINGERPRINT`.

A grammar or a schema can so be held against the vocabulary of a model whose files are not here.
"""

from __future__ import annotations

from datetime import datetime

from espalier.cli import output
from espalier.cli.flags.store import opened
from espalier.columns import clip, shown
from espalier.tokens.kept import from_json, to_json
from espalier.tokens.vocab import Vocab

KEPT = "kept:"
SHORT = 12
"""Characters of a fingerprint that a list shows."""
NAME_CELLS = 28


def read_kept(beginning: str) -> Vocab:
    """The vocabulary whose fingerprint begins so. Raises InputError if there is none or more than one, VocabError and
    OutputError if it is damaged, and what opening the store raises."""
    with opened() as store:
        fingerprint, body = store.vocab(beginning)
    return from_json(body, fingerprint)


def keep(vocab: Vocab) -> None:
    with opened() as store:
        store.save_vocab(vocab.fingerprint, to_json(vocab), tokens=len(vocab))
    output.note(f"kept; anywhere a tokenizer is read, its name is {KEPT}{vocab.fingerprint[:SHORT]}")


def forget(beginning: str) -> None:
    """Raises InputError if there is none or more than one that begins so."""
    with opened() as store:
        output.data(f"{KEPT}{store.remove_vocab(beginning.removeprefix(KEPT))[:SHORT]} deleted")


def list_kept(*, as_json: bool) -> None:
    with opened() as store:
        rows = store.vocabs()
    if as_json:
        output.data_json(list(rows))
        return
    lines = [f"{'name to read it by':<18}{'tokens':>10}{'logits':>10}  {'last used':<12}of"]
    for row in rows:
        day = datetime.fromtimestamp(row["used"]).strftime("%Y-%m-%d")
        name = clip(shown(row["name"]), NAME_CELLS)
        lines.append(f"{KEPT + row['fingerprint'][:SHORT]:<18}{row['tokens']:>10,}{row['width']:>10,}  {day:<12}{name}")
    output.data("\n".join(lines) if rows else "no vocabulary is kept: `espalier vocab MODEL --keep`")
