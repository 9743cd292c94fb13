#!/bin/sh
# Shows the slowest packages and tests of all runs of scripts/gotest.sh that left a file in
# a directory, and at the end what has failed, and what has passed only when it was run again:
#
#	scripts/testtimes.sh DIRECTORY
set -eu
events() { # as lines: seconds, package, test, action and the file of the run
	jq -r "select($2)"' | "\(.Elapsed // 0)\t\(.Package | sub("^github.com/virtual-kubelet/virtual-kubelet"; "."))\t\(.Test // "")\t\(.Action)\t\(input_filename)"' "$1"/*
}
slowest() {
	printf '\nThe slowest %s, in seconds:\n\n' "$2"
	events "$1" ".Action != \"skip\" and (.Test $3 null)" | sort -rn | awk -F '\t' 'NR <= 15 { printf "%8.1f  %s %s\n", $1, $2, $3 }'
}
failed() { # those that have passed, too, in the same run, or those that have not
	events "$1" '.Action == "pass" or .Action == "fail"' | awk -F '\t' -v again="$2" '
		{ of[$5 "\t" $2 "\t" $3] = $2 " " $3; ended[$5 "\t" $2 "\t" $3, $4] = 1 }
		END { for (t in of) if ((t, "fail") in ended && ((t, "pass") in ended) == again) print of[t] }' | sort -u
}
show() { [ -z "$2" ] || printf '\n%s:\n\n%s\n' "$1" "$2"; }
ls "$1"/* >/dev/null 2>&1 || exit 0
slowest "$1" packages ==
slowest "$1" tests !=
show 'Passed only when run again, which is to be looked at' "$(failed "$1" 1)"
show Failed "$(failed "$1" 0)"
