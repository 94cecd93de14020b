# shellcheck shell=bash
# Whether what a launch started still runs, and the end of its log. Given: launch_id, lines (of the log).

main() {
    if [ ! -d "$dir" ]; then
        answer state gone
    else
        answer state "$(state_of)"
    fi
    tail -n "${lines:?}" "$log" 2>/dev/null | while IFS= read -r line; do answer log "$line"; done
    answer end ok
}

main
