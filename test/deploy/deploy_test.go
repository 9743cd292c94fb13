//go:build containers

package deploy

import "testing"

// What is installed later leaves alone what was installed before.
func TestDeploy(t *testing.T) {
	w := newWorld(t)
	t.Run("shared nodes", w.testSharedNodes)
	t.Run("remote cluster", w.testRemoteCluster)
	t.Run("from the remote cluster", w.testFromTheRemoteCluster)
	t.Run("shared nodes again", func(t *testing.T) { w.runOn(t, "last", "vk-42") })
}
