#!/usr/bin/env bash
# Stops what scripts/dev-up.sh started, and waits until it has stopped. Logs and state stay. It takes the same variables.
set -euo pipefail

# shellcheck source-path=SCRIPTDIR source=dev-common.sh
. "$(dirname "${BASH_SOURCE[0]}")/dev-common.sh"

for name in nymph serve; do
    if runs "$name"; then
        stop "$name"
        printf '✓ %s: stopped\n' "$name"
    else
        rm -f "$dir/$name.pid"
        printf '✓ %s: down already\n' "$name"
    fi
done
