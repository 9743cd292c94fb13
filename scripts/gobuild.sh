#!/usr/bin/env bash
# Builds a Go program and says how far it is, since a first build takes minutes:
#
#	scripts/gobuild.sh WHAT OUTPUT PACKAGE [flag of go build …]
#
# WHAT is for people, as in "the control plane". A build that has little to do says
# nothing. It runs in the current directory with the environment of go build. Where the
# first flag is "-c", it builds the package's tests, as go test -c does.
set -euo pipefail
what=$1 output=$2 package=$3
shift 3

go=${GO:-go}
tests=
if [ "${1:-}" = -c ]; then
	tests=-test
	shift
fi

# Packages that the build cache has are not compiled, so they do not count.
stale=$("$go" list -deps $tests -f '{{if and .Stale (not .ForTest)}}{{.ImportPath}}{{end}}' "$@" "$package" 2>/dev/null | grep -v '\.test$') || stale=
total=$(wc -w <<<"$stale")

ours() { # the packages that are of the same module as PACKAGE
	local module
	module=$("$go" list -f '{{.Module.Path}}' "$package") && printf '%s\n' "$@" | grep -E "^$module(/|\$)"
}

build() {
	if [ -z "$tests" ]; then
		exec "$go" build -v "$@" -o "$output" "$package"
	fi
	# go test -c does not say what it compiles, and checks it first but for -vet=off. What the package's own module has brings all
	# else along; go build takes no packages of modules that are required only indirectly.
	# shellcheck disable=SC2046,SC2086 # one word a package
	[ "$total" = 0 ] || "$go" build -v "$@" $(ours $stale || echo "$package") || exit
	exec "$go" test -c -vet=off "$@" -o "$output" "$package"
}

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
coproc BUILD { build "$@" 2>&1; }
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
