"""Settings of the server: environment, `.env`, defaults. Values with their ranges; it opens and binds nothing.

How a model is opened is said by `ESPALIER_…` and read elsewhere; where a value comes from is settled in
`environment.py`. The names of the word-list server are honoured.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import AliasChoices, Field, ValidationError, field_validator, model_validator
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, NoDecode, PydanticBaseSettingsSource, SettingsConfigDict

from espalier.errors import InputError
from espalier.server.environment import read_environment
from espalier.trace.recorders.rejection_log import LEAST_BYTES

SECRETS = frozenset({"secret_token", "database_url"})
"""Fields whose values are never printed."""


class _Merged(PydanticBaseSettingsSource):
    """The environment over the `.env` file, as `environment.py` reads them. An empty value is no value."""

    def get_field_value(self, field: FieldInfo, field_name: str) -> tuple[Any, str, bool]:
        return None, field_name, False

    def __call__(self) -> dict[str, Any]:
        return raw_values(read_environment().values)


class ServerSettings(BaseSettings):
    """Each field is read from its name in capitals. Lists are separated by commas. Raises InputError naming the
    variable that is wrong.

    model_alias: further names of the model; the first is what replies say. concurrent_per_key, requests_per_minute:
    for keys that do not say otherwise. step_seconds: for one step of one constraint, while which all others wait.
    plan_seconds: for what the steps of one output take beyond a small share of each. request_seconds: from arrival to
    the last token. prefix_tokens: of ended requests that are kept; 0 keeps none, None a sixteenth of the cache.
    drain_seconds: how long requests may still run when the server stops. allowed_max_new_tokens: buckets that
    `max_tokens` is rounded up to. uds: a UNIX socket in place of host and port. forwarded_allow_ips: proxies whose
    X-Forwarded-For is believed. rejection_log: a file; rejection_log_bytes: where it is moved away and begun anew.
    """

    model_config = SettingsConfigDict(extra="ignore", frozen=True, validate_by_name=True, validate_by_alias=True)

    host: str = "127.0.0.1"
    port: int = Field(default=8010, ge=0, le=65535)
    uds: str | None = None
    workers: int = Field(default=1, ge=1, validation_alias=AliasChoices("WORKERS", "UVICORN_WORKERS"))
    root_path: str = ""
    forwarded_allow_ips: Annotated[tuple[str, ...], NoDecode] = ("127.0.0.1", "::1")
    model_name: str | None = Field(default=None, validation_alias=AliasChoices("MODEL_NAME", "ESPALIER_MODEL"))
    model_alias: Annotated[tuple[str, ...], NoDecode] = ()

    secret_token: str | None = Field(default=None, repr=False)
    api_keys_file: str | None = None
    allow_query_token: bool = False
    seed_compat: bool = False
    cors_origins: Annotated[tuple[str, ...], NoDecode] = ()

    max_body_bytes: int = Field(default=2_000_000, ge=1)
    max_schema_bytes: int = Field(default=262_144, ge=1)
    max_json_depth: int = Field(default=128, ge=1)
    body_seconds: float = Field(default=30.0, gt=0)
    max_messages: int = Field(default=1_000, ge=1)
    max_outputs: int = Field(default=16, ge=1)
    max_tools: int = Field(default=128, ge=1)
    max_top_logprobs: int = Field(default=20, ge=0)
    max_candidates: int = Field(default=200_000, ge=1)
    max_connections: int = Field(default=1_000, ge=1)
    compile_seconds: float = Field(default=10.0, gt=0)
    step_seconds: float = Field(default=0.5, gt=0)
    plan_seconds: float = Field(default=10.0, gt=0)
    request_seconds: float = Field(default=600.0, gt=0)
    queue_size: int = Field(default=256, ge=0)
    prefix_tokens: int | None = Field(default=None, ge=0)
    concurrent_per_key: int | None = Field(default=None, ge=1)
    requests_per_minute: int | None = Field(default=None, ge=1)
    drain_seconds: float = Field(default=30.0, ge=0)
    sse_ping_seconds: float = Field(default=15.0, gt=0)

    max_input_tokens: int | None = Field(default=None, ge=1)
    allowed_max_new_tokens: Annotated[tuple[int, ...], NoDecode] = ()
    prebuild_prefix: bool = False
    prebuild_langs: Annotated[tuple[str, ...], NoDecode] = ()
    prebuild_word_counts: Annotated[tuple[int, ...], NoDecode] = (3000,)
    vocab_constraint_mode: Literal["hard", "soft"] = "hard"
    vocab_soft_tier2_max_rank_multiplier: float = Field(default=1.0, ge=1)
    vocab_soft_tier2_penalty: float = Field(default=0.0, ge=0)
    vocab_soft_tier3_penalty: float = Field(default=8.0, gt=0)

    database_url: str | None = Field(default=None, repr=False)
    store_traces: Literal["never", "asked", "always"] = "asked"
    store_generations: bool = False
    trace_level: Literal["off", "summary", "steps", "full"] = "summary"
    rejection_log: str | None = None
    rejection_log_bytes: int | None = Field(default=100_000_000, ge=LEAST_BYTES)
    retention_days: float | None = Field(default=7.0, gt=0)
    retention_rows: int | None = Field(default=10_000, ge=1)

    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = "INFO"
    log_format: Literal["json", "text"] = "json"
    log_content: bool = False
    metrics_public: bool = False
    otel: bool = False

    def __init__(self, **values: Any) -> None:
        try:
            super().__init__(**values)
        except ValidationError as error:
            raise _plain(error) from None  # pydantic's own text would show values, secrets among them

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return init_settings, _Merged(settings_cls)

    @field_validator("*", mode="before")
    @classmethod
    def _split(cls, value: Any, info: Any) -> Any:
        """Lists are separated by commas; `none` leaves out a limit that has a default."""
        kind = cls.model_fields[info.field_name].annotation
        if isinstance(value, str) and typing.get_origin(kind) is tuple:
            return tuple(part.strip() for part in value.split(",") if part.strip())
        if isinstance(value, str) and value.strip().lower() == "none" and types.NoneType in typing.get_args(kind):
            return None
        return value

    @field_validator("log_level", mode="before")
    @classmethod
    def _upper(cls, value: Any) -> Any:
        return value.upper() if isinstance(value, str) else value

    @field_validator("allowed_max_new_tokens", "prebuild_word_counts")
    @classmethod
    def _sorted(cls, value: tuple[int, ...]) -> tuple[int, ...]:
        if any(one < 1 for one in value):
            raise ValueError("whole numbers from 1 on are needed")
        return tuple(sorted(set(value)))

    @field_validator("cors_origins")
    @classmethod
    def _origins(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for origin in value:
            if origin != "*" and (not origin.startswith(("http://", "https://")) or origin.count("/") != 2):
                raise ValueError(f"{origin!r} is no origin; write https://example.org, without a path, or *")
        return value

    @field_validator("root_path")
    @classmethod
    def _root(cls, value: str) -> str:
        if value and not value.startswith("/"):
            raise ValueError("it begins with a slash")
        return value.rstrip("/")

    @model_validator(mode="after")
    def _agree(self) -> ServerSettings:
        if self.vocab_soft_tier2_penalty > self.vocab_soft_tier3_penalty:
            raise InputError(
                "VOCAB_SOFT_TIER2_PENALTY is above VOCAB_SOFT_TIER3_PENALTY: rarer words would be the cheaper ones",
                field="VOCAB_SOFT_TIER2_PENALTY",
            )
        if self.rejection_log is not None and self.workers > 1:
            raise InputError(
                f"REJECTION_LOG has one writer, and WORKERS is {self.workers}", hint="WORKERS=1", field="REJECTION_LOG"
            )
        return self


def variables() -> dict[str, tuple[str, ...]]:
    """Each field, and the names of the variables it is read from, the first of which is its own."""
    found = {}
    for name, field in ServerSettings.model_fields.items():
        alias = field.validation_alias
        found[name] = tuple(map(str, alias.choices)) if isinstance(alias, AliasChoices) else (name.upper(),)
    return found


def raw_values(environ: Mapping[str, str]) -> dict[str, str]:
    """What a mapping of variables says of the fields, as text. A variable that is empty says nothing."""
    return {
        field: given[0]
        for field, names in variables().items()
        if (given := [environ[name].strip() for name in names if environ.get(name, "").strip()])
    }


def settings_of(environ: Mapping[str, str]) -> ServerSettings:
    """From this mapping alone, the process's own environment left aside. Raises InputError naming the variable."""
    defaults = {name: field.get_default() for name, field in ServerSettings.model_fields.items()}
    return ServerSettings(**{**defaults, **raw_values(environ)})


def _plain(error: ValidationError) -> InputError:
    """The first thing that is wrong, in one line."""
    first = error.errors(include_url=False)[0]
    where = str(first["loc"][0]) if first["loc"] else ""
    names = variables()
    field = where if where in names else next((f for f, all_ in names.items() if where in all_), where)
    name = names.get(field, (where,))[0]
    value = first["input"]
    shown = "" if field in SECRETS else f"={value if isinstance(value, str) else repr(value)}"
    said = first["msg"].removeprefix("Value error, ").removeprefix("Input should be ")
    return InputError(f"{name}{shown}: {said}", hint="see .env.example", field=name)
