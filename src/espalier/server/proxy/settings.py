"""What `espalier proxy` can be told beside the server's own settings: where the llama-server is, and what is kept."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

from espalier.errors import InputError

LLAMA_URL = "http://localhost:8080"
PORT = 8081
Mode = Literal["xray", "log", "off", "auto"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProxySettings:
    """llama_url: the server behind the proxy. mode: `xray` works out from the server's replies what was rejected, `log`
    reads the rejection log of a patched server, `off` passes everything on, `auto` reads the log if it grows with the
    requests, and else is `xray`. rejection_log: that log. output_dir: where
    each trace becomes a file; None for nowhere. n_probs: how many probabilities of each token to ask for, 0 for all;
    None chooses. keep: how many traces are held in memory where none is stored. upstream_key: the server's API key.
    connect_seconds, read_seconds: how long to wait for a connection, and for the next bytes of a reply. body_bytes:
    requests with a longer body are not traced. refill: whether further requests may fill what a reply leaves out.
    self_test: whether the server has to show, before anything is traced, that its replies can be. playground: whether
    our own application over the server stands below `/espalier/`. tokenizer: of the model of a vLLM, a file or a
    folder, so that constraints can be followed; "" for that of the model's folder, if this machine has it.

    Raises InputError naming the field.
    """

    llama_url: str = LLAMA_URL
    mode: Mode = "xray"
    rejection_log: Path | None = None
    output_dir: Path | None = None
    n_probs: int | None = None
    keep: int = 200
    upstream_key: str | None = field(default=None, repr=False)
    connect_seconds: float = 5.0
    read_seconds: float = 600.0
    body_bytes: int = 4_000_000
    refill: bool = True
    self_test: bool = True
    playground: bool = True
    tokenizer: str = ""

    def __post_init__(self) -> None:
        try:
            parts = urlsplit(self.llama_url)
            is_url = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
        except ValueError:
            is_url = False
        if not is_url or parts.query or parts.fragment:
            raise InputError(
                f"--llama-url {self.llama_url!r} is no address of a server",
                hint=f"such as {LLAMA_URL}",
                field="llama_url",
            )
        if parts.username or parts.password:
            raise InputError("--llama-url holds a password", hint="set LLAMA_API_KEY", field="llama_url")
        for name, least in (("keep", 1), ("connect_seconds", 0), ("read_seconds", 0), ("body_bytes", 0)):
            if not getattr(self, name) >= least or (least == 0 and getattr(self, name) == 0 and name != "body_bytes"):
                raise InputError(f"{name} must be above {least - 1 if least else 0}", field=name)
        if self.n_probs is not None and self.n_probs < 0:
            raise InputError("--n-probs must be 0 for all, or a number of tokens", field="n_probs")
        if self.mode in ("log", "auto") and self.rejection_log is None:
            raise InputError("log mode reads a rejection log, and none is named", field="rejection_log")
