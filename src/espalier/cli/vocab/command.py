"""`espalier vocab`: shows what is in a tokenizer's vocabulary, in 80 columns. No model is loaded.

`tokens/analyse.py` computes the report; `reading.py` finds the tokenizer; this module makes tokens visible.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Annotated, Any

import typer

from espalier.cli import output
from espalier.cli.vocab import kept as shelf
from espalier.cli.vocab.reading import read
from espalier.columns import END_ISOLATE, ISOLATE, clip, shown, wrapped
from espalier.errors import InputError
from espalier.tokens.analyse import Glitch, Matches, VocabReport, analyse_vocab, read_bytes
from espalier.tokens.vocab import Vocab

WIDTH = 80
LABEL = 16  # columns in front of a field
EXAMPLES = 12  # tokens shown of each category, as far as they fit


def command(
    tokenizer: Annotated[
        str | None, typer.Argument(help="Folder, file or hub name. Default: the demo model.", metavar="MODEL")
    ] = None,
    model: Annotated[str | None, typer.Option("--model", "-m", help="The same as MODEL.", metavar="M")] = None,
    search: Annotated[list[str] | None, typer.Option(help="Text to find tokens of; repeat it.", metavar="TERM")] = None,
    ignore_case: Annotated[bool, typer.Option("--ignore-case", "-i", help="Ignore case in --search.")] = False,
    category: Annotated[
        str | None, typer.Option(help="List the tokens of a category: latin, digits, ...", metavar="C")
    ] = None,
    contains: Annotated[
        str | None, typer.Option(help="List tokens that contain this text, or `0xE2 0x80`.", metavar="B")
    ] = None,
    glitches: Annotated[bool, typer.Option("--glitches", help="List tokens whose text is encoded otherwise.")] = False,
    limit: Annotated[int, typer.Option(min=0, help="Rows of each table; 0 is all.")] = 20,
    keep: Annotated[bool, typer.Option("--keep", help="Keep it in the store, for machines without the model.")] = False,
    kept: Annotated[bool, typer.Option("--kept", help="List the vocabularies that are kept.")] = False,
    forget: Annotated[str | None, typer.Option(help="Delete a kept vocabulary.", metavar="FINGERPRINT")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="As JSON, with all rows.")] = False,
) -> None:
    """Show what is in a tokenizer's vocabulary: its size, special tokens, categories, and the tokens of a text.

    MODEL is a model's folder or name, a GGUF file, a tokenizer.json, a SentencePiece model, `bytes`, or
    `kept:FINGERPRINT` for one that --keep stored. Only the tokenizer is read.

    In tables ␠ is a space, `\\n` a line end, `\\xe2` a byte that is not a whole character.
    """
    if tokenizer is not None and model is not None:
        raise InputError("MODEL and --model are the same; give one", field="model")
    if ignore_case and not search:
        raise InputError("--ignore-case is for --search", field="ignore_case")
    if kept or forget is not None:
        if kept and forget is not None:
            raise InputError("--kept and --forget are two commands; give one", field="forget")
        if tokenizer is not None or model is not None or keep:
            raise InputError("--kept and --forget take no MODEL", field="model")
        if forget is not None:
            shelf.forget(forget)
        else:
            shelf.list_kept(as_json=as_json)
        return
    looked_for = None if contains is None else read_bytes(contains)
    vocab, logits = read(tokenizer if tokenizer is not None else model)
    if keep:
        shelf.keep(vocab)
    report = analyse_vocab(vocab)
    searches = [report.search(term, ignore_case=ignore_case) for term in search or ()]
    listed: dict[str, tuple[str, tuple[int, ...]]] = {}  # by the name in JSON: title of the table, ids
    if category is not None:
        listed["category"] = (f"Category {category}", report.ids_in(category))
    if looked_for is not None:
        listed["contains"] = (f"Contain {looked_for.hex(' ').upper()}", report.containing(looked_for))
    unreachable = report.glitches() if glitches else None
    if as_json:
        asked: dict[str, Any] = {name: _tokens(report, ids) for name, (_, ids) in listed.items()}
        if searches:
            asked["search"] = [matches.to_json() for matches in searches]
        if unreachable is not None:
            asked["glitches"] = [glitch.to_json() for glitch in unreachable]
        output.data_json(report.to_json() | {"model_width": logits} | asked)
        return
    most = limit or vocab.width
    lines = [line for matches in searches for line in ("", *matches_page(report, matches, most))]
    lines += [line for title, ids in listed.values() for line in ("", *token_table(report, title, ids, most))]
    if unreachable is not None:
        lines += ["", *glitch_table(report, unreachable, most)]
    output.data("\n".join(lines[1:] or summary(report, logits, most)))


def summary(report: VocabReport, logits: int | None, limit: int) -> list[str]:
    """The overview, shown if nothing is searched for."""
    vocab = report.vocab
    counts = report.counts
    missing = vocab.missing_bytes()
    unused = f", {counts['unused']:,} ids unused" if "unused" in counts else ""
    lines = [
        *_field("vocabulary", shown(vocab.name or "without a name")),
        *_field("tokens", f"{vocab.width - vocab.padding_count:,}{unused}"),
        *_field("logits", "not known: no model's config" if logits is None else _logits(vocab, logits)),
        *_field("ends a text", ", ".join(f"{i} {visible(vocab.text_of(i))}" for i in vocab.eos_ids)),
        *_field("bytes", f"no token alone: {byte_ranges(missing)}" if missing else "each has a token of its own"),
        "",
        f"{'category':<14}{'tokens':>8}  {'share':>6}  examples",
    ]
    for name, count in counts.items():
        ids = report.ids_in(name)
        examples = "" if name == "unused" else "  ".join(label(report, i) for i in islice(ids, EXAMPLES))
        lines.append(f"{name:<14}{count:>8,}  {count / vocab.width:>6.1%}  {clip(examples, WIDTH - 32)}".rstrip())
    special = sorted(vocab.special_texts)
    lines += ["", "special tokens", *(f"{i:>8}  {clip(label(report, i), WIDTH - 10)}" for i in special[:limit])]
    return lines + _more(len(special), limit)


def _logits(vocab: Vocab, logits: int) -> str:
    beyond = len(vocab) - logits
    return f"{logits:,}" if beyond <= 0 else f"{logits:,}: the model has none for the last {beyond:,} ids"


def _field(name: str, text: str) -> Iterator[str]:
    first, *rest = wrapped(text, WIDTH - LABEL)
    yield f"{name:<{LABEL}}{first}"
    yield from (f"{'':{LABEL}}{line}" for line in rest)


def matches_page(report: VocabReport, matches: Matches, limit: int) -> list[str]:
    """The tokens that match one search term."""
    lines = [
        clip(f"Search {visible(matches.term)}", WIDTH),
        *_field("  exactly", ", ".join(map(str, matches.exact)) or "none"),
        *_field("  with a space", ", ".join(map(str, matches.spaced)) or "none"),
    ]
    if matches.encoding is not None:
        lines += _field("  split into", pieces(report, matches.encoding) or "nothing")
    return [*lines, *token_table(report, "  contain it", matches.containing, limit)]


def token_table(report: VocabReport, title: str, ids: Sequence[int], limit: int) -> list[str]:
    """One line for each token; the column of variable width is last."""
    lines = [f"{clip(title, WIDTH - 20)}: {len(ids):,} token{'s' * (len(ids) != 1)}"]
    if ids:
        lines.append(f"{'id':>8}  {'category':<12}  {'bytes':<20}  text")
    for i in ids[:limit]:
        data = clip(report.vocab.bytes_of(i).hex(" ").upper(), 20)
        lines.append(f"{i:>8}  {report.categories[i]:<12}  {data:<20}  {clip(label(report, i), WIDTH - 46)}".rstrip())
    return lines + _more(len(ids), limit)


def glitch_table(report: VocabReport, glitches: Sequence[Glitch], limit: int) -> list[str]:
    """One line for each token, and the tokens that its text is encoded as below it."""
    lines = [f"Not split into themselves: {len(glitches):,} token{'s' * (len(glitches) != 1)}"]
    for glitch in glitches[:limit]:
        lines.append(f"{glitch.id:>8}  {glitch.reason:<38}  {clip(visible(glitch.text), WIDTH - 50)}")
        if glitch.encoding:
            lines.append(clip(f"{'':>10}{pieces(report, glitch.encoding)}", WIDTH))
    return lines + _more(len(glitches), limit)


def _more(count: int, limit: int) -> list[str]:
    return [f"  and {count - limit:,} more; --limit 0 shows all"] if count > limit else []


def _tokens(report: VocabReport, ids: Iterable[int]) -> list[dict[str, Any]]:
    vocab = report.vocab
    return [
        {"id": i, "text": vocab.text_of(i), "bytes": list(vocab.bytes_of(i)), "category": report.categories[i]}
        for i in ids
    ]


def pieces(report: VocabReport, ids: Iterable[int]) -> str:
    return ", ".join(f"{i} {label(report, i)}" for i in ids)


def label(report: VocabReport, token: int) -> str:
    """A token's text, visible."""
    return visible(report.texts[token])


def visible(text: str) -> str:
    """A text on one line of a terminal, with every character visible and without effect on the rest of the line.

    A space is ␠; control characters and backslashes are escapes; a lone surrogate of `VocabReport.texts` is its byte.
    A combining mark stands on a dotted circle, and right-to-left text is isolated.
    """
    written: list[str] = []
    based = False
    for char in text:
        mark = unicodedata.category(char)[0] == "M"
        plain = char.isprintable() and char not in " \\␠"
        written.append(f"◌{char}" if mark and not based else char if plain else _ESCAPES.get(char) or _escape(char))
        based = plain
    line = "".join(written)
    right_to_left = any(unicodedata.bidirectional(c) in ("R", "AL", "AN") for c in line)
    return f"{ISOLATE}{line}{END_ISOLATE}" if right_to_left else line


_ESCAPES: Mapping[str, str] = {" ": "␠", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\\": "\\\\"}


def _escape(char: str) -> str:
    code = ord(char)
    if 0xDC80 <= code < 0xDD00:
        return f"\\x{code - 0xDC00:02x}"
    return f"\\x{code:02x}" if code < 0x80 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def byte_ranges(data: bytes) -> str:
    """`0x00-0x1F, 0x7F` of ascending bytes."""
    ranges: list[list[int]] = []
    for value in data:
        if ranges and ranges[-1][1] == value - 1:
            ranges[-1][1] = value
        else:
            ranges.append([value, value])
    return ", ".join(f"0x{a:02X}" if a == b else f"0x{a:02X}-0x{b:02X}" for a, b in ranges)
