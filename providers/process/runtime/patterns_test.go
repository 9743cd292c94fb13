package runtime

import (
	"testing"
)

func TestPatterns(t *testing.T) {
	for _, test := range []struct {
		pattern, path   string
		match, contains bool
	}{
		{"/bin/*", "/bin/sh", true, true},
		{"/bin/*", "/bin/x/y", false, true},
		{"/bin/*", "/usr/bin/sh", false, false},
		{"/opt/**", "/opt/a/b/c", true, true},
		{"/opt/**", "/opt", true, true},
		{"/opt/**", "/optional", false, false},
		{"/opt/*/bin/**", "/opt/a/bin/x/y", true, true},
		{"/opt/*/bin/**", "/opt/a/lib/x", false, false},
		{"/**", "/anything/at/all", true, true},
		{"/data", "/data", true, true},
		{"/data", "/data/x", false, true},
		{"/data", "/database", false, false},
		{"/data/", "/data", true, true},
	} {
		p := patterns{test.pattern}
		if err := p.check("field"); err != nil {
			t.Error(err)
		}
		if got := p.match(test.path); got != test.match {
			t.Errorf("%s matches %s: %v", test.pattern, test.path, got)
		}
		if got := p.contain(test.path); got != test.contains {
			t.Errorf("%s contains %s: %v", test.pattern, test.path, got)
		}
	}
}

func TestIDs(t *testing.T) {
	r, err := parseIDs("users", []string{"7", "1000-1999", "4294967294"})
	if err != nil {
		t.Fatal(err)
	}
	for id, want := range map[int64]bool{0: false, 7: true, 8: false, 1000: true, 1999: true, 2000: false, 4294967294: true} {
		if r.contain(id) != want {
			t.Errorf("%d: %v", id, !want)
		}
	}
}
