#!/bin/bash
# The job of a pod: runs its containers, and writes what becomes of them to the file state.
# The files pod and containers/NAME/... beside it are made for the pod.
dir=${0%/*}
. "$dir/pod" || exit 1

say() { printf '%s\n' "$*" >>"$dir/state"; }
now() { printf '%(%s)T' -1; }

# run NAME executes the container's program, and enter NAME COMMAND... another one in it.
program() {
	local name=$1 how=$2
	shift 2
	export VIRTUAL_KUBELET_MOUNTS=$dir/mounts/$name
	. "$dir/containers/$name/$how"
}

# inside ends the program of a container whose mount leads out of a directory by a link.
inside() {
	local dir path
	dir=$(realpath -e -- "$1") && path=$(realpath -e -- "$2") && case $path/ in "${dir%/}"/*) return ;; esac
	echo "$2 is not there, or leads out of $1" >&2
	exit 126
}

address=$(hostname -I 2>/dev/null) || address=$(getent hosts "$SLURMD_NODENAME")
address=${address%%[[:space:]]*}

if [ "${1-}" = exec ]; then
	name=$2 code=$3
	shift 3
	(program "$name" enter "$@")
	echo $? >"$code"
	exit 0
fi

# A pod runs once, even if its job was submitted twice, or is queued again.
job=$(sed -n 's/^job //p' "$dir/state" | tail -n 1)
[ "${job:-$SLURM_JOB_ID}" = "$SLURM_JOB_ID" ] || exit 0
ln -s "$SLURM_JOB_ID" "$dir/owner" 2>/dev/null || exit 0
say "begun $SLURM_JOB_ID $SLURMD_NODENAME $address"

# stamp puts the time before each line.
if command -v perl >/dev/null; then
	stamp() {
		exec perl -e 'use Time::HiRes qw(time); use POSIX qw(strftime); $SIG{TERM} = $SIG{HUP} = "IGNORE"; $| = 1;
			while (<STDIN>) { my $t = time; chomp; printf "%s.%06dZ %s\n", strftime("%Y-%m-%dT%H:%M:%S", gmtime($t)), ($t - int($t)) * 1e6, $_ }'
	}
else
	stamp() {
		trap '' TERM HUP
		local line
		while IFS= read -r line || [ -n "$line" ]; do TZ=UTC printf '%(%Y-%m-%dT%H:%M:%SZ)T %s\n' -1 "$line"; done
	}
fi

# grace is how long containers have to end. Slurm gives 30 seconds, by default, when a job's
# time is up, and when it is preempted.
grace() {
	local seconds
	seconds=$(sed -n 's/^deleted //p' "$dir/state" | tail -n 1)
	echo "${seconds:-20}"
}

# stop asks the container to end, and kills it when its time is up.
stop() {
	stopping=1
	[ -n "$pid" ] || return
	((SECONDS - begun > 1)) || sleep 0.5 # until it is the program: bash loses signals before
	kill -TERM "$pid" 2>/dev/null
	[ -z "$killer" ] || return
	(
		sleep "$(grace)"
		kill -KILL -- "-$pid"
		program "$name" kill
	) 2>/dev/null >&2 &
	killer=$!
}

# await waits for a process, also if signals come meanwhile, and sets code. Where a process ends in
# the moment of a signal bash may forget how it did, and count it as one that runs. Slurm asks all
# processes of a job to end at once.
await() {
	while :; do
		interrupted=
		wait "$1" 2>/dev/null
		code=$?
		[ -n "$interrupted" ] || return
		! kill -0 "$1" 2>/dev/null && [[ $'\n'$(jobs -rp)$'\n' == *$'\n'$1$'\n'* ]] || continue
		code=143 # as what is ended by the signal
		return
	done
}

# container runs a container by its restart policy, and ends with its exit code.
container() {
	name=$1
	local policy=$2 run=0 delay=0 begun log writer
	set -m
	stopping= pid= killer=
	trap 'interrupted=1; stop' TERM
	mkdir -p "$dir/logs/$name"
	while :; do
		[ -z "$stopping" ] || break
		begun=$SECONDS
		exec {log}> >(stamp >>"$dir/logs/$name/$run")
		writer=$!
		[ -z "$stopping" ] || break
		say "start $name $run $(now)"
		(exec {log}>&-; trap - TERM; program "$name" run) >&"$log" 2>&1 </dev/null &
		pid=$!
		exec {log}>&-
		[ -z "$stopping" ] || stop
		await "$pid"
		kill -KILL -- "-$pid" 2>/dev/null # what it has left behind
		(program "$name" kill) 2>/dev/null >&2
		for _ in {1..20}; do kill -0 "$writer" 2>/dev/null && sleep 0.1; done
		say "exit $name $run $code $(now)"
		pid=
		[ -z "$stopping" ] || break
		case $policy in Never) break ;; OnFailure) [ $code != 0 ] || break ;; esac
		((SECONDS - begun < 600)) || delay=0
		say "again $name"
		if ((delay > 0)); then
			sleep $delay &
			pid=$!
			wait $pid
			pid=
		fi
		delay=$((delay == 0 ? 10 : delay >= 150 ? 300 : 2 * delay))
		run=$((run + 1))
		rm -f "$dir/logs/$name/$((run - 2))" # as a kubelet, the newest two are kept
	done
	[ -z "$killer" ] || kill -KILL -- "-$killer" 2>/dev/null
	exit "${code-143}"
}

# cleanup removes what has secrets. Containers leave directories that are read-only, and with podman
# those of other users.
cleanup() {
	local left=("$dir/volumes" "$dir/mounts" "$dir/containers" "$dir/logins")
	rm -rf "${left[@]}" && return
	chmod -R u+rwX "${left[@]}"
	rm -rf "${left[@]}" || podman unshare rm -rf "${left[@]}"
}

stopping= all=()
# With the word stopped, failures of the containers are not their own.
trap 'interrupted=1; [ -n "$stopping" ] || say "stopped $(now)"; stopping=1; kill -TERM "${all[@]}" 2>/dev/null' TERM
failed=0 sidecars=()
set -m

for entry in "${inits[@]}"; do
	[ -z "$stopping" ] && [ $failed = 0 ] || break
	name=${entry%%=*}
	container "$name" "${entry#*=}" &
	all+=($!)
	if [ "${entry#*=}" = Always ]; then
		sidecars+=($!)
		until grep -q "^start $name " "$dir/state" || [ -n "$stopping" ]; do sleep 0.1; done
	else
		[ -z "$stopping" ] || kill -TERM $!
		await "${all[-1]}"
		[ $code = 0 ] || failed=1
	fi
done
mains=()
if [ -z "$stopping" ] && [ $failed = 0 ]; then
	for name in "${containers[@]}"; do
		container "$name" "$policy" &
		all+=($!)
		mains+=($!)
	done
	[ -z "$stopping" ] || kill -TERM "${all[@]}" 2>/dev/null
	for pid in "${mains[@]}"; do
		await "$pid"
		[ $code = 0 ] || failed=1
	done
fi
for ((i = ${#sidecars[@]} - 1; i >= 0; i--)); do
	kill -TERM "${sidecars[i]}" 2>/dev/null
	await "${sidecars[i]}"
done
[ ${#mains[@]} -gt 0 ] || failed=1
say "end $(now)"
cleanup 2>/dev/null >&2
exit $failed
