# shellcheck shell=bash
# Whether what a launch started still runs, and the end of its log. Given: launch_id, lines (of the log).

main() {
    if [ ! -d "$dir" ]; then
        answer state gone
    elif [ -f "$dir/job" ]; then
        answer state "$(squeue -h -o '%T' -j "$(cat "$dir/job")" 2>/dev/null </dev/null || echo ended)"
    elif [ -f "$dir/$unit" ]; then
        user_manager
        answer state "$(systemctl --user is-active "$unit" 2>/dev/null </dev/null || :)"
    elif [ -f "$dir/pid" ] && is_ours "$(cat "$dir/pid")"; then
        answer state running
    else
        answer state ended
    fi
    tail -n "${lines:?}" "$log" 2>/dev/null | while IFS= read -r line; do answer log "$line"; done
    answer end ok
}

main
