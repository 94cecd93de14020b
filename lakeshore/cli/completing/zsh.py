"""The script for zsh: for `eval`, and as a file `_lakeshore` on fpath. It starts zsh's completion where nobody has."""

from __future__ import annotations

from .facts import posix_table
from .tree import Node

_ENGINE = r"""
_lakeshore() {
    emulate -L zsh
    setopt extended_glob no_sh_word_split
    local here='' verbs='' flags='' taking='' again='' values=''
    local option='' given=' ' plain='' url='' namespace='' want='' word name what rest line program
    local -i place=1 i
    local -a found
    program=${(Q)words[1]}
    case ${program:t} in
    lakeshore) program=${program/#\~\//$HOME/} ;;
    *) program=lakeshore ;;
    esac
    __lakeshore_node ''
    for ((i = 2; i < CURRENT; i++)); do
        word=${(Q)words[i]}
        if [[ -n $option ]]; then
            [[ $option != --url ]] || url=$word
            [[ $option != --namespace ]] || namespace=$word
            option=''
        elif [[ -z $plain && $word == -- ]]; then
            plain=1
        elif [[ -z $plain && $word == --?*=* ]]; then
            given+="${word%%=*} "
            [[ $word != --url=* ]] || url=${word#*=}
            [[ $word != --namespace=* ]] || namespace=${word#*=}
        elif [[ -z $plain && $word == -?* ]]; then
            given+="$word "
            [[ " $taking " != *" $word "* ]] || option=$word
        elif [[ -n $verbs ]]; then
            __lakeshore_node "${here:+$here }$word" || return 1
            given=' ' place=1
        else
            place+=1
        fi
    done

    if [[ -n $option ]]; then
        want=$option
    elif [[ -z $plain && $PREFIX == --?*=* ]]; then
        want=${PREFIX%%=*}
        compset -P 1 '*='
    elif [[ -z $plain && $PREFIX == -* ]]; then
        for line in ${(f)flags}; do
            name=${line%%$'\t'*}
            [[ $given == *" $name "* && " $again " != *" $name "* ]] || found+=("$name:${line#*$'\t'}")
        done
        _describe -o -t options option found
        return
    elif [[ -n $verbs ]]; then
        for line in ${(f)verbs}; do
            found+=("${line/$'\t'/:}")
        done
        _describe -t commands command found
        return
    else
        want=$place
    fi

    for line in ${(f)values}; do
        name=${line%%$'\t'*} rest=${line#*$'\t'}
        what=${rest%%$'\t'*} rest=${rest#*$'\t'}
        [[ $name == $want || ( $name == '*' && $want != -* ) ]] || continue
        case $what in
        words) compadd -- ${(s: :)rest} ;;
        ask)
            line=$($program completion __suggest $rest --url "$url" --namespace "$namespace" 2>/dev/null </dev/null)
            found=(${(f)line})
            compadd -a found
            ;;
        files) _files ;;
        folders) _files -/ ;;
        esac
        return
    done
    return 1
}

if [[ $zsh_eval_context[-1] == loadautofunc ]]; then
    _lakeshore "$@"
else
    (( $+functions[compdef] )) || { autoload -Uz compinit && compinit -i }
    compdef _lakeshore lakeshore
fi
"""


def script(tree: list[Node]) -> str:
    """What `eval` reads in zsh."""
    head = "#compdef lakeshore\n# lakeshore's completion for zsh; made by `lakeshore completion zsh`."
    return f"{head}\n{posix_table(tree)}\n{_ENGINE}"
