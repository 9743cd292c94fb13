// Package volume gives containers the volumes of their pod: as files on a disk
// of the host, in the kubelet's layout, and kept fresh.
//
// Three layers can be used each for itself. Contents says what is in a
// configMap, secret, downwardAPI or projected volume, as plain Files, for
// backends that take files rather than directories. Write keeps Files in a
// directory so that a reader sees old or new contents and never half of
// each. Manager does all of it for pods: it sets up volumes (Prepare), finds
// what a container mounts (HostPath), keeps contents fresh (Refresh) and takes
// everything away (Teardown).
//
// What is left to others: mounting into containers, which is the runtime's
// matter; enforcing the size of an emptyDir on disk; pulling the images of image
// volumes; and deciding when to try again.
//
// Volumes that no backend here can have are found by Check before anything is
// created; see Unsupported.
package volume
