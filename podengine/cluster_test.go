package podengine

import (
	"os"
	"path/filepath"
	"testing"

	"k8s.io/apimachinery/pkg/types"
)

// The UID of the cluster is there for the next process.
func TestClusterUIDIsKept(t *testing.T) {
	root := t.TempDir()
	engine := func() *Engine { return &Engine{cfg: Config{Root: root}} }
	if uid, file, err := engine().ClusterUID(); uid != "" || file != filepath.Join(root, "cluster-uid") || err != nil {
		t.Errorf("at first it is %q in %s, %v", uid, file, err)
	}
	for _, uid := range []types.UID{"first", "second"} {
		if err := engine().KeepClusterUID(uid); err != nil {
			t.Fatal(err)
		}
		if got, _, err := engine().ClusterUID(); got != uid || err != nil {
			t.Errorf("it is %q, %v", got, err)
		}
	}
	if left, err := os.ReadDir(root); err != nil || len(left) != 1 {
		t.Errorf("there are %v, %v", left, err)
	}
	root = filepath.Join(root, "none")
	if err := engine().KeepClusterUID("first"); err == nil {
		t.Error("it is kept in a directory that there is not")
	}
}
