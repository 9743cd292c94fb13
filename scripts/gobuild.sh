#!/usr/bin/env bash
# Builds a Go program and says how far it is, since a first build takes minutes:
#
#	scripts/gobuild.sh WHAT OUTPUT PACKAGE [flag of go build …]
#
# WHAT is for people, as in "the control plane". A build that has little to do says
# nothing. It runs in the current directory with the environment of go build.
set -euo pipefail
what=$1 output=$2 package=$3
shift 3

go=${GO:-go}

# Packages that the build cache has are not compiled, so they do not count.
total=$("$go" list -deps -f '{{if .Stale}}{{.ImportPath}}{{end}}' "$@" "$package" 2>/dev/null | wc -l) || total=0

line() { # what go says while it builds is names of packages; all else is an error
	[[ $1 =~ ^[A-Za-z0-9_.~/-]+$ ]]
}
say() {
	local left=$'\n'
	if [ -t 1 ]; then left=$'\r'; fi
	printf 'Building %s: %d of %d packages, %dm%02ds%s' "$what" "$done" "$total" $((SECONDS / 60)) $((SECONDS % 60)) "$left"
}

SECONDS=0
done=0 said=0 every=15
if [ -t 1 ]; then every=1; fi
coproc BUILD { "$go" build -v "$@" -o "$output" "$package" 2>&1; }
build=$BUILD_PID
exec 3<&"${BUILD[0]}"
while true; do
	status=0
	IFS= read -r -t "$every" name <&3 || status=$?
	if [ "$status" = 0 ]; then
		if line "$name"; then done=$((done + 1)); else printf '%s\n' "$name" >&2; fi
	elif [ "$status" -le 128 ]; then
		break # the end of its output
	fi
	if [ "$total" -ge 20 ] && [ $((SECONDS - said)) -ge "$every" ]; then
		said=$SECONDS
		say
	fi
done
status=0
wait "$build" || status=$?
if [ "$said" != 0 ] && [ -t 1 ]; then echo; fi
exit "$status"
