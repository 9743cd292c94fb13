package fakeapi

import clienttesting "k8s.io/client-go/testing"

// React has a reaction come before those that a fake client has, also while others use the client, for
// which PrependReactor is not made: requests read the reactions under the lock that it, unlike
// PrependWatchReactor, does not take.
func React(client *clienttesting.Fake, verb, resource string, reaction clienttesting.ReactionFunc) {
	client.Lock()
	defer client.Unlock()
	client.PrependReactor(verb, resource, reaction)
}
