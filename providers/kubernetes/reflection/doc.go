// Package reflection keeps in the remote cluster what pods need there: copies of
// the ConfigMaps and Secrets that they name, and for each pod a Secret with its
// environment and one with its tokens and downward API files. Copies follow their
// originals, and go with the last pod that needs them.
//
// Copies are written by server-side apply. One whose labels are not those of this
// cluster and node is never written or deleted: see
// translate.Clash.
package reflection
