"""Makes the pictures of the README from real runs of the demo model: `python scripts/readme_pictures.py`.

`first.svg` shows an answer without and with a schema side by side; `trace.png` is the page of the second run's trace,
photographed in headless Chromium (it needs playwright and chromium). A test compares the texts of the first with what
the model answers.
"""

from __future__ import annotations

import json
import shutil
import tempfile
import textwrap
from html import escape
from pathlib import Path

import espalier

ROOT = Path(__file__).resolve().parents[1]
IMAGES = ROOT / "docs" / "images"
PROMPT, SEED = "Generate user info", 2
COLUMNS, LINE, MARGIN, WIDTH = 44, 20, 20, 430
SIZE = {"width": 1400, "height": 900}


def run(engine: espalier.LoadedEngine) -> tuple[espalier.Result, espalier.Result]:
    """The answer without and with the schema of the examples."""
    schema = json.loads((ROOT / "examples" / "user.schema.json").read_text(encoding="utf-8"))
    free = engine.generate(PROMPT, seed=SEED)
    return free, engine.generate(PROMPT, seed=SEED, constraint=espalier.JsonSchema(schema))


def side_by_side(free: espalier.Result, bound: espalier.Result) -> str:
    """An SVG with both answers, and what the schema cost below the second."""
    cost = f"valid; tax {bound.trace.summary()['total_tax_nats']:.2f} nats" if bound.trace else "valid"
    first = bound.trace.steps[0] if bound.trace else None
    taken = f"; at the first token {first.removed_mass:.0%} of the wish" if first is not None else ""
    panels = [
        ("without", "espalier generate --seed 2", free.text, "not JSON: prose and a fence around it", "#b3261e"),
        ("with", "espalier generate --seed 2 --schema user.schema.json", bound.text, cost + taken, "#146c2e"),
    ]
    rows = max(len(lines_of(text)) for _, _, text, _, _ in panels)
    height = 3 * MARGIN + LINE * (rows + 3)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{2 * WIDTH + MARGIN}" height="{height}" '
        f'viewBox="0 0 {2 * WIDTH + MARGIN} {height}" font-family="ui-monospace,Menlo,Consolas,monospace" '
        f'font-size="14" role="img" aria-label="The same model and seed, without and with a schema">'
    ]
    for place, (name, command, text, said, colour) in enumerate(panels):
        left = place * (WIDTH + MARGIN)
        parts.append(f'<rect x="{left}" y="0" width="{WIDTH}" height="{height}" rx="8" fill="#1b1f24"/>')
        x, y = left + MARGIN, MARGIN + 8
        parts.append(f'<text x="{x}" y="{y}" fill="#8b949e" font-size="12">{escape(name)}: {escape(command)}</text>')
        for number, line in enumerate(lines_of(text), 1):
            parts.append(
                f'<text x="{x}" y="{y + LINE * (number + 0.4):.0f}" fill="#e6edf3" xml:space="preserve">'
                f"{escape(line)}</text>"
            )
        parts.append(f'<rect x="{left}" y="{height - 34}" width="{WIDTH}" height="34" fill="{colour}"/>')
        parts.append(f'<text x="{x}" y="{height - 12}" fill="#ffffff" font-size="13">{escape(said)}</text>')
    return "\n".join([*parts, "</svg>", ""])


def lines_of(text: str) -> list[str]:
    """The text in lines that fit a panel; nothing is left out."""
    found: list[str] = []
    for line in text.splitlines():
        wrapped = textwrap.wrap(line, COLUMNS, drop_whitespace=False, replace_whitespace=False, break_on_hyphens=False)
        found += wrapped or [""]
    return found


def photograph(result: espalier.Result, path: Path) -> None:
    """The first screen of the trace's page."""
    from playwright.sync_api import sync_playwright  # noqa: PLC0415  # for this picture alone

    assert result.trace is not None
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as driver:
        page_path = Path(folder) / "trace.html"
        result.trace.save(page_path)
        chromium = shutil.which("chromium") or shutil.which("chromium-browser")
        browser = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page(viewport=SIZE, color_scheme="light")  # type: ignore[arg-type]  # a size
        page.goto(page_path.as_uri())
        page.get_by_text("Tax per token").first.wait_for()
        page.screenshot(path=str(path))
        browser.close()


def main() -> None:
    IMAGES.mkdir(parents=True, exist_ok=True)
    with espalier.load(ROOT / "models" / "demo") as engine:
        free, bound = run(engine)
    (IMAGES / "first.svg").write_text(side_by_side(free, bound), encoding="utf-8")
    photograph(bound, IMAGES / "trace.png")


if __name__ == "__main__":
    main()
