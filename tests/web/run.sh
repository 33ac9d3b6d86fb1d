#!/usr/bin/env bash
# The browser demo in headless Chromium: first against a far end that the test
# plays, then against the program with the real models and a fake microphone.
#
#   VOLUBLE        the program        [target/debug/voluble]
#   VOLUBLE_CACHE  where the browser driver is installed  [~/.cache/voluble]
#   WEB_SHOTS      where screenshots go  [beside the program, web-shots/]
#   CHROMIUM       [/usr/bin/chromium]
set -euo pipefail
cd "$(dirname "$0")"
root=$(cd ../.. && pwd)
VOLUBLE=${VOLUBLE:-${CARGO_TARGET_DIR:-$root/target}/debug/voluble}
cache=${VOLUBLE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/voluble}

modules=$cache/sdk/web
mkdir -p "$modules"
# Installed once: again only when the pinned version changes.
if ! cmp -s package-lock.json "$modules/installed.json"; then
    cp package.json package-lock.json "$modules/"
    npm ci --prefix "$modules" --ignore-scripts --no-audit --no-fund --loglevel=error
    cp package-lock.json "$modules/installed.json"
fi
export WEB_MODULES=$modules
export WEB_SHOTS=${WEB_SHOTS:-$(dirname "$VOLUBLE")/web-shots}

echo "web: the page"
node page.mjs
# The real conversation hangs on what a recogniser makes of a browser's processed sound: asked for by name.
[ "${WEB_TALK:-0}" = 1 ] || exit 0

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

"$VOLUBLE" serve --host 127.0.0.1 --port 0 >"$work/out" 2>"$work/log" &
server=$!
url=
for _ in $(seq 600); do
    url=$(grep -ohE 'http://[0-9.:]+' "$work/out" "$work/log" | head -n 1 || true)
    [ -n "$url" ] && break
    if ! kill -0 "$server" 2>/dev/null; then
        break
    fi
    sleep 0.2
done
if [ -z "$url" ]; then
    echo "web: the server did not start:" >&2
    tail -n 20 "$work/out" "$work/log" >&2
    exit 1
fi
echo "web: a conversation with $url"
if ! WEB_URL=$url/ WEB_WORK=$work node talk.mjs; then
    tail -n 20 "$work/log" >&2
    exit 1
fi
