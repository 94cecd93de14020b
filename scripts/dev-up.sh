#!/usr/bin/env bash
# A control plane and a daemon on this machine, in the background. What is up already stays as it is.
#
#   LK                 the program (default: dist/lakeshore beside this script, else `lakeshore`)
#   PORT               the control plane's port (default: 8080)
#   LAKESHORE_DEV_DIR  logs, process ids and the daemon's files (default: ~/.local/state/lakeshore/dev)
#
# The control plane's own state is where `lakeshore serve` keeps it. scripts/dev-down.sh stops both.
set -euo pipefail

# shellcheck source-path=SCRIPTDIR source=dev-common.sh
. "$(dirname "${BASH_SOURCE[0]}")/dev-common.sh"

# answers: whether a control plane answers at $url
answers() {
    python3 - "$url" <<'END' 2>/dev/null
import sys, urllib.request
urllib.request.build_opener(urllib.request.ProxyHandler({})).open(sys.argv[1] + "/healthz", timeout=5).close()
END
}

# listed: whether the daemon of this directory takes work
listed() {
    LAKESHORE_URL=$url lk daemon list --json 2>/dev/null | python3 -c '
import json, sys
label = sys.argv[1]
sys.exit(not any(row["label"] == label and row["state"] == "active" for row in json.load(sys.stdin)))' "$label"
}

# until_true <what> <pid> <log> <test>: wait for at most 30 s, and for no longer than the process lives
until_true() {
    for _ in $(seq 150); do
        if "$4"; then return; fi
        if ! kill -0 "$2" 2>/dev/null; then break; fi
        sleep 0.2
    done
    if "$4"; then return; fi
    printf '✗ %s did not come up; the end of %s:\n' "$1" "$3" >&2
    tail -n 20 "$3" >&2
    exit 1
}

mkdir -p "$dir"
chmod 700 "$dir"

if answers; then
    printf '✓ control plane: up already at %s\n' "$url"
else
    env -u LAKESHORE_ADMIN_TOKEN nohup "${program[@]}" serve --port "$port" </dev/null >>"$dir/serve.log" 2>&1 &
    echo $! >"$dir/serve.pid"
    until_true 'the control plane' $! "$dir/serve.log" answers
    printf '✓ control plane: %s (log: %s)\n' "$url" "$dir/serve.log"
fi

if runs nymph && listed; then
    printf '✓ daemon: up already (%s)\n' "$label"
else
    stop nymph
    cat >"$dir/udf-daemon.toml" <<END
[server]
url = "$url"

[daemon]
label = "$label"

[runtime]
workdir = "$dir/work"
keep_alive_s = -1
END
    # What is set for commands in this terminal would win over the file.
    env -u LAKESHORE_SERVER -u LAKESHORE_TOKEN -u LAKESHORED_CONFIG -u DREAMLAKE_QUEUE nohup \
        "${program[@]}" nymph --config "$dir/udf-daemon.toml" </dev/null >>"$dir/nymph.log" 2>&1 &
    echo $! >"$dir/nymph.pid"
    until_true 'the daemon' $! "$dir/nymph.log" listed
    printf '✓ daemon: %s (log: %s)\n' "$label" "$dir/nymph.log"
fi

printf '\nexport LAKESHORE_URL=%s\n' "$url"
