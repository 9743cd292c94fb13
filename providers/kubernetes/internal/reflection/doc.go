// Package reflection copies to the remote cluster what pods need there: the ConfigMaps
// and Secrets that they refer to, and for each pod a Secret with its environment and
// one with its tokens and downward API files. Copies are updated when their originals
// change, and deleted once no pod needs them.
//
// Copies are written by server-side apply. An object without the labels of this cluster
// and node is never written or deleted: see translate.NameConflict.
package reflection
