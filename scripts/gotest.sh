#!/bin/sh
# go test, with the same arguments and exit code. If TEST_TIMES names a directory, a file
# there has the result and the time of each test, for scripts/testtimes.sh.
case " $* " in *' -race '*) export CGO_ENABLED=1 ;; esac # which it needs
if [ -z "${TEST_TIMES:-}" ]; then exec "${GO:-go}" test "$@"; fi
exec "${GO:-go}" run gotest.tools/gotestsum@v1.13.0 --format standard-quiet \
	--jsonfile-timing-events "$(mktemp "$TEST_TIMES/XXXXXXXX")" -- "$@"
