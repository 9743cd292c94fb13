// Package grouptest tests backends of package podgroup.
//
// World is a service that runs pods as units, without an API: it has a clock, units that
// go through their stages, containers that end and print as a test says, client tokens,
// retention, pages, and faults. The fake of a service is a codec on a World: it
// translates the service's requests into calls of a World, refuses what the service
// refuses, and translates back. API and Schema are what such codecs of REST APIs have in common.
//
// Suite is what holds for every backend.
package grouptest
