"""`espalier proxy`: listens in front of a llama-server or a vLLM, and traces what constraints do there.

Keys, limits, database and log are those of `espalier serve`, from the same variables. The server's libraries are
imported when the command runs, not before.
"""

from __future__ import annotations

import contextlib
import os
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from espalier.cli import output
from espalier.cli.flags.server import EnvFile, read_server
from espalier.cli.serving import BACKLOG, TEXT_WORDS, leave, listen, report_start, retention_words, run_server
from espalier.errors import InputError
from espalier.optional import check_extra
from espalier.version import __version__

if TYPE_CHECKING:
    from fastapi import FastAPI

    from espalier.server.settings import ServerSettings

URL, PORT, FOLDER = "http://localhost:8080", 8081, "./traces"
AUTO = ": log if the rejection log grows with the requests, else xray"
MODES = ("xray", "log", "off", "auto")


def command(
    *,
    llama_url: Annotated[str, typer.Option("--llama-url", "--upstream", help="The llama-server, or the vLLM.")] = URL,
    port: Annotated[
        int, typer.Option("--proxy-port", "--port", help="Port of the proxy; 0 takes a free one.", min=0, max=65535)
    ] = PORT,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    mode: Annotated[
        str | None,
        typer.Option(
            help="xray works out what was rejected, log reads a rejection log, auto takes log if it grows with the "
            "requests and else xray, off only passes on. [default: auto with --rejection-log, else xray]"
        ),
    ] = None,
    rejection_log: Annotated[Path | None, typer.Option(help="Rejection log of a patched llama-server.")] = None,
    output_dir: Annotated[Path, typer.Option(help="Folder for the traces.")] = Path(FOLDER),
    save: Annotated[
        bool, typer.Option("--save/--no-save", help="Keep traces on disk, or the latest in memory.")
    ] = True,
    keep: Annotated[int, typer.Option(help="How many are held in memory with --no-save.", min=1)] = 200,
    n_probs: Annotated[
        int | None,
        typer.Option(help="Probabilities of a token that the server is asked for; 0: all. [default: as needed]", min=0),
    ] = None,
    refill: Annotated[bool, typer.Option("--refill/--no-refill", help="Ask again for what a reply leaves out.")] = True,
    self_test: Annotated[
        bool, typer.Option("--self-test/--no-self-test", help="Ask the server first whether its replies can be traced.")
    ] = True,
    playground: Annotated[
        bool, typer.Option("--playground/--no-playground", help="Serve the playground over the server at /espalier/.")
    ] = True,
    tokenizer: Annotated[
        str,
        typer.Option(
            help="Tokenizer of a vLLM's model, a file or folder. [default: the model's folder, where it is here]"
        ),
    ] = "",
    timeout: Annotated[float, typer.Option(help="Seconds without a byte from the server.", min=0.001)] = 600.0,
    keep_traces: Annotated[
        str | None, typer.Option(help="How long traces on disk are kept: 7d, 10000, 7d,10000, forever.")
    ] = None,
    trace_texts: Annotated[
        str | None, typer.Option(help="Whether traces have prompts and outputs: yes, no, hash. [default: yes]")
    ] = None,
    api_key_file: Annotated[str | None, typer.Option(help="TOML file with API keys of the proxy.")] = None,
    log_level: Annotated[str | None, typer.Option(help="DEBUG, INFO, WARNING or ERROR.")] = None,
    env_file: EnvFile = None,
) -> None:
    """Pass requests on to a llama-server or a vLLM, and trace what constraints did to each generation. See
    docs/proxy.md."""
    check_extra("server")
    if mode is not None and mode not in MODES:
        raise InputError(f"--mode {mode}: one of {', '.join(MODES)}", field="mode")
    given = {"HOST": host, "PORT": str(port), "API_KEYS_FILE": api_key_file, "LOG_LEVEL": log_level}
    given |= {"KEEP_TRACES": keep_traces, "TRACE_TEXTS": trace_texts}
    environment, read = read_server({name: value for name, value in given.items() if value is not None}, env_file)
    from espalier.server.admit.auth import check_bind, read_keys  # noqa: PLC0415
    from espalier.server.proxy.app import create_proxy_app  # noqa: PLC0415
    from espalier.server.proxy.keeping import make_folder  # noqa: PLC0415
    from espalier.server.proxy.settings import ProxySettings  # noqa: PLC0415

    keyring = read_keys(read)
    check_bind(read, keyring)
    settings = ProxySettings(
        llama_url=llama_url,
        mode=mode or ("auto" if rejection_log is not None else "xray"),  # type: ignore[arg-type]  # checked above
        rejection_log=rejection_log,
        output_dir=output_dir if save else None,
        n_probs=n_probs,
        keep=keep,
        upstream_key=environment.values.get("LLAMA_API_KEY") or None,
        read_seconds=timeout,
        refill=refill,
        self_test=self_test,
        playground=playground,
        tokenizer=tokenizer,
    )
    if environment.file is not None:
        os.environ["ENV_FILE"] = str(environment.file.resolve())  # the playground's folders may stand there
    if settings.output_dir is not None:
        make_folder(settings.output_dir)
    with contextlib.ExitStack() as stack:
        listening = stack.enter_context(listen(read))
        where = f"http://{read.host or '0.0.0.0'}:{listening.getsockname()[1]}"
        kept = f"the latest {keep} in memory, {where}/traces"
        if save:
            kept = f"{output_dir}, {where}/traces" if read.trace_texts == "yes" else f"{where}/traces"
            kept += f", {retention_words(read)}"
        kept += TEXT_WORDS[read.trace_texts]
        for line in (
            f"Espalier {__version__} proxy at {where}",
            f"  server  {settings.llama_url}",
            f"  mode    {settings.mode}{AUTO if settings.mode == 'auto' else ''}",
            f"  traces  {kept}",
            *([f"  play    {where}/espalier/"] if playground else []),
            f"  auth    {len(keyring) or 'no'} API key{'s' if len(keyring) != 1 else ''}",
        ):
            output.note(line)
        caught = _run(create_proxy_app(read, settings, is_kept=save), read, listening)
    if caught:
        leave()


def _run(app: FastAPI, settings: ServerSettings, listening: socket.socket) -> list[int]:
    """Run until a signal; returns the signals that ended it."""
    import uvicorn  # noqa: PLC0415

    from espalier.server.http.protocol import GuardedProtocol  # noqa: PLC0415
    from espalier.server.observe.logs import configure  # noqa: PLC0415

    configure(settings)
    drain: dict[str, Any] = {"timeout_graceful_shutdown": settings.drain_seconds + 0.5}  # a float will do
    failures: list[Exception] = []
    config = uvicorn.Config(
        report_start(app, failures.append),
        log_config=None,
        access_log=False,
        server_header=False,
        date_header=False,  # the server's own is passed on
        backlog=BACKLOG,
        proxy_headers=False,
        **drain,
        limit_concurrency=settings.max_connections,
        http=GuardedProtocol,
        lifespan="on",
    )
    return run_server(uvicorn.Server(config), listening, failures)
