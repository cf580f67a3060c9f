"""Writes what follows from the declarations of options: the types for type checkers, and the reference page.

    python scripts/option_tables.py

The declarations are `FIELDS` of `sampling/config.py`, and `OPTIONS` of `decoding/options.py` and of
`engines/request_options.py`. A test compares the files with what this prints.
"""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from espalier.decoding.options import OPTIONS as DECODING
from espalier.engines.request_options import OPTIONS as REQUEST
from espalier.sampling.config import COMMON, FIELDS, UNSET, declared_default
from espalier.sampling.fields import Option

ROOT = Path(__file__).resolve().parents[1]
TYPES = ROOT / "src" / "espalier" / "option_types.py"
PAGE = ROOT / "docs" / "options.md"
WIDTH = 120
ORDER = (*COMMON, *(option for option in FIELDS.values() if not option.common))

HEAD = '''\
"""The types of options for type checkers, editors and `help`: the fields of `SamplingConfig` and `Decoding`, and the
arguments of `generate`. It checks no value.

`python scripts/option_tables.py` writes this file from the declarations of the options; do not change it by hand.
Arguments that take our own objects are in `api/options.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, Self, TypedDict


class Unset:
    """A default that depends on whether mirostat is on, or on which samplers there are."""


UNSET: Final[Any] = Unset()
'''
PAGE_HEAD = """# Options of a request

`python scripts/option_tables.py` writes this page from the declarations of the options. An option is an argument of
`espalier.generate` and, under the same name, a field of `SamplingConfig` or `Decoding`; `-o` is `-o NAME VALUE`. The
last columns have the names in requests of OpenAI's shape, vLLM's extras included, and of llama-server's.
[fields.md](fields.md) lists all fields of a request, [sampling.md](sampling.md) says what each sampler computes, and
[strategies.md](strategies.md) what each strategy does.
"""


def types_file() -> str:
    """The text of `option_types.py`."""
    parts = [
        HEAD,
        _values("SamplingValues", "The fields of `SamplingConfig`.", ORDER),
        _values("DecodingValues", "The fields of `Decoding`.", DECODING.values()),
        _arguments("SamplingOptions", "The options of the sampling, as arguments.", ORDER),
        _arguments("DecodingOptions", "The options of strategies, as arguments.", DECODING.values()),
        _arguments("RequestOptions", "The options of the request, as arguments.", REQUEST.values()),
        _setters() + "\n\n" + "".join(_sets()),
    ]
    return "\n\n".join(parts)


def _values(name: str, about: str, options: Iterable[Option]) -> str:
    lines = ["@dataclass(frozen=True, slots=True, kw_only=True)", f"class {name}:", f'    """{about}"""', ""]
    for option in options:
        lines += [*_comment(option), *_assignment(option)]
    return "\n".join(lines) + "\n"


def _comment(option: Option) -> list[str]:
    return textwrap.wrap(option.help, WIDTH, initial_indent="    #: ", subsequent_indent="    #: ")


def _assignment(option: Option) -> list[str]:
    default = declared_default(option.name) if option.name in FIELDS else option.default
    start = f"    {option.name}: {option.stored} = "
    if default is UNSET:
        return [f"{start}UNSET"]
    if isinstance(default, tuple) and default:
        return [f"{start}({', '.join(map(_literal, default))})"]
    return [start + _literal(default)]


def _literal(value: Any) -> str:
    if not isinstance(value, str):
        return repr(value)
    return f"'{value}'" if value == '"' else json.dumps(value)


def _arguments(name: str, about: str, options: Iterable[Option]) -> str:
    lines = [f"class {name}(TypedDict, total=False):", f'    """{about}"""', ""]
    lines += [f"    {option.name}: {option.argument}" for option in options if option.argument != "Any"]
    return "\n".join(lines) + "\n"


def _setters() -> str:
    lines = [
        "class CommonSetters:",
        '    """A setter for each of the options that every edge shows first."""',
        "",
        "    def sampling(self, **fields: Any) -> Self:",
        "        raise NotImplementedError",
    ]
    for option in COMMON:
        lines += [
            "",
            f"    def {option.name}(self, value: {option.argument}) -> Self:",
            f'        """{option.help}"""',
            f"        return self.sampling({option.name}=value)",
        ]
    return "\n".join(lines) + "\n"


def _sets() -> Iterator[str]:
    others = {**DECODING, **REQUEST}
    yield _set(
        "IN_ESPALIER",
        (name for name, option in others.items() if option.openai is None),
        "Options that stand in the `espalier` of a request body; all others stand in the body itself.",
    )
    yield _set(
        "WITHOUT_FLAG",
        (name for name, option in FIELDS.items() if not option.common),
        "Options that have no flag of their own: `-o NAME VALUE` sets them.",
    )


def _set(name: str, names: Iterable[str], about: str) -> str:
    listed = "\n".join(f'        "{option}",' for option in sorted(names))
    return f'{name} = frozenset(\n    {{\n{listed}\n    }}\n)\n"""{about}"""\n'


def page() -> str:
    """The text of `docs/options.md`."""
    tables = (("Sampling", {option.name: option for option in ORDER}), ("Strategies", DECODING), ("The rest", REQUEST))
    parts = [PAGE_HEAD]
    for title, options in tables:
        parts.append(f"## {title}\n\n" + "\n".join(_rows(options)) + "\n")
    return "\n".join(parts)


def _rows(options: Mapping[str, Option]) -> Iterator[str]:
    yield "| option | what it does | type, range | default | off at | flag | OpenAI, vLLM | llama-server |"
    yield "|---|---|---|---|---|---|---|---|"
    for name, option in options.items():
        inner = None if name in FIELDS else f"espalier.{name}"
        theirs = (option.openai or inner, option.llama)
        cells = (
            f"`{name}`",
            option.help,
            f"`{option.argument}`{_range(option)}",
            _shown(option.default),
            _shown(option.off),
            *(f"`{word}`" if word else "" for word in (_flag(option), *theirs)),
        )
        yield f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def _flag(option: Option) -> str:
    """As on the command line."""
    if option.flag == "":
        return ""
    if option.name in FIELDS and not option.common:
        return "-o"
    return f"--{(option.flag or option.name).replace('_', '-')}"


def _range(option: Option) -> str:
    schema = option.json_schema()
    ends = (("from", schema.get("minimum")), ("above", schema.get("exclusiveMinimum")), ("to", schema.get("maximum")))
    said = " ".join(f"{word} {end:g}" if abs(end) < 1e6 else f"{word} {end}" for word, end in ends if end is not None)
    return f", {said}" if said else ""


def _shown(value: Any) -> str:
    if value is None or value == ():
        return ""
    return f"`{json.dumps(value)}`"


def main() -> None:
    TYPES.write_text(types_file(), encoding="utf-8")
    PAGE.write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
