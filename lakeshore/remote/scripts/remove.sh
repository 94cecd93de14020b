# shellcheck shell=bash
# Ends what a launch started and removes its files. Given: launch_id, grace (seconds for its jobs), keep_log (yes or no).
# A launch of which there is nothing is no error: it may have been removed by hand.

main() {
    if [ ! -d "$dir" ] && [ ! -e "$log" ] && [ ! -e "$staged" ] && [ ! -e "$staged.code" ]; then
        answer state absent
        answer end ok
        return
    fi
    cd "$HOME" || :
    # A start that was interrupted may just go on: what it has put there since then and what it began go, too.
    for _ in 1 2 3 4 5; do
        if [ -d "$dir" ]; then stop; fi
        if rm -rf -- "$dir" "$staged" "$staged.code" 2>/dev/null; then break; fi
        sleep 0.2
    done
    for kept in "${XDG_STATE_HOME:-$HOME/.local/state}"/lakeshore/nymph/*/; do
        case $(cat "$kept/label" 2>/dev/null || :) in *-"$launch_id") rm -rf -- "$kept" ;; esac
        if [ "$(cat "$kept/launch" 2>/dev/null || :)" = "$launch_id" ]; then rm -rf -- "$kept"; fi
    done
    if [ -e "$dir" ]; then fail "cannot remove $dir" "look into it: something there is not yours, or still in use"; fi
    if [ "${keep_log-no}" != yes ] || [ ! -s "$log" ]; then rm -f -- "$log"; fi
    answer state removed
    answer end ok
}

stop() {
    if [ -f "$dir/job" ]; then
        job=$(cat "$dir/job")
        if [ "$(squeue -h -o %T -j "$job" 2>/dev/null </dev/null || :)" = RUNNING ]; then
            scancel --signal=TERM --batch "$job" </dev/null >/dev/null 2>&1 || :
            until_gone in_queue
        fi
        if in_queue; then
            scancel "$job" </dev/null >/dev/null 2>&1 || :
            until_gone in_queue
        fi
    elif [ -f "$dir/$unit" ]; then
        user_manager
        systemctl --user disable --now "$unit" </dev/null >/dev/null 2>&1 || :
        rm -f -- "${XDG_CONFIG_HOME:-$HOME/.config}/systemd/user/$unit"
        systemctl --user daemon-reload </dev/null >/dev/null 2>&1 || :
    fi
    pid=$(cat "$dir/pid" 2>/dev/null || echo)
    if [ -n "$pid" ] && is_ours "$pid"; then
        kill -TERM "$pid" 2>/dev/null || :
        until_gone is_running
    fi
    # What is left: a daemon that did not go in time, its keeper, jobs.
    for _ in 1 2 3; do
        left=$(left_over)
        if [ -z "$left" ]; then return; fi
        # shellcheck disable=SC2086  # a list of numbers
        kill -KILL $left 2>/dev/null || :
        answer killed "$(printf '%s' "$left" | tr '\n' ' ')"
        sleep 0.2
    done
}

is_running() { kill -0 "$pid" 2>/dev/null && is_ours "$pid"; }

in_queue() { [ -n "$(squeue -h -j "$job" 2>/dev/null </dev/null)" ]; }

until_gone() { # until_gone TEST: wait for as long as jobs may take
    waited=0
    while "$1" && [ "$waited" -lt $((${grace:?} * 5)) ]; do
        sleep 0.2
        waited=$((waited + 1))
    done
}

# Processes below the launch's directory, and those that inherited its name.
left_over() {
    {
        for about in /proc/[0-9]*; do
            if [ -O "$about" ] && is_ours "${about#/proc/}"; then printf '%s\n' "${about#/proc/}"; fi
        done
        # shellcheck disable=SC2086  # as many names as there are processes
        grep -la "NYMPH_LAUNCH=$launch_id" /proc/[0-9]*/environ 2>/dev/null | sed 's,^/proc/,,; s,/environ$,,' || :
    } | sort -un | grep -vx "$$" || :
}

main
