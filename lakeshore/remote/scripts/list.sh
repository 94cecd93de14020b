# shellcheck shell=bash
# The launches that lie in this account: one answer `launch <id> <state> <label>` each. Needs nothing.

main() {
    for dir in "$share"/nymph/launches/*/; do
        dir=${dir%/} launch_id=${dir##*/}
        if [ ! -f "$dir/udf-daemon.toml" ]; then continue; fi
        unit=lakeshore-nymph-$launch_id.service
        label=$(sed -n 's/^label *= *//p' "$dir/udf-daemon.toml" | head -n 1)
        answer launch "$launch_id $(state_of) $label"
    done
    answer end ok
}

main
