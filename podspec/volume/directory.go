package volume

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// volumeMode is the mode of the directories of emptyDir and other volumes:
// containers of any user work in them. What is around them keeps others out.
const volumeMode fs.FileMode = 0o777

// makeDirectory makes the directory of a volume, if it is not there, so that it
// is there with its owner and mode or not at all. What is in it stays.
func makeDirectory(dir string, group *int64) error {
	if info, err := os.Lstat(dir); err == nil {
		if !info.IsDir() {
			return fmt.Errorf("%s is not a directory: remove it", dir)
		}
		return nil
	}
	unready := dir + ".new" // names of volumes have no dots
	if err := os.Mkdir(unready, volumeMode); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	if group != nil {
		if err := os.Lchown(unready, nobodyElse, int(*group)); err != nil {
			return fmt.Errorf("apply fsGroup %d: %w", *group, err)
		}
	}
	if err := os.Chmod(unready, directoryMode(group)); err != nil {
		return err
	}
	return os.Rename(unready, dir)
}

func directoryMode(group *int64) fs.FileMode {
	if group != nil {
		return grouped(fs.ModeDir|volumeMode, groupWrites)
	}
	return volumeMode
}
