"""The page of clients agrees with the programs and the pins of the conformance suite; no network is needed."""

from __future__ import annotations

from tests.clients_page import AGAIN, CLIENTS, ENGINES, PAGE, PROGRAMS, page, read_clients


def test_every_program_has_a_line() -> None:
    assert {path.name for path in PROGRAMS.glob("with_*")} == set(CLIENTS)


def test_the_page_has_the_versions_and_checks_of_the_programs_and_no_fault() -> None:
    results = {name: dict.fromkeys(ENGINES, client.checks) for name, client in read_clients().items()}
    assert PAGE.read_text(encoding="utf-8") == page(results), AGAIN


def test_a_fault_and_an_engine_that_did_not_run_are_on_the_page() -> None:
    checks = read_clients()["with_openai.py"].checks
    text = page({"with_openai.py": {"transformers": [check for check in checks if check != "tools"]}})
    (line,) = (line for line in text.splitlines() if line.startswith("| openai "))
    assert line.endswith("| fail: tools | not run |")
