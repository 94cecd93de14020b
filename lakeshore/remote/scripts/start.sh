# shellcheck shell=bash
# Puts the program, its token and its configuration into the launch's directory, and starts it.
# Given: launch_id, python, token, config, sha256, how (process, slurm or service), partition, options (others of
# sbatch, one a line), requeue, code (yes when there is an archive of the user's modules), urls (to download from instead
# of what was copied; one a line), first (a script that root runs before the daemon), grace (seconds that a stop may take).

main() {
    trap 'give_up' EXIT
    cd "$dir" || fail "the directory $dir is gone"
    # This login is not the daemon's: what its jobs see must not depend on how they came here (a bash below SSH_CLIENT
    # reads the start-up files of a login). What the account sets for other daemons of ours would win over the file.
    unset SSH_CLIENT SSH_CONNECTION SSH_TTY SSH_AUTH_SOCK SSH_ORIGINAL_COMMAND
    unset LAKESHORED_CONFIG LAKESHORE_CONFIG LAKESHORE_SERVER LAKESHORE_URL LAKESHORE_TOKEN DREAMLAKE_QUEUE LAKESHORE_QUEUE
    if [ -n "${urls-}" ]; then download; else take_over; fi
    if [ "${code-no}" = yes ]; then unpack; fi
    write token "${token:?}"
    write udf-daemon.toml "${config:?}"
    if [ -n "${first-}" ]; then run_first; fi
    answer starts "$how" # where nobody reads it any more, this ends here
    case $how in
        process) start_process ;;
        slurm) start_job ;;
        service) start_service ;;
    esac
    trap - EXIT
    answer end ok
}

# What failed leaves nothing behind but its log.
give_up() {
    cd "$HOME" && rm -rf -- "$dir" "$staged" "$staged.code"
}

write() { # write NAME TEXT
    if ! { printf '%s\n' "$2" >"$1" && chmod 600 "$1"; } 2>/dev/null; then
        fail "cannot write $dir/$1: the disk is full, or the quota is used up" "make room below $HOME"
    fi
}

take_over() {
    if ! said=$(mv -- "$staged" nymph 2>&1); then
        fail "cannot move the program into $dir: ${said##*: }" "make room below $HOME"
    fi
    check "$sha256" 'what arrived is not what was sent'
}

unpack() {
    if ! said=$("$python" - "$staged.code" code 2>&1 <<'END'
import sys, tarfile
with tarfile.open(sys.argv[1]) as archive:
    archive.extractall(sys.argv[2], **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))
END
    ); then
        fail "cannot unpack the code into $dir/code: $(printf '%s' "$said" | tail -n 1)" "make room below $HOME"
    fi
    rm -f -- "$staged.code"
}

check() { # check SHA256 SENTENCE
    got=$("$python" -c 'import hashlib, sys; print(hashlib.sha256(open(sys.argv[1], "rb").read()).hexdigest())' nymph </dev/null)
    if [ "$got" != "$1" ]; then fail "$2: its sha256 is $got, not $1" 'try again'; fi
    chmod 700 nymph
}

download() {
    if ! said=$("$python" - "$urls" 2>&1 <<'END'
import shutil, sys, urllib.error, urllib.request
said = []
for url in sys.argv[1].split("\n"):
    try:
        with urllib.request.urlopen(url + ".sha256", timeout=60) as answer:
            wanted = answer.read(4096).decode("ascii", "replace").split()[0]
        with urllib.request.urlopen(url, timeout=60) as answer, open("nymph", "wb") as file:
            shutil.copyfileobj(answer, file)
    except (OSError, ValueError, IndexError) as error:
        said.append("%s: %s" % (url, error))
    else:
        print(wanted)
        break
else:
    print("; ".join(said))
    sys.exit(1)
END
    ); then
        fail "cannot download the program: $said" 'is the base right, and does this host reach it? Without --nymph-base-url the program is copied over ssh'
    fi
    check "$said" 'the download is damaged'
}

run_first() {
    become=
    if [ "$(id -u)" != 0 ]; then
        become='sudo -n'
        if ! has sudo || ! sudo -n true </dev/null >/dev/null 2>&1; then
            fail "the bootstrap script is for root, and $(id -un) is not root there and may not use sudo without a password" \
                'leave it out (--no-setup), or send it as --setup-script, which the daemon runs as itself'
        fi
    fi
    write bootstrap.sh "$first"
    # shellcheck disable=SC2086  # two words, or none
    if $become bash ./bootstrap.sh </dev/null >>"$log" 2>&1; then return; else code=$?; fi
    tail_of_log
    fail "the bootstrap script ended with exit code $code" "what it printed is in ~/.local/share/nymph-$launch_id.log"
}

start_process() {
    session=
    if has setsid; then session=setsid; fi
    # shellcheck disable=SC2086  # no word where there is no setsid
    NYMPH_LAUNCH=$launch_id $session nohup "$python" ./nymph --config udf-daemon.toml </dev/null >>"$log" 2>&1 &
    pid=$!
    write pid "$pid"
    for _ in 1 2 3 4 5 6 7 8 9 10; do
        if ! kill -0 "$pid" 2>/dev/null; then
            tail_of_log
            fail 'the daemon ended as soon as it was started' "its log is ~/.local/share/nymph-$launch_id.log"
        fi
        sleep 0.1
    done
    answer pid "$pid"
}

tail_of_log() {
    tail -n 20 "$log" 2>/dev/null | while IFS= read -r line; do answer log "$line"; done
}

start_job() {
    for folder in "${SLURM_HOME-}/bin" /opt/slurm/bin /usr/local/slurm/bin /cm/shared/apps/slurm/current/bin; do
        if ! has sbatch && [ -x "$folder/sbatch" ]; then PATH=$PATH:$folder; fi
    done
    if ! has sbatch; then fail 'there is no sbatch' '--slurm is for the login node of a SLURM cluster'; fi
    set -- --parsable --job-name="lakeshore-nymph-$launch_id" --output="$log" --open-mode=append --chdir="$dir"
    if [ -n "${partition-}" ]; then set -- "$@" --partition="$partition"; fi
    while IFS= read -r option; do
        if [ -n "$option" ]; then set -- "$@" "$option"; fi
    done <<END
${options-}
END
    if [ "${requeue-no}" = yes ]; then set -- "$@" --requeue --signal=B:USR1@120; else set -- "$@" --no-requeue; fi
    write job.sh "$(job_script)"
    if ! said=$(sbatch "$@" job.sh 2>&1 </dev/null); then
        fail "sbatch refused the job: $(printf '%s' "$said" | tail -n 1)" 'does the partition exist, and may this account use it?'
    fi
    job=$(printf '%s\n' "$said" | tail -n 1)
    write job "${job%%;*}"
    answer job "${job%%;*}"
}

job_script() {
    # shellcheck disable=SC2016  # the job's shell expands them
    printf '#!/bin/sh\nexport NYMPH_LAUNCH=%s\n' "$launch_id"
    if [ "${requeue-no}" = yes ]; then
        # Shortly before the time is up SLURM says so: the daemon hands its work back and the job is queued again.
        printf 'again() { kill -TERM "$nymph"; wait "$nymph"; exec scontrol requeue "$SLURM_JOB_ID"; }\n'
        printf 'trap again USR1\ntrap '\''kill -TERM "$nymph"'\'' TERM\n'
        printf '%s ./nymph --config udf-daemon.toml </dev/null &\nnymph=$!\nwait "$nymph"\n' "$(quoted "$python")"
        printf 'code=$?\nwhile kill -0 "$nymph" 2>/dev/null; do wait "$nymph"; code=$?; done\nexit "$code"\n'
    else
        printf 'exec %s ./nymph --config udf-daemon.toml </dev/null\n' "$(quoted "$python")"
    fi
}

quoted() { printf "'%s'" "$(printf '%s' "$1" | sed "s/'/'\\\\''/g")"; }

start_service() {
    if ! has systemctl; then fail 'there is no systemd' 'leave out --service: the daemon then runs until it is stopped, or the host goes down'; fi
    user_manager
    if ! said=$(systemctl --user show-environment 2>&1 </dev/null); then
        fail "no systemd manager runs for this user: $(printf '%s' "$said" | tail -n 1)" 'ask root for `loginctl enable-linger`, or leave out --service'
    fi
    units=${XDG_CONFIG_HOME:-$HOME/.config}/systemd/user
    mkdir -p "$units"
    write "$unit" "$(unit_file)"
    cp "$unit" "$units/$unit"
    systemctl --user daemon-reload </dev/null >/dev/null 2>&1 || :
    if ! said=$(systemctl --user enable --now "$unit" 2>&1 </dev/null); then
        rm -f -- "$units/$unit"
        fail "systemd does not start the daemon: $(printf '%s' "$said" | tail -n 1)" "its log is ~/.local/share/nymph-$launch_id.log"
    fi
    if has loginctl && ! loginctl enable-linger </dev/null >/dev/null 2>&1; then answer note 'the service ends when you log out of the host: ask root for `loginctl enable-linger`'; fi
    answer unit "$unit"
}

unit_file() {
    cat <<END
[Unit]
Description=Lakeshore daemon $launch_id
After=network-online.target
StartLimitIntervalSec=0

[Service]
Type=exec
WorkingDirectory=$dir
Environment=NYMPH_LAUNCH=$launch_id
ExecStart="$python" "$dir/nymph" --config udf-daemon.toml
Restart=on-failure
RestartSec=5
KillMode=mixed
TimeoutStopSec=$grace
StandardOutput=append:$log
StandardError=append:$log

[Install]
WantedBy=default.target
END
}

main
