// Package rest makes the calls of a service with a REST API for a backend of package podgroup:
// JSON in and out, with a bearer token that is renewed, limits of what is read, and errors that
// have their class and show no secrets. What the calls mean is the backend's; a service whose own
// Go client is used does not need this package.
package rest
