"""Runs a program of this folder once for each server of `BASE_URLS`, in one process: importing an SDK costs more than
all that it is asked for here. Before each run it tells the server: `{"base": ...}`.
"""

from __future__ import annotations

import json
import os
import runpy
import sys

for url in os.environ["BASE_URLS"].split():
    sys.stdout.write(json.dumps({"base": url}) + "\n")
    sys.stdout.flush()
    os.environ["BASE_URL"] = url
    sys.modules.pop("checks", None)  # it has the address of the server before
    runpy.run_path(sys.argv[1], run_name="__main__")

sys.stdout.flush()
os._exit(0)  # some SDKs leave threads behind that wait for minutes
