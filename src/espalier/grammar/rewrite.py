"""Rewrites a grammar without changing its language: dead ends, nullable loops, left recursion, names for llama.cpp.

    expr ::= expr "+" term | term      expr ::= term ("+" term)*

It does not know what a matcher needs. Every rule that is kept keeps its name and its language, so explanations still
name the user's rules; the names of added rules are derived from them. Nothing here recurses.

The core is `_Nonempty.split`: without the empty text, any expression is the union of (a rule of a group, then a tail)
for some rules and tails, and of a base that starts with no rule of the group and is never empty. So the
rules of a left recursive group are linear equations, A_i = Σ_j A_j·R_ji + B_i, solved by A_i = Σ_j B_j·M_ji with
M the least solution of M = 1 + R·M. Empty tails (`a ::= b`) are closed over first: then neither R nor B is ever
empty, and no M calls itself without having read something.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from espalier.errors import GrammarError
from espalier.grammar.analysis import (
    Costs,
    arrows,
    is_void,
    left_recursive_cycles,
    left_recursive_groups,
    left_references,
    nullable,
    nullable_costs,
    productive_costs,
    reachable,
    references,
)
from espalier.grammar.ast import (
    EMPTY,
    NEVER,
    Alternative,
    CharClass,
    Grammar,
    Node,
    Repeat,
    Rule,
    RuleRef,
    Sequence,
    alt,
    fold,
    postorder,
    seq,
)
from espalier.time_limit import check as check_time

MAX_GROUP = 100
"""Rules in one left recursive group; the rewrite adds up to the square of it."""
MAX_NODES = 2_000_000
"""Nodes that one rewrite may make."""


def trim(grammar: Grammar, costs: Costs | None = None) -> Grammar:
    """The grammar without dead ends: rules and options that derive no finite sentence, or that the root does not reach.

    costs: `productive_costs(grammar)`, where they are known. Raises GrammarError if no sentence is left at all.
    """
    costs = costs or productive_costs(grammar)
    if costs.rule(grammar.root) is None:
        raise GrammarError(f"rule {grammar.root!r} derives no finite sentence")
    live = [_trim_rule(rule, costs) for rule in grammar.rules.values() if costs.rule(rule.name) is not None]
    kept = grammar.with_rules(live)
    reached = reachable(kept)
    rules = [rule for rule in live if rule.name in reached]
    unchanged = len(rules) == len(grammar.rules) and all(grammar.rules[rule.name] is rule for rule in rules)
    return grammar if unchanged else grammar.with_rules(rules)


def remove_nullable_loops(grammar: Grammar, empty: Costs | None = None) -> Grammar:
    """The grammar without repetitions of items that can be empty: `("x"?)*` becomes `"x"*`. empty:
    `nullable_costs(grammar)`, where they are known."""
    empty = empty or nullable_costs(grammar)
    if not any(nullable_loops(rule.body, empty) for rule in grammar.rules.values()):
        return grammar
    made = _Nonempty(grammar)

    def visit(node: Node, parts: list[Node]) -> Node:
        if isinstance(node, Repeat) and is_nullable_loop(node, empty):
            inner = parts[0]
            if isinstance(inner, Repeat) and inner.max is None and node.max is None:
                return inner  # already rewritten: it is `b*` for some b that is never empty
            body = made.of(inner)
            return EMPTY if body is None else Repeat(body, 0, node.max, node.position)
        changed = any(new is not old for new, old in zip(parts, node.children(), strict=True))
        return node.with_children(parts) if changed else node

    rules = [Rule(r.name, fold(r.body, visit), r.position) for r in grammar.rules.values()]
    return grammar.with_rules([*rules, *made.rules(rules)])


def nullable_loops(body: Node, empty: Costs) -> list[Repeat]:
    """The repetitions in `body` of items that can be empty."""
    return [node for node in postorder(body) if isinstance(node, Repeat) and is_nullable_loop(node, empty)]


def is_nullable_loop(node: Repeat, empty: Costs) -> bool:
    """Whether an item that can be empty may repeat: this makes texts ambiguous for no benefit."""
    return (node.max is None or node.max > 1) and empty.node(node.item) is not None


def remove_left_recursion(grammar: Grammar, empty: Costs | None = None) -> Grammar:
    """The grammar without rules that can start with themselves. Exact, and always possible up to the limits on size.

    empty: `nullable_costs(grammar)`, where they are known. Raises GrammarError naming the cycle if the rewrite would be
    larger than MAX_GROUP or MAX_NODES allow.
    """
    empty = empty or nullable_costs(grammar)
    if not left_recursive_groups(grammar, left_references(grammar, empty)):
        return grammar
    grammar = remove_nullable_loops(grammar, empty)
    edges = left_references(grammar)
    groups = left_recursive_groups(grammar, edges)
    for group, cycle in zip(groups, left_recursive_cycles(grammar, edges), strict=True):
        if len(group) > MAX_GROUP:
            raise _too_large(cycle, f"through {len(group)} rules")
    made = _Nonempty(grammar)
    solved: dict[str, Rule] = {}
    added: list[Rule] = []
    for group in groups:
        _solve(grammar, group, made, solved, added)
    rules = [solved.get(rule.name, rule) for rule in grammar.rules.values()]
    # Added rules may be unused in the end; rules of the user are never dropped.
    extra = {rule.name: rule for rule in (*added, *made.rules(grammar.rules.values()))}
    return grammar.with_rules([*rules, *_select_used(rules, extra)])


def portable(grammar: Grammar, *, root: str = "root") -> Grammar:
    """A grammar of the same language for llama.cpp: no left recursion, no nullable loop, no `_`, root named `root`
    unless another name is given.

    Counts above 2,000, which llama.cpp refuses, stay as they are; `check` reports them.
    """
    empty = nullable_costs(grammar)
    plain = remove_nullable_loops(grammar, empty)
    plain = remove_left_recursion(plain, empty if plain is grammar else None)
    names = {name: name for name in plain.rules if "_" not in name and name != root}
    names[plain.root] = root
    taken = set(names.values())
    for name in plain.rules:
        if name not in names:
            names[name] = _fresh(name.replace("_", "-"), taken)
    if all(old == new for old, new in names.items()):
        return plain

    def visit(node: Node, parts: list[Node]) -> Node:
        if isinstance(node, RuleRef):
            return RuleRef(names.get(node.name, node.name), node.position)
        return node.with_children(parts) if parts else node

    renamed = [Rule(names[r.name], fold(r.body, visit), r.position) for r in plain.rules.values()]
    return Grammar.of(renamed, root=root, source=plain.source)


@dataclass(frozen=True, slots=True)
class _LeftRecursion:
    """heads: (rule of the group, tail) pairs. base: the rest, which starts with no such rule and is never empty, or
    None. empty: whether the expression can be empty."""

    heads: tuple[tuple[str, Node], ...]
    base: Node | None
    empty: bool


class _Nonempty:
    """Rules and expressions without the empty text, made on demand."""

    def __init__(self, grammar: Grammar) -> None:
        self.grammar = grammar
        self.nullable = nullable(grammar)
        self.taken = set(grammar.rules)
        self.names: dict[str, str] = {}
        self.given: dict[str, Rule] = {}
        self.nodes = 0

    def name(self, rule: str) -> str:
        """The rule with the language of `rule` without the empty text: `rule` itself if it is never empty."""
        if rule not in self.nullable:
            return rule
        if rule not in self.names:
            self.names[rule] = _fresh(f"{rule}-nonempty", self.taken)
        return self.names[rule]

    def of(self, node: Node) -> Node | None:
        return self.split(node, frozenset()).base

    def rules(self, all_rules: Iterable[Rule]) -> list[Rule]:
        """The rules for all names given out, from `all_rules`. Making one may give out more names."""
        bodies = {rule.name: rule.body for rule in all_rules}
        made: dict[str, Rule] = {}
        while missing := [old for old in self.names if old not in made]:
            check_time()
            for old in missing:
                made[old] = self.given.get(old) or Rule(self.names[old], self.of(bodies[old]) or NEVER)
        return list(made.values())

    def count(self, nodes: int) -> None:
        self.nodes += nodes
        if self.nodes > MAX_NODES:
            raise GrammarError(
                "too many parts that can be empty, in a row or nested, to rewrite",
                hint="make parts of it rules that are never empty",
            )

    def split(self, node: Node, group: frozenset[str]) -> _LeftRecursion:
        def visit(node: Node, parts: list[_LeftRecursion]) -> _LeftRecursion:
            self.count(1 + len(parts))
            match node:
                case RuleRef(name):
                    empty = name in self.nullable
                    if name in group:
                        return _LeftRecursion(((name, EMPTY),), None, empty)
                    return _LeftRecursion((), RuleRef(self.name(name), node.position), empty)
                case Sequence(items):
                    return self._sequence(items, parts)
                case Alternative():
                    heads = tuple(head for part in parts for head in part.heads)
                    bases = [part.base for part in parts if part.base is not None]
                    return _LeftRecursion(heads, alt(*bases) if bases else None, any(part.empty for part in parts))
                case Repeat():
                    return self._repeat(node, parts[0])
                case _:
                    return _LeftRecursion((), node, False)

        return fold(node, visit)

    def _repeat(self, node: Repeat, part: _LeftRecursion) -> _LeftRecursion:
        empty = part.empty or node.min == 0
        if node.max == 0 or (part.base is None and not part.heads):
            return _LeftRecursion((), None, empty)
        if not part.heads and part.base is not None:
            low = 1 if part.empty else max(node.min, 1)
            return _LeftRecursion((), _repeat(part.base, low, node.max, node), empty)
        low = 0 if part.empty else max(node.min - 1, 0)
        rest = _repeat(node.item, low, None if node.max is None else node.max - 1, node)
        return _LeftRecursion(*_then(part, rest), empty)

    def _sequence(self, items: tuple[Node, ...], parts: list[_LeftRecursion]) -> _LeftRecursion:
        heads: list[tuple[str, Node]] = []
        bases: list[Node] = []
        empty = True
        for i, part in enumerate(parts):
            self.count(len(parts) - i)
            more, base = _then(part, seq(*items[i + 1 :]))
            heads += more
            bases += [] if base is None else [base]
            if not part.empty:
                empty = False
                break
        return _LeftRecursion(tuple(heads), alt(*bases) if bases else None, empty)


def _solve(
    grammar: Grammar, group: tuple[str, ...], made: _Nonempty, solved: dict[str, Rule], added: list[Rule]
) -> None:
    """Rewrite one left recursive group. R, B and M are named in the module's docstring."""
    inside = frozenset(group)
    splits = {name: made.split(grammar.rules[name].body, inside) for name in group}
    units: dict[str, set[str]] = {name: {name} for name in group}  # k -> {i: A_i = A_k + ...}, closed below
    tails: dict[tuple[str, str], list[Node]] = {}  # (j, k) -> non-empty tails of A_j in A_k
    for name, split in splits.items():
        for head, tail in split.heads:
            rest = made.split(tail, frozenset())
            if rest.empty:
                units[head].add(name)
            if rest.base is not None:
                tails.setdefault((head, name), []).append(rest.base)
    _close(units)
    size = sum(len(units[k]) * sum(1 for _ in postorder(t)) for (_, k), ts in tails.items() for t in ts)
    if made.nodes + size * len(group) > MAX_NODES:
        raise _too_large(group, "with rules of this size")
    bases = {  # B' = B·U*
        i: [b for k in group if i in units[k] and (b := splits[k].base) is not None] for i in group
    }
    steps: dict[tuple[str, str], list[Node]] = {}  # R' = R·U*
    for (j, k), rests in tails.items():
        for i in sorted(units[k], key=group.index):
            steps.setdefault((j, i), []).extend(rests)
    goals = {(j, i): _fresh(f"{i}-after-{j}", made.taken) for i in group for j in group} if len(group) > 1 else {}
    for (j, i), name in goals.items():  # M_ji = 1 + Σ_k R'_jk·M_ki
        options = [seq(alt(*steps[j, k]), RuleRef(goals[k, i])) for k in group if (j, k) in steps]
        added.append(Rule(name, alt(*options, *([EMPTY] if i == j else []))))
    for i in group:
        if goals:
            options = [seq(alt(*bases[j]), RuleRef(goals[j, i])) for j in group if bases[j]]
        else:
            loop = [Repeat(alt(*steps[i, i]))] if (i, i) in steps else []
            options = [seq(alt(*bases[i]), *loop)] if bases[i] else []
        rule = grammar.rules[i]
        if i in made.nullable:
            made.given[i] = Rule(made.name(i), alt(*options))
            solved[i] = Rule(i, alt(RuleRef(made.name(i)), EMPTY), rule.position)
        else:
            solved[i] = Rule(i, alt(*options), rule.position)


def _close(edges: dict[str, set[str]]) -> None:
    """Reflexive and transitive closure, in place."""
    for middle in edges:
        for targets in edges.values():
            if middle in targets:
                targets |= edges[middle]


def _then(part: _LeftRecursion, rest: Node) -> tuple[tuple[tuple[str, Node], ...], Node | None]:
    """The heads and the base of a split, each followed by `rest`."""
    heads = tuple((name, _join(tail, rest)) for name, tail in part.heads)
    return heads, None if part.base is None else _join(part.base, rest)


def _join(first: Node, second: Node) -> Node:
    return seq(*(node for node in (first, second) if node != EMPTY))


def _repeat(item: Node, low: int, high: int | None, like: Repeat) -> Node:
    if high == 0:
        return EMPTY
    return item if (low, high) == (1, 1) else Repeat(item, low, high, like.position)


def _trim_rule(rule: Rule, costs: Costs) -> Rule:
    if all(costs.node(node) is not None for node in postorder(rule.body)):
        return rule
    return Rule(rule.name, _without_dead_ends(rule.body, costs), rule.position)


def _without_dead_ends(body: Node, costs: Costs) -> Node:
    """`body`, which derives some sentence, without the nodes that derive none."""

    def visit(node: Node, parts: list[Node | None]) -> Node | None:
        match node:
            case Alternative():
                options = [part for part in parts if part is not None]
                if len(options) == len(parts):
                    return node.with_children(options)
                return alt(*options, position=node.position) if options else None
            case Repeat():
                if parts[0] is None:
                    return EMPTY if node.min == 0 else None
                return node.with_children(parts[:1])  # type: ignore[arg-type]  # not None, checked above
            case Sequence():
                kept = [part for part in parts if part is not None]
                return node.with_children(kept) if len(kept) == len(parts) else None
            case RuleRef(name):
                return None if costs.rule(name) is None else node
            case _:
                return None if isinstance(node, CharClass) and is_void(node) else node

    kept = fold(body, visit)
    return EMPTY if kept is None else kept


def _select_used(rules: Iterable[Rule], extra: Mapping[str, Rule]) -> list[Rule]:
    """The rules of `extra` that `rules` mention, directly or through others."""
    used: dict[str, Rule] = {}
    todo = list(rules)
    while todo:
        check_time()
        for ref in references(todo.pop().body):
            if ref.name in extra and ref.name not in used:
                used[ref.name] = extra[ref.name]
                todo.append(extra[ref.name])
    return [rule for name, rule in extra.items() if name in used]


def _fresh(wanted: str, taken: set[str]) -> str:
    """An unused name, which is then marked as taken."""
    name, count = wanted, 1
    while name in taken:
        check_time()
        count += 1
        name = f"{wanted}-{count}"
    taken.add(name)
    return name


def _too_large(cycle: tuple[str, ...], why: str) -> GrammarError:
    return GrammarError(
        f"the left recursion {arrows(cycle)} is too large to rewrite, {why}",
        hint='write it as a repetition: expr ::= term ("+" term)*',
    )


def isolate_rules(grammar: Grammar, names: Collection[str]) -> tuple[Grammar, dict[str, str]]:
    """The same texts, where each of these rules is a copy with copies of all rules that it refers to; and the name of
    each copy. Raises GrammarError for one that refers to another one of them, or that is the start rule."""
    renamed = {name: f"limited-{number}-{name}" for number, name in enumerate(names)}
    rules: dict[str, Rule] = {}

    def rename(rule: Rule, mapping: Mapping[str, str], name: str) -> None:
        def visit(node: Node, parts: list[Node]) -> Node:
            if isinstance(node, RuleRef):
                return RuleRef(mapping.get(node.name, node.name), node.position)
            return node.with_children(parts) if parts else node

        rules[name] = Rule(name, fold(rule.body, visit), rule.position)

    for rule in grammar.rules.values():
        rename(rule, renamed, rule.name)
    for number, name in enumerate(names):
        inside = reachable(Grammar.of(grammar.rules.values(), root=name))
        for other in names:
            if other != name and other in inside:
                raise GrammarError(f"the rule {name!r} has a limit of tokens, and so has {other!r} within it")
        copies = {other: renamed.get(other) or f"limited-{number}-{other}" for other in inside}
        for other, copy in copies.items():
            rename(grammar.rules[other], copies, copy)
    return trim(Grammar.of(rules.values(), root=grammar.root, source=grammar.source)), renamed
