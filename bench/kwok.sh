#!/bin/sh
# Runs KWOK for a benchmark: kwok.sh DIR NODE KUBECONFIG METRICS. It plays the lives of pods on
# nodes that somebody else has made. DIR is what "make kwok" has filled.
set -eu
dir=$1 node=$2 kubeconfig=$3 metrics=$4
"$dir/../controlplane" kubectl --kubeconfig "$kubeconfig" create -f - <<YAML
apiVersion: v1
kind: Node
metadata: {name: $node, labels: {kubernetes.io/hostname: $node}}
status: {allocatable: {cpu: "1000", memory: 1Ti, pods: "20000"}, capacity: {cpu: "1000", memory: 1Ti, pods: "20000"}}
YAML
exec "$dir/kwok" --config "$dir/stages.yaml" --kubeconfig "$kubeconfig" --manage-single-node "$node" \
	--node-lease-duration-seconds 40 --server-address "$metrics"
