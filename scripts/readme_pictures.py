"""Makes the pictures of README and docs from real runs of the demo model: `python scripts/readme_pictures.py`.

`tokens.svg` is animated: answers appear token by token, with what the model wanted struck through. `first.svg` shows an
answer without and with a schema side by side, `words.svg` a story without and with a word list,
`step.svg` the first step under the schema, `tax.svg` the tax of each token under two schemas. `trace.png` is the page
of a trace and `playground.png` the server's first page, both photographed in headless Chromium (they need playwright
and chromium). A test compares the drawn ones with what the model answers.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from html import escape
from pathlib import Path
from threading import Thread
from time import sleep
from typing import Any
from urllib.request import urlopen

import espalier

ROOT = Path(__file__).resolve().parents[1]
IMAGES = ROOT / "docs" / "images"
PROMPT, SEED = "Generate user info", 2
COLUMNS, LINE, MARGIN, WIDTH = 44, 20, 20, 470
SIZE = {"width": 1400, "height": 900}
STORY, WORDS = "Tell me a short story about a fox.", 1000
DARK, GREY, LIGHT, RED, GREEN, TEAL = "#1b1f24", "#8b949e", "#e6edf3", "#b3261e", "#146c2e", "#26a69a"
BAR, ROW = 360, 24
CAPITAL = "What is the capital of France?"
WIDE_COLUMNS, CELL, RED_TEXT = 88, 8.4, "#ff7b72"
MOTION = (
    "<style>.t{opacity:0;animation:t .01s forwards}@keyframes t{to{opacity:1}}"
    "@media (prefers-reduced-motion:reduce){.t{opacity:1;animation:none}}</style>"
)
"""Each piece appears once, after its delay."""


def run(engine: espalier.LoadedEngine) -> tuple[espalier.Result, espalier.Result]:
    """The answer without and with the schema of the examples."""
    free = engine.generate(PROMPT, seed=SEED)
    return free, engine.generate(PROMPT, seed=SEED, constraint=schema_named("user"))


def schema_named(name: str) -> espalier.JsonSchema:
    path = ROOT / "examples" / f"{name}.schema.json"
    return espalier.JsonSchema(json.loads(path.read_text(encoding="utf-8")))


def drawn(engine: espalier.LoadedEngine) -> dict[str, str]:
    """Name -> SVG of every picture that is drawn."""
    free, bound = run(engine)
    story = engine.generate(STORY, seed=1)
    words = engine.generate(STORY, seed=1, constraint=espalier.Wordlist(lang="en", top=WORDS))
    detailed = engine.generate(PROMPT, seed=SEED, constraint=schema_named("user"), trace="steps")
    chosen = engine.generate(CAPITAL, seed=1, constraint=espalier.Choice(["Paris", "London"]), trace="steps")
    contact, user = (
        engine.generate(PROMPT, seed=1, constraint=schema_named(name), trace="steps") for name in ("contact", "user")
    )
    return {
        "tokens.svg": token_by_token(
            [
                (f'espalier generate --schema user.schema.json "{PROMPT}"', detailed),
                (f'espalier generate --choice Paris --choice London "{CAPITAL}"', chosen),
                (f'espalier generate --schema contact.schema.json "{PROMPT}"', contact),
            ]
        ),
        "first.svg": side_by_side(free, bound),
        "words.svg": panels(
            "The same story, free and in the 1,000 most frequent words",
            [
                ("without", "espalier generate --seed 1", story.text, "any word", "#444c56"),
                ("with", "espalier generate --vocab-n-words 1000", words.text, cost_of(words), GREEN),
            ],
        ),
        "step.svg": first_step(detailed),
        "tax.svg": taxes([("contact.schema.json: no age", contact), ("user.schema.json: with an age", user)]),
    }


def token_by_token(runs: Sequence[tuple[str, espalier.Result]]) -> str:
    """An animated SVG: each answer appears token by token, and a token that the model held most probable and the
    constraint refused appears first and is struck through. Where motion is not wanted, all stands there at once."""
    label = "Three answers, token by token; what the model wanted and the constraint refused is struck through"
    rows, parts, clock = 0, [], 0.5
    for command, result in runs:
        parts.append(written(MARGIN, top_of(rows), f"$ {command}", GREY, 13))
        rows += 1
        column = 0
        for text, probability in pieces_of(result):
            for piece in re.findall(r"\n|[^\n]+", text):
                if piece == "\n" or column + len(piece) > WIDE_COLUMNS:
                    rows, column = rows + 1, 0
                    piece = piece.strip() if piece == "\n" else piece.lstrip(" ")
                if piece:
                    parts += animated(column, rows, piece, clock, probability)
                    column += len(piece) + (probability is not None)  # a gap after what is struck through
            clock += 0.12 if probability is None else 1.2
        rows += 2
    legend = top_of(rows - 1) + 8
    width, height = 2 * MARGIN + round(CELL * WIDE_COLUMNS), legend + 16
    parts.append(written(MARGIN, legend, "struck through: what the model wanted most, and may not say", RED_TEXT, 12))
    frame = f'<rect width="{width}" height="{height}" rx="8" fill="{DARK}"/>'
    return "\n".join([*opened(label, width, height), MOTION, frame, *parts, "</svg>", ""])


def pieces_of(result: espalier.Result) -> Iterator[tuple[str, float | None]]:
    """The text of each token, and before it that of the most probable token if it was refused, with its probability."""
    for step in result.trace.steps if result.trace else ():
        wanted = step.pre_masking[0] if step.pre_masking else None
        if wanted is not None and not wanted.allowed and not wanted.text.startswith("<|"):
            yield wanted.text, wanted.prob
        if not step.text.startswith("<|"):
            yield step.text, None


def animated(column: int, row: int, text: str, clock: float, probability: float | None) -> list[str]:
    """A piece that appears after so many seconds; one that was refused is then struck through."""
    x, y, length = MARGIN + round(CELL * column, 1), top_of(row), round(CELL * len(text), 1)
    fixed = f'x="{x}" y="{y}" textLength="{length}" lengthAdjust="spacingAndGlyphs" xml:space="preserve"'
    if probability is None:
        return [f'<text class="t" style="animation-delay:{clock:.2f}s" {fixed} fill="{LIGHT}">{escape(text)}</text>']
    shown = f'<text class="t" style="animation-delay:{clock:.2f}s" {fixed} fill="{RED_TEXT}">{escape(text)}'
    strike = (
        f'<rect class="t" style="animation-delay:{clock + 0.5:.2f}s" x="{x}" y="{y - 5}" width="{length}" height="1.5"'
    )
    return [f"{shown}<title>{probability:.0%}</title></text>", f'{strike} fill="{RED_TEXT}"/>']


def top_of(row: int) -> int:
    """The base line of a row."""
    return MARGIN + 12 + 22 * row


def cost_of(result: espalier.Result) -> str:
    return f"tax {result.trace.summary()['total_tax_nats']:.2f} nats" if result.trace else ""


def side_by_side(free: espalier.Result, bound: espalier.Result) -> str:
    """An SVG with both answers, and what the schema cost below the second."""
    first = bound.trace.steps[0] if bound.trace else None
    forbidden = f"; forbade {first.removed_mass:.0%} of what the model wanted first" if first is not None else ""
    return panels(
        "The same model and seed, without and with a schema",
        [
            ("without", "espalier generate --seed 2", free.text, "not JSON: prose and a fence around it", RED),
            (
                "with",
                "espalier generate --seed 2 --schema user.schema.json",
                bound.text,
                f"valid JSON{forbidden}",
                GREEN,
            ),
        ],
    )


def panels(label: str, each: list[tuple[str, str, str, str, str]]) -> str:
    """An SVG of terminals beside each other. each: name, command, text, what is said below it, colour of that."""
    rows = max(len(lines_of(text)) for _, _, text, _, _ in each)
    width, height = len(each) * (WIDTH + MARGIN) - MARGIN, 3 * MARGIN + LINE * (rows + 3)
    parts = opened(label, width, height)
    for place, (name, command, text, said, colour) in enumerate(each):
        left = place * (WIDTH + MARGIN)
        parts.append(f'<rect x="{left}" y="0" width="{WIDTH}" height="{height}" rx="8" fill="{DARK}"/>')
        x, y = left + MARGIN, MARGIN + 8
        parts.append(written(x, y, f"{name}: {command}", GREY, 12))
        for number, line in enumerate(lines_of(text), 1):
            parts.append(written(x, round(y + LINE * (number + 0.4)), line, LIGHT, 14))
        parts.append(f'<rect x="{left}" y="{height - 34}" width="{WIDTH}" height="34" fill="{colour}"/>')
        parts.append(written(x, height - 12, said, "#ffffff", 13))
    return "\n".join([*parts, "</svg>", ""])


def first_step(result: espalier.Result) -> str:
    """An SVG of the first step: a bar for each of the tokens that the model held most probable, refused or allowed."""
    step = result.trace.steps[0]  # type: ignore[union-attr]  # it was asked for
    best = [one for one in step.pre_masking if one.prob >= 0.003]
    height = 3 * MARGIN + ROW * len(best) + LINE
    parts = opened("The first step: what the model wanted, and what the schema left", 2 * WIDTH, height)
    parts.append(f'<rect width="{2 * WIDTH}" height="{height}" rx="8" fill="{DARK}"/>')
    parts.append(written(MARGIN, MARGIN + 8, "first token: what the model wanted", GREY, 12))
    for number, one in enumerate(best, 1):
        y, kept = MARGIN + 8 + ROW * number, one.allowed
        parts.append(written(MARGIN, y, one.text, LIGHT, 14))
        length = round(BAR * one.prob)
        parts.append(f'<rect x="130" y="{y - 12}" width="{length}" height="14" fill="{TEAL if kept else RED}"/>')
        parts.append(written(140 + length, y, f"{one.prob:.0%}", LIGHT, 13))
        verdict = "allowed" if kept else "refused"
        parts.append(written(600, y, "taken" if one.id == step.token_id else verdict, GREY, 13))
    said = f"removed mass {step.removed_mass:.0%}; tax {step.tax_nats:.2f} nats"
    parts.append(written(MARGIN, height - 16, said, LIGHT, 13))
    return "\n".join([*parts, "</svg>", ""])


def taxes(runs: list[tuple[str, espalier.Result]]) -> str:
    """An SVG with a column for each token of each run, as high as its tax."""
    block, high = 150, 5.5
    height = block * len(runs) + MARGIN
    parts = opened("The tax of each token under the two schemas", 2 * WIDTH, height)
    parts.append(f'<rect width="{2 * WIDTH}" height="{height}" rx="8" fill="{DARK}"/>')
    for place, (name, result) in enumerate(runs):
        steps = result.trace.steps if result.trace else ()
        base = block * (place + 1) - 10
        parts.append(written(MARGIN, base - block + 34, f"{name}; {cost_of(result)}", GREY, 12))
        for number, step in enumerate(steps):
            tall = max(1, round((block - 50) * step.tax_nats / high))
            colour = RED if step.tax_nats >= 0.7 else TEAL
            x = MARGIN + number * 29
            parts.append(f'<rect x="{x}" y="{base - tall}" width="24" height="{tall}" fill="{colour}"/>')
            if step.tax_nats >= 0.7:
                parts.append(written(x, base - tall - 5, f"{step.tax_nats:.1f} {step.text}", LIGHT, 12))
    return "\n".join([*parts, "</svg>", ""])


def opened(label: str, width: int, height: int) -> list[str]:
    return [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" font-family="ui-monospace,Menlo,Consolas,monospace" '
        f'font-size="14" role="img" aria-label="{escape(label)}">'
    ]


def written(x: int, y: int, text: str, colour: str, size: int) -> str:
    return f'<text x="{x}" y="{y}" fill="{colour}" font-size="{size}" xml:space="preserve">{escape(text)}</text>'


def lines_of(text: str) -> list[str]:
    """The text in lines that fit a panel; nothing is left out."""
    found: list[str] = []
    for line in text.splitlines():
        wrapped = textwrap.wrap(line, COLUMNS, replace_whitespace=False, break_on_hyphens=False)
        found += wrapped or [""]
    return found


def photograph(address: str, path: Path, *steps: Callable[[Any], None]) -> None:
    """The first screen of a page, after the steps."""
    from playwright.sync_api import sync_playwright  # noqa: PLC0415  # for pictures of pages alone

    with sync_playwright() as driver:
        chromium = shutil.which("chromium") or shutil.which("chromium-browser")
        browser = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page(viewport=SIZE, color_scheme="light")  # type: ignore[arg-type]  # a size
        page.goto(address)
        for step in steps:
            step(page)
        page.screenshot(path=str(path))
        browser.close()


@contextmanager
def serving() -> Iterator[str]:
    """The address of `espalier serve` on a free port, once it is ready."""
    command = [sys.executable, "-m", "espalier", "serve", "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        found = next(filter(None, (re.search(r"serves at (http://\S+)", line) for line in process.stderr)))
        Thread(target=process.stderr.read, daemon=True).start()
        while process.poll() is None:
            with suppress(OSError), urlopen(f"{found[1]}/ready") as reply:
                if reply.status == 200:
                    break
            sleep(0.2)
        try:
            yield found[1]
        finally:
            process.terminate()


def generate(page: Any) -> None:
    """In the playground: the example of a schema, generated."""
    page.click("#go")
    page.get_by_text("nats").first.wait_for(timeout=120_000)
    page.locator("#stop[disabled]").wait_for(state="attached", timeout=120_000)


def main() -> None:
    IMAGES.mkdir(parents=True, exist_ok=True)
    with espalier.load(ROOT / "models" / "demo") as engine:
        for name, picture in drawn(engine).items():
            (IMAGES / name).write_text(picture, encoding="utf-8")
        _, bound = run(engine)
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "trace.html"
        bound.trace.save(page)  # type: ignore[union-attr]  # the default level keeps one
        photograph(page.as_uri(), IMAGES / "trace.png", lambda it: it.get_by_text("Tax per token").first.wait_for())
    with serving() as address:
        photograph(address, IMAGES / "playground.png", generate)


if __name__ == "__main__":
    main()
