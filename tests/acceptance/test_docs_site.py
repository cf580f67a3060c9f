"""The site of the docs, read from the disk as `make docs` says to open it: its search gives pages."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("mkdocs", reason="mkdocs is not installed")
pytest.importorskip("material", reason="mkdocs-material is not installed")
pytest.importorskip("fastapi", reason="the extra [server] is not installed")

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built site. The libraries of models are hidden: neither they nor a compiler are needed for it."""
    folder = tmp_path_factory.mktemp("site")
    hiding = tmp_path_factory.mktemp("hiding")
    names = ("torch", "transformers", "llama_cpp", "tokenizers")
    (hiding / "sitecustomize.py").write_text(f"import sys\nsys.modules.update(dict.fromkeys({names!r}))\n")
    environment = {
        **os.environ,
        "NO_MKDOCS_2_WARNING": "1",
        "PYTHONPATH": os.pathsep.join([str(hiding), str(ROOT / "src")]),
    }
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--site-dir", str(folder)]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=900)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("page_name", ["index.html", "how-to/word-lists.html"])
def test_search_works_from_the_disk(page_name: str, site: Path) -> None:
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("chromium is not installed")
    with sync_api.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page()
        errors: list[str] = []
        asked: list[str] = []
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on("request", lambda request: asked.append(request.url))
        page.goto((site / page_name).as_uri())
        page.locator("input.md-search__input").click()
        page.keyboard.type("removed mass")
        page.locator(".md-search-result__item").first.wait_for(timeout=60_000)
        first = page.locator(".md-search-result__link").first.get_attribute("href") or ""
        browser.close()
    assert "mathematics.html" in first
    assert errors == []
    assert [url for url in asked if not url.startswith(("file:", "data:"))] == []
