// Package nodetest has a provider for tests: of the controllers of package node, and of
// all that a provider author builds around them.
//
// A Backend keeps pods in memory and records the calls that it gets; its Script says what
// the calls answer, and when. Polled, Notifying and ByUID are the kinds of providers in
// front of it, by the optional interfaces that they implement; a test's own kind embeds
// one of them. Nothing here sleeps or starts a goroutine, so that it works in a bubble of
// testing/synctest.
//
// Package providers/providertest checks a real provider instead, on a real control plane.
package nodetest
