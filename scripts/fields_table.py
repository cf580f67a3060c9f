"""Print `docs/fields.md`: every field of the generating routes by its class, from the tables that the server reads.

python scripts/fields_table.py > docs/fields.md
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from typing import Any

from espalier.server.bodies.base import names_of
from espalier.server.bodies.fields import CONSTRAINTS, HINTS, REFUSED
from espalier.server.bodies.llama import LlamaBody
from espalier.server.bodies.openai import ChatBody, CompletionBody, EspalierOptions, StructuredOutputs

HEAD = """# Fields of a request

`python scripts/fields_table.py` prints this file from the tables of `src/espalier/server/bodies/`.

A field **does something**, is a **hint** without effect here, or **would change the answer** and is refused by name.
Hints are listed in the `warning` header of the reply and, with the key `espalier`, in `espalier.warnings` too.
Every other field is unknown: the same warning names the nearest field. `STRICT_FIELDS=true`, or
`"espalier": {"strict": true}` in a request, refuses unknown fields instead. A misspelt constraint, or a field that
looks like one, is refused unless its value is empty (`""`, `[]`, `{}`, `false`, `0`) or is that of a constraint of the
same body under its known name: to take it would be to drop what the client holds for enforced. `samplers` that are not
here are skipped, and named. `null` is always "not given". Fields that a reply contained come back in `messages` without
harm; unknown ones there are named too. Inside `response_format`, `structured_outputs` and `espalier` unknown fields are
refused.
"""
ROUTES = {"chat": ChatBody, "completions": CompletionBody, "/completion": LlamaBody}


def document() -> str:
    """The whole file."""
    parts = [HEAD, "## Does something\n", _table(("field", "routes"), _own())]
    inner = (("espalier", EspalierOptions), ("structured_outputs", StructuredOutputs))
    for name, cls in inner:
        parts.append(f"Of `{name}`: {_listed(names_of(cls))}.\n")
    parts += [
        "## Hints without effect here\n",
        _table(("field", "why"), ((n, h.why) for n, h in sorted(HINTS.items()))),
    ]
    refused = ((name, _idle(one.idle), one.why) for name, one in sorted(REFUSED.items()))
    parts += [
        "## Would change the answer: refused\n",
        "A field of this table that a route has above does something on that route.\n",
        _table(("field", "asks for nothing", "instead"), refused),
        "## Constraints\n",
        f"An unknown field that is one of these misspelt is refused: {_listed(CONSTRAINTS)}.\n",
    ]
    return "\n".join(parts)


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f"`{one}`" for one in sorted(names))


def _own() -> Iterable[tuple[str, str]]:
    names = {name: names_of(cls) for name, cls in ROUTES.items()}
    for field in sorted(set().union(*names.values())):
        yield field, ", ".join(route for route, fields in names.items() if field in fields)


def _idle(values: tuple[Any, ...]) -> str:
    return ", ".join(f"`{json.dumps(one)}`" for one in values)


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    lines += [f"| `{row[0]}` | {' | '.join(row[1:])} |" for row in rows]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.stdout.write(document())
