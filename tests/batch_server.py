"""A server with its worker of batch jobs inside, over the fake engine, as a process of its own that starts fast and can
be killed: `python -m tests.batch_server FOLDER LEASE` imports everything once, and forks a server for each line that it
reads. It prints the server's process id and address, and waits for its end before it reads on.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import traceback
from pathlib import Path

import uvicorn

from espalier.server.process import opening
from espalier.server.settings import ServerSettings
from espalier.store.batches import stages
from espalier.store.batches.open import BatchStore
from espalier.store.open import Store
from tests.server_app import make_app, settings

WISH = '{"name": "Ada", "age": 36}'


def say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def serve(folder: Path, lease: float) -> None:
    """Serve until killed. A lease is shorter than the settings allow, so that a test need not wait for it."""
    stages.READING_SECONDS = lease
    open_batches = opening.open_batches

    def opened(store: Store, settings: ServerSettings) -> BatchStore:
        made = open_batches(store, settings)
        made.queue.lease = lease
        return made

    opening.open_batches = opened
    config = settings(
        batch_jobs="true",
        database_url=f"sqlite:///{folder}/e.db",
        batch_job_pipeline_size="4",
        batch_job_temp_dir=str(folder / "files"),
        step_seconds="60",
    )
    app = make_app(WISH, config=config)
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(128)
        say(json.dumps({"pid": os.getpid(), "url": f"http://127.0.0.1:{listener.getsockname()[1]}"}))
        uvicorn.Server(uvicorn.Config(app, log_config=None, access_log=False)).run(sockets=[listener])


def main(folder: Path, lease: float) -> None:
    say("ready")
    for _ in sys.stdin:
        child = os.fork()
        if not child:
            try:
                serve(folder, lease)
            except Exception:  # noqa: BLE001  # shown, for the parent cannot raise it
                traceback.print_exc()
            finally:
                os._exit(1)
        _, status = os.waitpid(child, 0)
        say(json.dumps({"signal": os.WTERMSIG(status) if os.WIFSIGNALED(status) else None}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), float(sys.argv[2]))
