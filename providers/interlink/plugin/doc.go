// Package plugin offers a provider as a plugin of interLink (https://interlink-project.dev):
// an interLink API server gives it pods, wherever the cluster is. Server is a handler for
// the four requests that a plugin answers.
//
// The provider has no cluster here: no tokens, claims or services, and of ConfigMaps and
// Secrets the contents that came with the pod. Its events are logged.
package plugin
