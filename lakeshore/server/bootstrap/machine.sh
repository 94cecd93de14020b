# Makes this machine a daemon of a Lakeshore server. It runs as root, once, at the machine's first boot.
# Given above: url, program (its path below url), sha256, token, config, bootstrap (a script, or nothing), grace
# (seconds that a stop may take), stays (no: who leaves by itself is not started again).
# DREAMLAKE_ROOT is put before every path. Where no systemd runs, as in a container, this process becomes the daemon.

HOME=${HOME:-/root}
PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:${PATH-}
export HOME PATH
root=${DREAMLAKE_ROOT-}
binary=$root/opt/dreamlake/bin/nymph
settings=$root/etc/dreamlake
state=$root/var/lib/dreamlake
logs=$root/var/log/dreamlake
service=dreamlake-nymph.service

main() {
    set -eu
    umask 022
    mkdir -p "$root/opt/dreamlake/bin" "$settings" "$state" "$logs" || fail "cannot write below ${root:-/}"
    if [ -e "$state/launched" ]; then # a later boot: some clouds run this at each
        start
        return
    fi
    prepare
    find_python
    download
    write "$settings/token" "$token"
    write "$settings/udf-daemon.toml" "$(printf '%s\n' "$config" | sed "s,^workdir = \",&$root,")"
    : >"$state/launched"
    say "installed for $url"
    start
}

say() { printf 'lakeshore: %s\n' "$1"; }

fail() {
    printf 'lakeshore: error: %s\n' "$1" >&2
    exit 1
}

# What was given to run before the daemon. A boot that was cut off runs it again: it must bear that.
prepare() {
    if [ -z "$bootstrap" ]; then return; fi
    write "$state/bootstrap.sh" "$bootstrap"
    shell=/bin/sh
    if [ -x /bin/bash ]; then shell=/bin/bash; fi
    case $bootstrap in
        '#!'*)
            chmod 700 "$state/bootstrap.sh"
            shell=
            ;;
    esac
    say 'bootstrap script: begins'
    # shellcheck disable=SC2086  # no word where the script names its own interpreter
    if (cd "$state" && exec $shell "$state/bootstrap.sh" </dev/null); then
        say 'bootstrap script: done'
    else
        fail "the bootstrap script ended with exit code $?; the daemon is not started"
    fi
}

find_python() {
    look_for_python
    if [ -z "$python" ]; then
        say 'there is no Python 3.11 or newer: it is installed'
        if has apt-get; then
            { apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -y -q python3.11; } </dev/null || :
        elif has dnf; then
            dnf install -y -q python3.11 </dev/null || :
        fi
        look_for_python
    fi
    if [ -z "$python" ]; then fail 'there is no Python 3.11 or newer; choose an image that has one, or install it in the bootstrap script'; fi
}

look_for_python() {
    python=
    for name in python3 python3.14 python3.13 python3.12 python3.11; do
        if found=$(command -v "$name") && "$found" -c 'import sys; sys.exit(sys.version_info < (3, 11))' </dev/null 2>/dev/null; then
            python=$found
            return
        fi
    done
}

has() { command -v "$1" >/dev/null 2>&1; }

# The very program that the server runs. The token goes by the environment: arguments are seen by everybody.
download() {
    said=$(LAKESHORE_TOKEN=$token "$python" - "$url$program" "$sha256" "$binary" 2>&1 <<'END'
import hashlib, os, sys, time, urllib.error, urllib.request
url, wanted, path = sys.argv[1:]
said = ""
for attempt in range(30):
    if attempt:
        time.sleep(min(2 ** attempt, 20))
    digest = hashlib.sha256()
    try:
        asked = urllib.request.Request(url, headers={"Authorization": "Bearer " + os.environ["LAKESHORE_TOKEN"]})
        with urllib.request.urlopen(asked, timeout=60) as answer, open(path + ".part", "wb") as file:
            while block := answer.read(1 << 20):
                digest.update(block)
                file.write(block)
    except urllib.error.HTTPError as error:
        said = "%s answered %s" % (url, error.code)
        if error.code < 500 and error.code not in (408, 429):
            break
        continue
    except (OSError, ValueError) as error:
        said = "%s: %s" % (url, error)
        continue
    if digest.hexdigest() == wanted:
        os.chmod(path + ".part", 0o755)
        os.replace(path + ".part", path)
        sys.exit(0)
    said = "what came from %s is damaged: its sha256 is %s, not %s" % (url, digest.hexdigest(), wanted)
print(said)
sys.exit(1)
END
    ) || fail "cannot download the daemon: $said"
}

write() { # write PATH TEXT: whole, and for root alone
    if ! { (umask 077 && printf '%s\n' "$2" >"$1.part") && mv -f -- "$1.part" "$1"; }; then
        fail "cannot write $1: is the disk full?"
    fi
}

start() {
    if ! has systemctl || [ ! -d /run/systemd/system ] || [ -n "$root" ]; then
        find_python
        exec "$python" "$binary" --config "$settings/udf-daemon.toml" </dev/null >>"$logs/nymph.log" 2>&1
    fi
    if [ ! -e "/etc/systemd/system/$service" ]; then
        write "/etc/systemd/system/$service" "$(unit)"
        chmod 644 "/etc/systemd/system/$service"
        systemctl daemon-reload
    fi
    systemctl enable --now "$service" || fail "systemd does not start $service; its log is $logs/nymph.log"
    say "$service is started; its log is $logs/nymph.log"
}

unit() {
    cat <<END
[Unit]
Description=Lakeshore daemon
Wants=network-online.target
After=network-online.target
StartLimitIntervalSec=0

[Service]
Type=exec
WorkingDirectory=$state
Environment=HOME=$HOME
ExecStart="$python" $binary --config $settings/udf-daemon.toml
Restart=always
RestartSec=5
KillMode=mixed
TimeoutStopSec=$grace
StandardOutput=append:$logs/nymph.log
StandardError=append:$logs/nymph.log
END
    # Who leaves because nothing was to do stays away: the server then ends the machine.
    if [ "$stays" = no ]; then printf 'RestartPreventExitStatus=0\n'; fi
    printf '\n[Install]\nWantedBy=multi-user.target\n'
}

main
