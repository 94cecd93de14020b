# shellcheck shell=bash
# Looks at the host and makes the private directory of one launch.
# Given: launch_id, python ("" to look for one), size (bytes that must fit), docker_group (yes or no),
# server (the address that the daemon will ask; "" for none).

least=3.11
names='python3 python3.14 python3.13 python3.12 python3.11'

main() {
    account=$(id -un 2>/dev/null || whoami)
    answer user "$account"
    case $(uname -s) in
        Linux) system=unknown-linux-gnu ;;
        Darwin) system=apple-darwin ;;
        *) fail "unsupported OS: $(uname -s)" "Lakeshore's daemon runs on Linux and macOS" ;;
    esac
    case $(uname -m) in
        x86_64 | amd64) machine=x86_64 ;;
        aarch64 | arm64) machine=aarch64 ;;
        *) fail "unsupported arch: $(uname -m)" "Lakeshore's daemon runs on x86_64 and aarch64" ;;
    esac
    answer triple "$machine-$system"
    answer home "$HOME"
    find_python
    answer python "$found"
    answer version "$version"
    if [ -e "$dir" ]; then
        fail "there is a launch $launch_id already: $dir" "run the command again: each run has an id of its own"
    fi
    if ! said=$({ mkdir -p "$share/nymph/launches" && mkdir -m 700 "$dir" && : >"$log"; } 2>&1); then
        rm -rf -- "$dir"
        fail "cannot write below $share: ${said##*: }" "the daemon lives in the home directory of $account: make room there, or make it writable"
    fi
    free=$("$found" -c 'import os, sys; s = os.statvfs(sys.argv[1]); print(s.f_bavail * s.f_frsize)' "$dir" </dev/null || echo)
    if [ -n "$free" ] && [ "$free" -lt "${size:?}" ]; then
        rm -rf -- "$dir" "$log"
        fail "the home directory of $account is full: $((free / 1048576)) MiB are free, the daemon needs $((size / 1048576))" "make room below $HOME"
    fi
    answer rsync "$(command -v rsync || :)"
    join_docker
    if [ -n "${server-}" ]; then answer unreached "$(try_server)"; fi
    answer end ok
}

# A Python that really starts and is new enough, and all that were looked at.
find_python() {
    seen=
    if [ -n "${python-}" ]; then
        if ! probe "$python"; then
            fail "$python is no Python $least or newer there: ${seen:-it was not found}" "name another one with --python, or leave it out"
        fi
        return
    fi
    folders=$PATH:$HOME/.local/bin:/usr/local/bin:/opt/homebrew/bin:$HOME/.pyenv/shims:$HOME/miniconda3/bin:$HOME/miniforge3/bin:/opt/conda/bin
    for folder in "$HOME"/.local/share/uv/python/*/bin "$HOME"/.pyenv/versions/*/bin; do
        if [ -d "$folder" ]; then folders=$folders:$folder; fi
    done
    tried=:
    for name in $names; do
        rest=$folders:
        while [ -n "$rest" ]; do
            folder=${rest%%:*} rest=${rest#*:}
            candidate=$folder/$name
            case $tried in *":$candidate:"*) continue ;; esac
            tried=$tried$candidate:
            if [ -n "$folder" ] && [ -x "$candidate" ] && [ ! -d "$candidate" ] && probe "$candidate"; then return; fi
        done
    done
    fail "no Python $least or newer. Found: ${seen:-none}. Looked for: $names" \
        "install one there (Debian, Ubuntu: apt install python3.11; without root: uv python install 3.12), or name it with --python"
}

probe() { # probe PROGRAM: sets found and version
    about=$("$1" -c 'import sys; print("%d.%d.%d" % sys.version_info[:3] + " " + sys.executable)' </dev/null 2>/dev/null || :)
    case $about in
        [0-9]*.[0-9]*.[0-9]*' '?*) ;;
        *)
            seen="${seen:+$seen; }$1 does not start"
            return 1
            ;;
    esac
    version=${about%% *} found=${about#* }
    major=${version%%.*} minor=${version#*.}
    minor=${minor%%.*}
    if [ "$major" -gt 3 ] || { [ "$major" -eq 3 ] && [ "$minor" -ge 11 ]; }; then return 0; fi
    seen="${seen:+$seen; }$1 is $version"
    return 1
}

# Why the server does not answer from here; nothing where it does. A refusal is an answer.
try_server() {
    "$found" - "$server" 2>/dev/null <<'END' || echo 'this could not be found out'
import sys, urllib.error, urllib.request
try:
    urllib.request.urlopen(sys.argv[1].rstrip("/") + "/healthz", timeout=10).close()
except urllib.error.HTTPError:
    pass
except Exception as error:
    print(getattr(error, "reason", None) or error)
END
}

# So that jobs of the docker runner reach the socket; nothing depends on it.
join_docker() {
    if [ "${docker_group-no}" != yes ] || ! has sudo || ! grep -q '^docker:' /etc/group 2>/dev/null; then return 0; fi
    case " $(id -nG "$account" 2>/dev/null) " in *' docker '*) return 0 ;; esac
    if sudo -n usermod -aG docker "$account" </dev/null >/dev/null 2>&1; then answer docker joined; fi
}

main
