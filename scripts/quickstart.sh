#!/usr/bin/env bash
# Starts a control plane and a virtual node from the binaries in a directory,
# shows what to try, and stops both on Ctrl-C: scripts/quickstart.sh BIN
set -euo pipefail

bin=$(cd "$1" && pwd)
dir=$(mktemp -d)
chmod 711 "$dir" # pods run as nobody, and have volumes below it
kubeconfig=$dir/kubeconfig
pids=()

finish() {
	trap - EXIT INT TERM
	echo "Stopping"
	for pid in "${pids[@]}"; do # the node first, so that it can say goodbye
		kill -INT "$pid" 2>/dev/null || true
		wait "$pid" 2>/dev/null || true
	done
	rm -rf "$dir"
}
trap finish EXIT
trap 'exit 0' INT TERM

fail() {
	echo "$1; the end of its log:" >&2
	tail -n 20 "$2" >&2
	exit 1
}

# In sessions of their own, so that Ctrl-C reaches them in order, by finish.
echo "Starting the control plane"
setsid "$bin/controlplane" up --dir "$dir/controlplane" --kubeconfig "$kubeconfig" >"$dir/controlplane.log" 2>&1 &
control_plane=$!
pids=("$control_plane")
until grep -q '^ready after' "$dir/controlplane.log"; do
	kill -0 "$control_plane" 2>/dev/null || fail "The control plane did not start" "$dir/controlplane.log"
	sleep 0.2
done
sed -n 's/^ready after \([^:]*\):.*/The control plane is ready after \1/p' "$dir/controlplane.log"

echo "Starting the virtual node"
cat >"$dir/process.json" <<JSON
{"root": "$dir/virtual-kubelet", "endPodsOnExit": true}
JSON
setsid "$bin/virtual-kubelet" --kubeconfig "$kubeconfig" --nodename vk --port 0 --disable-taint \
	--provider process --provider-config "$dir/process.json" >"$dir/virtual-kubelet.log" 2>&1 &
node=$!
pids=("$node" "$control_plane")
until grep -q 'msg="Node is ready"' "$dir/virtual-kubelet.log"; do
	kill -0 "$node" 2>/dev/null || fail "The virtual node did not start" "$dir/virtual-kubelet.log"
	sleep 0.2
done

cat <<TEXT
The node is ready. In another shell, try:

  alias kubectl="$bin/controlplane kubectl --kubeconfig $kubeconfig"
  kubectl get nodes -o wide
  kubectl run hello --image=none --command -- sh -c 'echo hello from \$(hostname); while sleep 1; do date; done'
  kubectl get pods -o wide
  kubectl logs hello
  kubectl exec hello -- id
  kubectl create deployment sleep --image=none --replicas=5 -- sleep infinity
  kubectl delete pod hello

Pods are processes of this machine (providers/process). The node's log is $dir/virtual-kubelet.log. Ctrl-C stops all and cleans up.
TEXT
wait -n "$node" "$control_plane" && status=0 || status=$?
echo "Something ended by itself (status $status); the end of the logs:" >&2
tail -n 5 "$dir/controlplane.log" "$dir/virtual-kubelet.log" >&2
exit 1
