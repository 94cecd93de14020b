#!/usr/bin/env bash
# The README's two commands in a bare Debian: a new debootstrap, a user without rights, a fresh clone of HEAD.
#
#   sudo tests/acceptance/bare_debian.sh [--demo-only | pytest's arguments]
#
# Shows, in this order: what is said where python3-venv is missing; `python3 build_pyz.py && ./dist/lakeshore demo`; the same
# without a network, and the built file alone, with an empty cache, elsewhere; docs/first-hour.md line by line, with its time;
# `./scripts/test` (all of it, or what is named).
# Needs root, debootstrap and a network; takes minutes. PLACE is where the container is made (a new directory under /var/tmp), BASE a
# tar of the bare system that is made when it is missing and used again when not, SUITE and MIRROR are debootstrap's. pip is told
# of indexes, proxies and certificates by the PIP_* and *_proxy variables of whoever runs it.
#
# Rule: nothing stays. Mounts and processes live in namespaces of their own, which end with this script; then the directory is removed.
set -euo pipefail

suite=${SUITE:-bookworm}
mirror=${MIRROR:-}  # debootstrap knows one when none is named
packages=python3,python3-venv,git,ca-certificates
user=guest

say() { printf '\n== %s\n' "$*"; }
fail() {
    printf '\nFAILED: %s\n' "$*" >&2
    exit 1
}

outside() {
    [ "$(id -u)" = 0 ] || fail "needs root, for debootstrap and chroot"
    command -v debootstrap >/dev/null || fail "needs debootstrap (apt install debootstrap)"
    cd "$(dirname "${BASH_SOURCE[0]}")/../.."
    local place
    place=$(mktemp -d "${PLACE:-/var/tmp}/lakeshore-bare-XXXXXX")
    # shellcheck disable=SC2064  # the name as it is now
    trap "rm -rf --one-file-system -- '$place'" EXIT
    git bundle create -q "$place/lakeshore.bundle" HEAD
    unshare --mount --propagation private --pid --fork --kill-child \
        "$PWD/tests/acceptance/bare_debian.sh" --inside "$place" "$@" &
    local child=$!
    trap 'kill -KILL "$child"; exit 130' INT TERM
    wait "$child"
}

bootstrap() {
    if [ -n "${BASE:-}" ] && [ -e "$BASE" ]; then
        mkdir "$root"
        tar -C "$root" -xf "$BASE"
        return
    fi
    debootstrap --variant=minbase --include="$packages" "$suite" "$root" ${mirror:+"$mirror"} >"$place/debootstrap.log" 2>&1 ||
        { tail -n 20 "$place/debootstrap.log" >&2; fail "debootstrap"; }
    if [ -n "${BASE:-}" ]; then
        tar -C "$root" -cf "$BASE.$$" .
        mv "$BASE.$$" "$BASE"
    fi
}

furnish() {
    mount -t proc proc "$root/proc"
    mount --rbind /dev "$root/dev"
    mount -t tmpfs tmpfs "$root/dev/shm"
    cat /etc/resolv.conf >"$root/etc/resolv.conf"
    cat /etc/hosts >"$root/etc/hosts"
    if [ -n "${PIP_CERT:-}" ]; then
        mkdir -p "$root$(dirname "$PIP_CERT")"
        cat "$PIP_CERT" >"$root$PIP_CERT"
    fi
    chroot "$root" useradd --create-home --shell /bin/bash "$user"
    mv "$place/lakeshore.bundle" "$root/srv/"
    chmod 644 "$root/srv/lakeshore.bundle"
}

# What a new user's shell has, Ctrl-C included (what runs in the background is born deaf to it), and what pip needs to know about
# this machine's network.
as_user() {
    local -a settings=()
    mapfile -t settings < <(env | grep -E '^(PIP_(CERT|INDEX_URL|EXTRA_INDEX_URL|TRUSTED_HOST|CLIENT_CERT|DEFAULT_TIMEOUT|RETRIES|PROXY)|(https?|no|HTTPS?|NO)_(proxy|PROXY))=' || true)
    "${net[@]}" chroot --userspec="$user:$user" "$root" /usr/bin/env -i --default-signal=INT,QUIT HOME="/home/$user" USER="$user" LOGNAME="$user" TERM=dumb \
        PATH=/usr/local/bin:/usr/bin:/bin "${settings[@]}" bash -c "cd; $1"
}

# As above, with a loopback and nothing else.
without_network() {
    local loopback='import fcntl, socket, struct
fcntl.ioctl(socket.socket(), 0x8914, struct.pack("16sH14x", b"lo", 1))  # SIOCSIFFLAGS, IFF_UP'
    local -a net=(unshare --net sh -c 'chroot "$0" python3 -c "$1" && shift && exec "$@"' "$root" "$loopback")
    as_user "$1"
}

says() {
    local wanted=$1 command=$2 output
    if output=$(as_user "$command" 2>&1); then fail "succeeded, and should not have: $command"; fi
    printf '%s\n' "$output"
    grep -qF "$wanted" <<<"$output" || fail "did not say '$wanted': $command"
    ! grep -q Traceback <<<"$output" || fail "a traceback: $command"
}

inside() {
    place=$1
    root=$place/root
    net=()
    shift
    say "a bare $suite in $root"
    bootstrap
    furnish
    as_user "git -c advice.detachedHead=false clone --quiet /srv/lakeshore.bundle lakeshore"

    say "without python3-venv"
    mkdir "$place/debs"
    cp "$root"/var/cache/apt/archives/python3*-venv_*.deb "$place/debs/"
    chroot "$root" dpkg --remove python3-venv python3.11-venv >/dev/null
    says "apt install python3-venv" "cd lakeshore && python3 build_pyz.py"
    says "apt install" "cd lakeshore && ./scripts/test"
    cp -r "$place/debs" "$root/srv/debs"
    chroot "$root" sh -c 'dpkg --install /srv/debs/*.deb' >/dev/null

    say "python3 build_pyz.py && ./dist/lakeshore demo"
    as_user "cd lakeshore && python3 build_pyz.py && ./dist/lakeshore demo" || fail "the README's first command"

    say "the same without a network"
    without_network "cd lakeshore && python3 build_pyz.py && ./dist/lakeshore demo" || fail "the first command without a network"
    say "the file alone, with an empty cache, without a network"
    without_network "rm -rf .cache && mkdir bin && cp lakeshore/dist/lakeshore bin/ && cd / && ~/bin/lakeshore demo --json" || fail "the file alone"

    say "docs/first-hour.md, line by line"
    as_user "cd lakeshore && PYTHONPATH=. python3 -B tests/acceptance/follow_page.py docs/first-hour.md dist/lakeshore ~/hour" || fail "the first hour"

    [ "${1:-}" = --demo-only ] && return
    say "./scripts/test $*"
    as_user "cd lakeshore && ./scripts/test$(printf ' %q' "$@")" || fail "the README's second command"
    say "and again, from what it made"
    as_user "cd lakeshore && ./scripts/test --prepare-only" || fail "scripts/test --prepare-only"
}

if [ "${1:-}" = --inside ]; then
    shift
    inside "$@"
    say "all of it holds"
else
    outside "$@"
fi
