// Package podobjects reads the ConfigMaps and Secrets that pods name, and no
// others: each by a watch of its own, which begins with the first read, is
// shared between pods, and ends with the last pod that names the object, or once
// nobody has read it for a while. That is what the Node authorizer permits a
// node (https://kubernetes.io/docs/reference/access-authn-authz/node/), and all
// that a node needs to know.
package podobjects
