//go:build !linux

package image

import "errors"

func systemStatfs(string) (capacity, available uint64, err error) {
	return 0, 0, errors.ErrUnsupported
}
