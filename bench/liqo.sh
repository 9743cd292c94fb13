#!/bin/sh
# Runs Liqo's virtual kubelet for a benchmark: liqo.sh DIR NODE HOME THERE ADDRESS, where HOME and
# THERE are the kubeconfigs of two clusters. DIR is what "make liqo" has filled. What Liqo's
# controllers make of a peering is made here: the clusters have no network in common, and the
# namespace of the node's name is home-NODE there. The node's API is served at ADDRESS.
set -eu
dir=$1 node=$2 home=$3 there=$4 address=$5
at() { "$dir/../controlplane" kubectl --kubeconfig "$@"; }
for cluster in "$home" "$there"; do
	at "$cluster" get crd shadowpods.offloading.liqo.io >/dev/null 2>&1 || at "$cluster" create -f "$dir/crds"
done
at "$home" wait --for=condition=Established crd/foreignclusters.core.liqo.io crd/namespacemaps.offloading.liqo.io crd/virtualnodes.offloading.liqo.io
at "$home" create -f - <<YAML
apiVersion: v1
kind: Namespace
metadata: {name: liqo-$node}
---
apiVersion: core.liqo.io/v1beta1
kind: ForeignCluster
metadata: {name: $node, labels: {liqo.io/remote-cluster-id: $node}}
spec: {clusterID: $node}
---
apiVersion: offloading.liqo.io/v1beta1
kind: VirtualNode
metadata: {name: $node, namespace: liqo-$node}
spec: {clusterID: $node, resourceQuota: {hard: {cpu: "1000", memory: 1Ti, pods: "20000"}}}
---
apiVersion: offloading.liqo.io/v1beta1
kind: NamespaceMap
metadata: {name: $node, namespace: liqo-$node, labels: {liqo.io/remote-cluster-id: $node, liqo.io/remoteID: $node}}
spec: {desiredMapping: {$node: home-$node}}
YAML
at "$home" create secret generic -n "liqo-$node" there --from-file=kubeconfig="$there"
enabled='{"enabled":true}' disabled='{"enabled":false}'
at "$home" patch --subresource=status --type=merge "foreignclusters.core.liqo.io/$node" -p \
	'{"status":{"role":"Provider","modules":{"networking":'$disabled',"authentication":'$enabled',"offloading":'$enabled'},"tenantNamespace":{"local":"liqo-'"$node"'"}}}'
at "$home" patch --subresource=status --type=merge -n "liqo-$node" "namespacemaps.offloading.liqo.io/$node" -p \
	'{"status":{"currentMapping":{"'"$node"'":{"remoteNamespace":"home-'"$node"'","phase":"Accepted"}}}}'
export POD_NAME="$node" POD_NAMESPACE="liqo-$node" VIRTUALNODE_NAME="$node"
exec "$dir/virtual-kubelet" --home-kubeconfig "$home" --foreign-kubeconfig-secret-name there --nodename "$node" \
	--tenant-namespace "liqo-$node" --liqo-namespace "liqo-$node" --home-cluster-id home --foreign-cluster-id "$node" \
	--node-ip 127.0.0.1 --listen-port "${address##*:}" --certificate-type self-signed --disable-ip-reflection
