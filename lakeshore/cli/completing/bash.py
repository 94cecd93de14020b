"""The script for bash, 3.2 (macOS) and later, with or without the package bash-completion.

Rules: names are compared and quoted by the script itself, never handed to `compgen -W`, which would run what is in
them; the words are read from the line, because bash cuts them at `:`, `=` and `@`.
"""

from __future__ import annotations

from .facts import posix_table
from .tree import Node

_ENGINE = r"""
_lakeshore() {
    local IFS=$' \t\n'
    local line=${COMP_LINE:0:COMP_POINT} word='' quote='' char='' started='' opened=0 i
    local -a words
    words=()
    COMPREPLY=()
    for ((i = 0; i < ${#line}; i++)); do
        char=${line:i:1}
        if [[ -n $quote ]]; then
            if [[ $char == "$quote" ]]; then
                quote=''
            elif [[ $char == \\ && $quote == \" ]]; then
                i=$((i + 1))
                word=$word${line:i:1}
            else
                word=$word$char
            fi
            continue
        fi
        case $char in
        \\)
            i=$((i + 1))
            word=$word${line:i:1} started=1
            ;;
        \' | \")
            quote=$char started=1 opened=${#word}
            ;;
        ' ' | $'\t' | $'\n')
            [[ -z $started ]] || words[${#words[@]}]=$word
            word='' started=''
            ;;
        *)
            word=$word$char started=1
            ;;
        esac
    done
    [[ ${#words[@]} -gt 0 ]] || return 0

    local program=${words[0]} here='' verbs='' flags='' taking='' again='' values=''
    local option='' given=' ' place=1 plain='' url='' namespace='' known=1 cur=$word
    case ${program##*/} in
    lakeshore) program=${program/#\~\//$HOME/} ;;
    *) program=lakeshore ;;
    esac
    __lakeshore_node ''
    for ((i = 1; i < ${#words[@]}; i++)); do
        word=${words[i]}
        if [[ -n $option ]]; then
            [[ $option != --url ]] || url=$word
            [[ $option != --namespace ]] || namespace=$word
            option=''
        elif [[ -z $plain && $word == -- ]]; then
            plain=1
        elif [[ -z $plain && $word == --?*=* ]]; then
            given="$given${word%%=*} "
            [[ $word != --url=* ]] || url=${word#*=}
            [[ $word != --namespace=* ]] || namespace=${word#*=}
        elif [[ -z $plain && $word == -?* ]]; then
            given="$given$word "
            [[ " $taking " != *" $word "* ]] || option=$word
        elif [[ -n $verbs ]]; then
            __lakeshore_node "${here:+$here }$word" || return 0
            given=' ' place=1
        else
            place=$((place + 1))
        fi
    done

    local front='' want='' name what rest
    if [[ -n $option ]]; then
        want=$option
    elif [[ -z $plain && $cur == --?*=* ]]; then
        want=${cur%%=*} front=${cur%%=*}= cur=${cur#*=}
    elif [[ -z $plain && $cur == -* ]]; then
        while IFS=$'\t' read -r name rest; do
            [[ " $given" == *" $name "* && " $again " != *" $name "* ]] || __lakeshore_offer "$name"
        done <<<"$flags"
    elif [[ -n $verbs ]]; then
        while IFS=$'\t' read -r name rest; do
            __lakeshore_offer "$name"
        done <<<"$verbs"
    else
        want=$place
    fi
    [[ -n $want ]] || return 0

    while IFS=$'\t' read -r name what rest; do
        if [[ $name == "$want" || ( $name == '*' && $want != -* ) ]]; then
            case $what in
            words)
                for name in $rest; do
                    __lakeshore_offer "$name"
                done
                ;;
            ask)
                while IFS= read -r name; do
                    __lakeshore_offer "$name"
                done < <(
                    "$program" completion __suggest "$rest" --url "$url" --namespace "$namespace" 2>/dev/null </dev/null
                )
                ;;
            files)
                compopt -o default 2>/dev/null || __lakeshore_paths -f
                ;;
            folders)
                compopt -o dirnames 2>/dev/null || __lakeshore_paths -d
                ;;
            esac
            return 0
        fi
    done <<<"$values"
}

# Offers one candidate, if it goes on from what is there: as the rest of what readline takes for the word.
__lakeshore_offer() {
    [[ -n $1 && $1 == "$cur"* ]] || return 0
    local whole=$front$1 cut='' typed=$front$cur
    if [[ -n $quote ]]; then
        whole=${whole:opened}
        if [[ $quote == \' ]]; then
            whole=${whole//$quote/$quote\\$quote$quote}
        else
            for char in \\ \" \$ \`; do
                whole=${whole//"$char"/\\"$char"}
            done
        fi
        COMPREPLY[${#COMPREPLY[@]}]=$whole
        return 0
    fi
    while [[ $typed == *[:=@]* ]]; do
        char=${typed#"${typed%%[:=@]*}"}
        char=${char:0:1}
        [[ $COMP_WORDBREAKS != *"$char"* ]] || cut=$cut${typed%%"$char"*}$char
        [[ $COMP_WORDBREAKS == *"$char"* ]] || break
        typed=${typed#*"$char"}
    done
    printf -v whole %q "${whole:${#cut}}"
    COMPREPLY[${#COMPREPLY[@]}]=$whole
}

# Without compopt, as in bash 3.2.
__lakeshore_paths() {
    while IFS= read -r name; do
        __lakeshore_offer "$name"
    done < <(compgen "$1" -- "$cur")
}

complete -F _lakeshore lakeshore
"""


def script(tree: list[Node]) -> str:
    """What `eval` reads in bash."""
    return f"# lakeshore's completion for bash; made by `lakeshore completion bash`.\n{posix_table(tree)}\n{_ENGINE}"
