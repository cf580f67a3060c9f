#!/usr/bin/env bash
# Serves chat and completions, without batch jobs: any number of worker processes may do that.
#   PORT             8010
#   UVICORN_WORKERS  4, each with the model in memory
#   HOST             127.0.0.1; beyond this machine SECRET_TOKEN or API_KEYS_FILE must be set
#   ENV_FILE         .env
# What is said here wins over .env. Further flags are passed on: scripts/run_chat.sh -m models/my-model
set -euo pipefail
cd "$(dirname "$0")/.."

if [ -x .venv/bin/espalier ]; then
    espalier=.venv/bin/espalier
else
    espalier=espalier
fi

flags=(--port "${PORT:-8010}" --workers "${UVICORN_WORKERS:-4}")
if [ -n "${HOST:-}" ]; then
    flags+=(--host "$HOST")
fi
exec "$espalier" serve --only chat "${flags[@]}" "$@"
