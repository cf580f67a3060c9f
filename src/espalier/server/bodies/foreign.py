"""The base class of bodies of other APIs than OpenAI's older ones, with tables of their own. It knows no route."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from espalier.server.bodies.base import FieldWarnings
from espalier.server.bodies.fields import UnsupportedField
from espalier.server.bodies.openai import ReasoningFields, SharedBody
from espalier.server.http.errors import UnsupportedParameter


class ForeignBody(ReasoningFields, SharedBody):
    """The fields of every generating route. NOT_HERE: fields of the API that are refused, unless their value asks for
    nothing. OWN_HINTS: fields of the API without effect here, and why."""

    NOT_HERE: ClassVar[Mapping[str, UnsupportedField]] = {}
    OWN_HINTS: ClassVar[Mapping[str, str]] = {}

    @classmethod
    def as_sent(cls, data: Mapping[str, Any], *, strict: bool) -> tuple[dict[str, Any], FieldWarnings]:
        """As every body's, with the API's own tables first. Raises UnsupportedParameter too."""
        rest, hints = {}, []
        for name, value in data.items():
            if name in cls.NOT_HERE:
                if value is not None and value not in cls.NOT_HERE[name].idle:
                    raise UnsupportedParameter(f"{name} is not supported here", hint=cls.NOT_HERE[name].why, field=name)
            elif name not in cls.OWN_HINTS:
                rest[name] = value
            elif value is not None:
                hints.append(name)
        fields, told = super().as_sent(rest, strict=strict)
        return fields, told + FieldWarnings(hints=tuple(hints))
