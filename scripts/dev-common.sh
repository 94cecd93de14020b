# shellcheck shell=bash
# What dev-up.sh and dev-down.sh agree on. Not a program.

here=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
if [[ -z ${LK:-} ]]; then
    LK=lakeshore
    [[ -x $here/dist/lakeshore ]] && LK=$here/dist/lakeshore
fi
dir=${LAKESHORE_DEV_DIR:-${XDG_STATE_HOME:-$HOME/.local/state}/lakeshore/dev}
port=${PORT:-8080}
# shellcheck disable=SC2034  # dev-up.sh uses them
url=http://127.0.0.1:$port label=$(uname -n)

# LK may be a program with arguments ("python3 -m lakeshore").
read -ra program <<<"$LK"
lk() { "${program[@]}" "$@"; }

# pid_of <serve|nymph>: of the one that dev-up.sh started; nothing where another process has its number by now
pid_of() {
    local pid
    pid=$(cat "$dir/$1.pid" 2>/dev/null) || return 0
    case $(ps -o args= -p "$pid" 2>/dev/null || :) in
    *" serve --port $port"* | *"nymph --config $dir/"*) echo "$pid" ;;
    esac
}

runs() { [[ -n $(pid_of "$1") ]]; }

# stop <serve|nymph>: ask it to end, and wait until it has
stop() {
    local pid
    pid=$(pid_of "$1")
    if [[ -n $pid ]]; then
        kill -TERM "$pid" 2>/dev/null || :
        for _ in $(seq 450); do
            kill -0 "$pid" 2>/dev/null || break
            sleep 0.2
        done
    fi
    rm -f "$dir/$1.pid"
}
