"""The script for fish, 3.0 and later: for `source`, and as a file in its directory of completions."""

from __future__ import annotations

from .facts import fish_table
from .tree import Node

_ENGINE = r"""
function __lakeshore_complete
    set -l tokens (commandline -opc)
    set -l current (commandline -ct)
    while string match -qr '^\w+=' -- "$tokens[1]"
        set -e tokens[1]
    end
    set -l program $tokens[1]
    set -e tokens[1]
    string match -qr '(^|/)lakeshore$' -- $program; or set program lakeshore
    set program (string replace -r '^~/' "$HOME/" -- $program)
    set -l here
    set -l verbs
    set -l flags
    set -l taking
    set -l again
    set -l values
    set -l option ''
    set -l given
    set -l place 1
    set -l plain no
    set -l url ''
    set -l namespace ''
    __lakeshore_node ''
    for word in $tokens
        if test -n "$option"
            test $option = --url; and set url $word
            test $option = --namespace; and set namespace $word
            set option ''
        else if test $plain = no -a "x$word" = x--
            set plain yes
        else if test $plain = no; and string match -qr -- '^--.+?=' $word
            set -a given (string replace -r '=.*' '' -- $word)
            string match -q -- '--url=*' $word; and set url (string replace -- --url= '' $word)
            string match -q -- '--namespace=*' $word; and set namespace (string replace -- --namespace= '' $word)
        else if test $plain = no; and string match -qr -- '^-.' $word
            set -a given $word
            contains -- $word $taking; and set option $word
        else if set -q verbs[1]
            __lakeshore_node (string trim -- "$here $word"); or return
            set given
            set place 1
        else
            set place (math $place + 1)
        end
    end

    set -l want $place
    set -l front ''
    if test -n "$option"
        set want $option
    else if test $plain = no; and string match -qr -- '^--.+?=' $current
        set want (string replace -r '=.*' '' -- $current)
        set front $want=
        set current (string replace -- $front '' $current)
    else if test $plain = no; and string match -q -- '-*' $current
        for line in $flags
            set -l name (string split \t -- $line)[1]
            contains -- $name $given; and not contains -- $name $again; or echo $line
        end
        return
    else if set -q verbs[1]
        string join \n -- $verbs
        return
    end

    for line in $values
        set -l parts (string split \t -- $line)
        if test "x$parts[1]" != "x$want"
            test "x$parts[1]" = 'x*'; and not string match -q -- '-*' $want; or continue
        end
        set current (string unescape -- $current 2>/dev/null; or echo $current)
        switch $parts[2]
            case words
                string join \n -- $front(string split ' ' -- $parts[3])
            case ask
                string join \n -- $front($program completion __suggest $parts[3] \
                    --url "$url" --namespace "$namespace" 2>/dev/null </dev/null)
            case files
                string join \n -- $front(__fish_complete_path $current)
            case folders
                string join \n -- $front(__fish_complete_directories $current '')
        end
        return
    end
end

complete -c lakeshore -f -a '(__lakeshore_complete)'
"""


def script(tree: list[Node]) -> str:
    """What `source` reads in fish."""
    return f"# lakeshore's completion for fish; made by `lakeshore completion fish`.\n{fish_table(tree)}\n{_ENGINE}"
