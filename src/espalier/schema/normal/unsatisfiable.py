"""The error for a schema that no document can satisfy: it names the keywords that contradict each other.

    {"type": "integer", "minimum": 3, "maximum": 2}      "… /maximum contradicts the part at /minimum"

It looks at the root, and at every empty node that the root cannot do without. The graph is settled by then.
"""

from __future__ import annotations

from espalier.errors import SchemaError
from espalier.schema.form import NodeId, needed
from espalier.schema.normal.facts import Contradiction
from espalier.schema.normal.graph import FALSE, Graph, GraphNode
from espalier.schema.normal.inspect import stated
from espalier.schema.read.values import TYPES

COUNTING = frozenset(
    (
        *("minProperties", "maxProperties", "minItems", "maxItems", "required", "properties"),
        *("additionalProperties", "propertyNames", "items", "prefixItems", "contains"),
    )
)
"""Keywords that together may allow no value although each part of the value alone is possible."""
SHOWN = 5
"""Pointers that the message names besides the first."""


def unsatisfiable(graph: Graph, root: NodeId) -> SchemaError:
    """The error for an empty root."""
    queue, seen = [root], {root}
    reasons: list[tuple[str, ...]] = []
    counted: list[str] = []
    for current in queue:
        node = graph.nodes[current]
        children = {
            child for case in node.raw or () for child in needed(case) if child != FALSE and graph.nodes[child].empty
        }
        queue += sorted(children - seen)
        seen |= children
        if not node.raw:
            reasons += _why_empty(graph, node)
        elif not children:
            counted += [at for at in stated(node.literals) if at.rpartition("/")[2] in COUNTING]
    widest = [why for why in reasons if len(why) > 1] or reasons
    named = list(dict.fromkeys(pointer for why in widest for pointer in why)) or counted
    if not named:
        return SchemaError(
            "no document can satisfy this schema: a part of it requires itself without end",
            pointer=graph.pointer(queue[-1]),
            hint="make a property on the way optional, or allow something else",
        )
    if len(named) == 1:
        return SchemaError("no document can satisfy this schema, because of the part", pointer=named[0])
    shown = ", ".join(pointer or "the top" for pointer in named[1 : SHOWN + 1])
    return SchemaError(f"no document can satisfy this schema: {shown} contradicts the part", pointer=named[0])


def _why_empty(graph: Graph, node: GraphNode) -> list[tuple[str, ...]]:
    """The pointers that contradict each other, one tuple for each JSON type and choice."""
    if any(literal.constant < 0 for literal in node.literals):
        return [tuple(literal.subschema.at() for literal in node.literals if literal.constant < 0)]
    if graph.inspector.finite(node.literals)[0] is not None:
        return [stated(node.literals)]
    reasons = list(node.reasons)
    for kind in TYPES:
        try:
            graph.branch(node, kind)
        except Contradiction as why:
            reasons.append(why.pointers)
    return reasons
