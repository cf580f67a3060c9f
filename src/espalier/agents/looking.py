"""The verbs that look something up or check a text: presets, vocabulary, schemas, safety. Nothing is generated."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any

from espalier.agents.arguments import CLOSED, SAFETY, SCHEMA, TEXT
from espalier.agents.generating import blaming
from espalier.agents.verb import Answer, Arguments, Desk, Verb
from espalier.api.preset_rows import preset_rows
from espalier.constraints.compiler import Compiler
from espalier.constraints.filters.matcher import schema_spec
from espalier.constraints.json_schema.check import check_schema
from espalier.constraints.json_schema.instances import read_instances
from espalier.constraints.safety.catalogue import CATEGORIES as SAFETY_CATEGORIES
from espalier.constraints.safety.judge import UnsearchablePattern, find
from espalier.constraints.safety.parts import checked_parts
from espalier.constraints.safety.spec import Safety, safety_of
from espalier.errors import CapabilityError, InputError, UnsupportedError
from espalier.schema.lint.engine_limits import ENGINES
from espalier.tokens.analyse import VocabReport, analyse_vocab
from espalier.tokens.categories import CATEGORIES
from espalier.tokens.vocab import Vocab

LIMIT = 1000
IDS = {"type": "array", "items": {"type": "integer"}}
TEXTS = {"type": "array", "items": TEXT}


def _list_presets(arguments: Arguments, desk: Desk) -> Answer:
    rows = []
    for listed in preset_rows(desk.presets):
        config = listed.get("config", {})
        row = {
            "name": listed["name"],
            "description": listed["description"],
            "temperature": config.get("temperature"),
            "top_k": config.get("top_k"),
            "top_p": config.get("top_p"),
            "has_grammar": listed.get("grammar") is not None or listed.get("json_schema") is not None,
            "problem": listed["problem"],
        }
        rows.append(row | ({"safety_preset": listed["safety_preset"]} if listed.get("safety_preset") else {}))
    return {"presets": rows}


def _analyze_vocabulary(arguments: Arguments, desk: Desk) -> Answer:
    vocab = desk.engine.engine.vocab
    if vocab is None:
        hint = f"{desk.engine.name} runs elsewhere: give its tokenizer to `espalier vocab`"
        raise CapabilityError("tokenizer not available", hint=hint)
    report = replace(_report(vocab), vocab=vocab, encode=vocab.encoder)  # an equal one's model may be closed
    answer: Answer = {
        "name": vocab.name,
        "vocab_size": vocab.width,
        "eos_token": vocab.eos_ids[0],
        "eos_tokens": list(vocab.eos_ids),
        "bos_token": next(iter(desk.engine.engine.encode("", add_special=True)), None),
        "categories": report.counts,
        "search_matches": {},
    }
    for term in arguments.get("search_terms", ()):
        with blaming("search_terms"):
            answer["search_matches"][term] = list(report.search(term).containing[:LIMIT])
    if "category" in arguments:
        ids = report.ids_in(arguments["category"])
        answer |= {"category_tokens": list(ids[:LIMIT]), "category_count": len(ids)}
    return answer


@lru_cache(maxsize=2)
def _report(vocab: Vocab) -> VocabReport:
    return analyse_vocab(vocab)


def _check_schema(arguments: Arguments, desk: Desk) -> Answer:
    with blaming("json_schema"):
        allow = {"allow": "checked"} if arguments.get("allow_checked") else {}
        closed = {"closed": True} if arguments.get("closed") else {}
        spec = schema_spec(arguments["json_schema"], order=desk.order, **allow, **closed)
    lines = None
    if "instances" in arguments:
        with blaming("instances"):
            lines = read_instances("\n".join(map(_line, arguments["instances"])), "instances")
    compiler = desk.engine.engine.compiler or Compiler(Vocab.bytes())
    return check_schema(spec, compiler, engine=arguments.get("engine", "transformers"), instances=lines).to_json()


def _line(document: Any) -> str:
    try:
        return json.dumps(document, allow_nan=False)
    except ValueError as error:
        raise InputError(f"a document is not JSON: {error}", field="instances") from error


def _safety_check(arguments: Arguments, desk: Desk) -> Answer:
    extra = {name: arguments[name] for name in ("categories", "include", "patterns") if name in arguments}
    if "regexes" in arguments:
        extra["patterns"] = [*extra.get("patterns", ()), *({"regex": regex} for regex in arguments["regexes"])]
    given = arguments.get("safety")
    if given is not None and extra:
        raise InputError(f"give safety or {', '.join(extra)}, not both", field="safety")
    with blaming("safety" if given is not None else next(iter(extra), "text")):
        spec = (
            safety_of(given) if given is not None else Safety(None if extra.get("categories") else "maximum", **extra)
        )
        for pattern in spec.patterns:
            if pattern.is_regex:
                checked_parts(pattern)
    text = arguments["text"]
    if any(0xD800 <= ord(c) < 0xE000 for c in text):
        raise InputError("the text is not valid Unicode", field="text")
    try:
        caught = find(spec, text)
    except UnsearchablePattern as error:
        raise UnsupportedError(str(error), hint="repeat less within what is repeated", field="patterns") from error
    return {"safe": not caught, "caught": [finding.to_json() for finding in caught], "enforced": list(spec.describe())}


PRESET_ROW: Mapping[str, Any] = {
    "type": "object",
    "properties": {
        "name": TEXT,
        "description": TEXT,
        "temperature": {"type": ["number", "null"]},
        "top_k": {"type": ["integer", "null"]},
        "top_p": {"type": ["number", "null"]},
        "has_grammar": {"type": "boolean"},
        "safety_preset": TEXT,
        "problem": {"type": ["string", "null"], "description": "Why it cannot be used."},
    },
    "required": ["name", "description", "temperature", "top_k", "top_p", "has_grammar", "problem"],
}
LIST_PRESETS = Verb(
    name="list_presets",
    title="List presets",
    about="List the presets: sampling, constraint and filters under one name.",
    properties={},
    output={"presets": {"type": "array", "items": PRESET_ROW}},
    always=("presets",),
    answers=_list_presets,
)
ANALYZE = Verb(
    name="analyze_vocabulary",
    title="Analyze the vocabulary",
    about="Show what is in the tokenizer's vocabulary: its size, end tokens, the tokens that contain a text, the "
    "tokens of a category.",
    properties={
        "search_terms": {"type": "array", "items": {"type": "string", "minLength": 1}, "maxItems": 100},
        "category": {"enum": list(CATEGORIES), "description": "List its tokens."},
    },
    output={
        "name": TEXT,
        "vocab_size": {"type": "integer"},
        "eos_token": {"type": "integer"},
        "eos_tokens": IDS,
        "bos_token": {"type": ["integer", "null"]},
        "categories": {"type": "object", "additionalProperties": {"type": "integer"}},
        "search_matches": {"type": "object", "additionalProperties": IDS},
        "category_tokens": {**IDS, "description": f"The first {LIMIT} ids; category_count is the number of all."},
        "category_count": {"type": "integer"},
    },
    always=("name", "vocab_size", "eos_token", "eos_tokens", "bos_token", "categories", "search_matches"),
    answers=_analyze_vocabulary,
)
CHECK_SCHEMA = Verb(
    name="check_schema",
    title="Check a schema",
    about="Show what an engine enforces of a JSON Schema, keyword by keyword, its hazards, what it costs, and whether "
    "documents can be generated under it.",
    properties={
        **SCHEMA,
        **CLOSED,
        "engine": {"enum": list(ENGINES), "description": "Default: transformers."},
        "instances": {"type": "array", "maxItems": 1000, "description": "Documents, as JSON values."},
        "allow_checked": {"type": "boolean", "description": "Keywords that are only checked afterwards are no fault."},
    },
    required=("json_schema",),
    output={
        "ok": {"type": "boolean"},
        "engine": TEXT,
        "contract": {"type": "array", "items": {"type": "object"}},
        "hazards": {"type": "array", "items": {"type": "object"}},
        "cost": {"type": ["object", "null"]},
        "instances": {"type": "array", "items": {"type": "object"}},
    },
    always=("ok", "engine", "contract", "hazards", "cost", "instances"),
    answers=_check_schema,
)
SAFETY_CHECK = Verb(
    name="safety_check",
    title="Check a text for safety",
    about="Find what a safety filter catches in a text: category, pattern, place. Without a filter it is `maximum`.",
    properties={
        "text": {"type": "string", "description": "The text to look at."},
        **SAFETY,
        "categories": {"type": "array", "items": {"enum": list(SAFETY_CATEGORIES)}, "minItems": 1},
        "include": {**TEXTS, "description": "Optional patterns, such as email."},
        "patterns": {**TEXTS, "description": "Texts of your own."},
        "regexes": {**TEXTS, "description": "Regular expressions of your own."},
    },
    required=("text",),
    output={
        "safe": {"type": "boolean"},
        "caught": {"type": "array", "items": {"type": "object"}},
        "enforced": {"type": "array", "items": {"type": "object"}},
    },
    always=("safe", "caught", "enforced"),
    answers=_safety_check,
)
