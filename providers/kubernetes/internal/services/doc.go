// Package services copies the Services of the namespaces that have pods on the node to
// the remote cluster, so that remote pods reach by name what home pods reach.
//
// A Service is copied without its selector, with the ports that it has at home, and
// with its EndpointSlices, whose addresses are translated to remote ones. Copies are
// updated with the home Service, and deleted with it, or minutes after the last pod of
// its namespace. A remote Service of the same name that is not owned by this node stays
// as it is.
package services
