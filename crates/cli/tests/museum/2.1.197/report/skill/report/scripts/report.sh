#!/bin/sh
# report.sh markdown|html FIGURES: a table of the figures, which are `name,value` a line.
set -eu
format=$1 figures=$2
case $format in
markdown)
    { printf '| Name | Value |\n|---|---|\n'; sed 's/^\(.*\),\(.*\)$/| \1 | \2 |/' "$figures"; } >outputs/report.md
    printf 'outputs/report.md\n'
    ;;
html)
    {
        printf '<table>\n'
        sed 's/^\(.*\),\(.*\)$/<tr><td>\1<\/td><td>\2<\/td><\/tr>/' "$figures"
        printf '</table>\n'
    } >outputs/report.html
    printf 'outputs/report.html\n'
    ;;
*)
    printf 'report: unknown format %s\n' "$format" >&2
    exit 2
    ;;
esac
