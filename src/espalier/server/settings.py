"""Settings of the server: one table of fields, read from variables, `.env` and flags. It opens and binds nothing.

Each field has its default, range, variables and help here; reading and checking, `espalier config show` and the flags
of `espalier serve` follow from it. Variables `ESPALIER_…` say how a model is opened; they are read in
`espalier/settings.py`; `environment.py` decides which origin of a value wins. The names of the word-list server are
honoured.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Literal

from espalier.errors import InputError
from espalier.fields import SWITCHES, DeclaredField, Field, WrongValue, entries, wrong_variable
from espalier.trace.recorders.rejection_log import LEAST_BYTES

HINT = "see .env.example"


def _sort_values(values: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(sorted(set(values)))


LEVELS = {"WARN": "WARNING", "FATAL": "ERROR", "CRITICAL": "ERROR"}
"""Other names of levels, as Python's logging has them."""


def _level(text: str) -> str:
    return LEVELS.get(text.upper(), text.upper())


def _log_level(text: str) -> str:
    """`true` and `false`, as the setting was once, or one of its choices."""
    said = text.lower()
    return {True: "figures", False: "off"}[SWITCHES[said]] if said in SWITCHES else said


AGE_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0, "w": 604_800.0}
FOREVER = "forever"


def read_age(text: str) -> float | None:
    """The seconds of an age such as 7d, 12h or 90m; None for what is none."""
    age = re.fullmatch(r"(\d{1,9}(?:\.\d+)?)([smhdw])", text)
    return None if age is None else float(age[1]) * AGE_UNITS[age[2]]


def keep_limits(text: str) -> tuple[float | None, int | None]:
    """The greatest age in seconds and the greatest number that `KEEP_TRACES` says, None for no limit. Raises ValueError
    for what is neither."""
    seconds: float | None = None
    count: int | None = None
    parts = [] if text.strip().lower() == FOREVER else re.split(r"[,|]", text)
    for part in (part.strip() for part in parts):
        age = read_age(part)
        if age is not None and seconds is None and age > 0:
            seconds = age
        elif re.fullmatch(r"[1-9]\d{0,11}", part) and count is None:
            count = int(part)
        else:
            raise ValueError("an age such as 7d or 12h, a number such as 10000, both with a comma between, or forever")
    return seconds, count


def _keep_limits(text: str) -> str:
    keep_limits(text)
    return text


def _origins(origins: tuple[str, ...]) -> tuple[str, ...]:
    for origin in origins:
        if origin != "*" and not re.fullmatch(r"[a-z][a-z0-9+.-]*://[^/\s]+", origin):
            raise ValueError(f"{origin!r} is no origin; write https://example.org, without a path, or *")
    return origins


def _hosts(names: tuple[str, ...]) -> tuple[str, ...]:
    for name in names:
        if name != "*" and re.search(r"[/\s@]|:\d+$", name.strip("[]")) and name.count(":") < 2:
            raise ValueError(f"{name!r} is no host name; write llm.example.org, without a scheme or a port, or *")
    return tuple(name.strip("[]") for name in names)


def _root_path(path: str) -> str:
    if path and not path.startswith("/"):
        raise ValueError("it begins with a slash")
    return path.rstrip("/")


COMPAT_SWITCH = "WORDLIST_SERVER_COMPAT"
"""The variable of `wordlist_server_compat`, as errors name it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings:
    """Values of the settings. Raises InputError naming the variable that is wrong.

    The variable of a field is its name in capitals, unless its `variables` are given. Commas separate items of lists.
    """

    model_name: Annotated[
        str | None,
        Field(
            "Model: a path or a name; the demo model if none.",
            variables=("MODEL_NAME", "ESPALIER_MODEL"),
            flags=("-m", "--model"),
        ),
    ] = None
    model_alias: Annotated[tuple[str, ...], Field("Further names; the first is what replies say.")] = ()
    host: Annotated[str, Field("Address to listen on.", flags=("--host",))] = "127.0.0.1"
    port: Annotated[int, Field("Port; 0 takes a free one.", least=0, most=65535, flags=("--port",))] = 8010
    workers: Annotated[
        int,
        Field(
            "Processes, each with the model.", least=1, variables=("WORKERS", "UVICORN_WORKERS"), flags=("--workers",)
        ),
    ] = 1
    root_path: Annotated[
        str, Field("Path that a proxy in front takes off.", clean=_root_path, flags=("--root-path",))
    ] = ""
    api_keys_file: Annotated[
        str | None, Field("TOML file with API keys and their limits.", flags=("--api-key-file",))
    ] = None
    uds: Annotated[str | None, Field("UNIX socket to listen on, in place of host and port.", flags=("--uds",))] = None
    log_level: Annotated[
        Literal["DEBUG", "INFO", "WARNING", "ERROR"],
        Field("DEBUG, INFO, WARNING or ERROR.", parse=_level, flags=("--log-level",)),
    ] = "INFO"
    rejection_log: Annotated[
        str | None, Field("File for refused tokens; the strategy is rejection.", flags=("--rejection-log",))
    ] = None
    rejection_log_bytes: Annotated[
        int | None, Field("Size at which the file is moved away and begun anew.", least=LEAST_BYTES)
    ] = 100_000_000

    secret_token: Annotated[str | None, Field("One API key.", is_secret=True)] = dataclasses.field(
        default=None, repr=False
    )
    allow_query_token: Annotated[bool, Field("Whether a key may be in the URL: `?token=...`.")] = False
    wordlist_server_compat: Annotated[bool, Field("Statuses and errors as the word-list server has them.")] = False
    strict_fields: Annotated[
        bool, Field("Whether unknown fields of a request are refused; else a warning names them.")
    ] = False
    strict_model: Annotated[bool, Field("Whether another model's name is refused; else a warning says so.")] = False
    schema_formats: Annotated[
        Literal["assert", "annotate"], Field("Whether `format` is enforced in schemas of requests, or a remark.")
    ] = "assert"
    cors_origins: Annotated[tuple[str, ...], Field("Origins whose pages may send requests.", clean=_origins)] = ()
    allowed_hosts: Annotated[
        tuple[str, ...],
        Field("Names in `Host` beside this machine's own; without keys no others are answered.", clean=_hosts),
    ] = ()
    forwarded_allow_ips: Annotated[tuple[str, ...], Field("Proxies whose X-Forwarded-For is believed.")] = (
        "127.0.0.1",
        "::1",
    )

    max_body_bytes: Annotated[int, Field("Bytes of a body.", least=1)] = 2_000_000
    max_schema_bytes: Annotated[int, Field("Bytes of a schema.", least=1)] = 262_144
    max_json_depth: Annotated[int, Field("Levels of nesting in a body.", least=1)] = 128
    max_messages: Annotated[int, Field("Messages of a request.", least=1)] = 1_000
    max_outputs: Annotated[int, Field("Outputs of a request: `n`.", least=1)] = 16
    max_tools: Annotated[int, Field("Tools of a request.", least=1)] = 128
    max_top_logprobs: Annotated[int, Field("Log probabilities of a token.", least=0)] = 20
    max_candidates: Annotated[
        int, Field("Of full traces and log probabilities: outputs x tokens x candidates.", least=1)
    ] = 200_000
    max_embedding_inputs: Annotated[int, Field("Texts of one request for embeddings.", least=1)] = 2048
    embedding_pooling: Annotated[
        Literal["mean", "last", "cls"] | None,
        Field("How hidden states become one vector, in place of what the model says: mean, last, cls."),
    ] = None
    max_connections: Annotated[int, Field("Connections of one worker; more get 503.", least=1)] = 1_000
    body_seconds: Annotated[float, Field("For a request to be sent.", above=0)] = 30.0
    compile_seconds: Annotated[float, Field("For a constraint to be compiled.", above=0)] = 10.0
    constraint_bytes: Annotated[
        int, Field("Of compiled constraints and their garbage; past it the key with the most gets 429.", least=1)
    ] = 1_000_000_000
    step_seconds: Annotated[float, Field("For one step of one constraint; all others wait for it.", above=0)] = 0.5
    plan_seconds: Annotated[
        float, Field("For what all steps of one output take beyond a small share of each.", above=0)
    ] = 10.0
    verdict_seconds: Annotated[
        float, Field("Of CPU time for judging an output; what takes longer is unknown.", above=0)
    ] = 5.0
    request_seconds: Annotated[float, Field("From arrival to the last token.", above=0)] = 600.0
    queue_size: Annotated[int, Field("Requests that wait; more get 503.", least=0)] = 256
    prefix_tokens: Annotated[
        int | None, Field("Tokens of ended requests that are kept; none: a sixteenth of the cache.", least=0)
    ] = None
    concurrent_per_key: Annotated[
        int | None, Field("Outputs, beams and particles at once, for keys that do not say otherwise.", least=1)
    ] = None
    requests_per_minute: Annotated[int | None, Field("For keys that do not say otherwise.", least=1)] = None
    cpu_seconds_per_minute: Annotated[
        float | None, Field("Of CPU time, the model's apart, for keys that do not say otherwise.", above=0)
    ] = 60.0
    drain_seconds: Annotated[float, Field("How long requests may still run when the server stops.", least=0)] = 30.0
    sse_ping_seconds: Annotated[float, Field("Between comments in a silent stream.", above=0)] = 15.0

    max_input_tokens: Annotated[int | None, Field("Longer prompts are cut; none: refused.", least=1)] = None
    allowed_max_new_tokens: Annotated[
        tuple[int, ...], Field("Buckets that max_tokens is rounded up to.", least=1, clean=_sort_values)
    ] = ()
    prebuild_prefix: Annotated[bool, Field("Whether word lists are compiled at the start.")] = False
    prebuild_langs: Annotated[tuple[str, ...], Field("Languages of these word lists.")] = ()
    prebuild_word_counts: Annotated[tuple[int, ...], Field("Their sizes.", least=1, clean=_sort_values)] = (3000,)
    vocab_constraint_mode: Annotated[
        Literal["hard", "soft"], Field("Whether other words are forbidden, or cost more.")
    ] = "hard"
    vocab_soft_tier2_max_rank_multiplier: Annotated[float, Field("Tier 2 ends at rank K x N.", least=1)] = 1.0
    vocab_soft_tier2_penalty: Annotated[float, Field("What a word of tier 2 costs.", least=0)] = 0.0
    vocab_soft_tier3_penalty: Annotated[float, Field("What any other word costs.", above=0)] = 8.0

    database_url: Annotated[str | None, Field("The store; none: a SQLite file.", is_secret=True)] = dataclasses.field(
        default=None, repr=False
    )
    trace_level: Annotated[
        Literal["off", "asked", "summary", "steps", "full"],
        Field(
            "What is kept of each answer: its sums, its steps, or ten candidates of each step too; asked: what "
            "requests ask for; off: nothing.",
            flags=("--trace",),
        ),
    ] = "summary"
    keep_traces: Annotated[
        str | None,
        Field(
            "How long traces are kept: 7d, 10000, or both: 7d,10000; forever; none: as RETENTION_DAYS and _ROWS say.",
            flags=("--keep-traces",),
            clean=_keep_limits,
        ),
    ] = None
    trace_texts: Annotated[
        Literal["yes", "no", "hash"],
        Field("Whether kept traces have prompts and outputs, or hashes of them.", flags=("--trace-texts",)),
    ] = "yes"
    store_generations: Annotated[
        Literal["off", "figures", "content"],
        Field("What is logged of every generation; true is figures.", parse=_log_level),
    ] = "off"
    store_responses: Annotated[bool, Field("Whether replies of /v1/responses are kept.")] = True
    retention_days: Annotated[float | None, Field("How long what is stored is kept.", above=0)] = 7.0
    retention_rows: Annotated[int | None, Field("How many rows are kept.", least=1)] = 10_000
    retention_flagged: Annotated[
        int, Field("How many flagged answers stay whatever these limits, the newest; 0: none.", least=0)
    ] = 10_000

    strategy: Annotated[
        Literal["mask", "draft"], Field("Of requests that do not ask; draft gives the text of mask in fewer passes.")
    ] = "mask"
    drafts: Annotated[
        tuple[str, ...], Field("Sources of drafts, for requests that name none; none: those of docs/strategies.md.")
    ] = ()

    activations_store: Annotated[
        str | None, Field("Folder for hidden states; none: requests for them are refused. One worker.")
    ] = None
    activations_max_bytes: Annotated[
        int | None, Field("Bytes in use; the oldest requests are removed beyond it.", least=1_000_000)
    ] = 10_000_000_000
    activations_days: Annotated[float | None, Field("How long hidden states are kept.", above=0)] = None
    activations_queue_bytes: Annotated[int, Field("Bytes of hidden states that wait for the disk.", least=1)] = 1 << 28
    activations_when_full: Annotated[
        Literal["wait", "drop"], Field("Whether a full queue holds requests back, or drops their hidden states.")
    ] = "wait"

    batch_jobs: Annotated[bool, Field("Whether batch jobs are taken and run.")] = True
    batch_job_temp_dir: Annotated[
        str | None, Field("Folder of uploads; machines that share the store share it. None: beside the SQLite file.")
    ] = None
    batch_job_pipeline_size: Annotated[int, Field("Items of batch jobs that run at once.", least=1)] = 16
    batch_max_bytes: Annotated[int, Field("Bytes of an upload.", least=1)] = 200_000_000
    upload_bytes_per_key: Annotated[
        int | None, Field("Bytes of the uploads that a key keeps; more get 429.", least=1)
    ] = 2_000_000_000
    uploads_per_key: Annotated[int | None, Field("Uploads that a key keeps; more get 429.", least=1)] = 1_000
    batch_output_bytes: Annotated[
        int | None, Field("Bytes of the results of a batch on the disk; one that has more is cancelled.", least=1)
    ] = 2_000_000_000
    batch_open_per_key: Annotated[int, Field("Batches that a key has open at once; more get 429.", least=1)] = 100
    batch_tries: Annotated[int, Field("How often an item is tried that fails for now.", least=1)] = 3
    batch_lease_seconds: Annotated[float, Field("Without a sign of life, after which a worker is dead.", least=5)] = (
        30.0
    )
    batch_retention_days: Annotated[float | None, Field("How long batches and uploads are kept.", above=0)] = 30.0

    log_format: Annotated[
        Literal["auto", "json", "text"], Field("Form of the log; auto is text on a terminal and JSON elsewhere.")
    ] = "auto"
    log_content: Annotated[bool, Field("Whether prompts and answers are logged, at DEBUG.")] = False
    metrics_public: Annotated[bool, Field("Whether /metrics needs no key.")] = False
    otel: Annotated[bool, Field("Whether OpenTelemetry spans are sent.")] = False

    @property
    def usual_limits(self) -> tuple[float | None, int | None]:
        """RETENTION_DAYS in seconds, and RETENTION_ROWS; None for no limit."""
        days = self.retention_days
        return None if days is None else days * AGE_UNITS["d"], self.retention_rows

    @property
    def trace_limits(self) -> tuple[float | None, int | None]:
        """The same for traces, which may have limits of their own, KEEP_TRACES."""
        return self.usual_limits if self.keep_traces is None else keep_limits(self.keep_traces)

    def __post_init__(self) -> None:
        for name, entry in FIELDS.items():
            try:
                object.__setattr__(self, name, entry.checked(getattr(self, name)))
            except WrongValue as error:
                raise wrong_variable(entry, entry.variables[0], error, hint=HINT) from None  # it may hold a secret
        if self.vocab_soft_tier2_penalty > self.vocab_soft_tier3_penalty:
            raise InputError(
                "VOCAB_SOFT_TIER2_PENALTY is above VOCAB_SOFT_TIER3_PENALTY: rarer words would be the cheaper ones",
                field="VOCAB_SOFT_TIER2_PENALTY",
            )
        if self.activations_store is not None and self.workers > 1:
            raise InputError(
                f"ACTIVATIONS_STORE has one writer, and WORKERS is {self.workers}",
                hint="WORKERS=1",
                field="ACTIVATIONS_STORE",
            )
        if self.rejection_log is not None and self.strategy != "mask":
            raise InputError(
                f"REJECTION_LOG needs the strategy rejection, and STRATEGY is {self.strategy}",
                hint="leave one of them out",
                field="STRATEGY",
            )
        if self.rejection_log is not None and self.workers > 1:
            raise InputError(
                f"REJECTION_LOG has one writer, and WORKERS is {self.workers}", hint="WORKERS=1", field="REJECTION_LOG"
            )


FIELDS: Mapping[str, DeclaredField] = entries(ServerSettings)
SECRETS = frozenset(name for name, entry in FIELDS.items() if entry.field.is_secret)
"""Fields whose values are never printed."""


def settings_of(environ: Mapping[str, str]) -> ServerSettings:
    """Settings from these variables alone; an empty one is not set. Raises InputError naming the variable."""
    values = {}
    for name, entry in FIELDS.items():
        given = next((text for variable in entry.variables if (text := environ.get(variable, "").strip())), None)
        if given is None:
            continue
        try:
            values[name] = entry.read(given)
        except WrongValue as error:
            raise wrong_variable(entry, entry.variables[0], error, hint=HINT) from None
    return ServerSettings(**values)
