"""HTTP to one server: JSON replies and event streams, with limits, time-outs and typed errors. It knows no engine.

Every exchange has a connection of its own, since llama-server drops connections that are kept. Redirects and the
environment's proxies are not followed: a prompt and a key go to the address that was given, and nowhere else.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import ssl
import threading
import time
from collections.abc import Iterator, Mapping
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import urlsplit

from espalier.errors import (
    Cancelled,
    InputError,
    NotHere,
    TooManyRequests,
    UpstreamBusy,
    UpstreamError,
    UpstreamTimeout,
)
from espalier.version import __version__

SILENCE = 600.0
"""Seconds without a byte after which a server counts as hung: a long prompt on a slow machine takes minutes."""
CONNECTING = 10.0
MOST_BYTES = 256 * 2**20
"""Of one reply: the probabilities of 128,000 tokens are 12 MB."""
MOST_LINE = 64 * 2**20
MOST_PAUSE = 600.0
"""Seconds that a server may ask us to wait: one that says more is asked again then."""
SHOWN = 300  # characters of an error's text


class ServerLink:
    """A server's address and key. Every method may be called from any thread.

    url: `http://host:port`, with a path before the routes if the server has one. key: sent as a bearer token; it stands
    in no message. silence: seconds. Raises InputError for an address that is none.
    """

    def __init__(
        self, url: str, *, key: str | None = None, silence: float = SILENCE, connecting: float = CONNECTING
    ) -> None:
        try:
            parts = urlsplit(url.strip())
            host, port = parts.hostname, parts.port
        except ValueError as error:
            raise InputError(f"{url!r} is not an address: {error}", hint=EXAMPLE, field="url") from error
        if parts.scheme not in ("http", "https") or not host or parts.query or parts.fragment:
            raise InputError(f"{_without_password(url)!r} is not the address of a server", hint=EXAMPLE, field="url")
        if parts.username is not None or parts.password is not None:
            raise InputError("an address holds no user and password", hint="give the key in a file", field="url")
        if key is not None and not (key.isascii() and key.isprintable() and key.strip() == key and key):
            raise InputError("the key of the server is not one line of ASCII", field="key_file")
        if not (silence > 0 and connecting > 0):
            raise InputError(f"a time-out is a number of seconds above 0, not {silence:g}", field="timeout")
        self._secure, self._host, self._port = parts.scheme == "https", host, port
        self._base = parts.path.rstrip("/")
        shown_host = f"[{host}]" if ":" in host else host
        self.url = f"{parts.scheme}://{shown_host}{f':{port}' if port else ''}{self._base}"
        self._key, self._silence, self._connecting = key, silence, connecting

    def get(self, path: str) -> Any:
        """The JSON of a reply. Raises UpstreamError and its subclasses, Unavailable, TooManyRequests, InputError."""
        with self.exchange("GET", path) as exchange:
            return exchange.json()

    def post(self, path: str, body: Mapping[str, Any]) -> Any:
        """The JSON of a reply to a JSON body. Raises as `get` does."""
        with self.exchange("POST", path, body) as exchange:
            return exchange.json()

    def forward(self, path: str, body: Mapping[str, Any]) -> Any:
        """The JSON of a reply, as `post` gives it. Raises NotHere where the server lacks the route."""
        try:
            return self.post(path, body)
        except UnknownRoute as error:
            raise NotHere(error.message, field="model") from error

    def exchange(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Exchange:
        """An exchange that has not begun: `json` or `events` begins it."""
        data = None if body is None else json.dumps(body, ensure_ascii=False, allow_nan=False).encode("utf-8")
        headers = {"Accept": "application/json, text/event-stream", "User-Agent": f"espalier/{__version__}"}
        headers |= {"Connection": "close", "Accept-Encoding": "identity"}
        if data is not None:
            headers["Content-Type"] = "application/json"
        if self._key is not None:
            headers["Authorization"] = f"Bearer {self._key}"
        return Exchange(self._connection(), self.url, self._silence, (method, self._base + path, data, headers))

    def _connection(self) -> http.client.HTTPConnection:
        if self._secure:
            secure = ssl.create_default_context()
            return http.client.HTTPSConnection(self._host, self._port, timeout=self._connecting, context=secure)
        return http.client.HTTPConnection(self._host, self._port, timeout=self._connecting)


EXAMPLE = "for example http://127.0.0.1:8080"


class BrokeOff(UpstreamError):
    """The connection ended before the answer did."""

    @property
    def code(self) -> str:
        """That of every error of a server behind: clients tell them apart by their messages."""
        return "upstream_error"


class Exchange:
    """One request and its reply. For one reader; `interrupt` may be called from any thread."""

    def __init__(
        self,
        connection: http.client.HTTPConnection,
        url: str,
        silence: float,
        asked: tuple[str, str, bytes | None, Mapping[str, str]],
    ) -> None:
        self._connection, self._url, self._silence, self._asked = connection, url, silence, asked
        self._lock = threading.Lock()
        self._interrupted = False
        # http.client forgets both once it has a reply that ends with the connection.
        self._socket: socket.socket | None = None
        self._reply: http.client.HTTPResponse | None = None

    def json(self) -> Any:
        """The whole reply, parsed. Raises as `ServerLink.get` does."""
        reply = self._begin()
        return parsed(self._url, self._read(reply, MOST_BYTES))

    def events(self) -> Iterator[str]:
        """The data of each server-sent event, as text. A stream that ends early ends the iterator: only the data says
        whether it is complete. Raises as `ServerLink.get` does."""
        reply = self._begin()
        kind = (reply.getheader("Content-Type") or "").partition(";")[0].strip().lower()
        if kind != "text/event-stream":
            text = self._read(reply, MOST_BYTES)
            raise UpstreamError(
                f"{self._url} answered {kind or 'nothing'} where events were asked for: {excerpt(text)}"
            )
        held: list[str] = []
        size = 0
        for line in self._lines(reply):
            size += len(line)
            if size > MOST_LINE:
                raise UpstreamError(f"{self._url} sent an event of more than {MOST_LINE} bytes")
            if not line:
                size = 0
            if not line and held:
                yield "\n".join(held)
                held = []
            elif line.startswith("data:"):
                held.append(line[5:].removeprefix(" "))
            elif line.startswith("error:"):  # how older llama-servers report one
                held.append(line[6:].strip())
        if held:
            yield "\n".join(held)

    def interrupt(self) -> None:
        """End the exchange at once: the reader gets Cancelled, and the server sees the connection closed."""
        with self._lock:
            self._interrupted = True
            if self._socket is not None:
                with contextlib.suppress(OSError):  # closed by the other side already
                    self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Idempotent."""
        with self._lock:
            self._interrupted, self._socket = True, None
        if self._reply is not None:
            self._reply.close()
        self._connection.close()

    def __enter__(self) -> Exchange:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _begin(self) -> http.client.HTTPResponse:
        method, path, body, headers = self._asked
        with self._map_errors():
            self._check()
            self._connection.connect()
            with self._lock:
                self._socket = self._connection.sock
            self._check()
            self._connection.sock.settimeout(self._silence)
            self._send(method, path, body, headers)
            self._reply = reply = self._connection.getresponse()
        if not 200 <= reply.status < 300:
            raise refused(self._url, reply, self._read(reply, 2**20, is_error=True))
        return reply

    def _send(self, method: str, path: str, body: bytes | None, headers: Mapping[str, str]) -> None:
        # A server that refuses a long body answers before it has read all of it: then its answer is what counts.
        with contextlib.suppress(BrokenPipeError):
            self._connection.request(method, path, body, dict(headers))

    def _read(self, reply: http.client.HTTPResponse, most: int, *, is_error: bool = False) -> bytes:
        with self._map_errors():
            text = reply.read(most + 1)
        if len(text) > most and not is_error:
            raise UpstreamError(f"{self._url} sent more than {most} bytes")
        return text

    def _lines(self, reply: http.client.HTTPResponse) -> Iterator[str]:
        total = 0
        while True:
            with self._map_errors():
                line = reply.readline(MOST_LINE + 1)
                self._check()
            total += len(line)
            if len(line) > MOST_LINE or total > MOST_BYTES:
                raise UpstreamError(f"{self._url} sent more than {MOST_LINE} bytes in a line, or {MOST_BYTES} in all")
            if not line:
                return
            try:
                yield line.decode("utf-8").rstrip("\r\n")
            except UnicodeDecodeError as error:
                raise UpstreamError(f"{self._url} sent an event that is not UTF-8") from error

    def _check(self) -> None:
        if self._interrupted:
            raise Cancelled

    @contextlib.contextmanager
    def _map_errors(self) -> Iterator[None]:
        """The errors of a library as ours."""
        try:
            yield
        except ssl.SSLError as error:
            raise UpstreamError(
                f"{self._url} cannot be trusted: {error.reason or error}", hint="check the address"
            ) from error
        except TimeoutError as error:
            self._check()
            raise UpstreamTimeout(f"{self._url} does not answer", hint="is the server overloaded? --timeout") from error
        except (OSError, http.client.HTTPException, ValueError) as error:
            self._check()
            if isinstance(error, ConnectionRefusedError | socket.gaierror):
                hint = "start the server, or check the address"
                raise UpstreamError(f"no server answers at {self._url}", hint=hint) from error
            raise BrokeOff(f"{self._url} broke off: {type(error).__name__}") from error
        except AttributeError as error:  # http.client, where another thread closed the connection
            self._check()
            raise BrokeOff(f"{self._url} broke off") from error


def parsed(url: str, text: bytes | str) -> Any:
    """Strict JSON. Raises UpstreamError."""
    try:
        return json.loads(text, parse_constant=_no_number)
    except (ValueError, RecursionError) as error:
        raise UpstreamError(f"{url} answered what is not JSON: {excerpt(text)}") from error


def _no_number(name: str) -> float:
    raise ValueError(f"{name} is no JSON")


class UnknownRoute(UpstreamError):
    """The server has no such route or model."""


def refused(url: str, reply: http.client.HTTPResponse, body: bytes) -> Exception:
    """The error for a status that is none of success."""
    said = excerpt(message_of(body))
    if reply.status in (401, 403):
        return UpstreamError(f"{url} refuses the key", hint="name the file that holds it: --key-file")
    if reply.status == 429:
        return TooManyRequests(f"{url}: {said}", retry_after=pause_of(reply) or 1.0)
    if reply.status == 503:
        return UpstreamBusy(
            f"{url} is not ready: {said}", retry_after=pause_of(reply), hint="wait until its model is loaded"
        )
    if reply.status in (400, 413, 422):
        return InputError(f"{url} refuses the request: {said}")
    if reply.status == 501:
        return NotHere(f"{url} cannot do this: {said}", field="model")
    if reply.status in (404, 405):
        return UnknownRoute(f"{url} has no such route or model: {said}", hint="check the address and the engine")
    if 300 <= reply.status < 400:
        return UpstreamError(f"{url} sends on to another address", hint="give the address that answers itself")
    return UpstreamError(f"{url} failed with status {reply.status}: {said}")


def pause_of(reply: http.client.HTTPResponse) -> float | None:
    """The seconds of `Retry-After`, a number or a date, up to MOST_PAUSE; None without one that can be read."""
    given = (reply.getheader("Retry-After") or "").strip()
    if given.isascii() and given.isdigit():
        return min(float(given), MOST_PAUSE)
    try:
        until = parsedate_to_datetime(given).timestamp()
    except (ValueError, TypeError, OverflowError):
        return None
    return min(max(until - time.time(), 0.0), MOST_PAUSE)


def message_of(body: bytes) -> str | bytes:
    """What an error body says, in the shape of OpenAI's and llama-server's errors, or as it is."""
    try:
        data = json.loads(body)
    except (ValueError, RecursionError):
        return body
    error = data.get("error", data) if isinstance(data, dict) else data
    if isinstance(error, dict):
        error = error.get("message", error)
    return error if isinstance(error, str) else json.dumps(error)


def excerpt(text: bytes | str) -> str:
    """The beginning of a text of the server's, on one line."""
    plain = text.decode("utf-8", "replace") if isinstance(text, bytes) else text
    line = " ".join(plain[: 4 * SHOWN].split())
    line = "".join(c if c.isprintable() else "?" for c in line)
    return f"{line[:SHOWN]}…" if len(line) > SHOWN else line or "nothing"


def _without_password(url: str) -> str:
    scheme, separator, rest = url.partition("://")
    return f"{scheme}{separator}{rest.rpartition('@')[2]}"
