#!/usr/bin/env bash
# Ten checks of `lakeshore daemon exec` against one live daemon, each of one aspect; the first that fails ends it.
#
#   LAKESHORE_URL     the control plane (default: the saved login's)
#   LAKESHORE_DAEMON  the daemon's id or label (default: the only live one)
#   LK                the program (default: dist/lakeshore beside this script, else `lakeshore`)
#
# Exit status: 0 when all pass, 1 when one does not.
set -uo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
if [[ -z ${LK:-} ]]; then
    LK=lakeshore
    [[ -x $here/dist/lakeshore ]] && LK=$here/dist/lakeshore
fi
green='' red='' plain=''
if [[ -t 1 && -z ${NO_COLOR:-} ]]; then
    green=$'\e[32m' red=$'\e[31m' plain=$'\e[0m'
fi
passed=0
errors=$(mktemp)
trap 'rm -f "$errors"' EXIT

# LK may be a program with arguments ("python3 -m lakeshore").
lk() { $LK "$@"; }
ok() {
    passed=$((passed + 1))
    printf '%s✓%s %s\n' "$green" "$plain" "$1"
}
fail() {
    printf '%s✗%s %s: %s\n' "$red" "$plain" "$1" "$2"
    [[ -s $errors ]] && sed 's/^/    /' "$errors"
    exit 1
}
# run <options and words of daemon exec>: sets out and code; what it says on stderr is in $errors.
run() {
    out=$(lk daemon exec "$@" 2>"$errors")
    code=$?
}
# expect <label> <wanted output> <wanted code>
expect() {
    [[ $code == "$3" ]] || fail "$1" "expected exit code $3, got $code (output: $out)"
    [[ $out == "$2" ]] || fail "$1" "expected '$2', got '$out'"
    ok "$1"
}
# live: the ids of live daemons in `daemon list --json`, one a line
live() {
    python3 -c '
import json, sys
for row in json.load(sys.stdin):
    if row["state"] in ("active", "joining", "setting_up"):
        print(row["id"])'
}

url=${LAKESHORE_URL:-$(lk auth status --json 2>/dev/null | python3 -c 'import json, sys; print(json.load(sys.stdin)["server"])' 2>/dev/null)}

# 1
label='one live daemon'
if [[ -n ${LAKESHORE_DAEMON:-} ]]; then
    daemon=$LAKESHORE_DAEMON
else
    lk daemon cleanup --older-than 5m --yes >/dev/null 2>"$errors" || fail "$label" 'daemon cleanup failed'
    listed=$(lk daemon list --json 2>"$errors") || fail "$label" 'daemon list reachable failed'
    mapfile -t daemons < <(live <<<"$listed")
    case ${#daemons[@]} in
    0) fail "$label" 'no live daemons registered' ;;
    1) daemon=${daemons[0]} ;;
    *) fail "$label" "${#daemons[@]} live daemons — refuse to guess (set LAKESHORE_DAEMON)" ;;
    esac
fi
lk daemon show "$daemon" --json >/dev/null 2>"$errors" || fail "$label" "no daemon $daemon"
ok "$label ($daemon)"

# 2
run "$daemon" echo hi
expect 'stdout comes back' hi 0

# 3
run "$daemon" 'echo to-stdout; echo to-stderr >&2'
[[ $(<"$errors") == to-stderr ]] || fail 'stderr stays apart from stdout' "stderr is '$(<"$errors")'"
expect 'stderr stays apart from stdout' to-stdout 0

# 4
run "$daemon" 'exit 7'
expect 'the exit code is the command'"'"'s' '' 7

# 5
# shellcheck disable=SC2016  # it is the daemon's shell that expands it
run --env "SMOKE=a b" --env SECOND=2 "$daemon" 'echo "$SMOKE/$SECOND"'
expect '--env' 'a b/2' 0

# 6
out=$(printf 'through stdin' | lk daemon exec --stdin - "$daemon" cat 2>"$errors")
code=$?
expect '--stdin -' 'through stdin' 0

# 7
file=smoke-exec-$$-$RANDOM
run --workdir /tmp "$daemon" "echo kept > $file"
[[ $code == 0 ]] || fail 'a file is written and read there' "writing it gave exit code $code"
run --workdir /tmp "$daemon" "cat $file && rm $file"
expect 'a file is written and read there' kept 0

# 8
run --timeout 1 "$daemon" sleep 30
[[ $code == 254 || $code == -2 ]] || fail '--timeout' "expected 254 or -2, got $code"
ok '--timeout'

# 9
run "$daemon" "sleep ${SMOKE_LONG_S:-40}; echo late"
expect 'a command outlives the windows of the poll' late 0

# 10
run "$daemon" python3 -c 'print(6 * 7)'
expect 'python3 on the host' 42 0

printf '%s✓ all %d checks passed against %s%s\n' "$green" "$passed" "${url:-the saved login}" "$plain"
