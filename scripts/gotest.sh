#!/bin/sh
# go test without go vet, with the same arguments and exit code. If TEST_TIMES names a directory, a file
# there has the result and the time of each test, for scripts/testtimes.sh, and up to three tests that fail
# are run once more: tests of real components share few CPUs, and one that waited in vain is to be looked at,
# which testtimes.sh asks for, but is not to hide what the others show. Data races and panics always fail.
case " $* " in *' -race '*) export CGO_ENABLED=1 GOFLAGS=${GOFLAGS%-trimpath} ;; esac # it needs cgo
if [ -z "${TEST_TIMES:-}" ]; then exec "${GO:-go}" test -vet=off "$@"; fi
packages=
for arg; do # gotestsum has to know which arguments are packages
	shift
	case $arg in . | ./* | github.com/*) packages="$packages $arg" ;; *) set -- "$@" "$arg" ;; esac
done
exec "${GO:-go}" run gotest.tools/gotestsum@v1.13.0 --format standard-quiet \
	--jsonfile-timing-events "$(mktemp "$TEST_TIMES/XXXXXXXX")" --packages "${packages:-.}" \
	--rerun-fails=1 --rerun-fails-max-failures 3 --rerun-fails-run-root-test --rerun-fails-abort-on-data-race -- -vet=off "$@"
