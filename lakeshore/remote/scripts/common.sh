# shellcheck shell=bash
# What every script of ours begins with. The values it is given stand before it.
set -eu
umask 077
unset CDPATH

answer() { # answer NAME VALUE: one line for the program that started us
    printf '%s %s %s\n' "${nonce:?}" "$1" "$(printf '%s' "$2" | tr '\n\r' '  ')"
}

fail() { # fail SENTENCE [HINT]
    answer error "$1"
    if [ $# -gt 1 ]; then answer hint "$2"; fi
    exit 3
}

has() { command -v "$1" >/dev/null 2>&1; }

: "${HOME:=$(cd ~ && pwd)}"
share=$HOME/.local/share
# shellcheck disable=SC2034  # the scripts that follow use them
dir='' log='' staged='' unit=''
if [ -n "${launch_id-}" ]; then
    dir=$share/nymph/launches/$launch_id
    log=$share/nymph-$launch_id.log
    staged=/tmp/nymph-$launch_id
    unit=lakeshore-nymph-$launch_id.service
fi

name_of() { cat "/proc/$1/comm" 2>/dev/null || ps -o comm= -p "$1" 2>/dev/null || :; }

is_ours() { # is_ours PID: it runs, it works below the launch's directory, and is no later process of the same number
    if [ -d /proc/self ]; then
        case $(readlink "/proc/$1/cwd" 2>/dev/null || :)/ in "${dir:?}"/*) return 0 ;; esac
        return 1
    fi
    case $(ps -o command= -p "$1" 2>/dev/null || :) in *nymph*udf-daemon.toml*) return 0 ;; esac
    return 1
}

user_manager() { # what `systemctl --user` needs outside of a login
    export XDG_RUNTIME_DIR="${XDG_RUNTIME_DIR:-/run/user/$(id -u)}"
}

state_of() { # how the launch in $dir fares: running, ended, or the word of SLURM or systemd
    if [ -f "$dir/job" ]; then
        squeue -h -o '%T' -j "$(cat "$dir/job")" 2>/dev/null </dev/null | grep . || echo ended
    elif [ -f "$dir/$unit" ]; then
        user_manager
        systemctl --user is-active "$unit" 2>/dev/null </dev/null || :
    elif [ -f "$dir/pid" ] && is_ours "$(cat "$dir/pid")"; then
        echo running
    else
        echo ended
    fi
}
