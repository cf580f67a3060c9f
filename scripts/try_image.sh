#!/usr/bin/env bash
# Builds the Dockerfile and starts the image as it is meant to run: its own user, no capabilities, a root that nobody can
# write to. Needs root, buildah, and mmdebstrap where no registry has the base image: Debian's Python then stands for it.
# Exit code 3: something that the trial needs is missing, and it says what.
#
#   EXTRAS=server scripts/try_image.sh
#   IMAGE=localhost/espalier scripts/try_image.sh    # one that is there
set -euo pipefail
cd "$(dirname "$0")/.."
export STORAGE_DRIVER=${STORAGE_DRIVER:-vfs} BUILDAH_ISOLATION=${BUILDAH_ISOLATION:-chroot}
base=python:3.11-slim
missing() { echo "try_image: $1" >&2; exit 3; }

[ "$(id -u)" = 0 ] || missing "not root"
command -v buildah >/dev/null || missing "buildah is not installed"
command -v setpriv >/dev/null || missing "setpriv is not installed"
work=$(mktemp -d)
container=
end() {
    [ -z "$container" ] || { buildah umount "$container"; buildah rm "$container"; } >/dev/null 2>&1 || true
    rm -rf "$work"
}
trap end EXIT

build() {
    if ! buildah inspect --type image "$base" >/dev/null 2>&1 && ! timeout 300 buildah pull -q "$base" 2>/dev/null; then
        command -v mmdebstrap >/dev/null || missing "neither a registry with $base nor mmdebstrap"
        mmdebstrap -q --mode=root --variant=minbase --include=python3,python3-venv,ca-certificates bookworm \
            "$work/base.tar" || missing "mmdebstrap made no base"
        from=$(buildah from scratch)
        buildah add -q "$from" "$work/base.tar" / >/dev/null
        buildah run "$from" ln -s python3 /usr/bin/python || missing "buildah cannot run a command here"
        buildah commit -q "$from" "$base" >/dev/null
        buildah rm "$from" >/dev/null
    fi

    certificates=(-v /etc/ssl/certs:/etc/ssl/certs:ro)
    [ ! -d /opt/wheels ] || certificates+=(-v /opt/wheels:/opt/wheels:ro)
    buildah bud --pull=never --network host --format docker "${certificates[@]}" --build-arg "BASE=$base" \
        --build-arg "EXTRAS=${EXTRAS:-server}" --build-arg PIP_EXTRA_INDEX_URL= -t espalier-trial . \
        >"$work/log" 2>&1 || { tail -n 40 "$work/log" >&2; exit 1; }
}
[ -n "${IMAGE:-}" ] || build
container=$(buildah from --pull=never "${IMAGE:-espalier-trial}")
root=$(buildah mount "$container")
user=$(buildah inspect --format '{{.OCIv1.Config.User}}' "$container")
home=$(buildah inspect --format '{{.OCIv1.Config.WorkingDir}}' "$container")
[[ $user =~ ^[1-9][0-9]*$ ]] || { echo "try_image: it runs as '$user', which is no number above 0" >&2; exit 1; }
mapfile -t settings < <(buildah inspect --format '{{range .OCIv1.Config.Env}}{{println .}}{{end}}' "$container" | grep =)

cat >"$work/inside.sh" <<'INSIDE'
cd "$HOME"
[ "$(id -u)" = "$1" ] && grep -q 'CapEff:.0*$' /proc/self/status || { echo "it has rights" >&2; exit 1; }
if touch /opt/written 2>/dev/null || touch /etc/written 2>/dev/null; then echo "its root can be written" >&2; exit 1; fi
espalier serve -m fake &
server=$!
python - <<'ASK'
import json, time, urllib.error, urllib.request
for attempt in range(120):
    try:
        urllib.request.urlopen("http://127.0.0.1:8010/ready", timeout=5)
        break
    except OSError:
        time.sleep(1)
body = json.dumps({"prompt": "a", "max_tokens": 3}).encode()
asked = urllib.request.Request("http://127.0.0.1:8010/v1/completions", body, {"content-type": "application/json"})
print(json.load(urllib.request.urlopen(asked, timeout=60))["usage"])
ASK
asked=$?
kill -TERM "$server" && wait "$server"
exit "$asked"
INSIDE
cp "$work/inside.sh" "$root/inside.sh"

unshare --mount --pid --fork --kill-child bash -euc '
    root=$1 user=$2 home=$3; shift 3
    mount --bind "$root" "$root"; mount -o remount,bind,ro "$root"
    mount -t proc proc "$root/proc"
    mount --bind /dev "$root/dev"
    mount -t tmpfs -o nosuid,nodev,mode=1777 tmpfs "$root/tmp"
    mount -t tmpfs -o "nosuid,nodev,uid=$user,gid=$user,mode=700" tmpfs "$root$home"
    exec chroot "$root" setpriv --reuid="$user" --regid="$user" --clear-groups --bounding-set=-all --inh-caps=-all \
        --no-new-privs env -i HOME="$home" "$@" HOST=127.0.0.1 bash /inside.sh "$user"
' bash "$root" "$user" "$home" "${settings[@]}"
echo "the image serves as user $user on a root that is read-only"
