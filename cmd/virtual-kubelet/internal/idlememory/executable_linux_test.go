package idlememory

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
)

func TestUnchanged(t *testing.T) {
	const smaps = `00400000-02092000 r-xp 00000000 fe:00 11690563                           /bin/a b
Size:              29256 kB
Rss:               22740 kB
Anonymous:             0 kB
Swap:                  0 kB
SwapPss:               0 kB
VmFlags: rd ex mr mw me
02092000-03f80000 r--p 01c92000 fe:00 11690563                           /bin/a b
Rss:               22584 kB
Anonymous:             4 kB
Swap:                  0 kB
03f80000-04174000 rw-p 03b80000 fe:00 11690563                           /bin/a b
Rss:                2000 kB
Anonymous:             0 kB
Swap:                  0 kB
05000000-05001000 r--p 03b80000 fe:00 11690563                           /bin/a b
Rss:                   4 kB
Anonymous:             0 kB
Swap:                  0 kB
05001000-05002000 ---p 03b80000 fe:00 11690563                           /bin/a b
Rss:                   4 kB
Anonymous:             0 kB
Swap:                  0 kB
05002000-05004000 r--p 03b82000 fe:00 11690563                           /bin/a b
Rss:                   4 kB
Anonymous:             0 kB
Swap:                  4 kB
05004000-05006000 r--p 03b84000 fe:00 11690563                           /bin/a b
Rss:                   0 kB
Anonymous:             0 kB
Swap:                  0 kB
7f3e5bc40000-7f3e5c000000 r-xp 00000000 fe:00 11690564                   /lib/bin/a b
Rss:                   4 kB
Anonymous:             0 kB
Swap:                  0 kB
7f3e5c000000-7f3e5c001000 r--p 00000000 00:00 0
Rss:                   4 kB
Anonymous:             0 kB
Swap:                  0 kB
`
	got := unchanged(strings.NewReader(smaps), "/bin/a b")
	if want := []mapping{{0x400000, 0x2092000}, {0x5000000, 0x5001000}}; !slices.Equal(got, want) {
		t.Errorf("got %x, want %x", got, want)
	}
}

// The pages are gone, and there again where they are needed.
func TestDropExecutable(t *testing.T) {
	before := resident(t)
	if err := dropExecutable(); err != nil {
		t.Fatal(err)
	}
	if after := resident(t); after >= before {
		t.Errorf("%d kB of the executable are in memory, and before %d", after, before)
	}
	if _, err := os.ReadFile("/nowhere"); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}

// resident returns how much of what can be dropped is in memory, in kB.
func resident(t *testing.T) (all int) {
	t.Helper()
	path, err := os.Readlink("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	smaps, err := os.ReadFile("/proc/self/smaps")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range unchanged(strings.NewReader(string(smaps)), path) {
		_, of, _ := strings.Cut(string(smaps), fmt.Sprintf("%08x-%08x ", m.begin, m.end))
		_, of, _ = strings.Cut(of, "\nRss:")
		var kB int
		if _, err := fmt.Sscan(of, &kB); err != nil {
			t.Fatal(err)
		}
		all += kB
	}
	return all
}
