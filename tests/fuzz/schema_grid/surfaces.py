"""Whether Python, `espalier check` and HTTP state one contract of a schema."""

from __future__ import annotations

import json
import logging
from contextlib import ExitStack
from typing import Any

from typer.testing import CliRunner

import espalier
from espalier.cli.main import app
from espalier.constraints.spec import JsonSchema
from espalier.errors import EspalierError
from tests.server_app import client

ROUTE = "/v1/chat/completions"
CHECK = ["check", "--json", "--allow", "checked", "--format", "assert", "-"]
Stated = list[dict[str, str]] | str
"""The entries of a contract; or the code of the error that the schema is refused with."""


class Surfaces:
    """The edges that state contracts. The server is started at the first question; `close` stops it."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._http: Any = None

    def close(self) -> None:
        self._stack.close()
        self._http = None

    def difference(self, schema: dict[str, Any]) -> str:
        """How the surfaces differ on a schema with formats asserted, "" if they do not."""
        spec = JsonSchema(schema, allow="checked", format="assert")
        python = self._python(spec)
        for name, stated in (("espalier check", self._command(schema)), ("HTTP", self._served(schema))):
            if stated != python and not (isinstance(stated, str) and isinstance(python, str) and python in stated):
                return f"Python states {_short(python, stated)}, {name} states {_short(stated, python)}"
        return self._strictness(schema, python)

    def _strictness(self, schema: dict[str, Any], stated: Stated) -> str:
        """Whether compiling without `allow` refuses exactly the schemas that have keywords which are only checked."""
        if isinstance(stated, str):
            return ""
        is_strict = all(entry["verdict"] not in ("checked", "refused") for entry in stated)
        try:
            espalier.compile(JsonSchema(schema, format="assert"), vocab=espalier.Vocab.bytes())
            compiles = True
        except EspalierError:
            compiles = False
        return "" if compiles == is_strict else f"every keyword is enforced: {is_strict}, and it compiles: {compiles}"

    def _python(self, spec: JsonSchema) -> Stated:
        try:
            espalier.compile(spec, vocab=espalier.Vocab.bytes())
            return espalier.contract(spec).to_json()
        except EspalierError as error:
            return error.message

    def _command(self, schema: dict[str, Any]) -> Stated:
        result = CliRunner().invoke(app, CHECK, input=json.dumps(schema))
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            if isinstance(result.exception, EspalierError):
                return result.exception.message
            raise result.exception
        report = json.loads(result.stdout)
        stated: Stated = report["contract"] if "contract" in report else report["error"]
        return stated

    def _served(self, schema: dict[str, Any]) -> Stated:
        if self._http is None:
            self._http = self._stack.enter_context(client("{}"))
        before = logging.root.manager.disable
        logging.disable(logging.WARNING)  # the server logs what it refuses
        try:
            reply = self._http.post(
                ROUTE,
                json={
                    "model": "fake",
                    "messages": [{"role": "user", "content": "x"}],
                    "max_tokens": 20,
                    "response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}},
                    "espalier": {"trace": True, "allow": "checked", "schema_order": "schema"},
                },
            )
        finally:
            logging.disable(before)
        body = reply.json()
        if "error" in body:
            message: str = body["error"]["message"]
            return message
        contract: Stated = body["espalier"]["contract"]
        return contract


def _short(stated: Stated, other: Stated) -> str:
    """What one states and the other does not."""
    if isinstance(stated, str) or isinstance(other, str):
        return str(stated)[:300]
    return str([entry for entry in stated if entry not in other])[:300]
