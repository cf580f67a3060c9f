"""Reads YAML as data: PyYAML's safe loader, with limits of depth and values, no aliases, and no key twice.

An alias lets ten lines stand for a thousand million values, and PyYAML keeps the last of two equal keys and says
nothing; both are refused. It knows nothing of what the values mean.
"""

from __future__ import annotations

from typing import Any

import yaml

from espalier.errors import InputError, TooLarge
from espalier.files.limits import FileLimits
from espalier.files.reading import shortened


def read_yaml(text: str, reader: FileLimits, source: str) -> Any:
    """The value of one document. Raises the reader's error with line and column, TooLarge."""
    try:
        loader = _Loader(text, reader, source)
        try:
            return loader.get_single_data()
        finally:
            loader.dispose()
    except yaml.YAMLError as error:
        raise _fault(error, reader, source) from error
    except (ValueError, RecursionError, OverflowError) as error:  # a date that is none, a number of too many digits
        raise reader.error(f"{source} is not YAML: {error}", field=reader.field) from error


def _fault(error: yaml.YAMLError, reader: FileLimits, source: str) -> InputError:
    mark = getattr(error, "problem_mark", None)
    where = f" at line {mark.line + 1}, column {mark.column + 1}" if mark is not None else ""
    problem = getattr(error, "problem", None) or str(error).splitlines()[0]
    return reader.error(f"{source} is not YAML{where}: {shortened(problem)}", field=reader.field)


class _Loader(yaml.SafeLoader):  # type: ignore[misc]  # it has no stubs
    def __init__(self, text: str, reader: FileLimits, source: str) -> None:
        super().__init__(text)
        self._limits, self._source, self._depth, self._values = reader, source, 0, 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            event = self.peek_event()
            raise yaml.constructor.ConstructorError(
                None, None, f"aliases (*{event.anchor:.40}) are not read: write it out", event.start_mark
            )
        self._depth += 1
        self._values += 1
        if self._depth > (self._limits.depth or 64):
            raise TooLarge(
                f"the {self._limits.noun} {shortened(self._source)} is nested too deeply: "
                f"more than {self._limits.depth} levels",
                field=self._limits.field,
            )
        if self._limits.values is not None and self._values > self._limits.values:
            raise TooLarge(
                f"the {self._limits.noun} {shortened(self._source)} has more than {self._limits.values:,} values",
                hint="is it the right file?",
                field=self._limits.field,
            )
        try:
            return super().compose_node(parent, index)
        finally:
            self._depth -= 1

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        seen: set[Any] = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if not isinstance(key, str):
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key {key!r:.80} is no text: quote it", key_node.start_mark
                )
            if key in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key {key!r:.80} stands twice", key_node.start_mark
                )
            seen.add(key)
        mapping: dict[Any, Any] = super().construct_mapping(node, deep=deep)
        return mapping
