"""A reporter that appends the reports of all steps to the file in `STEP_REPORTS`, for the tests to read."""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from pathlib import Path

from espalier.integrations.vllm.report import StepReport


def write(step: StepReport) -> None:
    with Path(os.environ["STEP_REPORTS"]).open("a", encoding="utf-8") as file:
        file.write(json.dumps(asdict(step)) + "\n")
