#!/bin/sh
# Installs Lakeshore: one file for every platform, checked against its checksum and moved into place whole.
#
#     curl -fsSL <base>/install.sh | sh
#     curl -fsSL <base>/install.sh | sh -s -- --version 0.4.0 --dest ~/.local/bin
#     LAKESHORE_BASE_URL=dist/release sh scripts/install.sh        # what `build_pyz.py --release` laid out
#
# Rules: POSIX sh and nothing that busybox lacks; nothing runs of a script that arrived in part; before the last move
# nothing that was there is touched; sudo only for a destination that this user cannot write. Talk goes to stderr.
# Exit codes: 0, 1 failed, 2 usage, 130 interrupted.

set -eu

DEFAULT_BASE=https://pub-c0109e197b4a4d1abe5884ac4dd3a023.r2.dev/dreamlake/nymph
DEFAULT_DEST=/usr/local/bin
PYTHONS='python3 python3.14 python3.13 python3.12 python3.11'
UNIT=lakeshore.service
LABEL=ai.dreamlake.lakeshore
MARK="Written by Lakeshore's install.sh"

usage() {
    cat <<END
Usage: install.sh [--version <v>] [--dest <dir>] [--service] [--force]
       install.sh --uninstall [--dest <dir>]

  --version <v>   the release to install (default: latest)
  --dest <dir>    where to (default: $DEFAULT_DEST); sudo is used only if you cannot write there
  --service       also run \`lakeshore serve\` as your own service: a systemd user unit, or a launchd agent
  --force         replace a file there that is not a Lakeshore
  --uninstall     remove the program and its service; your data stays

LAKESHORE_BASE_URL (or NYMPH_BASE_URL) says where releases are: http(s)://…, file://… or a directory that holds
<version>/lakeshore and <version>/lakeshore.sha256. Default: $DEFAULT_BASE
END
}

say() {
    printf '%s\n' "$*" >&2
}

fail() {
    say "error: $*"
    exit 1
}

misused() {
    say "error: $*"
    usage >&2
    exit 2
}

has() {
    command -v "$1" >/dev/null 2>&1
}

main() {
    version=latest dest=$DEFAULT_DEST service=no uninstall=no force=no
    while [ $# -gt 0 ]; do
        case $1 in
            --version | --dest)
                [ $# -gt 1 ] || misused "$1 needs a value"
                [ "$1" = --dest ] && dest=$2 || version=$2
                shift
                ;;
            --version=*) version=${1#*=} ;;
            --dest=*) dest=${1#*=} ;;
            --service) service=yes ;;
            --uninstall) uninstall=yes ;;
            --force) force=yes ;;
            -h | --help)
                usage
                exit 0
                ;;
            *) misused "unknown argument: $1" ;;
        esac
        shift
    done
    case $version in
        '' | .* | *[!A-Za-z0-9._+-]*) misused "not a version: '$version'" ;;
        v[0-9]*) version=${version#v} ;;
    esac
    check_system
    name_destination
    scratch='' staged='' elevated=no
    trap clean EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM HUP
    if [ $uninstall = yes ]; then
        remove
    else
        install_file
    fi
}

clean() {
    [ -z "$staged" ] || as_owner rm -f "$staged"
    [ -z "$scratch" ] || rm -rf "$scratch"
}

check_system() {
    case $(uname -s) in
        Linux | Darwin) ;;
        MINGW* | MSYS* | CYGWIN* | Windows*)
            fail "Lakeshore runs on Linux and macOS; on Windows install it inside WSL (https://aka.ms/wsl)"
            ;;
        *) fail "Lakeshore runs on Linux and macOS, and this is $(uname -s)" ;;
    esac
}

# --- where to

name_destination() {
    # shellcheck disable=SC2088  # in `--dest=~/bin` no shell expands the tilde
    case $dest in
        '~' | '~/'*) dest=${HOME:?"is not set: give --dest a full path"}${dest#'~'} ;;
    esac
    case $dest in
        '') misused "--dest needs a directory" ;;
        /*) ;;
        *) dest=$(pwd)/$dest ;;
    esac
    while [ "$dest" != / ] && [ "${dest%/}" != "$dest" ]; do dest=${dest%/}; done
    target=$dest/lakeshore
}

as_owner() {
    if [ "$elevated" = yes ]; then sudo "$@"; else "$@"; fi
}

# Sets `elevated`. Fails where nobody could write.
check_destination() {
    nearest=$dest
    while [ ! -e "$nearest" ]; do nearest=$(dirname "$nearest"); done
    [ -d "$nearest" ] || fail "$nearest is not a directory: choose another --dest"
    [ ! -d "$target" ] || fail "$target is a directory: choose another --dest"
    [ ! -w "$nearest" ] || return 0
    [ "$(id -u)" != 0 ] || fail "$nearest cannot be written, not even by root (a read-only disk?): choose another --dest"
    has sudo || fail "$nearest is not writable by you, and there is no sudo: run this as root, or add --dest ~/.local/bin"
    say "$nearest is not writable by you: using sudo (--dest ~/.local/bin does without)"
    elevated=yes
}

# The version of a Lakeshore file, from its second line; nothing for any other file.
version_in() {
    [ -f "$1" ] && [ -r "$1" ] || return 0
    LC_ALL=C sed -n -e '2s/^# lakeshore \([0-9][0-9A-Za-z.+-]*\)$/\1/p' -e 2q "$1"
}

is_there() {
    [ -e "$1" ] || [ -L "$1" ]
}

# --- from where

name_base() {
    base=${LAKESHORE_BASE_URL:-${NYMPH_BASE_URL:-$DEFAULT_BASE}}
    while [ "$base" != / ] && [ "${base%/}" != "$base" ]; do base=${base%/}; done
    shown=$base
    case $base in
        http://* | https://*)
            # a password in the address is not for the screen
            case $base in *@*) shown=$(printf '%s\n' "$base" | sed 's#//[^/@]*@#//…@#') ;; esac
            has curl || has wget || fail "neither curl nor wget is here: install one of them"
            return
            ;;
        file://localhost/*) base=${base#file://localhost} ;;
        file:///*) base=${base#file://} ;;
        *://*) misused "LAKESHORE_BASE_URL must be http(s)://…, file:///… or a directory (got $base)" ;;
        *)
            [ -d "$base" ] || fail "LAKESHORE_BASE_URL is no directory: $base"
            return
            ;;
    esac
    case $base in *%*) base=$(decode "$base") ;; esac
    [ -d "$base" ] || fail "$shown is no directory on this machine"
}

decode() {
    printf '%s\n' "$1" | awk '{
        out = ""
        while (match($0, /%[0-9A-Fa-f][0-9A-Fa-f]/)) {
            high = index("0123456789abcdef", tolower(substr($0, RSTART + 1, 1))) - 1
            low = index("0123456789abcdef", tolower(substr($0, RSTART + 2, 1))) - 1
            out = out substr($0, 1, RSTART - 1) sprintf("%c", high * 16 + low)
            $0 = substr($0, RSTART + 3)
        }
        print out $0
    }'
}

# fetch <name> <to>: one file of the release. Sets `complaint`.
fetch() {
    case $base in
        http://* | https://*) ;;
        *)
            complaint=$(cp "$base/$version/$1" "$2" 2>&1)
            return
            ;;
    esac
    url=$base/$version/$1
    if has curl; then
        case $base in https:*) onward='=https' ;; *) onward='=http,https' ;; esac
        complaint=$(curl -fsSL --proto-redir "$onward" --connect-timeout 15 --speed-limit 1 --speed-time 20 --retry 2 \
            -o "$2" "$url" 2>&1 </dev/null)
    else
        patience='-nv -T 30 -t 2'
        case $(wget --help 2>&1) in *BusyBox*) patience=-q ;; esac # some of its versions crash on -T
        # shellcheck disable=SC2086  # words
        complaint=$(wget $patience -O "$2" "$url" 2>&1 </dev/null)
    fi
}

why() {
    # curl says it first and explains it then; the others end with it
    { printf '%s\n' "$complaint" | grep '^curl: ([0-9]' || printf '%s\n' "$complaint" | grep -v '^[[:space:]]*$'; } | tail -n 1
    case $base in
        https:*) proxy=${https_proxy:-${HTTPS_PROXY:-${ALL_PROXY:-${all_proxy:-}}}} ;;
        http:*) proxy=${http_proxy:-${all_proxy:-}} ;;
        *) return ;;
    esac
    [ -z "$proxy" ] || printf ' (a proxy is set in the environment)\n'
}

digest_of() {
    if has sha256sum; then
        sha256sum <"$1" | cut -d ' ' -f 1
    elif has shasum; then
        shasum -a 256 <"$1" | cut -d ' ' -f 1
    else
        openssl dgst -sha256 <"$1" | sed 's/.*= *//'
    fi
}

where_else() {
    case $complaint in
        *404* | *'No such file'*) printf "Is there a release '%s'? LAKESHORE_BASE_URL says where to look." "$version" ;;
        *) printf 'Try again, or name another place with LAKESHORE_BASE_URL.' ;;
    esac
}

# Sets `expected`, the release's checksum: the first word of `lakeshore.sha256`.
read_checksum() {
    fetch lakeshore.sha256 "$scratch/sha256" \
        || fail "cannot get $shown/$version/lakeshore.sha256: $(why)
$(where_else) Nothing was changed."
    expected=''
    read -r expected _ <"$scratch/sha256" || :
    expected=$(printf '%s' "$expected" | tr -d '\r' | tr 'A-F' 'a-f')
    case ${#expected}:$expected in
        *:*[!0-9a-f]*) expected='' ;;
        64:*) ;;
        *) expected='' ;;
    esac
    [ -n "$expected" ] || fail "$shown/$version/lakeshore.sha256 holds no checksum (is it a web page?). Nothing was changed."
}

# --- the file

install_file() {
    has sha256sum || has shasum || has openssl || fail "install sha256sum, shasum or openssl: what is downloaded is checked"
    check_destination
    name_base
    old=$(version_in "$target")
    if is_there "$target" && [ -z "$old" ] && [ $force = no ]; then
        fail "$target is there already and is not a Lakeshore of this kind: remove it, choose another --dest, or add --force"
    fi
    umask 022
    scratch=$(umask 077 && mktemp -d "${TMPDIR:-/tmp}/lakeshore-install.XXXXXX") \
        || fail "cannot write to ${TMPDIR:-/tmp}: set TMPDIR to a directory with some room"
    read_checksum
    changed=no
    if [ -n "$old" ] && [ "$(digest_of "$target")" = "$expected" ]; then
        say "lakeshore $old is installed already: $target"
    else
        get_file
        move_into_place
        changed=yes
        if [ -z "$old" ]; then
            say "lakeshore $new is installed: $target"
        elif [ "$old" = "$new" ]; then
            say "lakeshore $old is replaced by another build of $new: $target"
        else
            say "lakeshore $old is upgraded to $new: $target"
        fi
    fi
    link_nymph
    find_python
    check_start
    tell_path
    [ $service = no ] || install_service
    tell_next
}

get_file() {
    say "getting lakeshore ($version) from $shown"
    fetch lakeshore "$scratch/lakeshore" || fail "cannot get $shown/$version/lakeshore: $(why)
Nothing was changed."
    got=$(digest_of "$scratch/lakeshore")
    [ "$got" = "$expected" ] || fail "$shown/$version/lakeshore does not have its checksum, so it is not installed.
  expected $expected
  got      $got
A download that broke off, or a release that is just being replaced: try again. Nothing was changed."
    new=$(version_in "$scratch/lakeshore")
    [ -n "$new" ] || fail "$shown/$version/lakeshore is not a Lakeshore file. Nothing was changed."
    [ "$version" = latest ] || [ "$version" = "$new" ] \
        || fail "$shown/$version/lakeshore says that it is version $new. Nothing was changed."
}

move_into_place() {
    if [ ! -d "$dest" ]; then
        as_owner mkdir -p "$dest" || fail "cannot make $dest"
    fi
    # What a killed run may have left behind.
    find "$dest" -maxdepth 1 -name '.lakeshore.??????' -mtime +1 2>/dev/null | while read -r left; do
        as_owner rm -f "$left"
    done
    staged=$(as_owner mktemp "$dest/.lakeshore.XXXXXX") || fail "cannot write to $dest. Nothing was changed."
    as_owner cp "$scratch/lakeshore" "$staged" || fail "cannot write to $dest (is the disk full?). Nothing was changed."
    as_owner chmod 755 "$staged"
    as_owner sync "$staged" 2>/dev/null || : # a power cut after the move must not leave an empty file
    as_owner mv -f "$staged" "$target" || fail "cannot replace $target"
    staged=''
}

# The daemon's documented name: the program looks at the name that it was started by.
link_nymph() {
    if [ "$(readlink "$dest/nymph" 2>/dev/null || :)" = lakeshore ]; then
        return
    elif is_there "$dest/nymph"; then
        say "note: $dest/nymph is something else and stays as it is; \`lakeshore nymph\` is the same as ours"
    else
        as_owner ln -s lakeshore "$dest/nymph" || say "note: $dest/nymph could not be made; \`lakeshore nymph\` is the same"
    fi
}

# --- Python

# Sets `python`, the first on PATH that is new enough (else ''), and `seen`, what else was found.
find_python() {
    python='' seen=''
    for name in $PYTHONS; do
        path=$(command -v "$name" 2>/dev/null) || continue
        if is=$("$path" -c 'import sys; print("%d.%d" % sys.version_info[:2]); sys.exit(sys.version_info < (3, 11))' \
            2>/dev/null </dev/null); then
            python=$path
            return
        fi
        seen="${seen:+$seen, }$path ${is:-does not start}"
    done
    say ""
    say "Python 3.11 or newer is needed to run it, and was not found on PATH (${seen:-there is no python3})."
    say "Install one: $(how_to_get_python)"
}

how_to_get_python() {
    [ "$(uname -s)" != Darwin ] || {
        printf 'brew install python\n'
        return
    }
    kind=$(sed -n 's/^ID=//p;s/^ID_LIKE=//p' /etc/os-release 2>/dev/null | tr -d '"' | tr '\n' ' ') || kind=''
    case " $kind " in
        *' alpine '*) printf 'apk add python3\n' ;;
        *' debian '* | *' ubuntu '*) printf 'apt install python3 (where that one is older: python3.11)\n' ;;
        *' fedora '* | *' rhel '*) printf 'dnf install python3.12\n' ;;
        *' arch '*) printf 'pacman -S python\n' ;;
        *' suse '* | *' opensuse '*) printf 'zypper install python312\n' ;;
        *) printf 'with your package manager, or from https://www.python.org/downloads/\n' ;;
    esac
}

# One real start, which also unpacks the file for the next. Not as root in the home of the user who called sudo.
check_start() {
    [ -n "$python" ] || return 0
    [ "$(id -u)" != 0 ] || [ -z "${SUDO_UID:-}" ] || return 0
    said=$("$python" "$target" --version 2>&1 </dev/null) && return 0
    fail "$target is in place but does not start with $python: $said"
}

tell_path() {
    first=$(command -v lakeshore 2>/dev/null || :)
    case $first in
        "$target") ;;
        '')
            say "note: $dest is not on your PATH. Add this line to your shell's profile:"
            say "    export PATH=\"$dest:\$PATH\""
            ;;
        *) say "note: another lakeshore comes first on your PATH: $first" ;;
    esac
    if [ -n "$python" ] && ! has python3; then
        say "note: there is no command named python3: start it as \`$python $target\`"
    fi
}

tell_next() {
    if [ "$changed" = yes ] && [ -n "$python" ]; then
        say "Try it: lakeshore demo. A control plane: lakeshore serve (as a service: this installer with --service)."
    fi
    say "Uninstall: this installer with --uninstall$(dest_flag), or $(uninstall_line)"
}

dest_flag() {
    [ "$dest" = $DEFAULT_DEST ] || printf ' --dest %s' "$(quoted "$dest")"
}

uninstall_line() {
    [ $elevated = no ] || printf 'sudo '
    printf 'rm %s' "$(quoted "$target")"
    [ "$(readlink "$dest/nymph" 2>/dev/null || :)" != lakeshore ] || printf ' %s' "$(quoted "$dest/nymph")"
}

# For a shell, and bare where that is the same.
quoted() {
    case $1 in
        *[!A-Za-z0-9/._+-]*) printf "'%s'" "$(printf '%s\n' "$1" | sed "s/'/'\\\\''/g")" ;;
        *) printf '%s' "$1" ;;
    esac
}

# --- the service

# Sets `manager` (systemd, launchd or none) and `unit`, the file that it reads.
find_manager() {
    manager=none
    if [ "$(uname -s)" = Darwin ]; then
        unit=${HOME:-}/Library/LaunchAgents/$LABEL.plist
        if has launchctl; then manager=launchd; fi
    else
        unit=${XDG_CONFIG_HOME:-${HOME:-}/.config}/systemd/user/$UNIT
        if has systemctl && systemctl --user show-environment >/dev/null 2>&1; then manager=systemd; fi
    fi
}

print_unit() {
    # A virtual environment or a version manager's shim may be gone tomorrow.
    real=$("$python" -c 'import sys; print(getattr(sys, "_base_executable", "") or sys.executable)' </dev/null)
    if [ "$(uname -s)" = Darwin ]; then
        cat <<END
<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE plist PUBLIC "-//Apple//DTD PLIST 1.0//EN" "http://www.apple.com/DTDs/PropertyList-1.0.dtd">
<!-- $MARK -->
<plist version="1.0">
<dict>
    <key>Label</key><string>$LABEL</string>
    <key>ProgramArguments</key>
    <array>
        <string>$(for_xml "$real")</string>
        <string>$(for_xml "$target")</string>
        <string>serve</string>
    </array>
    <key>RunAtLoad</key><true/>
    <key>KeepAlive</key><dict><key>SuccessfulExit</key><false/></dict>
    <key>ExitTimeOut</key><integer>30</integer>
    <key>StandardErrorPath</key><string>$(for_xml "${HOME:-}/Library/Logs/lakeshore.log")</string>
</dict>
</plist>
END
    else
        cat <<END
# $MARK
[Unit]
Description=Lakeshore control plane

[Service]
ExecStart=$(for_systemd "$real") $(for_systemd "$target") serve
Restart=on-failure
KillMode=mixed
TimeoutStopSec=30

[Install]
WantedBy=default.target
END
    fi
}

for_xml() {
    printf '%s\n' "$1" | sed 's/&/\&amp;/g;s/</\&lt;/g;s/>/\&gt;/g'
}

for_systemd() {
    printf '"%s"' "$(printf '%s\n' "$1" | sed 's/\\/\\\\/g;s/"/\\"/g;s/%/%%/g;s/\$/$$/g')"
}

install_service() {
    [ -n "$python" ] || fail "no service without a Python: install one and run this again"
    find_manager
    if [ $manager = none ]; then
        say "No service manager of yours is running here. This is the unit, for ${unit:-its directory}:"
        print_unit
        [ "$(uname -s)" = Darwin ] || say "Then: systemctl --user daemon-reload && systemctl --user enable --now $UNIT"
        return
    fi
    [ -n "${HOME:-}" ] || fail "HOME is not set: it is where the service is written"
    if [ -f "$unit" ] && ! grep -q "$MARK" "$unit"; then
        fail "$unit is there already, and not ours: remove it, then run this again with --service"
    fi
    print_unit >"$scratch/unit"
    if ! cmp -s "$scratch/unit" "$unit"; then
        changed=yes
        mkdir -p "$(dirname "$unit")"
        cp "$scratch/unit" "$unit.new"
        mv -f "$unit.new" "$unit"
    fi
    case $manager in
        systemd) start_systemd ;;
        launchd) start_launchd ;;
    esac
}

start_systemd() {
    if [ "$changed" = no ] && systemctl --user --quiet is-active $UNIT; then
        say "its service runs already: systemctl --user status $UNIT"
        return
    fi
    systemctl --user daemon-reload
    systemctl --user enable $UNIT
    systemctl --user restart $UNIT
    say "its service runs: systemctl --user status $UNIT; options: systemctl --user edit $UNIT"
    if has loginctl && [ "$(loginctl show-user "$(id -un)" -p Linger 2>/dev/null)" != Linger=yes ]; then
        say "note: it ends when you log out, unless: loginctl enable-linger"
    fi
}

start_launchd() {
    if [ "$changed" = no ] && launchctl print "gui/$(id -u)/$LABEL" >/dev/null 2>&1; then
        say "its service runs already: launchctl print gui/$(id -u)/$LABEL"
        return
    fi
    launchctl bootout "gui/$(id -u)/$LABEL" 2>/dev/null || :
    launchctl bootstrap "gui/$(id -u)" "$unit"
    say "its service runs: launchctl print gui/$(id -u)/$LABEL; log: ~/Library/Logs/lakeshore.log"
}

remove_service() {
    find_manager
    [ -n "${HOME:-}" ] && [ -f "$unit" ] && grep -q "$MARK" "$unit" || return 0
    case $manager in
        systemd) systemctl --user disable --now $UNIT || : ;;
        launchd) launchctl bootout "gui/$(id -u)/$LABEL" 2>/dev/null || : ;;
    esac
    rm -f "$unit"
    [ $manager != systemd ] || systemctl --user daemon-reload || :
    say "removed $unit"
}

remove() {
    remove_service
    if ! is_there "$target"; then
        elsewhere=$(command -v lakeshore 2>/dev/null || :)
        say "there is no $target${elsewhere:+; there is $elsewhere (--dest $(dirname "$elsewhere"))}"
        return
    fi
    old=$(version_in "$target")
    [ -n "$old" ] || [ $force = yes ] || fail "$target is not a Lakeshore of this kind: remove it yourself, or add --force"
    check_destination
    as_owner rm -f "$target"
    if [ "$(readlink "$dest/nymph" 2>/dev/null || :)" = lakeshore ]; then as_owner rm -f "$dest/nymph"; fi
    say "removed $target${old:+ ($old)}"
    say "Kept: ~/.lakeshore, ~/.config/lakeshore, ~/.cache/lakeshore and ~/.local/share/lakeshore (macOS: ~/Library/Application"
    say "Support/lakeshore). Remove them as well if nothing of yours is in there."
}

# In a compound, so that a script that was cut off right here is a syntax error and not a run without its arguments.
if :; then
    main "$@"
fi
