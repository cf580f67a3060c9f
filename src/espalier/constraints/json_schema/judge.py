"""Judges and parses JSON: `jsonschema` judges texts under a schema, with patterns as ECMA-262 reads them, and Python's
`json` those of JSON mode."""

from __future__ import annotations

import json
import math
import subprocess
import warnings
from contextvars import ContextVar
from decimal import Decimal
from functools import cache
from typing import Any

import jsonschema
from jsonschema import validators
from jsonschema_specifications import REGISTRY as METASCHEMAS
from referencing import Registry, Resource
from referencing.exceptions import Unresolvable
from referencing.jsonschema import specification_with

from espalier.constraints.json_schema.broken import broken_promise
from espalier.constraints.slow_patterns import run_limited
from espalier.constraints.spec import JsonObject, JsonSchema, Spec
from espalier.constraints.verdict import Unjudgeable, Verdict
from espalier.errors import RegexError, SchemaError, UnsupportedError
from espalier.lexicon.files import WordFiles
from espalier.schema.normal.closed_values import ClosedValues
from espalier.schema.normal.judge import UndecidedValue
from espalier.schema.normal.validator import is_panic, validator_class
from espalier.schema.patterns.cost import is_quick
from espalier.schema.patterns.ecma import compiled, is_pattern
from espalier.schema.python.instances import build
from espalier.schema.read.drafts import DRAFTS

JSON_KINDS = {
    dict: "object",
    list: "array",
    str: "string",
    int: "number",
    float: "number",
    bool: "boolean",
    type(None): "null",
}


def parse_json(spec: Spec, text: str) -> Any:
    """The JSON value; None if the text does not parse. For a schema given as a Python type, an instance of the type.

    Raises BuildError for a value that the type itself refuses.
    """
    try:
        value = json.loads(text, parse_int=_whole)
    except (ValueError, RecursionError):
        return None
    python = getattr(spec, "python", None)
    return value if python is None else build(python, value)


def _whole(digits: str) -> int | Decimal:
    try:
        return int(digits)
    except ValueError:  # sys.get_int_max_str_digits
        return Decimal(digits)


def _json(text: str) -> tuple[Any, Verdict | None]:
    try:
        return json.loads(text, parse_constant=_refuse_constant, parse_int=_int, parse_float=_float), None
    except Unjudgeable as error:
        return None, Verdict(valid=None, judge="json", errors=(str(error),))
    except RecursionError:
        return None, Verdict(valid=None, judge="json", errors=("nested too deeply to judge",))
    except ValueError as error:
        return None, Verdict(valid=False, judge="json", errors=(f"not JSON: {error}",))


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _int(digits: str) -> int:
    try:
        return int(digits)
    except ValueError:
        raise Unjudgeable(f"a number of {len(digits)} digits is more than the judge can hold") from None


def _float(digits: str) -> float:
    value = float(digits)
    if math.isinf(value):
        raise Unjudgeable(f"the number {digits[:40]} is more than the judge can hold")
    return value


def judge_schema(spec: JsonSchema, text: str, words: WordFiles) -> Verdict:
    value, failed = _json(text)
    if failed:
        return failed
    schema = spec.schema
    cls = validators.validator_for(schema, default=jsonschema.Draft202012Validator)
    name = f"jsonschema {cls.__name__}"
    checker = _format_checker(cls) if spec.format == "assert" else None
    searches = _Searches()
    outer = _SEARCHES.set(searches)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # `[[` in a pattern, see judge_regex
            judge = validator_class(cls, _finds)(schema, registry=_registry(spec, cls), format_checker=checker)
            while True:
                violations = sorted(judge.iter_errors(value), key=lambda e: e.json_path)
                if not searches.settle():
                    break
    except (
        Unjudgeable,
        subprocess.SubprocessError,
        RecursionError,
        ArithmeticError,
        Unresolvable,
        RegexError,
    ) as error:
        return Verdict(valid=None, judge=name, errors=(f"could not judge: {type(error).__name__}: {error}"[:200],))
    except BaseException as error:
        if not is_panic(error):
            raise
        return Verdict(valid=None, judge=name, errors=("could not judge: nested too deeply",))
    finally:
        _SEARCHES.reset(outer)
    errors = tuple(f"{e.json_path}: {e.message[:200]}" for e in violations[:5])
    if violations or not spec.closed:
        breaks = broken_promise(spec, violations) if violations else None
        return Verdict(valid=not violations, judge=name, errors=errors, breaks=breaks)
    return _closed_verdict(spec, value, name)


def _closed_verdict(spec: JsonSchema, value: Any, name: str) -> Verdict:
    """The verdict on a valid value of a closed schema."""
    documents = {uri: json.loads(text) for uri, text in spec.documents} or None
    try:
        errors = ClosedValues(spec.schema, documents=documents, formats=spec.format == "assert").undeclared(value)
    except (UndecidedValue, SchemaError, UnsupportedError, RecursionError) as error:
        why = f"could not judge whether all names are declared: {type(error).__name__}: {error}"
        return Verdict(valid=None, judge=name, errors=(why[:200],))
    return Verdict(valid=not errors, judge=name, errors=tuple(errors[:5]))


@cache
def _format_checker(cls: Any) -> jsonschema.FormatChecker:
    """What `jsonschema` checks of the formats that the draft of this class defines, `regex` as ECMA-262 reads it. In
    draft 4 `jsonschema` knows formats of later drafts too."""
    draft = DRAFTS.get(cls.META_SCHEMA["$schema"].rstrip("#"))
    checks = cls.FORMAT_CHECKER.checkers | {"regex": (_is_regex, ())}
    checker = jsonschema.FormatChecker(formats=())
    checker.checkers = {name: check for name, check in checks.items() if draft is None or name in draft.formats}
    return checker


def _is_regex(value: object) -> bool:
    return not isinstance(value, str) or is_pattern(value)


def _registry(spec: JsonSchema, cls: Any) -> Registry[Any]:
    """The spec's `documents` and the official metaschemas; nothing is ever fetched."""
    usual = specification_with(cls.META_SCHEMA["$schema"])
    resources = [
        (uri, Resource.from_contents(json.loads(text), default_specification=usual)) for uri, text in spec.documents
    ]
    registry: Registry[Any] = METASCHEMAS
    return registry.with_resources(resources)


def judge_object(spec: JsonObject, text: str, words: WordFiles) -> Verdict:
    value, failed = _json(text)
    if failed:
        return failed
    kind = JSON_KINDS[type(value)]
    ok = kind in spec.kinds
    return Verdict(valid=ok, judge="json", errors=() if ok else (f"{kind} is none of: {', '.join(spec.kinds)}",))


class _Searches:
    """Pattern searches of one judgement that may not finish. A search whose result is not known yet counts as found and
    is noted; `settle` runs all noted searches in one process, and then the text is judged again."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], bool] = {}
        self._asked: dict[tuple[str, str], None] = {}

    def finds(self, pattern: str, text: str) -> bool:
        """Raises RegexError for a pattern that `re` does not read."""
        search = compiled(pattern)
        if is_quick(search.pattern, len(text)):
            return search.search(text) is not None
        asked = search.pattern, text
        if asked not in self._known:
            self._asked[asked] = None
        return self._known.get(asked, True)

    def settle(self) -> bool:
        """Run the noted searches. Returns whether there were any. Raises subprocess.SubprocessError."""
        asked, self._asked = [*self._asked], {}
        if asked:
            self._known |= zip(asked, run_limited([("search", *question) for question in asked]), strict=True)
        return bool(asked)


_SEARCHES: ContextVar[_Searches] = ContextVar("_SEARCHES")


def _finds(pattern: str, text: str) -> bool:
    """As the searches of the judgement that is under way."""
    return _SEARCHES.get().finds(pattern, text)
