"""Rewrites a grammar to stay within llama.cpp's limits: counts up to 2,000, nesting of groups, number of rules.

    "a"{1200,5000}      a rule of 500 `a`, and counts of that rule

Parts that exceed a limit become rules of their own, so the language stays the same. It knows llama.cpp's parser
(src/llama-grammar.cpp) only; left recursion and names are up to `rewrite.portable`.
"""

from __future__ import annotations

from collections.abc import Mapping

from espalier.errors import LimitExceeded
from espalier.grammar.analysis import left_references
from espalier.grammar.ast import EMPTY, Alternative, Grammar, Node, Repeat, Rule, RuleRef, Sequence, alt, fold, seq
from espalier.grammar.check import LLAMA_CPP_REPEATS

CHUNK = 500
"""A count above llama.cpp's limit uses a rule that repeats its item this often."""
MAX_COUNT = CHUNK * LLAMA_CPP_REPEATS
MAX_NESTED = 30
"""Depth of nested groups: llama.cpp's parser recurses for each."""
MAX_RULES = 20_000
MAX_DEPTH = 15_000
"""Length of a chain of rules and groups that begin with one another: llama.cpp recurses for each, at up to 200 bytes of
stack."""
MAX_PATHS = 1_000_000
"""Paths along which rules begin with one another: llama.cpp walks all of them to find left recursion."""

_Sized = tuple[Node, int, int]
"""An expression, the number of rules that llama.cpp may make of it, the depth of its groups."""


def within_limits(grammar: Grammar) -> Grammar:
    """A grammar of the same language; the argument itself where no limit is exceeded. Raises LimitExceeded."""
    made = _RuleLifter(grammar)
    rules = [Rule(rule.name, made.body(rule), rule.position) for rule in grammar.rules.values()]
    limited = grammar if not made.rules else grammar.with_rules([*rules, *made.rules.values()])
    if len(limited.rules) > MAX_RULES:
        raise LimitExceeded(f"the grammar has {len(limited.rules)} rules, more than {MAX_RULES}")
    _check_beginnings(limited, made.depths)
    return limited


class _RuleLifter:
    """Moves large parts of rule bodies into rules of their own."""

    def __init__(self, grammar: Grammar) -> None:
        self.rules: dict[str, Rule] = {}
        self.depths: dict[str, int] = {}  # of the groups in a rule
        self._taken = set(grammar.rules)
        self._names: dict[Node, str] = {}
        self._base = ""

    def body(self, rule: Rule) -> Node:
        self._base = rule.name
        node, _, self.depths[rule.name] = fold(rule.body, self._visit)
        return node

    def _visit(self, node: Node, parts: list[_Sized]) -> _Sized:
        children = [part[0] for part in parts]
        size, depth = sum(part[1] for part in parts), max((part[2] for part in parts), default=0)
        if isinstance(node, Repeat):
            return self._repeat(node, children[0], size, depth)
        if not isinstance(node, Alternative | Sequence) or not parts:
            return node, 1, 0
        changed = any(new is not old for new, old in zip(children, node.children(), strict=True))
        kept = node.with_children(children) if changed else node
        if depth >= MAX_NESTED:
            return self._rule(kept), 1, 0
        return kept, size + 1, depth + 1

    def _repeat(self, node: Repeat, item: Node, size: int, depth: int) -> _Sized:
        most = max(node.min, node.max or 0, 1)
        if most > MAX_COUNT:
            raise LimitExceeded(
                f"a count of {most} is more than {MAX_COUNT}, the most that can be written for llama.cpp"
            )
        if size * most > LLAMA_CPP_REPEATS and size > 1:
            item, size, depth = self._rule(item), 1, 0
        if most > LLAMA_CPP_REPEATS:
            return self._rule(self._split_large_count(item, node.min, node.max)), 1, 0
        kept = node if item is node.item else Repeat(item, node.min, node.max, node.position)
        return kept, size + most, depth + 1

    def _split_large_count(self, item: Node, low: int, high: int | None) -> Node:
        """A large count in chunks of CHUNK."""
        least, more = divmod(low, CHUNK)
        whole = self._rule(Repeat(item, CHUNK, CHUNK))
        parts: list[Node] = [_times(whole, least, least), _times(item, more, more)]
        if high is None:
            return _join_nodes(*parts, Repeat(item))
        most, rest = divmod(high - low, CHUNK)
        if not most:
            return _join_nodes(*parts, _times(item, 0, rest))
        short = _join_nodes(_times(whole, 0, most - 1), _times(item, 0, CHUNK - 1))
        full = _join_nodes(_times(whole, most, most), _times(item, 0, rest))
        return _join_nodes(*parts, alt(short, full))

    def _rule(self, body: Node) -> Node:
        if isinstance(body, RuleRef):
            return body
        name = self._names.get(body)
        if name is None:
            count = 1
            name = f"{self._base}-part"
            while name in self._taken:
                count += 1
                name = f"{self._base}-part-{count}"
            self._taken.add(name)
            self._names[body] = name
            self.rules[name] = Rule(name, body)
        return RuleRef(name)


def _times(item: Node, low: int, high: int) -> Node:
    if high == 0:
        return EMPTY
    return item if low == high == 1 else Repeat(item, low, high)


def _join_nodes(*nodes: Node) -> Node:
    return seq(*(node for node in nodes if node != EMPTY))


def _check_beginnings(grammar: Grammar, groups: Mapping[str, int]) -> None:
    """Raises LimitExceeded where llama.cpp would need too much time or stack to look for left recursion.

    groups: the depth of groups by rule. There are no cycles: left recursion has been removed."""
    edges = left_references(grammar)
    paths: dict[str, int] = {}  # from a rule on, itself included
    depth: dict[str, int] = {}
    total = 0
    for start in edges:
        if start in paths:
            continue  # already walked from another rule
        todo = [start]
        while todo:
            name = todo[-1]
            after = edges.get(name, ())
            missing = [name for name in after if name not in paths]
            if missing:
                todo += missing
                continue
            todo.pop()
            paths[name] = 1 + sum(paths[name] for name in after)
            depth[name] = 1 + groups.get(name, MAX_NESTED) + max((depth[following] for following in after), default=0)
        total += paths[start]
    if total > MAX_PATHS:
        raise LimitExceeded("its rules begin with one another in too many ways for llama.cpp")
    if max(depth.values(), default=0) > MAX_DEPTH:
        raise LimitExceeded("too many of its rules begin with one another for llama.cpp")
