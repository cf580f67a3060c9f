"""A Jinja sandbox in which every template ends.

Jinja's own sandbox keeps a template away from Python, and lets it loop 10^10 times or make a text of a terabyte. Here
each block of a template begins with a check, and what an operator, a filter or a call could make is bounded before it
is made (`effort.py`). It knows no chat.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import wraps
from typing import Any

from jinja2 import nodes, pass_context
from jinja2.compiler import CodeGenerator, Frame
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.visitor import NodeTransformer

from espalier.chat.prompt.effort import check_size, exceeded, made, size, spend

MAX_NUMBER = 100_000
"""The largest number that a call or filter may be given as a width or a count."""
MAX_BITS = 4_096
"""The largest whole number, in bits."""
_WIDTHS = re.compile(r"[0-9]{6}|%[^A-Za-z%]*\*")
"""Formats with a width of six digits, or with one that is an argument."""


class _EffortCounter(NodeTransformer):
    """Every list, tuple and object that a template writes, every joining of texts and every loop goes through a
    filter that counts."""

    def __init__(self, environment: ImmutableSandboxedEnvironment) -> None:
        self._environment = environment

    def visit_For(self, node: nodes.For) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        node.iter = self._wrap_in_filter(node.iter, "espalier_counted")
        return node

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        return self._wrap_in_filter(nodes.Tuple(node.nodes, "load", lineno=node.lineno), "espalier_joined")

    def visit_List(self, node: nodes.List) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        return self._wrap_in_filter(node, "espalier_made")

    def visit_Dict(self, node: nodes.Dict) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        return self._wrap_in_filter(node, "espalier_made")

    def visit_Tuple(self, node: nodes.Tuple) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        return self._wrap_in_filter(node, "espalier_made") if node.ctx == "load" else node

    def _wrap_in_filter(self, node: nodes.Node, name: str) -> nodes.Expr:
        return nodes.Filter(node, name, [], [], None, None, lineno=node.lineno, environment=self._environment)


class _Generator(CodeGenerator):
    """Each block, such as the body of a loop or a macro, begins with a check."""

    def blockvisit(self, nodes_: Sequence[nodes.Node], frame: Frame) -> None:  # type: ignore[override]
        plain = sum(
            len(part.data)
            for node in nodes_
            if isinstance(node, nodes.Output)
            for part in node.nodes
            if isinstance(part, nodes.TemplateData)
        )
        self.writeline(f"environment.spend({1 + plain})")
        super().blockvisit(nodes_, frame)


class LimitedEnvironment(ImmutableSandboxedEnvironment):
    """Templates of it raise EffortExceeded within `effort.limited`."""

    code_generator_class = _Generator
    intercepted_binops = frozenset({"+", "*", "**", "%"})
    spend = staticmethod(spend)

    def __init__(self, **options: Any) -> None:
        super().__init__(optimized=False, finalize=_write_text, **options)
        self.filters |= {"sum": _sum}
        for names in (self.filters, self.tests):
            for name, function in list(names.items()):
                names[name] = counting(function, name)
        self.filters |= {"espalier_counted": _count_values, "espalier_joined": _join_texts, "espalier_made": made}
        self.globals.pop("lipsum", None)

    def _generate(self, source: nodes.Template, name: Any, filename: Any, defer_init: bool = False) -> str:
        return super()._generate(_EffortCounter(self).visit(source), name, filename, defer_init)

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """One of the operators that make something much larger than what they are given."""
        if operator == "%" and isinstance(left, str):
            _check_format(left)
            check_size(len(left) * float(1 + _length(right)))
        elif operator == "**":
            _check_bits(_bits(left) * right if isinstance(right, int) else 0)
        elif operator == "*":
            _check_bits(_bits(left) + _bits(right))
            check_size(_length(left) * abs(right) if isinstance(right, int) else 0)
            check_size(_length(right) * abs(left) if isinstance(left, int) else 0)
        return made(super().call_binop(context, operator, left, right))

    def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: N805  # Jinja's names
        """A call of a macro, a method or a global."""
        own = getattr(__obj, "__self__", getattr(getattr(__obj, "__wrapped__", None), "__self__", None))
        _check(getattr(__obj, "__name__", ""), (own, *args, *kwargs.values()))
        return _result(super().call(__context, __obj, *args, **kwargs))


def counting(function: Callable[..., Any], name: str) -> Callable[..., Any]:
    """A filter or test that checks its arguments and counts what it makes."""
    skipped = 1 if hasattr(function, "jinja_pass_arg") else 0

    @wraps(function)
    def counted(*args: Any, **kwargs: Any) -> Any:
        if name == "join" and len(args) > skipped and not isinstance(args[skipped], Sequence | Mapping):
            args = (*args[:skipped], list(_each(args[skipped])), *args[skipped + 1 :])
        _check(name, (*args[skipped:], *kwargs.values()))
        return _result(function(*args, **kwargs))

    return counted


def _result(value: Any) -> Any:
    return _each(value) if isinstance(value, Iterator) else made(value)


def _count_values(values: Any) -> Any:
    """The values of a loop; what has no length is counted one by one."""
    return values if isinstance(values, Sequence | Mapping) else _each(values)


def _each(values: Any) -> Iterator[Any]:
    for value in values:
        spend()
        yield value


def _join_texts(values: Sequence[Any]) -> str:
    """What the operator `~` makes."""
    return str(made("".join(map(str, values))))


@pass_context  # so that Jinja calls it when it renders, never when it compiles
def _write_text(_context: Context, value: Any) -> str:
    """Every value that is written."""
    return str(made(str(value)))


def _sum(values: Any, attribute: Any = None, start: Any = 0) -> Any:
    """The filter `sum`, of numbers: a sum of lists copies each as often as others follow it."""
    total = start
    for value in values:
        spend()
        number = value if attribute is None else value[attribute]
        if not isinstance(number, int | float) or not isinstance(total, int | float):
            raise exceeded("sums up something other than numbers")
        total += number
    return total


WIDTHS = frozenset(
    {"center", "ljust", "rjust", "zfill", "expandtabs", "indent", "batch", "slice", "tojson", "round", "format"}
)
"""Filters and methods that make something as long as a number says."""
FORMATS = frozenset({"format", "format_map", "strftime_now"})
PRODUCTS = frozenset(
    {"replace", "join", "translate", "indent", "expandtabs", "wordwrap", "urlize", "format", "format_map", "xmlattr"}
)
"""Filters and methods that may put one argument into another many times."""
SLOW = frozenset({"pprint", "striptags", "urlize", "wordwrap"})
"""Filters that take the square of a text's length in time."""
MAX_SLOW = 20_000


def _check(name: str, arguments: Sequence[Any]) -> None:
    """Refuse what could make something far larger than its arguments, and count the arguments."""
    if name in WIDTHS and any(type(argument) is int and abs(argument) > MAX_NUMBER for argument in arguments):
        raise exceeded(f"gives {name} a number above {MAX_NUMBER:,}")
    if name in FORMATS:
        for argument in arguments:
            if isinstance(argument, str):
                _check_format(argument)
    if name in SLOW and any(size(argument) > MAX_SLOW for argument in arguments):
        raise exceeded(f"gives {name} more than {MAX_SLOW:,} characters")
    if name in PRODUCTS:
        check_size(_product(name, [argument for argument in arguments if argument is not None]))
    spend(1 + sum(map(_length, arguments)) / 16)


def _product(name: str, arguments: Sequence[Any]) -> float:
    """At most how long a text is made."""
    texts = [argument for argument in arguments if isinstance(argument, str)]
    if name == "replace" and len(texts) == 3:
        text, old, new = texts
        return len(text) + text.count(old) * float(len(new))
    numbers = [abs(argument) for argument in arguments if type(argument) is int]
    if name in ("indent", "expandtabs") and texts:
        width = max([4, *numbers, *map(len, texts[1:])])
        return len(texts[0]) + texts[0].count("\n" if name == "indent" else "\t") * float(width)
    lengths = [_length(argument) for argument in arguments]
    if name == "join":
        lists = [value for value in arguments if isinstance(value, Sequence | Mapping) and not isinstance(value, str)]
        if lists and texts:
            return len(lists[0]) * float(max(map(len, texts)))
    if name == "translate" and texts:
        tables = [argument.values() for argument in arguments if isinstance(argument, Mapping)]
        return len(texts[0]) * float(max((_length(text) for table in tables for text in table), default=1))
    if name in ("urlize", "xmlattr", "wordwrap") and len(lengths) > 1:
        return lengths[0] / 8 * max(lengths[1:])
    if name in ("format", "format_map") and texts:
        return len(texts[0]) / 2 * sum(lengths[1:])
    return 0.0


def _check_format(form: str) -> None:
    if _WIDTHS.search(form):
        raise exceeded("formats with a width of more than 5 digits, or one that is an argument")


def _bits(value: Any) -> int:
    return value.bit_length() if isinstance(value, int) else 0


def _check_bits(bits: float) -> None:
    if bits > MAX_BITS:
        raise exceeded(f"computes a number of more than {MAX_BITS:,} bits")


def _length(value: Any) -> int:
    return len(value) if isinstance(value, Sequence | Mapping) else 0
