#!/usr/bin/env bash
# The official SDKs, unchanged, against the built program with the default
# models. VOLUBLE: the program; VOLUBLE_CACHE: where the SDKs are installed,
# once for each set of versions. With VOLUBLE_URL a server that runs already
# is used. Arguments name suites: python node.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
cache=${VOLUBLE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/voluble}/sdk
suites=("$@")
[ ${#suites[@]} -gt 0 ] || suites=(python node)
export SDK_SPEECH=$root/tests/data/speech

# A folder named by its contents is made whole or not at all.
version() { sha256sum "$1" | cut -c1-16; }

python_sdk() {
    local wanted=$here/sdk/python/requirements.txt
    local dir
    dir=$cache/python-$(version "$wanted")
    if [ ! -f "$dir/.done" ]; then
        echo "installing $(paste -sd' ' "$wanted") into $dir" >&2
        rm -rf "$dir"
        python3 -m venv "$dir"
        "$dir/bin/pip" install --quiet --disable-pip-version-check -r "$wanted"
        touch "$dir/.done"
    fi
    python=$dir/bin/python
}

node_sdk() {
    local wanted=$here/sdk/node/package.json
    local dir
    dir=$cache/node-$(version "$wanted")
    if [ ! -f "$dir/.done" ]; then
        echo "installing the packages of $wanted into $dir" >&2
        rm -rf "$dir"
        mkdir -p "$dir"
        cp "$wanted" "$dir/"
        (cd "$dir" && npm install --no-package-lock --no-audit --no-fund --ignore-scripts --loglevel=error >&2)
        touch "$dir/.done"
    fi
    # Node looks for packages beside the script.
    cp "$here/sdk/node/check.mjs" "$dir/check.mjs"
    node=$dir/check.mjs
}

work=$(mktemp -d)
server=
finish() {
    if [ -n "$server" ]; then
        kill "$server" 2>/dev/null || true
        wait "$server" 2>/dev/null || true
    fi
    rm -rf "$work"
}
trap finish EXIT

if [ -z "${VOLUBLE_URL:-}" ]; then
    program=${VOLUBLE:-${CARGO_TARGET_DIR:-$root/target}/debug/voluble}
    [ -x "$program" ] || { echo "no program at $program; set VOLUBLE" >&2; exit 1; }
    SDK_KEY=sk-test-$RANDOM$RANDOM
    export SDK_KEY
    cat >"$work/voluble.toml" <<CONFIG
[server]
host = "127.0.0.1"
port = 0
api_keys = ["$SDK_KEY"]
CONFIG
    "$program" serve --config "$work/voluble.toml" >"$work/out" 2>"$work/err" </dev/null &
    server=$!
    for _ in $(seq 1 600); do
        VOLUBLE_URL=$(grep -ohE 'http://127\.0\.0\.1:[1-9][0-9]*' "$work/out" "$work/err" | head -n 1 || true)
        [ -z "$VOLUBLE_URL" ] || break
        kill -0 "$server" 2>/dev/null || { cat "$work/err" >&2; echo "the server did not start" >&2; exit 1; }
        sleep 0.2
    done
    [ -n "$VOLUBLE_URL" ] || { cat "$work/err" >&2; echo "the server printed no address within 120 s" >&2; exit 1; }
    export VOLUBLE_URL
fi

failed=0
for suite in "${suites[@]}"; do
    case $suite in
        python) python_sdk; "$python" "$here/sdk/python/check.py" || failed=1 ;;
        node) node_sdk; node "$node" || failed=1 ;;
        *) echo "no suite named $suite; there are python and node" >&2; exit 2 ;;
    esac
done
if [ "$failed" != 0 ] && [ -f "$work/err" ]; then
    echo "-- the server's last lines:" >&2
    tail -n 40 "$work/err" >&2
fi
exit "$failed"
