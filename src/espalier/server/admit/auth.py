"""API keys: reads them, identifies callers, and checks where a server without keys may listen. It counts nothing.

The SHA-256 of a key is compared with that of every known key in constant time: neither the time nor the error reveals
which key a wrong one resembles. It knows no route.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import re
import time
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

from espalier.errors import InputError, Unauthorized
from espalier.files.json_shape import check_toml
from espalier.files.limits import KEYS
from espalier.files.reading import read_text
from espalier.server.ports import Caller
from espalier.server.settings import ServerSettings

ANONYMOUS, DEFAULT = "anonymous", "default"
UVICORN_PORT = 8000
"""Where uvicorn listens if nobody says."""
WEAK = frozenset(
    {
        "changeme",
        "change-me",
        "change_me",
        "your-secret-token",
        "<your-secret-token>",
        "secret",
        "token",
        "password",
        "test",
        "default",
        "admin",
        "example",
        "sk-xxx",
        "empty",
        "none",
        "null",
    }
)
"""Tokens that examples show, which are no secrets."""
FIELDS = frozenset(
    {
        "name",
        "key",
        "sha256",
        "requests_per_minute",
        "concurrent",
        "cpu_seconds_per_minute",
        "expires",
        "may_read_metrics",
        "admin",
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """digest: SHA-256 of the key. expires: Unix seconds, None for never. A limit of None means the limit of the
    settings."""

    name: str
    digest: bytes
    requests_per_minute: int | None = None
    concurrent: int | None = None
    cpu_seconds_per_minute: float | None = None
    expires: float | None = None
    may_read_metrics: bool = False
    #: Whether it sees what is stored for all keys.
    is_admin: bool = False

    def __repr__(self) -> str:
        return f"<Key {self.name!r}>"


class Keyring:
    """The keys of a server. Without any key, requests need none."""

    def __init__(self, keys: Sequence[Key], *, now: Callable[[], float] = time.time) -> None:
        names = [key.name for key in keys]
        for name in names:
            if names.count(name) > 1:
                raise InputError(f"two keys are named {name!r}", field="API_KEYS_FILE")
        if len({key.digest for key in keys}) != len(keys):
            raise InputError("two names have the same key", field="API_KEYS_FILE")
        self._keys = tuple(keys)
        self._by_name = {key.name: key for key in keys}
        self._now = now

    def __len__(self) -> int:
        return len(self._keys)

    def named(self, name: str) -> Key | None:
        return self._by_name.get(name)

    def identify(self, secret: str | None) -> Caller:
        """The caller with this key. Raises Unauthorized for a wrong key, an expired key and no key."""
        if not self._keys:
            return Caller(name=ANONYMOUS)
        if not secret:
            raise Unauthorized("an API key is required", hint="send the header Authorization: Bearer <key>")
        digest = _digest(secret)
        known_key: Key | None = None
        for key in self._keys:  # every key, for constant time
            if hmac.compare_digest(key.digest, digest):
                known_key = key
        if known_key is None:
            raise Unauthorized("the API key is not valid")
        if known_key.expires is not None and self._now() >= known_key.expires:
            raise Unauthorized("the API key has expired")
        return Caller(
            name=known_key.name, may_read_metrics=known_key.may_read_metrics, has_key=True, is_admin=known_key.is_admin
        )


def bearer(authorization: str | None) -> str | None:
    """The key in an Authorization header, None without one. Raises Unauthorized for another scheme."""
    if not authorization or not authorization.strip():
        return None
    scheme, _, rest = authorization.strip().partition(" ")
    if scheme.lower() != "bearer":
        raise Unauthorized("the Authorization header must have the scheme Bearer")
    return rest.strip() or None


def read_keys(settings: ServerSettings, *, now: Callable[[], float] = time.time) -> Keyring:
    """SECRET_TOKEN as the key `default`, and the keys of API_KEYS_FILE. Raises InputError."""
    keys = [] if settings.api_keys_file is None else read_key_file(Path(settings.api_keys_file).expanduser())
    if settings.secret_token:
        keys.insert(0, Key(name=DEFAULT, digest=_digest(settings.secret_token), may_read_metrics=True))
    return Keyring(keys, now=now)


def is_loopback(host: str) -> bool:
    """Whether a host name or address reaches this machine only. The empty host means every interface."""
    name = host.strip().strip("[]").lower()
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def has_weak_token(settings: ServerSettings) -> bool:
    """Whether SECRET_TOKEN is a value from examples, which keeps nobody out."""
    return settings.secret_token is not None and settings.secret_token.strip().lower() in WEAK


def check_bind(settings: ServerSettings, keyring: Keyring) -> None:
    """Raises InputError if other hosts could reach a server without a key or with a weak one. The folder of a UNIX
    socket guards it."""
    if settings.uds is not None or is_loopback(settings.host):
        return
    where = f"{settings.host or '*'}:{settings.port}"
    hint = "set SECRET_TOKEN or API_KEYS_FILE, or listen on 127.0.0.1"
    if not len(keyring):
        raise InputError(f"{where} can be reached from elsewhere, and no API key is set", hint=hint, field="HOST")
    if has_weak_token(settings):
        raise InputError(
            f"{where} can be reached from elsewhere, and SECRET_TOKEN is a value from examples",
            hint='python -c "import secrets; print(secrets.token_urlsafe(32))" makes one',
            field="SECRET_TOKEN",
        )


def check_uvicorn(
    settings: ServerSettings, keyring: Keyring, arguments: Sequence[str], environ: Mapping[str, str]
) -> None:
    """The same for an application that another program serves, where its address can be known: from the arguments of
    uvicorn, or its variables UVICORN_HOST and UVICORN_PORT. Raises InputError."""
    name = Path(arguments[0]).name if arguments else ""
    if name != "uvicorn" and not arguments[0].endswith("uvicorn/__main__.py"):
        return
    if any(_argument(arguments, flag) is not None for flag in ("--uds", "--fd")):
        return
    host = _argument(arguments, "--host") or environ.get("UVICORN_HOST")
    port = _argument(arguments, "--port") or environ.get("UVICORN_PORT") or ""
    if host is not None:
        number = int(port) if port.isdecimal() else UVICORN_PORT
        check_bind(replace(settings, host=host, port=number, uds=None), keyring)


def _argument(arguments: Sequence[str], flag: str) -> str | None:
    """The last value of a flag, written `--flag value` or `--flag=value`; None where it does not stand there."""
    values = [after for name, after in pairwise([*arguments, ""]) if name == flag]
    values += [argument.partition("=")[2] for argument in arguments if argument.startswith(f"{flag}=")]
    return values[-1] if values else None


def _digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode("utf-8", "surrogateescape")).digest()


def read_key_file(path: Path) -> list[Key]:
    """The keys of a TOML file. Raises InputError, which never shows a key, TooLarge."""
    text = read_text(path, KEYS)
    check_toml(text, KEYS, str(path))
    try:
        data = tomllib.loads(text)
    except RecursionError as error:
        raise InputError(f"{path} is nested too deeply", field="API_KEYS_FILE") from error
    except ValueError as error:
        # The parser's message has the position, not the text there: it shows no key.
        raise InputError(f"{path} is not TOML: {error}", field="API_KEYS_FILE") from None
    rows = data.get("key")
    if set(data) != {"key"} or not isinstance(rows, list) or not rows or not all(isinstance(r, dict) for r in rows):
        raise InputError(f"{path} must hold [[key]] tables, one per key, and nothing else", field="API_KEYS_FILE")
    return [_key(row, f"{path}, key {number}") for number, row in enumerate(rows, start=1)]


def _key(row: Mapping[str, Any], where: str) -> Key:
    """Parse one `[[key]]`. Raises InputError, which names the field and never shows the value of `key`."""

    def wrong(what: str) -> InputError:
        return InputError(f"{where}: {what}", field="API_KEYS_FILE")

    if unknown := sorted(set(row) - FIELDS):
        raise wrong(f"unknown field {unknown[0]!r} (known: {', '.join(sorted(FIELDS))})")
    name = row.get("name")
    if not isinstance(name, str) or not re.fullmatch(r"[\w.@-]{1,64}", name) or name in (ANONYMOUS, DEFAULT):
        raise wrong("`name` must be 1 to 64 letters, digits or . @ _ -, and neither `anonymous` nor `default`")
    if ("key" in row) == ("sha256" in row):
        raise wrong("exactly one of `key` and `sha256` is required")
    if "key" in row:
        secret = row["key"]
        if not isinstance(secret, str) or len(secret.strip()) < 8 or secret.strip().lower() in WEAK:
            raise wrong("`key` must be a text of at least 8 characters, and not a value from examples")
        digest = _digest(secret.strip())
    else:
        hexed = row["sha256"]
        if not isinstance(hexed, str) or not re.fullmatch(r"[0-9a-fA-F]{64}", hexed):
            raise wrong("`sha256` must be 64 hexadecimal digits: printf %s KEY | sha256sum")
        digest = bytes.fromhex(hexed)
    for limit in ("requests_per_minute", "concurrent"):
        value = row.get(limit)
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
            raise wrong(f"`{limit}` must be a whole number, at least 1")
    spends = row.get("cpu_seconds_per_minute")
    if spends is not None and (isinstance(spends, bool) or not isinstance(spends, int | float) or not 0 < spends < 1e9):
        raise wrong("`cpu_seconds_per_minute` must be a number above 0")
    for switch in ("may_read_metrics", "admin"):
        if not isinstance(row.get(switch, False), bool):
            raise wrong(f"`{switch}` must be true or false")
    return Key(
        name=name,
        digest=digest,
        requests_per_minute=row.get("requests_per_minute"),
        concurrent=row.get("concurrent"),
        cpu_seconds_per_minute=spends,
        expires=_expires(row["expires"], wrong) if "expires" in row else None,
        may_read_metrics=row.get("may_read_metrics", False),
        is_admin=row.get("admin", False),
    )


def _expires(value: object, wrong: Callable[[str], InputError]) -> float:
    """Unix seconds from a TOML date or date-time, UTC without a zone. From then on the key is refused."""
    if isinstance(value, datetime):
        return (value if value.tzinfo else value.replace(tzinfo=UTC)).timestamp()
    if isinstance(value, date):
        return datetime(value.year, value.month, value.day, tzinfo=UTC).timestamp()
    raise wrong("`expires` must be a date without quotes, such as 2027-01-31")
