"""The order of properties in the arguments of tools, where the calls state none: every order, as far as it is cheap.

Arguments that are explored on demand come in every order. In a format whose arguments are written out as a grammar, an
object of n names has 2^n sets of written names, a rule for each: there the tools with the fewest sets come in every
order, up to a sum, and the others in the order of their schemas. It knows no grammar.
"""

from __future__ import annotations

import json

from espalier.chat.tools import Tool
from espalier.constraints.tools.spec import ToolCalls
from espalier.owners import owned_cache
from espalier.schema.order import DEFAULT, Order
from espalier.schema.read.walk import subschemas


def written_order(spec: ToolCalls, tool: Tool) -> Order:
    """The order of a tool's properties in a grammar of all calls."""
    if spec.order is not None:
        return spec.order
    left = 511  # sets, so 8 names in one object: a compile takes a second for each thousand
    for other in sorted(spec.allowed, key=lambda other: (_count_sets(other.parameters), other.name)):
        left -= _count_sets(other.parameters)
        if left < 0:
            return DEFAULT
        if other.name == tool.name:
            return spec.order_of(tool)
    raise ValueError(f"{tool.name} is none of the tools that may be called")


@owned_cache(1024)
def _count_sets(parameters: str) -> int:
    """The sets of names in all objects of a schema."""
    nodes = (node for _, node in subschemas(json.loads(parameters)))
    named = (node.get("properties") for node in nodes if isinstance(node, dict))
    return sum(2 ** len(names) for names in named if isinstance(names, dict))
