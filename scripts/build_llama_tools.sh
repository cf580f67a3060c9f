#!/usr/bin/env bash
# Builds llama.cpp's programs `llama-completion` and `llama-server`, for the tests that drive them, from the source tree
# within the sdist of llama-cpp-python: the very version that constraints.txt pins. The last line of the output is the
# folder they are in: $XDG_CACHE_HOME/espalier/llama-tools/<version>. What was built before is not built again.
#
#   scripts/build_llama_tools.sh            build, and print the folder
#   scripts/build_llama_tools.sh --where    print the folder, built or not
#
# PYTHON names the interpreter whose pip fetches the sdist, JOBS how many compilers run at once (2). It takes 6 to 14
# minutes on two cores.
set -euo pipefail
cd "$(dirname "$0")/.."

programs=(llama-completion llama-server)
version=$(sed -n 's/^llama_cpp_python==//p' constraints.txt)
folder=${XDG_CACHE_HOME:-$HOME/.cache}/espalier/llama-tools/$version

if [ "${1:-}" = --where ]; then
    echo "$folder"
    exit
fi
for program in cmake c++; do
    command -v "$program" >/dev/null || { echo "build_llama_tools: $program is missing" >&2; exit 1; }
done
built() {
    for program in "${programs[@]}"; do [ -x "$1/$program" ] || return 1; done
}
if built "$folder"; then
    echo "$folder"
    exit
fi

python=${PYTHON:-$([ -x .venv/bin/python ] && echo .venv/bin/python || echo python3)}
mkdir -p "$(dirname "$folder")"
work=$(mktemp -d "$(dirname "$folder")/build.XXXXXX") # beside the folder, so that the move at the end is atomic
trap 'rm -rf "$work"' EXIT

echo "fetching the sources of llama-cpp-python $version" >&2
"$python" -m pip download -q --no-deps --no-binary :all: -d "$work" "llama-cpp-python==$version" >&2
tar -xzf "$work"/*.tar.gz -C "$work"
source=$(echo "$work"/llama_cpp_python-*/vendor/llama.cpp)
[ -f "$source/CMakeLists.txt" ] || { echo "build_llama_tools: the sdist holds no llama.cpp" >&2; exit 1; }

# -O1 halves the time of compiling, and the tests' models are tiny. No web page, no TLS: nothing else is fetched. Not
# for the CPU at hand: the cache may move.
options=(
    -DCMAKE_BUILD_TYPE=Release -DCMAKE_CXX_FLAGS_RELEASE="-O1 -DNDEBUG" -DCMAKE_C_FLAGS_RELEASE="-O1 -DNDEBUG"
    -DBUILD_SHARED_LIBS=ON -DGGML_NATIVE=OFF -DLLAMA_OPENSSL=OFF
    -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_BUILD_APP=OFF
    -DLLAMA_BUILD_UI=OFF -DLLAMA_USE_PREBUILT_UI=OFF
    -DCMAKE_BUILD_WITH_INSTALL_RPATH=ON -DCMAKE_INSTALL_RPATH='$ORIGIN'
)
command -v ninja >/dev/null && options+=(-G Ninja)
nice -n 10 cmake -S "$source" -B "$work/build" "${options[@]}" >"$work/log" 2>&1 ||
    { tail -n 30 "$work/log" >&2; exit 1; }
nice -n 10 cmake --build "$work/build" --target "${programs[@]}" -j "${JOBS:-2}" >"$work/log" 2>&1 ||
    { tail -n 30 "$work/log" >&2; exit 1; }

built "$work/build/bin" || { echo "build_llama_tools: the programs are not where they should be" >&2; exit 1; }
rm -rf "$folder"
mv "$work/build/bin" "$folder"
echo "$folder"
