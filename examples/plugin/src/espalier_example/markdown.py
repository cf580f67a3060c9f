"""The exporter `markdown`: the steps of a trace as a table for a ticket or a README."""

from __future__ import annotations

import json

from espalier.trace.records import Trace


def to_markdown(trace: Trace) -> str:
    rows = ["| step | token | removed mass | tax (nats) |", "| ---: | --- | ---: | ---: |"]
    for step in trace.steps:
        text = json.dumps(step.text, ensure_ascii=False).replace("|", "\\|")
        rows.append(f"| {step.step} | `{text}` | {step.removed_mass:.4f} | {step.tax_nats:.4f} |")
    return "\n".join(rows) + "\n"
