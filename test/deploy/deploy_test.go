//go:build containers

package deploy

import "testing"

// Both are in one cluster at the same time, as users have it.
func TestDeploy(t *testing.T) {
	w := newWorld(t)
	t.Run("shared nodes", w.testSharedNodes)
	t.Run("remote cluster", w.testRemoteCluster)
	t.Run("shared nodes again", func(t *testing.T) { w.runOn(t, "last", "vk-42") })
}
