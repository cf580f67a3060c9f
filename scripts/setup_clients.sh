#!/usr/bin/env bash
# Installs the SDKs whose users our server is for, for the tests in tests/integration/clients: Python's into environments
# of their own (their pins contradict ours, and one another), npm's where node and npm are. What was installed before is
# not installed again.
#
#   scripts/setup_clients.sh            install all environments, and print the folder of the first
#   scripts/setup_clients.sh --where    print that folder, installed or not
#   scripts/setup_clients.sh --where X  print the folder of tests/clients/environments/X.txt, installed or not
#   scripts/setup_clients.sh X ...      install these environments alone, and print their folders
set -euo pipefail
cd "$(dirname "$0")/.."

root=${XDG_CACHE_HOME:-$HOME/.cache}/espalier/clients
python=${PYTHON:-$([ -x .venv/bin/python ] && echo .venv/bin/python || echo python3)}

where() { # the folder of an environment, by what it is to hold; main: the first one
    if [ "$1" = main ]; then
        echo "$root/$(cat tests/clients/requirements.txt tests/clients/package.json tests/clients/package-lock.json | cksum | cut -d' ' -f1)"
    else
        echo "$root/$1-$(cksum < "tests/clients/environments/$1.txt" | cut -d' ' -f1)"
    fi
}

install() {
    local folder pins
    folder=$(where "$1")
    [ ! -f "$folder/complete" ] || return 0
    pins=tests/clients/$([ "$1" = main ] && echo requirements.txt || echo "environments/$1.txt")
    mkdir -p "$folder"
    "$python" -m venv --clear "$folder/venv"
    "$folder/venv/bin/python" -m pip install -q --disable-pip-version-check --no-deps -r "$pins" >&2 || return 1
    if [ "$1" = main ] && command -v npm >/dev/null && command -v node >/dev/null; then
        cp tests/clients/package.json tests/clients/package-lock.json "$folder/"
        (cd "$folder" && npm ci --no-audit --no-fund --silent >&2) || echo "npm's packages could not be installed" >&2
    fi
    touch "$folder/complete"
}

if [ "${1:-}" = --where ]; then
    where "${2:-main}"
elif [ $# -gt 0 ]; then
    for name in "$@"; do
        install "$name" && where "$name"
    done
else
    install main
    for pins in tests/clients/environments/*.txt; do
        install "$(basename "$pins" .txt)" || echo "the environment $(basename "$pins" .txt) could not be installed" >&2
    done
    where main
fi
