#!/bin/sh
# Shows the slowest packages and tests of all runs of scripts/gotest.sh that left a file in
# a directory, and at the end what has failed:
#
#	scripts/testtimes.sh DIRECTORY
set -eu
events() { # as lines: seconds, package and test
	cat "$1"/* | jq -r "select($2)"' | "\(.Elapsed // 0)\t\(.Package | sub("^github.com/virtual-kubelet/virtual-kubelet"; "."))\(if .Test then "\t" + .Test else "" end)"'
}
slowest() {
	printf '\nThe slowest %s, in seconds:\n\n' "$2"
	events "$1" ".Action != \"skip\" and (.Test $3 null)" | sort -rn | awk -F '\t' 'NR <= 15 { printf "%8.1f  %s %s\n", $1, $2, $3 }'
}
ls "$1"/* >/dev/null 2>&1 || exit 0
slowest "$1" packages ==
slowest "$1" tests !=
failed=$(events "$1" '.Action == "fail"' | cut -f 2- | sort -u)
[ -z "$failed" ] || printf '\nFailed:\n\n%s\n' "$failed"
