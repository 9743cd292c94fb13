package shim

import (
	"slices"
	"testing"
)

func TestMountPoints(t *testing.T) {
	const info = `24 1 0:6 / / rw - devtmpfs devtmpfs rw
30 24 0:7 / /host/var rw - ext4 x rw
31 30 0:8 / /host/var/lib/vk rw - ext4 x rw
32 31 0:8 / /host/var/lib/vk/shared rw shared:1 - tmpfs x rw
33 32 0:8 / /host/var/lib/vk/shared/a/shm rw - tmpfs x rw
34 31 0:8 / /host/var/lib/vk/pods/with\040space rw - tmpfs x rw
35 30 0:8 / /host/var/lib/vk2/x rw - tmpfs x rw
36 24 0:8 / /var/lib/vk/shared rw - tmpfs x rw
37 30 0:8 / /host/logs/x rw - tmpfs x rw
short line
`
	got := mountPoints(info, "/host", []string{"/var/lib/vk", "/var/lib/vk/pods", "/logs/"})
	want := []string{"/host/var/lib/vk/shared", "/host/var/lib/vk/pods/with space", "/host/logs/x"}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
