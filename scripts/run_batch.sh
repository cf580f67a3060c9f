#!/usr/bin/env bash
# Serves batch jobs alone, on their own port, beside scripts/run_chat.sh.
#   BATCH_PORT  8011
#   HOST        127.0.0.1; beyond this machine SECRET_TOKEN or API_KEYS_FILE must be set
#   ENV_FILE    .env
# What is said here wins over .env. Further flags are passed on: scripts/run_batch.sh -m models/my-model
# Jobs are in the database, so several of these may run; one process for each copy of the model.
set -euo pipefail
cd "$(dirname "$0")/.."

if [ -x .venv/bin/espalier ]; then
    espalier=.venv/bin/espalier
else
    espalier=espalier
fi

flags=(--port "${BATCH_PORT:-8011}")
unset BATCH_PORT # it has had its effect, and the server would say that it has none
if [ -n "${HOST:-}" ]; then
    flags+=(--host "$HOST")
fi
exec "$espalier" serve --only batch "${flags[@]}" "$@"
