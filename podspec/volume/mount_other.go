//go:build !linux

package volume

import (
	"fmt"
	"os"
	"path/filepath"
)

// errNoMounts is a lack of permission: volumes do without.
var errNoMounts = fmt.Errorf("mounts are made on Linux only: %w", os.ErrPermission)

func mountTmpfs(string, []string) error { return errNoMounts }

func bindMount(*os.File, string) error { return errNoMounts }

func unmount(string) (was bool, err error) { return false, nil }

func mountPoints(string) ([]string, error) { return nil, nil }

func openBeneath(dir, rel string) (*os.File, error) {
	return os.Open(filepath.Join(dir, filepath.FromSlash(rel)))
}
