"""Random inputs of batches through the readers, against an oracle of plain code: the same lines are taken, and every
fault names the same line for the same reason."""

from __future__ import annotations

import importlib.util
import io
import re
import tempfile
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import patch

from espalier.errors import InputError
from espalier.jobs import intake
from espalier.jobs.formats import rows
from espalier.jobs.values import InputFault
from tests.fuzz.batches import draw, oracle
from tests.fuzz.session import Finding, Totals

LINE_BYTES = 4000
"""In place of the millions of bytes that a line may have, so that many cases are about that limit."""
HAS_ARROW = importlib.util.find_spec("pyarrow") is not None
KINDS = ("batch", "batch", "batch", ".jsonl", ".csv", ".parquet" if HAS_ARROW else ".csv")


class BatchFuzzer:
    """Each case is an input of one kind: lines of a batch, or a table as JSON Lines, CSV or Parquet."""

    def one(self, seed: int, totals: Totals) -> None:
        random = Random(seed)
        kind = random.choice(KINDS)
        totals.features[kind] += 1
        with patch.object(intake, "LINE_BYTES", LINE_BYTES), patch.object(rows, "LINE_BYTES", LINE_BYTES):
            given, found, wanted = self._batch(random, totals) if kind == "batch" else self._table(random, kind, totals)
        if found != wanted:
            spec = {"found": found, "wanted": wanted}
            totals.findings.append(Finding(seed=seed, fault=f"{kind} is read otherwise", spec=spec, text=repr(given)))

    def _batch(self, random: Random, totals: Totals) -> tuple[Any, Any, Any]:
        content = draw.lines(random, LINE_BYTES)
        found = [
            (one.line or 0, one.code) if isinstance(one, InputFault) else (one.number, f"ok:{one.custom_id}")
            for one in intake.LineReader(draw.ENDPOINT).read(io.BytesIO(content))
        ]
        for _, said in found:
            totals.counts["line: " + ("taken" if said.startswith("ok:") else said)] += 1
        return content, found, oracle.judge(content, draw.ENDPOINT, LINE_BYTES)

    def _table(self, random: Random, kind: str, totals: Totals) -> tuple[Any, Any, Any]:
        with tempfile.TemporaryDirectory(prefix="fuzz-batches-") as folder:
            path = Path(folder, f"t{kind}")
            given: Any
            if kind == ".parquet":
                import pyarrow as pa  # the extra [parquet]
                from pyarrow import parquet

                given = draw.columns(random)
                parquet.write_table(pa.table(given), path)
                wanted: Any = [dict(zip(given, one, strict=True)) for one in zip(*given.values(), strict=True)]
            else:
                given = draw.comma_table(random) if kind == ".csv" else draw.lines(random, LINE_BYTES // 2)
                path.write_bytes(given)
                wanted = oracle.table(given) if kind == ".csv" else self._json_rows(given)
            try:
                found: Any = list(rows.read_rows(path))
            except InputError as error:
                named = re.match(r"line (\d+)", error.message)
                found = "other" if named is None else named[1]
            if wanted == "any" and isinstance(found, str):
                wanted = found
        totals.counts[f"{kind}: {'rows' if isinstance(found, list) else 'refused'}"] += 1
        return given, found, wanted

    def _json_rows(self, given: bytes) -> Any:
        """Rows, or the number of the faulty line as the error writes it."""
        for number, raw in oracle.lines_of(given):
            is_long = len(raw) > LINE_BYTES
            before = oracle.json_rows(b"\n".join(given.split(b"\n")[: number - (1 if is_long else 0)]))
            if isinstance(before, int):
                return str(before)
            if is_long:
                return str(number)
        return oracle.json_rows(given)
