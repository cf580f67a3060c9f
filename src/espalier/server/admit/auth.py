"""Who asks: API keys, their file, and where a server without any may listen. It counts nothing and knows no route.

A key is compared by its SHA-256, with every key there is, in constant time: neither the time nor the error tells
which key a wrong one resembles.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import re
import time
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

from espalier.errors import InputError, Unauthorized
from espalier.server.ports import Caller
from espalier.server.settings import ServerSettings

ANONYMOUS, DEFAULT = "anonymous", "default"
WEAK = frozenset(
    {"changeme", "change-me", "change_me", "your-secret-token", "<your-secret-token>", "secret", "token", "password",
     "test", "default", "admin", "example", "sk-xxx", "empty", "none", "null"}
)  # fmt: skip
"""Tokens that examples show: no better than none."""
FIELDS = frozenset({"name", "key", "sha256", "requests_per_minute", "concurrent", "expires", "may_read_metrics"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """digest: SHA-256 of the key. expires: Unix time, None never. Limits that are None are as the settings say."""

    name: str
    digest: bytes
    requests_per_minute: int | None = None
    concurrent: int | None = None
    expires: float | None = None
    may_read_metrics: bool = False

    def __repr__(self) -> str:
        return f"<Key {self.name!r}>"


class Keyring:
    """The keys of a server; none at all means that nobody is asked for one."""

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
        """Raises Unauthorized, alike for a wrong key, an expired one and none, but for the words."""
        if not self._keys:
            return Caller(name=ANONYMOUS)
        if not secret:
            raise Unauthorized("an API key is needed", hint="send the header Authorization: Bearer <key>")
        digest = _digest(secret)
        found: Key | None = None
        for key in self._keys:  # all of them, whatever was found
            if hmac.compare_digest(key.digest, digest):
                found = key
        if found is None:
            raise Unauthorized("the API key is not valid")
        if found.expires is not None and self._now() >= found.expires:
            raise Unauthorized("the API key has expired")
        return Caller(name=found.name, may_read_metrics=found.may_read_metrics)


def bearer(authorization: str | None) -> str | None:
    """The key in an Authorization header, None without one. Raises Unauthorized for another scheme."""
    if not authorization or not authorization.strip():
        return None
    scheme, _, rest = authorization.strip().partition(" ")
    if scheme.lower() != "bearer":
        raise Unauthorized("the Authorization header is not of the scheme Bearer")
    return rest.strip() or None


def read_keys(settings: ServerSettings, *, now: Callable[[], float] = time.time) -> Keyring:
    """SECRET_TOKEN as the key `default`, and those of API_KEYS_FILE. Raises InputError."""
    keys = [] if settings.api_keys_file is None else _read_file(Path(settings.api_keys_file).expanduser())
    if settings.secret_token:
        keys.insert(0, Key(name=DEFAULT, digest=_digest(settings.secret_token), may_read_metrics=True))
    return Keyring(keys, now=now)


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches an address or name. The empty host is every interface."""
    name = host.strip().strip("[]").lower()
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def check_bind(settings: ServerSettings, keyring: Keyring) -> None:
    """Raises InputError where others could reach a server that lets everybody in. A UNIX socket is guarded by its
    folder."""
    if settings.uds is not None or is_loopback(settings.host):
        return
    where = f"{settings.host or '*'}:{settings.port}"
    hint = "set SECRET_TOKEN or API_KEYS_FILE, or listen on 127.0.0.1"
    if not len(keyring):
        raise InputError(f"{where} can be reached from elsewhere, and no API key is set", hint=hint, field="HOST")
    if settings.secret_token is not None and settings.secret_token.strip().lower() in WEAK:
        raise InputError(
            f"{where} can be reached from elsewhere, and SECRET_TOKEN is one that examples show",
            hint='python -c "import secrets; print(secrets.token_urlsafe(32))" makes one',
            field="SECRET_TOKEN",
        )


def refuses_stranger(server: str | None, host_header: str | None) -> bool:
    """For a server without keys: whether a request came by another address than loopback, or under a public name.

    The last keeps web pages out whose name was made to point at this machine. server: the address of our end of the
    connection. Names without a dot are nobody's public names, so that test clients pass.
    """
    if server is not None and _is_address(server) and not is_loopback(server):
        return True
    name = re.sub(r":\d+$", "", (host_header or "").strip()).strip("[]")
    return "." in name and not is_loopback(name)


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode("utf-8", "surrogateescape")).digest()


def _read_file(path: Path) -> list[Key]:
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}", field="API_KEYS_FILE") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not UTF-8 at byte {error.start}", field="API_KEYS_FILE") from error
    except tomllib.TOMLDecodeError as error:
        # The parser's message says where, not what stands there: no key is shown.
        raise InputError(f"{path} is not TOML: {error}", field="API_KEYS_FILE") from None
    rows = data.get("key")
    if set(data) != {"key"} or not isinstance(rows, list) or not rows or not all(isinstance(r, dict) for r in rows):
        raise InputError(f"{path} holds [[key]] tables, one a key, and nothing else", field="API_KEYS_FILE")
    return [_key(row, f"{path}, key {number}") for number, row in enumerate(rows, start=1)]


def _key(row: Mapping[str, Any], where: str) -> Key:
    """One `[[key]]`. Raises InputError that names the field and shows no value of `key`."""

    def wrong(what: str) -> InputError:
        return InputError(f"{where}: {what}", field="API_KEYS_FILE")

    if unknown := sorted(set(row) - FIELDS):
        raise wrong(f"unknown field {unknown[0]!r} (known: {', '.join(sorted(FIELDS))})")
    name = row.get("name")
    if not isinstance(name, str) or not re.fullmatch(r"[\w.@-]{1,64}", name) or name in (ANONYMOUS, DEFAULT):
        raise wrong("`name` is 1 to 64 letters, digits or . @ _ -, and neither `anonymous` nor `default`")
    if ("key" in row) == ("sha256" in row):
        raise wrong("either `key` or `sha256` is needed")
    if "key" in row:
        secret = row["key"]
        if not isinstance(secret, str) or len(secret.strip()) < 8 or secret.strip().lower() in WEAK:
            raise wrong("`key` is a text of at least 8 characters, and not one that examples show")
        digest = _digest(secret.strip())
    else:
        hexed = row["sha256"]
        if not isinstance(hexed, str) or not re.fullmatch(r"[0-9a-fA-F]{64}", hexed):
            raise wrong("`sha256` is 64 hexadecimal digits: printf %s KEY | sha256sum")
        digest = bytes.fromhex(hexed)
    for limit in ("requests_per_minute", "concurrent"):
        value = row.get(limit)
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
            raise wrong(f"`{limit}` is a whole number from 1 on")
    if not isinstance(row.get("may_read_metrics", False), bool):
        raise wrong("`may_read_metrics` is true or false")
    return Key(
        name=name,
        digest=digest,
        requests_per_minute=row.get("requests_per_minute"),
        concurrent=row.get("concurrent"),
        expires=_expires(row["expires"], wrong) if "expires" in row else None,
        may_read_metrics=row.get("may_read_metrics", False),
    )


def _expires(value: object, wrong: Callable[[str], InputError]) -> float:
    """A TOML date or date and time; without a zone it is UTC. From a date on the key is no longer good."""
    if isinstance(value, datetime):
        return (value if value.tzinfo else value.replace(tzinfo=UTC)).timestamp()
    if isinstance(value, date):
        return datetime(value.year, value.month, value.day, tzinfo=UTC).timestamp()
    raise wrong("`expires` is a date, as in 2027-01-31, without quotes")
