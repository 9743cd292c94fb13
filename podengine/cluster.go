package podengine

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"k8s.io/apimachinery/pkg/types"
)

// ClusterUID returns the UID that KeepClusterUID was called with last, also by an earlier process,
// and the file that it is kept in; empty if it was not. For an engine whose pods come from another
// process it says which cluster that is.
func (e *Engine) ClusterUID() (uid types.UID, file string, err error) {
	file = filepath.Join(e.cfg.Root, "cluster-uid")
	content, err := os.ReadFile(file) // #nosec G304 -- the engine's own
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return types.UID(strings.TrimSpace(string(content))), file, err
}

// KeepClusterUID keeps the UID of the cluster whose pods the engine runs, beside them.
func (e *Engine) KeepClusterUID(uid types.UID) error {
	return replace(filepath.Join(e.cfg.Root, "cluster-uid"), []byte(uid+"\n"), true)
}
