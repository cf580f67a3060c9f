"""A report as JUnit XML, the form that CI servers read: one test case for each case, its failures as text.

A character that XML 1.0 cannot hold is written as U+FFFD.
"""

from __future__ import annotations

import re
from xml.etree import ElementTree as ET  # writes only; nothing is parsed

from espalier.harness.results import CaseResult, Report

_NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def junit_text(report: Report) -> str:
    """The XML document. A case in which every iteration ended in an error is an `error`, another that did not pass a
    `failure`."""
    errors = sum(_is_error(result) for result in report.results)
    failed = sum(not result.passed for result in report.results) - errors
    counts = {"tests": str(len(report.results)), "failures": str(failed), "errors": str(errors)}
    root = ET.Element("testsuites", {"name": "espalier test", **counts, "time": f"{report.seconds:.3f}"})
    suite = ET.SubElement(
        root, "testsuite", {"name": _xml(report.model), **counts, "skipped": "0", "time": f"{report.seconds:.3f}"}
    )
    for result in report.results:
        _case(suite, result)
    ET.indent(root)
    return f'<?xml version="1.0" encoding="utf-8"?>\n{ET.tostring(root, encoding="unicode")}\n'


def _case(suite: ET.Element, result: CaseResult) -> None:
    seconds = sum(sample.latency for sample in result.samples)
    case = ET.SubElement(
        suite, "testcase", {"classname": "espalier", "name": _xml(result.case.name), "time": f"{seconds:.3f}"}
    )
    if not result.passed:
        reasons = result.reasons()
        count = len(result.samples)
        text = "\n".join(
            f"{failure.check} ({times} of {count}): {failure.reason}"
            + (f"\n  try: {failure.remedy}" if failure.remedy else "")
            for failure, times in reasons
        )
        passed = f"{result.total_passed} of {count} iterations passed: "
        fault = ET.SubElement(
            case,
            "error" if _is_error(result) else "failure",
            {"message": _xml(passed + reasons[0][0].reason), "type": reasons[0][0].check},
        )
        fault.text = _xml(text)
    outputs = ET.SubElement(case, "system-out")
    outputs.text = _xml("\n".join(f"[{place}] {text}" for place, text in enumerate(result.outputs)))


def _is_error(result: CaseResult) -> bool:
    return not result.passed and len(result.errors) == len(result.samples)


def _xml(text: str) -> str:
    return _NOT_XML.sub("\ufffd", text)
