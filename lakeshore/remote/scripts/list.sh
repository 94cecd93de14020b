# shellcheck shell=bash
# The launches that lie in this account: one answer `launch <id> <state> <label>` each; `unfinished` is one that was never
# started. Needs nothing.

main() {
    for dir in "$share"/nymph/launches/*/; do
        dir=${dir%/} launch_id=${dir##*/}
        if [ ! -d "$dir" ]; then continue; fi
        if [ ! -f "$dir/udf-daemon.toml" ]; then
            answer launch "$launch_id unfinished "
            continue
        fi
        unit=lakeshore-nymph-$launch_id.service
        label=$(sed -n 's/^label *= *//p' "$dir/udf-daemon.toml" | head -n 1)
        answer launch "$launch_id $(state_of) $label"
    done
    answer end ok
}

main
