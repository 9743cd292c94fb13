#!/bin/sh
# go test without go vet, with the same arguments and exit code. If TEST_TIMES names a directory, a file
# there has the result and the time of each test, for scripts/testtimes.sh.
case " $* " in *' -race '*) export CGO_ENABLED=1 GOFLAGS=${GOFLAGS%-trimpath} ;; esac # it needs cgo
if [ -z "${TEST_TIMES:-}" ]; then exec "${GO:-go}" test -vet=off "$@"; fi
exec "${GO:-go}" run gotest.tools/gotestsum@v1.13.0 --format standard-quiet \
	--jsonfile-timing-events "$(mktemp "$TEST_TIMES/XXXXXXXX")" -- -vet=off "$@"
