//go:build !linux

package machine

import "errors"

func statfs(string) (fileSystem, error) {
	return fileSystem{}, errors.New("this operating system does not tell")
}
