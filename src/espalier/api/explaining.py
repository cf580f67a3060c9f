"""What a trace says of its constraint, as JSON: text, verdict, cost, findings. `trace/report/` finds it out."""

from __future__ import annotations

from typing import Any

from espalier.trace.records import Trace
from espalier.trace.report.diagnose import diagnose


def explained(trace: Trace, **more: Any) -> dict[str, Any]:
    """Everything, unshortened. more: further fields, after the model's name."""
    return {
        "text": trace.text,
        "finish_reason": trace.finish_reason,
        "model": trace.model,
        **more,
        "verdict": trace.verdict,
        "cost": trace.summary(),
        "findings": [one.to_json() for one in diagnose(trace)],
    }
