#!/usr/bin/env bash
# Installs the SDKs whose users our server is for, for the tests in tests/integration/clients: Python's into an environment
# of their own (their pins contradict ours), npm's where node and npm are. What was installed before is not installed again.
#
#   scripts/setup_clients.sh            install, and print the folder
#   scripts/setup_clients.sh --where    print the folder, installed or not
set -euo pipefail
cd "$(dirname "$0")/.."

stated=$(cat tests/clients/requirements.txt tests/clients/package.json tests/clients/package-lock.json | cksum | cut -d' ' -f1)
folder=${XDG_CACHE_HOME:-$HOME/.cache}/espalier/clients/$stated
if [ "${1:-}" = --where ] || [ -f "$folder/complete" ]; then
    echo "$folder"
    exit
fi
python=${PYTHON:-$([ -x .venv/bin/python ] && echo .venv/bin/python || echo python3)}
mkdir -p "$folder"
"$python" -m venv --clear "$folder/venv"
"$folder/venv/bin/python" -m pip install -q --disable-pip-version-check --no-deps -r tests/clients/requirements.txt >&2
if command -v npm >/dev/null && command -v node >/dev/null; then
    cp tests/clients/package.json tests/clients/package-lock.json "$folder/"
    (cd "$folder" && npm ci --no-audit --no-fund --silent >&2) || echo "npm's packages could not be installed" >&2
fi
touch "$folder/complete"
echo "$folder"
