// Package interlink is a provider that has pods run by an interLink API server
// (https://interlink-project.dev): the virtual kubelet's side of the InterLink protocol.
// Behind the server is a plugin, which knows what really runs the pods: Slurm, HTCondor,
// Docker and others.
//
// The protocol has no list of pods, no command in containers and no update: the node knows
// the pods by the API server of the cluster, and asks for the statuses of those.
//
// Package plugin is the other end of the protocol.
package interlink
