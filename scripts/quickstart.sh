#!/usr/bin/env bash
# Starts a control plane, a virtual node and metrics-server from the binaries in a
# directory, shows what to try, and stops and removes all of it at its end, whatever
# ends it (Ctrl-C, a closed terminal, a broken pipe, SIGKILL):
#
#	scripts/quickstart.sh BIN DIR
#
# DIR is where everything is while it runs, "kubectl" included; it is removed at the end.
set -euo pipefail

# Not ignored, which its children would inherit, but survived: whoever reads the
# output may have gone before there is something to clean up.
trap : PIPE

self=$(realpath "$0")
root=$(dirname "$(dirname "$self")")

# gone waits until a process has ended, and kills it after so many seconds.
gone() {
	local pid=$1 tries=$(($2 * 10))
	while kill -0 "$pid" 2>/dev/null; do
		if [ "$tries" = 0 ]; then kill -KILL "$pid" 2>/dev/null || true; fi
		tries=$((tries - 1))
		sleep 0.1
	done
}

# stop_all ends what runs in the directory, in the opposite order of the starts, and
# removes it. The node ends its pods first; if it could not (it was killed, say), what
# runs them is found by the directory on its command line.
stop_all() {
	local dir=$1 pid
	if [ -s "$dir/pids" ]; then
		while read -r pid; do
			kill -INT "$pid" 2>/dev/null || true
			gone "$pid" 30
		done < <(tac "$dir/pids")
	fi
	for pid in $(grep -lsF -- "$dir/node/" /proc/[0-9]*/cmdline | cut -d/ -f3); do
		kill -KILL "$pid" 2>/dev/null || true
		gone "$pid" 5
	done
	# What a node that was killed has left mounted, such as tokens and shared memory.
	grep -F -- " $dir/" /proc/self/mountinfo | cut -d' ' -f5 | tac | while read -r mount; do
		umount -l -- "$(printf %b "$mount")" 2>/dev/null || true
	done || true # grep has found none
	rm -rf --one-file-system "$dir"
}

# A process of its own session waits for the end of this script, which nothing can keep
# from happening, and cleans up then. It holds the lock until it has.
if [ "$1" = --stop-after-end ]; then
	trap '' INT TERM HUP PIPE
	cat >/dev/null
	stop_all "$2"
	exit
fi

bin=$(cd "$1" && pwd)
mkdir -p "$2"
dir=$(cd "$2" && pwd)
exec 9>"$dir/lock"
flock -n 9 || { echo "A quickstart runs already in $dir: stop it first" >&2; exit 1; }
if [ -e "$dir/pids" ]; then
	echo "Removing what an earlier quickstart left"
	stop_all "$dir"
	exec "$self" "$1" "$2" # with a new directory and lock
fi
chmod 711 "$dir" # pods run as users of their own, and have volumes below it
kubeconfig=$dir/kubeconfig
: >"$dir/pids"

exec 8> >(exec setsid "$self" --stop-after-end "$dir")
cleaner=$!
finish() {
	trap - EXIT
	trap : INT TERM HUP PIPE
	echo "Stopping" || true
	exec 8>&-
	while kill -0 "$cleaner" 2>/dev/null; do sleep 0.1 || true; done # also when interrupted again
}
trap finish EXIT
trap 'exit 0' INT TERM HUP

fail() {
	echo "$1; the end of its log:" >&2
	tail -n 20 "$2" >&2
	exit 1
}

# start runs a program in a session of its own, so that Ctrl-C reaches it in order, by
# finish. It is known to the cleaner before it begins.
start() {
	local name=$1
	shift
	setsid sh -c 'echo $$ >>"$0" && exec "$@"' "$dir/pids" "$@" >"$dir/$name.log" 2>&1 8>&- 9>&- </dev/null &
	started=$!
}

echo "Starting the control plane"
start controlplane "$bin/controlplane" up --dir "$dir/controlplane" --kubeconfig "$kubeconfig" \
	--arg kube-apiserver=--enable-aggregator-routing=false # it goes to metrics-server by name
control_plane=$started
until grep -q '^ready after' "$dir/controlplane.log"; do
	kill -0 "$control_plane" 2>/dev/null || fail "The control plane did not start" "$dir/controlplane.log"
	sleep 0.2
done
sed -n 's/^ready after \([^:]*\):.*/The control plane is ready after \1/p' "$dir/controlplane.log"
cat >"$dir/kubectl" <<SH
#!/bin/sh
exec '$bin/controlplane' kubectl --kubeconfig '$kubeconfig' "\$@"
SH
chmod 755 "$dir/kubectl"

echo "Starting the virtual node"
cat >"$dir/process.json" <<JSON
{"root": "$dir/node", "endPodsOnExit": true,
 "runtime": {"sharedNetwork": true, "allowUnenforcedLimits": true}}
JSON
start virtual-kubelet "$bin/virtual-kubelet" --kubeconfig "$kubeconfig" --nodename vk --port 0 --disable-taint \
	--provider process --provider-config "$dir/process.json"
node=$started
until grep -q 'msg="Node is ready"' "$dir/virtual-kubelet.log"; do
	kill -0 "$node" 2>/dev/null || fail "The virtual node did not start" "$dir/virtual-kubelet.log"
	sleep 0.2
done

# metrics-server, for kubectl top. It is the administrator here, as kubectl is.
port=$((20000 + RANDOM % 10000))
while (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; do port=$((port + 1)); done
start metrics-server "$bin/metrics-server" \
	--kubeconfig="$kubeconfig" --authentication-kubeconfig="$kubeconfig" --authorization-kubeconfig="$kubeconfig" \
	--bind-address=127.0.0.1 --secure-port="$port" --cert-dir="$dir/metrics-server" \
	--kubelet-preferred-address-types=InternalIP --kubelet-use-node-status-port --kubelet-insecure-tls \
	--metric-resolution=10s --kubelet-request-timeout=5s
metrics_server=$started
sed "s/PORT/$port/" "$root/test/metricsserver/apiservice.yaml" | "$dir/kubectl" apply -f - >"$dir/metrics-server-apply.log" 2>&1 ||
	fail "metrics-server could not be registered" "$dir/metrics-server-apply.log"

kubectl=$dir/kubectl
case $kubectl in "$PWD"/*) kubectl=${kubectl#"$PWD"/} ;; esac
cat <<TEXT
The node is ready. In another shell, try:

  $kubectl get nodes -o wide
  $kubectl run hello --image=none --command -- sh -c 'trap exit TERM; echo hello from \$(hostname); while sleep 1; do date; done'
  $kubectl get pods -o wide
  $kubectl logs hello
  $kubectl exec hello -- id
  $kubectl create deployment sleep --image=none --replicas=5 -- sleep infinity
  $kubectl top pods
  $kubectl delete pod hello

Pods are processes of this machine (providers/process). The node's log is $dir/virtual-kubelet.log. Ctrl-C stops all and cleans up.
TEXT
wait -n "$node" "$control_plane" "$metrics_server" && status=0 || status=$?
echo "Something ended by itself (status $status); the end of the logs:" >&2
tail -n 5 "$dir/controlplane.log" "$dir/virtual-kubelet.log" "$dir/metrics-server.log" >&2
exit 1
