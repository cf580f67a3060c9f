"""Single changes of Python source: a comparison that includes its bound, a condition negated, a call left out.

Only bodies of functions are changed: what runs when a module is imported (tables, defaults, types) is not. Texts of
errors, log lines, docstrings and annotations are left alone. Kernels of numba are compiled beforehand and not listed.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef
COMPARISONS = {
    ast.Lt: "<=",
    ast.LtE: "<",
    ast.Gt: ">=",
    ast.GtE: ">",
    ast.Eq: "!=",
    ast.NotEq: "==",
    ast.Is: "is not",
    ast.IsNot: "is",
    ast.In: "not in",
    ast.NotIn: "in",
}
"""What takes the place of a comparison."""
ARITHMETIC = {
    ast.Add: "-",
    ast.Sub: "+",
    ast.Mult: "//",
    ast.FloorDiv: "*",
    ast.Div: "*",
    ast.Mod: "//",
    ast.BitAnd: "|",
    ast.BitOr: "&",
    ast.LShift: ">>",
    ast.RShift: "<<",
}
NAMES = {
    "min": "max",
    "max": "min",
    "any": "all",
    "all": "any",
    "find": "rfind",
    "rfind": "find",
    "startswith": "endswith",
    "endswith": "startswith",
    "popleft": "pop",
}
"""Functions and methods that are mixed up."""
UNTOUCHED_CALLS = frozenset({"debug", "info", "warning", "exception"})
"""Methods of loggers: what they say is not tested word by word."""


@dataclass(frozen=True, kw_only=True)
class Mutation:
    """One change of one file."""

    #: Path below the project's root, with slashes.
    file: str
    #: Where the change begins, and the function it is in.
    line: int
    function: str
    #: The line as it is, without its indent.
    source: str
    #: What is replaced, as offsets into the file's bytes, and by what.
    begin: int
    end: int
    before: str
    after: str

    @property
    def change(self) -> str:
        """The change in words: what it was and what it becomes."""
        return f"{' '.join(self.before.split())} -> {' '.join(self.after.split())}"

    def applied(self, text: bytes) -> bytes:
        """The file's text with the change."""
        return text[: self.begin] + self.after.encode() + text[self.end :]


def mutations_of(root: Path, file: str) -> list[Mutation]:
    """Every change of the functions of a file, in the order of their places; none of a module of kernels."""
    text = (root / file).read_bytes()
    if b"from espalier.kernels.compiled import" in text:
        return []
    finder = _Finder(file, text)
    for name, function in functions_of(ast.parse(text)):
        finder.look_at(name, function)
    return sorted(finder.mutations, key=lambda mutation: (mutation.begin, mutation.end, mutation.after))


def functions_of(tree: ast.Module | ast.ClassDef, prefix: str = "") -> Iterator[tuple[str, Function]]:
    """The functions of a module and its classes; one within another belongs to that one."""
    for node in tree.body:
        if isinstance(node, Function):
            yield prefix + node.name, node
        elif isinstance(node, ast.ClassDef):
            yield from functions_of(node, f"{prefix}{node.name}.")


class _Finder(ast.NodeVisitor):
    """Collects the changes of one file."""

    def __init__(self, file: str, text: bytes) -> None:
        self.mutations: list[Mutation] = []
        self._file, self._text, self._function = file, text, ""
        self._lines = text.splitlines(keepends=True)
        self._starts = [0]
        for line in self._lines:
            self._starts.append(self._starts[-1] + len(line))

    def look_at(self, name: str, function: Function) -> None:
        """Collect the changes of a function's body."""
        self._function = name
        for statement in function.body:
            self.visit(statement)

    def visit_Raise(self, node: ast.Raise) -> None:
        self._replace(node, "pass")

    def visit_Assert(self, node: ast.Assert) -> None:
        """An assertion states what holds; it decides nothing."""

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit(node.value)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        for statement in node.body:
            self.visit(statement)

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        """A class made within a function is left alone."""

    def visit_Expr(self, node: ast.Expr) -> None:
        value = node.value.value if isinstance(node.value, ast.Await) else node.value
        if isinstance(value, ast.Call):
            name = value.func.attr if isinstance(value.func, ast.Attribute) else ""
            if name in UNTOUCHED_CALLS:
                return
            self._replace(node, "pass")
        if not isinstance(value, ast.Constant):  # a docstring
            self.generic_visit(node)

    def visit_Assign(self, node: ast.Assign) -> None:
        if all(isinstance(target, ast.Attribute | ast.Subscript) for target in node.targets):
            self._replace(node, "pass")
        self.generic_visit(node)

    def visit_Delete(self, node: ast.Delete) -> None:
        self._replace(node, "pass")

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        if (operator := ARITHMETIC.get(type(node.op))) is not None:
            self._replace_between(node.target, node.value, f" {operator}= ")
        self.visit(node.value)

    def visit_Return(self, node: ast.Return) -> None:
        if node.value is not None and not isinstance(node.value, ast.Constant):
            self._replace(node.value, "None")
        self.generic_visit(node)

    def visit_Continue(self, node: ast.Continue) -> None:
        self._replace(node, "break")

    def visit_Break(self, node: ast.Break) -> None:
        self._replace(node, "continue")

    def visit_If(self, node: ast.If) -> None:
        self._negate(node.test)
        self.generic_visit(node)

    def visit_IfExp(self, node: ast.IfExp) -> None:
        self._negate(node.test)
        self.generic_visit(node)

    def visit_comprehension(self, node: ast.comprehension) -> None:
        for condition in node.ifs:
            self._replace(condition, "True")
        self.generic_visit(node)

    def visit_Compare(self, node: ast.Compare) -> None:
        operands = [node.left, *node.comparators]
        for left, right, operator in zip(operands, node.comparators, node.ops, strict=False):
            self._replace_between(left, right, f" {COMPARISONS[type(operator)]} ")
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        other = " or " if isinstance(node.op, ast.And) else " and "
        for left, right in zip(node.values, node.values[1:], strict=False):
            if len(node.values) == 2:
                self._replace_between(left, right, other)
            else:  # an operand left out: in a longer chain another operator would bind differently
                self._replace_between(left, right, None)
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        is_text = any(isinstance(side, ast.JoinedStr) or _is_text(side) for side in (node.left, node.right))
        if not is_text and (operator := ARITHMETIC.get(type(node.op))) is not None:
            self._replace_between(node.left, node.right, f" {operator} ")
        self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        if isinstance(node.op, ast.Not):
            text = self._text_of(node.operand)
            self._replace(node, f"({text})" if isinstance(node.operand, ast.NamedExpr) else text)
        self.generic_visit(node)

    def visit_Subscript(self, node: ast.Subscript) -> None:
        if isinstance(node.slice, ast.Slice):
            self._replace(node, self._text_of(node.value))
        self.generic_visit(node)

    def visit_Lambda(self, node: ast.Lambda) -> None:
        if isinstance(node.body, ast.Tuple) and len(node.body.elts) > 1:  # a key: what decides first
            first, second = node.body.elts[:2]
            rest = [self._text_of(item) for item in node.body.elts[2:]]
            self._replace(node.body, f"({', '.join([self._text_of(second), self._text_of(first), *rest])})")
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        function = node.func
        name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
        if name in NAMES:
            end = self._offset(function.end_lineno, function.end_col_offset)
            self._add(end - len(name), end, NAMES[name])
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, bool):
            self._replace(node, str(not node.value))
        elif isinstance(node.value, int):
            self._replace(node, str(node.value + 1))

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        """Texts are not changed, nor what is put into them."""

    def _negate(self, test: ast.expr) -> None:
        if not isinstance(test, ast.Compare | ast.UnaryOp):  # those have changes of their own
            self._replace(test, f"not ({self._text_of(test)})")

    def _replace(self, node: ast.expr | ast.stmt, after: str) -> None:
        begin, end = self._offset(node.lineno, node.col_offset), self._offset(node.end_lineno, node.end_col_offset)
        self._add(begin, end, after)

    def _replace_between(self, left: ast.expr, right: ast.expr, after: str | None) -> None:
        """Replace the operator between two operands; None leaves the right one out with it. Brackets stay."""
        begin, end = self._offset(left.end_lineno, left.end_col_offset), self._offset(right.lineno, right.col_offset)
        if after is None:
            stop = self._offset(right.end_lineno, right.end_col_offset)
            if self._text[begin:end].count(b"(") == self._text[begin:end].count(b")"):
                self._add(begin, stop, "")
            return
        between = self._text[begin:end].decode()
        closing = between[: len(between) - len(between.lstrip(") \n"))].rstrip(" ")
        opening = between[len(between.rstrip("( \n")) :].lstrip(" ")
        self._add(begin, end, f"{closing}{after}{opening}")

    def _add(self, begin: int, end: int, after: str) -> None:
        line = next(number for number, start in enumerate(self._starts[1:], 1) if begin < start)
        self.mutations.append(
            Mutation(
                file=self._file,
                line=line,
                function=self._function,
                source=self._lines[line - 1].decode().strip(),
                begin=begin,
                end=end,
                before=self._text[begin:end].decode(),
                after=after,
            )
        )

    def _text_of(self, node: ast.expr) -> str:
        begin, end = self._offset(node.lineno, node.col_offset), self._offset(node.end_lineno, node.end_col_offset)
        return self._text[begin:end].decode()

    def _offset(self, line: int | None, column: int | None) -> int:
        assert line is not None, "parsed nodes have an end"
        assert column is not None
        return self._starts[line - 1] + column


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str | bytes)
