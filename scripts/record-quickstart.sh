#!/usr/bin/env bash
# Makes docs/quickstart.svg, a recording of what README.md says under "Try it":
#
#	scripts/record-quickstart.sh BIN
#
# The commands are those of README.md and what they print is real; waits are shortened, and what
# takes a moment (metrics, say) is waited for before its command is typed. It needs asciinema,
# of Debian's packages, and npx.
set -euo pipefail
[ $# = 1 ] || { sed -n '2,/^set/s/^# \{0,1\}//p' "$0" >&2; exit 2; }
self=$(realpath "$0")
root=$(dirname "$(dirname "$self")")
bin=$(cd "$1" && pwd)
cd "$root"

# type_command COMMAND: shows it as it is typed.
type_command() {
	printf '\033[32m$\033[0m '
	local i
	for ((i = 0; i < ${#1}; i++)); do
		printf %s "${1:i:1}"
		sleep 0.03
	done
	echo
}

if [ "${RECORD_PART:-}" = play ]; then # in the terminal that is recorded
	type_command 'make quickstart'
	scripts/quickstart.sh "$bin" .quickstart &
	quickstart=$!
	trap 'kill -TERM "$quickstart" 2>/dev/null; wait "$quickstart" || true' EXIT
	until [ -x .quickstart/kubectl ] && .quickstart/kubectl get apiservice v1beta1.metrics.k8s.io >/dev/null 2>&1; do
		kill -0 "$quickstart" || exit 1
		sleep 0.2
	done
	sleep 2
	sed -n '/^## Try it/,/^## /s/^  \(\.quickstart\/kubectl .*\)/\1/p' README.md | while IFS= read -r command; do
		case $command in # what the command shows, once it is there
		*' run '*) ;;
		*' top '*) until .quickstart/kubectl top pods 2>/dev/null | grep -q '^hello'; do sleep 1; done ;;
		*) until bash -c "$command" 2>/dev/null </dev/null | grep -q .; do sleep 0.5; done ;;
		esac
		type_command "$command"
		bash -c "$command" </dev/null
		sleep 1.5
	done
	exit
fi

command -v asciinema >/dev/null || (apt-get update -q && apt-get install -qy --no-install-recommends asciinema)
cast=$(mktemp)
trap 'rm -f "$cast"' EXIT
RECORD_PART=play asciinema rec --quiet --overwrite --idle-time-limit 1.5 --cols 130 --rows 36 -c "'$self' '$bin'" "$cast"
sed -i "s,$root,~/virtual-kubelet,g" "$cast" # as a reader has it
npx --yes --package svg-term-cli@2.1.1 svg-term --in "$cast" --out docs/quickstart.svg --window --no-cursor --width 130 --height 36
