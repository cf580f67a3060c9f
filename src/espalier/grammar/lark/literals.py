"""llguidance's `%json` and `%regex`: the grammar of a JSON Schema, and the parts of a text.

    %json {"type": "integer"}                       a document of the schema
    %regex {"substring_words": "my dear fox"}       "", "my", "dear fox", …: any run of words, spaces and marks
    %regex {"substring_chunks": ["ab", "c"]}        "", "ab", "c", "abc"

How a schema becomes a grammar is the caller's: this package knows no JSON Schema.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from espalier.grammar.ast import EMPTY, Grammar, Literal, Node, Repeat, Rule, RuleRef, alt, fold, seq
from espalier.grammar.lark.tokens import LarkToken

SchemaConverter: TypeAlias = Callable[[Any], Grammar]
"""The grammar of a schema's documents. Raises SchemaError and its kin, UnsupportedError for what no grammar holds."""
MAX_CHUNKS = 20_000
"""Parts of the text of one `%regex`."""
MAX_IN_TERMINAL = 300
"""Characters of the text of one `%regex` within a terminal."""
SPLITS: Mapping[str, Callable[[Any], list[Any]]] = {
    "substring_words": lambda text: re.findall(r"\w+|\s+|[^\w\s]+", text),
    "substring_chars": list,
    "substring_chunks": list,
}


def schema_rules(token: LarkToken, schema_grammar: SchemaConverter | None, name: str) -> list[Rule]:
    """The rules of `%json`, the first with this name, the others with names that begin with it."""
    if schema_grammar is None:
        raise token.refuse(token.text)
    grammar = schema_grammar(token.value)

    def renamed(rule: str) -> str:
        return name if rule == grammar.root else f"{name}-{rule}"

    def visit(node: Node, parts: list[Node]) -> Node:
        if isinstance(node, RuleRef):
            return RuleRef(renamed(node.name))
        return node.with_children(parts) if parts else node

    bodies = {grammar.root: grammar.rules[grammar.root], **grammar.rules}
    return [Rule(renamed(rule.name), fold(rule.body, visit)) for rule in bodies.values()]


def substring_rules(token: LarkToken, name: str) -> list[Rule]:
    """The rules of `%regex`, as for `schema_rules`: the text may begin at any part, and end after any."""
    chunks = _chunks(token)
    rules = [Rule(name, alt(*(RuleRef(f"{name}-{start}") for start in range(len(chunks))), EMPTY))]
    for start, chunk in enumerate(chunks):
        rest = [Repeat(RuleRef(f"{name}-{start + 1}"), 0, 1)] if start + 1 < len(chunks) else []
        rules.append(Rule(f"{name}-{start}", seq(Literal(chunk), *rest)))
    return rules


def substring_expression(token: LarkToken) -> Node:
    """The same texts without rules, for a terminal: one option for each next character, so that the longest text is
    the preferred one. Raises UnsupportedError for long texts: each part may be the first."""
    chunks = _chunks(token)
    text, borders = "".join(chunks), {0}
    for chunk in chunks:
        borders.add(max(borders) + len(chunk))
    if len(text) > MAX_IN_TERMINAL:
        raise token.refuse(f"%regex of more than {MAX_IN_TERMINAL} characters in a terminal")

    def follow(places: list[int]) -> Node:
        """What can come at these places, which the text so far does not tell apart."""
        by_letter: dict[str, list[int]] = {}
        for place in places:
            if place < len(text):
                by_letter.setdefault(text[place], []).append(place + 1)
        if not by_letter:
            return EMPTY
        options = alt(*(seq(Literal(letter), follow(after)) for letter, after in by_letter.items()))
        return Repeat(options, 0, 1) if any(place in borders for place in places) else options

    return follow(sorted(borders))


def _chunks(token: LarkToken) -> list[str]:
    fields = token.value if isinstance(token.value, dict) else {}
    names = [field for field in fields if field in SPLITS]
    if len(fields) != 1 or len(names) != 1:
        raise token.wrong(f"one of these is expected: {', '.join(SPLITS)}")
    value = fields[names[0]]
    is_list = names[0] == "substring_chunks"
    texts = value if isinstance(value, list) else [value]
    if isinstance(value, list) != is_list or not all(isinstance(text, str) for text in texts):
        raise token.wrong(f"{names[0]} is {'a list of texts' if is_list else 'a text'}")
    chunks = [chunk for chunk in SPLITS[names[0]](value) if chunk]
    if len(chunks) > MAX_CHUNKS:
        raise token.wrong(f"the text has {len(chunks)} parts; the limit is {MAX_CHUNKS}")
    return chunks
