"""`espalier wordlist build|check|list`: build and list ranked word lists, and check a text against one.

It writes lists and reads texts; `constraints/words/` decides what fits a list.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.cells import cell_len, set_cell_size

from espalier.cli import output
from espalier.cli.flags.groups import sub_app
from espalier.cli.flags.inputs import read_text
from espalier.cli.progress import working
from espalier.constraints.words.judge import line_and_column
from espalier.constraints.words.report import WordCount, WordReport, oov_report
from espalier.constraints.words.spec import Wordlist
from espalier.errors import EspalierError, InputError, OutputError, UnknownName
from espalier.lexicon.build import build_words, list_text
from espalier.lexicon.files import WordFiles, read_words
from espalier.wiring import build_app

app = sub_app("Build and list ranked word lists, and check a text against one.")

AsJson = Annotated[bool, typer.Option("--json", help="As JSON.")]
ROWS = 15
WIDTH = 44  # of a word in a table


@app.command("build", short_help="Build a list from word frequencies.")
def build_command(
    lang: Annotated[str, typer.Argument(help="A language code such as es.", metavar="LANG")],
    count: Annotated[int, typer.Option("-n", "--count", help="How many words.")] = 10_000,
    target: Annotated[
        str | None, typer.Option("-o", "--output", help="Default: LANG.txt in the word list folder.", metavar="FILE")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite the file.")] = False,
) -> None:
    """Build a ranked list of the most frequent words of a language.

    The frequencies come from the package wordfreq, in the extra `wordlists` (see `espalier doctor`).

    The folder is ESPALIER_WORDLIST_DIR, or ./wordlists; `-o -` writes to stdout.
    """
    folder = build_app().folders.wordlists
    path = Path(target).expanduser() if target else (folder or Path("wordlists")) / f"{lang}.txt"
    with working(f"building the list of {lang}"):
        words = build_words(lang, count)
    text = list_text(lang, words)
    if target == "-":
        output.data(text)
        return
    _write(path, text, make_folder=target is None, force=force)
    output.note(f"{len(words):,} words in {path}")
    if not _is_read(path, lang):
        output.note(f"to use it: --words {path}, or ESPALIER_WORDLIST_DIR={path.parent.resolve()}")


def _is_read(path: Path, lang: str) -> bool:
    """Whether the language's list is read from this file."""
    try:
        return _files().path(lang).resolve() == path.resolve()
    except UnknownName:
        return False


def _write(path: Path, text: str, *, make_folder: bool, force: bool) -> None:
    """Write a list. Raises InputError for a file that exists, OutputError for one that cannot be written."""
    if make_folder:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise OutputError(f"cannot write {path}: {error.strerror or error}") from error
    output.write_file(path, text, force=force)


@app.command("list", short_help="List the word lists.")
def list_command(as_json: AsJson = False) -> None:
    """List the word lists: language, number of words, file."""
    files = _files()
    rows = []
    for lang in files.languages():
        try:
            count: int | None = len(files.words(lang))
        except EspalierError as error:
            count = None
            output.note(error.message)
        rows.append((lang, count, str(files.path(lang))))
    if as_json:
        output.data_json([{"lang": lang, "words": count, "path": path} for lang, count, path in rows])
        return
    wide = max((len(lang) for lang, _, _ in rows), default=0)
    for lang, count, path in rows:
        output.data(f"{lang:<{wide}}  {'unusable' if count is None else f'{count:,}':>9}  {path}")
    if not rows:
        output.note("there are none; `espalier wordlist build es` makes one")


@app.command("check", short_help="Find the words of a text that are not in a list.")
def check_command(
    file: Annotated[str, typer.Argument(help="A text file; `-` reads stdin.", metavar="FILE")],
    lang: Annotated[
        str | None, typer.Option(help="Language; with --words, for its spelling rules only.", metavar="LANG")
    ] = None,
    top: Annotated[int | None, typer.Option("-n", "--top", help="The first N words of the list only.")] = None,
    words: Annotated[str | None, typer.Option(help="A list of your own.", metavar="FILE")] = None,
    extra: Annotated[list[str] | None, typer.Option(help="One more word; repeat it.", metavar="W")] = None,
    name: Annotated[list[str] | None, typer.Option(help="A name, written exactly so; repeat it.", metavar="W")] = None,
    capitals: Annotated[str, typer.Option(help="never, sentence or anywhere.")] = "sentence",
    digits: Annotated[bool, typer.Option("--digits", help="Allow numbers.")] = False,
    quotes: Annotated[bool, typer.Option("--quotes", help="Allow quotation marks.")] = False,
    hyphens: Annotated[bool, typer.Option("--hyphens", help="Allow hyphens and dashes.")] = False,
    colons: Annotated[bool, typer.Option("--colons", help="Allow colons and semicolons.")] = False,
    separators: Annotated[str, typer.Option(help="Other characters between words.", metavar="CHARS")] = "",
    max_run: Annotated[int, typer.Option(help="At most this many separators in a row.")] = 8,
    as_json: AsJson = False,
) -> None:
    """Find the words and characters of a text that are not in a list, with their counts and first positions.

    Exit 1 if a word list constraint would not accept the text.
    """
    if lang is None and words is None:
        raise InputError("there is no list", hint="--lang es, or --words FILE", field="lang")
    spec = Wordlist(
        None if words is None else read_words(Path(words).expanduser()),
        lang=lang,
        top=top,
        extra=tuple(extra or ()),
        names=tuple(name or ()),
        capitals=capitals,  # type: ignore[arg-type]  # checked by Wordlist itself
        digits=digits,
        quotes=quotes,
        hyphens=hyphens,
        colons=colons,
        separators=separators,
        max_run=max_run,
    )
    text = read_text(file, "text")
    with working("looking words up"):
        report = oov_report(spec, text, _files())
    if as_json:
        output.data_json(report.to_json())
    else:
        output.data("\n".join(table(report, text)))
        output.note("in the list's language" if report.fits else "not in the list's language")
    raise typer.Exit(0 if report.fits else 1)


def _files() -> WordFiles:
    return WordFiles.standard(build_app().folders.wordlists)


def table(report: WordReport, text: str) -> list[str]:
    """The report for people, in 80 columns."""
    share = "" if report.share is None else f" ({report.share:.1%})"
    lines = [
        f"words      {report.words:,}, {report.distinct:,} of them distinct"
        + (f"; {report.numbers:,} numbers" if report.numbers else ""),
        f"in list    {report.known:,}{share} of the top {report.listed:,}",
    ]
    if report.words:
        reached = {share: top for share, top in report.enough.items() if top is not None}
        shares = [f"{share} % by the top {top:,}" for share, top in reached.items()]
        missed = [f"{share} %" for share in report.enough if share not in reached]
        shares += [f"{missed[0]} by no part of the list"] if missed else []
        lines.append(f"covered    {', '.join(shares)}")
    if report.largest_rank is not None:
        lines.append(f"last rank  {report.largest_rank:,}")
    lines += _section("Not in the list", report.unknown, ranks=True)
    lines += _section("In the list, but not with these capitals", report.capitals)
    lines += _section("Characters that are neither separators nor in words", report.characters, codes=True)
    if report.problems:
        more = report.problem_count - len(report.problems)
        lines += ["", f"Where it does not fit{f' (the first {len(report.problems)})' if more else ''}"]
        for problem in report.problems:
            line, column = line_and_column(text, problem.offset)
            lines.append(f"  {_clip(f'{line}:{column}', 9)} {_clip(problem.reason, 68).rstrip()}")
    return lines


def _section(title: str, counted: tuple[WordCount, ...], *, ranks: bool = False, codes: bool = False) -> list[str]:
    if not counted:
        return []
    lines = ["", title, f"  {'count':>6}  {'first at':<10}  {'word' if not codes else 'character'}"]
    for entry in counted[:ROWS]:
        # A character that cannot be seen is named by its number.
        shown = f"{entry.text if entry.text.isprintable() else ' '}  U+{ord(entry.text):04X}" if codes else entry.text
        beyond = f"  rank {entry.rank:,}" if ranks and entry.rank is not None else ""
        shown = _clip(shown, WIDTH) if beyond else _clip(shown, WIDTH).rstrip()
        lines.append(f"  {entry.count:>6,}  {f'{entry.line}:{entry.column}':<10}  {shown}{beyond}")
    if len(counted) > ROWS:
        lines.append(f"  and {len(counted) - ROWS:,} more; --json has all")
    return lines


def _clip(text: str, cells: int) -> str:
    """A text padded or cut to exactly so many columns."""
    return set_cell_size(text, cells) if cell_len(text) <= cells else set_cell_size(text, cells - 1) + "…"
