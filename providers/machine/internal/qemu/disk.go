package qemu

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
)

// makeDisk makes the disk of a machine, which needs no space before something is written to it.
func makeDisk(ctx context.Context, path string, size int64) error {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	if err := errors.Join(file.Truncate(size), file.Close()); err != nil {
		return err
	}
	out, err := exec.CommandContext(ctx, "mkfs.ext4", "-q", "-F", "-m", "0", "-O", "^has_journal", "-E", "lazy_itable_init=1,nodiscard", path).CombinedOutput()
	if err != nil {
		return fmt.Errorf("mkfs.ext4 cannot make the disk of a machine: %w: %s", err, strings.TrimSpace(string(out)))
	}
	return nil
}

// fileLimit is the size of the longest file that a machine can make, in blocks of 512 bytes: it is
// its disk, and holds for its console, too.
func fileLimit(disk int64) int64 { return disk>>9 + 1 }

// endOf returns the end of a file.
func endOf(path string, limit int) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	size, err := file.Seek(0, io.SeekEnd)
	if err != nil {
		return nil, err
	}
	return io.ReadAll(io.NewSectionReader(file, max(0, size-int64(limit)), int64(limit)))
}

// cutConsole cuts off the beginning of a console that has become long: what is in the machine may
// write to it for ever.
func cutConsole(path string) error {
	info, err := os.Stat(path)
	if err != nil || info.Size() <= maxConsole {
		return nil
	}
	end, err := endOf(path, keptConsole)
	if err != nil {
		return err
	}
	if err := os.Truncate(path, 0); err != nil { // qemu appends
		return err
	}
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return err
	}
	_, err = file.Write(end)
	return errors.Join(err, file.Close())
}
