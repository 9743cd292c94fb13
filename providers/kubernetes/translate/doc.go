// Package translate says what a pod of the home cluster is in the remote one, and
// what the status of that says of the pod at home. It only computes; writing, and
// the objects that a pod names, are left to others.
package translate
