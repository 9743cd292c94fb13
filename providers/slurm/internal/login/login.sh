# What a node does where the commands of Slurm are: a verb and its arguments. /bin/sh
# runs it, as the user of the jobs. Errors of Slurm go to standard error as they are.
umask 077
LC_ALL=C SLURM_TIME_FORMAT=%s
export LC_ALL SLURM_TIME_FORMAT
unset SBATCH_ACCOUNT SBATCH_ARRAY_INX SBATCH_PARTITION SBATCH_QOS SBATCH_REQUEUE SQUEUE_FORMAT SQUEUE_STATES SQUEUE_USERS SINFO_FORMAT
[ -z "${HOME-}" ] || cd "$HOME" || exit
me=$(id -un) || exit
missing=44 # as notFound in runner.go

# jobs prints the jobs of a pod's directory, which is named as they are, in some states: their
# IDs, or what a format of squeue says. It fails only if Slurm cannot be asked.
jobs() {
	squeue --noheader --all --user="$me" --name="${1##*/}" --states="$2" --format="${3-%A}"
}

# active prints the jobs of a pod's directory that have not ended: their IDs and states. A state is that of
# a flag, if a job has one, and squeue finds by the state RUNNING none that is STOPPED or SIGNALING.
active() {
	all=$(jobs "$1" all '%A %T') || return
	printf '%s\n' "$all" | grep -Ev ' (BOOT_FAIL|CANCELLED|COMPLETED|DEADLINE|FAILED|NODE_FAIL|OUT_OF_MEMORY|PREEMPTED|TIMEOUT)$'
	return 0
}

# pod fails for what is no directory of a pod: all below it may be removed.
pod() {
	case $1 in */ | */. | */.. | '' | /) echo "$1 is no directory of a pod" >&2 && exit 2 ;; esac
}

# empty removes what is in a directory of a pod besides its state, by another command if there is one.
empty() {
	of=$1
	shift
	"$@" find "$of" -mindepth 1 -maxdepth 1 ! -name state -exec rm -rf -- {} +
}

# remove removes a directory of a pod, with its state at last: without that, no list would show what
# is left. Containers leave directories that are read-only, and with podman those of other users.
remove() {
	[ -d "$1" ] || return 0
	empty "$1" 2>/dev/null || {
		chmod -R u+rwX "$1"
		empty "$1" || empty "$1" podman unshare
	} >/dev/null 2>&1
	empty "$1" && rm -rf -- "$1"
}

# gone says of an error, as a command has printed it, whether it is that there is no such file.
gone() {
	case $1 in *': No such file or directory' | *': Not a directory' | *': Is a directory') return 0 ;; esac
	return 1
}

# states prints those of all pods in this directory. It fails for one that is there, is the user's and
# cannot be read: others may have directories here, too, and pods go meanwhile.
states() {
	names=$(ls -A) || return
	exec 3>&1
	why=$(printf '%s\n' "$names" | while IFS= read -r name; do
		[ -z "$name" ] || [ -L "$name" ] || printf './%s/state\0' "$name"
	done | xargs -0 -r grep -aH '' 2>&1 >&3)
	case $? in
	0) return 0 ;;
	123) ;; # grep has failed, or read no line
	*) echo "$why" >&2 && return 1 ;;
	esac
	printf '%s\n' "$why" | while IFS= read -r line; do
		[ -n "$line" ] || continue
		gone "$line" && continue
		name=${line#grep: } && name=${name%%/state: *}
		[ -e "$name" ] && [ ! -O "$name" ] && continue
		now=$(ls -d "$name/state" 2>&1 >/dev/null)
		gone "$now" && continue # as after a stale file handle
		# Others' file systems do not even say whose they are.
		case $now in *': Permission denied') [ -O "$name" ] || continue ;; esac
		echo "$line" >&2 && exit 1
	done
}

verb=$1
shift
case $verb in

setup) # ROOT: make the directory of all pods
	mkdir -p "$1"
	;;

create) # DIR FLAG... <files.tar: print the ID of the job of a pod, which is submitted once
	dir=$1
	shift
	job=$(sed -n 's/^job //p' "$dir/state" 2>/dev/null | tail -n 1)
	if [ -z "$job" ]; then
		job=$(jobs "$dir" all) || exit # and not of a pipe, whose last command does not fail
		job=$(printf '%s\n' "$job" | tail -n 1)
	fi
	if [ -z "$job" ] || ! grep -q '^tags ' "$dir/state"; then
		# A state without tags, which is there first, has a directory removed that is never complete.
		{ [ -d "$dir" ] || mkdir "$dir"; } && { [ -e "$dir/state" ] || date +"created %s" >"$dir/state"; } || exit
		tar -xpf - --no-same-owner -C "$dir" && mv "$dir/staged" "$dir/state" || exit
	else
		cat >/dev/null
	fi
	if [ -z "$job" ]; then
		dir=$(cd "$dir" && pwd -P) || exit
		job=$(sbatch --parsable "$@" --output="$dir/slurm.out" --error="$dir/slurm.out" --chdir="${HOME:-/}" --wrap="exec /bin/bash $dir/run" </dev/null) || exit
		job=${job%%;*}
	fi
	grep -qx "job $job" "$dir/state" || echo "job $job" >>"$dir/state" || exit
	echo "$job"
	;;

list) # ROOT: print all jobs, and then the states of all pods, or missing if they have no directory: a job has written its state before it ends
	date +"now %s"
	squeue --noheader --all --user="$me" --states=all --format='row %A|%T|%V|%S|%e|%N|%r|%j|%k' || exit
	if ! why=$(ls -d "$1" 2>&1 >/dev/null); then
		case $why in *': No such file or directory') echo missing && exit ;; esac
		echo "$why" >&2 && exit 1
	fi
	cd "$1" && states
	;;

ended) # JOB,...: print how jobs have ended that only the accounting knows
	sacct --noheader --parsable2 --allocations --jobs="$1" --format=JobIDRaw,State,End,JobName
	;;

usage) # JOB,...: print what jobs use that run, where the site gathers it
	sstat --noheader --parsable2 --noconvert --allsteps --jobs="$1" --format=JobID,AveCPU,AveRSS
	;;

delete) # DIR JOB GRACE: end a job, and remove what it leaves
	dir=$1 job=$2 grace=$3
	pod "$dir"
	active=$(active "$dir") || exit
	owner=$(sed -n 's/^begun \([^ ]*\).*/\1/p; s/^job //p' "$dir/state" 2>/dev/null | tail -n 1)
	if ! printf '%s\n' "$active" | grep -q "^$job "; then
		[ "$owner" = "$job" ] || exit $missing
		remove "$dir" || echo "deleted 0" >>"$dir/state" # the next lists say what is left
		exit
	fi
	[ "$owner" = "$job" ] || exec scancel "$job" # a second job of the pod
	# The period that ends first counts: one that is sent again begins no later.
	now=$(date +%s)
	ends=$(sed -n 's/^until //p' "$dir/state" | tail -n 1)
	if [ -z "$ends" ] || [ $((now + grace)) -lt "$ends" ]; then
		ends=$((now + grace))
		printf 'deleted %s\nuntil %s\n' "$grace" "$ends" >>"$dir/state" || exit
	fi
	# The job's script stops the containers, in their time, and writes that it was asked to. If it had
	# its time, Slurm ends the job.
	if [ "$now" -lt "$ends" ] && printf '%s\n' "$active" | grep -Eqx "$job (RUNNING|RESIZING|SIGNALING)" && grep -q '^begun ' "$dir/state"; then
		grep -q '^stopped ' "$dir/state" && exit
		scancel --batch --signal=TERM "$job" && exit
	fi
	scancel "$job"
	;;

remove) # DIR...: remove what pods have left whose jobs have ended
	for dir; do pod "$dir"; done
	failed=0
	for dir; do remove "$dir" || failed=1; done
	exit $failed
	;;

update) # DIR VOLUME... <files.tar: replace the files of volumes, each at once
	dir=$1
	shift
	[ -e "$dir/state" ] || exit $missing
	new=$dir/volumes.$$
	mkdir "$new" && tar -xpf - --no-same-owner -C "$new" || exit
	for volume; do
		data=$(readlink "$new/volumes/$volume/..data") && to=$dir/volumes/$volume && old=$(readlink "$to/..data") || exit
		rm -rf "$to/$data.new" && mv "$new/volumes/$volume/$data" "$to/$data.new" || exit
		[ "$old" = "$data" ] && data=$data.again
		mv "$to/${data%.again}.new" "$to/$data" && ln -s "$data" "$to/..next" && mv -T "$to/..next" "$to/..data" || exit
		for name in "$new/volumes/$volume"/* "$new/volumes/$volume"/.[!.]*; do
			[ ! -L "$name" ] || [ -e "$to/${name##*/}" ] || mv "$name" "$to/"
		done
		for name in "$to"/* "$to"/.[!.]*; do
			[ ! -L "$name" ] || [ -e "$name" ] || rm -f "$name"
		done
		rm -rf "${to:?}/$old"
	done
	rm -rf "$new"
	;;

log) # DIR FILE LINES ENDED JOB: print a log from a line on; with ENDED, the beginning of a line of the state, until that is there
	dir=$1 file=$1/logs/$2 lines=$3 ended=$4 job=$5
	[ -e "$dir/state" ] || exit $missing
	[ -e "$file" ] || [ -n "$ended" ] || exit 0
	[ -n "$ended" ] || exec tail -n "$lines" "$file"
	exec 3<&0
	tail -n "$lines" -F "$file" 2>/dev/null 3<&- &
	tail=$!
	(cat <&3 >/dev/null; kill $$) 2>/dev/null & # the reader has gone
	reader=$!
	trap 'kill $tail $reader 2>/dev/null; exit 0' TERM HUP INT PIPE
	exec 3<&-
	tries=0
	until grep -q "^$ended" "$dir/state" 2>/dev/null; do
		[ -e "$dir/state" ] || break
		tries=$((tries + 1))
		if [ $((tries % 30)) = 0 ]; then
			active=$(active "$dir") && [ -z "$active" ] && break
		fi
		sleep 1 &
		wait $!
	done
	sleep 1 &
	wait $!
	kill $tail $reader 2>/dev/null
	exit 0
	;;

exec) # DIR CONTAINER JOB PTY CALL COMMAND...: run a command in a container
	dir=$1 container=$2 job=$3 pty=$4 call=$5
	shift 5
	# What goes wrong before the command runs has no exit code of its own: commands have all of them.
	[ -e "$dir/state" ] || { echo "the pod is gone" >&2 && exit 254; }
	dir=$(cd "$dir" && pwd -P) || exit
	host=$(sed -n 's/^begun [^ ]* \([^ ]*\).*/\1/p' "$dir/state" | tail -n 1)
	code=$dir/exec.$call
	: >"$code" || exit
	exec 3<&0
	srun --jobid="$job" --overlap --ntasks=1 --nodes=1 --nodelist="$host" --export=NIL --quiet ${pty:+--pty} \
		/bin/bash "$dir/run" exec "$container" "$code" "$@" <&3 3<&- &
	child=$!
	exec 3<&-
	# A connection that breaks off ends the parent, and nobody else.
	(while kill -0 $PPID; do sleep 2; done; kill $child) </dev/null >/dev/null 2>&1 &
	watcher=$!
	trap 'kill $child 2>/dev/null' TERM HUP INT
	wait $child
	wait $child
	kill $watcher 2>/dev/null
	ended=$(cat "$code")
	[ "$ended" = 255 ] || rm -f "$code" # else the verb exited removes it
	[ -n "$ended" ] || exit 254 # srun has said why
	exit "$ended"
	;;

exited) # DIR CALL: print the exit code of a command, if it is one that ssh has for its own failures, too
	grep -x 255 "$1/exec.$2" 2>/dev/null && rm -f "$1/exec.$2"
	;;

report) # PARTITION: print the nodes of a partition, or of all
	if [ -n "$1" ]; then set -- --partition="$1"; else set -- --all; fi
	sinfo --noheader --Node "$@" --format='%N|%c|%m|%T|%G'
	;;

*)
	echo "there is no verb $verb" >&2
	exit 2
	;;
esac
