// Package podstatus reports whether two statuses of a pod differ, and writes the
// patch that makes the one the other.
//
// It knows the fields of a status that change in the life of a pod, and compares
// them one by one; others, also those of a newer API than this module was
// written for, are compared by reflection, and patched by the generic way of
// Kubernetes' own libraries. What counts is what the API has: lists and maps that
// are empty are none, and times have whole seconds.
package podstatus
