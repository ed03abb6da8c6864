#!/bin/sh
# changelog.sh LIST TARGET: release notes from commits, one `type: subject` a line.
set -eu
list=$1 target=$2
section() {
    grep "^$1: " "$list" >/dev/null || return 0
    printf '## %s\n\n' "$2"
    sed -n "s/^$1: /- /p" "$list"
    printf '\n'
}
{
    printf '# Changelog\n\n'
    section feat Added
    section fix Fixed
} >"$target"
printf '%s entries\n' "$(grep -c '^- ' "$target")"
