# Runs the containers of a pod by Docker. Lines that are generated follow: they call the
# functions of this file. What becomes of the containers is written into state.txt, one line
# for each change:
#
#	NAME RUN running START
#	NAME RUN exited CODE REASON START END MESSAGE
#
# Each run of a container has a log, logs/NAME.RUN.log, with the time before each line.
# Before this file come the settings: grace, retries, helper.

wd=$AZ_BATCH_TASK_WORKING_DIR
pod=vk-$AZ_BATCH_JOB_ID-$AZ_BATCH_TASK_ID
label=virtual-kubelet.azurebatch.pod=$pod
export DOCKER_CONFIG="$wd/.vk/docker"
cd "$wd/.vk" || exit 1
mkdir -p "$wd/logs"

now() { date -u +%Y-%m-%dT%H:%M:%SZ; }
say() { echo "$*" >>"$wd/state.txt"; }

# The container with the pod's network outlives this script if that is killed: when the file
# alive has not changed for a minute, or is gone, it removes the containers, the files of the
# pod, and itself. The file is empty for a moment at each change, and clocks may jump.
# shellcheck disable=SC2016
watch='n=0 last=
while [ "$n" -lt 12 ] && now=$(cat /pod/.vk/alive 2>/dev/null); do
	if [ "$now" = "$last" ]; then n=$((n + 1)); else n=0; fi
	last=$now
	sleep 5
done
docker ps -aq --filter "label=$0" --filter "label=container" | xargs -r docker rm -f -v
rm -rf /pod/.vk /pod/volumes
docker ps -aq --filter "label=$0" | xargs -r docker rm -f -v'

# network ARG...: starts it, with arguments of docker run.
network() {
	beat &
	beats=$!
	date +%s >alive
	remove
	if ! docker run -d --name "$pod" --label "$label" --ipc shareable -v /var/run/docker.sock:/var/run/docker.sock -v "$wd:/pod" "$@" \
		--entrypoint /bin/sh "$helper" -c "$watch" "$label" >network.out 2>network.err; then
		say "- 0 exited 128 NetworkNotReady $(now) $(now) $(oneline <network.err)"
		finish 128
	fi
}

beat() {
	while sleep 5; do date +%s >alive || exit; done
}

oneline() { tr '\n' ' ' | cut -c1-500; }

remove() { docker ps -aq --filter "label=$label" | xargs -r docker rm -f -v >/dev/null 2>&1; }

# finish CODE: removes all that this script has made but logs, and ends.
finish() {
	trap '' TERM INT
	kill "$beats" 2>/dev/null
	remove
	cd "$wd" && rm -rf .vk volumes
	exit "$1"
}

# Batch wants the task to end.
stop() {
	trap '' TERM INT
	: >stopping # nothing is started again
	running=$(docker ps -q --filter "label=$label" --filter "label=container")
	# shellcheck disable=SC2086
	[ -z "$running" ] || docker stop -t "$grace" $running >/dev/null 2>&1
	sleep 1 # for what they have said at last
	finish 143
}
trap stop TERM INT

# below ROOT PATH: reports whether a path that is mounted is in its volume. A container that has run
# may have made it a link to a directory of the machine.
below() {
	root=$(readlink -m "$1") && path=$(readlink -m "$2") || return 1
	case ${path%/}/ in
	"${root%/}"/*) ;;
	*) return 1 ;;
	esac
}

# inside: reports whether what the next container mounts is in its volumes. It is defined again
# before each container.
inside() { :; }

# run NAME RESTART ARG...: runs a container with arguments of docker create, again as RESTART
# says, and returns how it has ended.
run() {
	name=$1 restart=$2 n=0 delay=10
	shift 2
	while :; do
		start=$(now) seconds=$(date +%s) message=
		log=$wd/logs/$name.$n.log
		if ! inside; then
			code=128 reason=StartError message="a volume has a symbolic link in place of a directory that is mounted"
			echo "$start $message" >"$log"
		elif id=$(docker create --name "$pod-$name-$n" --label "$label" --label "container=$name" --network "container:$pod" --ipc "container:$pod" "$@" 2>"$name.err") &&
			docker start "$id" >/dev/null 2>"$name.err"; then
			say "$name $n running $start"
			docker logs -f -t "$id" >"$log" 2>&1 &
			logs=$!
			code=$(docker wait "$id") || code=137
			wait "$logs"
			reason=Error
			[ "$code" != 0 ] || reason=Completed
			[ "$(docker inspect -f '{{.State.OOMKilled}}' "$id" 2>/dev/null)" != true ] || reason=OOMKilled
		else
			code=128 reason=StartError message=$(oneline <"$name.err")
			echo "$start $message" >"$log"
		fi
		docker rm -f -v "$pod-$name-$n" >/dev/null 2>&1
		say "$name $n exited $code $reason $start $(now) $message"
		if [ "$code" = 0 ] || [ "$restart" = Never ] || [ "$retries" -ge 0 ] && [ "$n" -ge "$retries" ]; then
			return "$code"
		fi
		[ $(($(date +%s) - seconds)) -lt 600 ] || delay=10
		sleep "$delay"
		if [ -e stopping ] || [ ! -e alive ]; then # the pod has ended meanwhile
			return "$code"
		fi
		delay=$((delay < 150 ? delay * 2 : 300))
		n=$((n + 1))
	done
}

# before NAME RESTART ARG...: runs an init container.
before() {
	run "$@" &
	wait $! || finish $?
}

# beside NAME RESTART ARG...: starts a container.
all=
beside() {
	run "$@" &
	all="$all $!"
}

# end: waits for the containers, and ends with the code of the first that has failed.
end() {
	result=0
	for one in $all; do
		wait "$one" || { code=$?; [ "$result" != 0 ] || result=$code; }
	done
	finish "$result"
}
