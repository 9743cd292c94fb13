//go:build !linux

package volume

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// errNoMounts is a lack of permission: volumes do without.
var errNoMounts = fmt.Errorf("mounts are made on Linux only: %w", os.ErrPermission)

func mountTmpfs(string, []string) error { return errNoMounts }

func bindMount(*os.File, string) error { return errNoMounts }

func bindTree(*os.File, string, bool) error { return errNoMounts }

func openWithoutLinks(path string) (*os.File, error) { return os.Open(path) }

func placeName(file *os.File) string { return file.Name() }

func createDirectory(path string) error {
	if _, err := os.Stat(path); err == nil {
		return nil
	}
	if err := os.MkdirAll(path, createdDirectoryMode); err != nil {
		return err
	}
	return os.Chmod(path, createdDirectoryMode)
}

func createFile(path string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, createdFileMode)
	if errors.Is(err, os.ErrExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return errors.Join(f.Chmod(createdFileMode), f.Close())
}

func makeSlave(string) error { return nil }

func unmount(string) (was bool, err error) { return false, nil }

func mountPoints(string) ([]string, error) { return nil, nil }

func openBeneath(dir, rel string) (*os.File, error) {
	return os.Open(filepath.Join(dir, filepath.FromSlash(rel)))
}

func openRegular(dir, path string) (*os.File, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	if info, err := root.Stat(path); err != nil || !info.Mode().IsRegular() {
		return nil, cmp.Or(err, fmt.Errorf("%s is no regular file", path))
	}
	return root.Open(path)
}
