// Package services keeps in the remote cluster the Services of namespaces that pods
// of the node are in, so that these reach by name what pods at home reach.
//
// A Service is reflected without its selector, with the ports that it has at home,
// and with its EndpointSlices, whose addresses are those that the remote cluster
// knows. It follows the one at home, and goes with it, or minutes after the last pod
// of its namespace. A Service of the same name that is not ours is left alone.
package services
