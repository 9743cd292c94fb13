package podstatus

import (
	"slices"
	"strings"
	"testing"
)

func TestOnePerFamily(t *testing.T) {
	for all, want := range map[string]string{
		"":                            "",
		"10.0.0.1":                    "10.0.0.1",
		"none":                        "none",
		"10.0.0.1 fd00::1":            "10.0.0.1 fd00::1",
		"fd00::1 10.0.0.1":            "fd00::1 10.0.0.1",
		"10.0.0.1 10.0.0.2":           "10.0.0.1",
		"10.0.0.1 10.0.0.2 fd00::1":   "10.0.0.1 fd00::1",
		"fd00::1 fd00::2 10.0.0.1":    "fd00::1 10.0.0.1",
		"10.0.0.1 none fd00::1":       "10.0.0.1 fd00::1",
		"10.0.0.1 ::ffff:10.0.0.2":    "10.0.0.1",
		"fd00::1 10.0.0.1 fd00::2 10": "fd00::1 10.0.0.1",
	} {
		given := strings.Fields(all)
		got := OnePerFamily(given, func(s string) string { return s })
		if strings.Join(got, " ") != want {
			t.Errorf("of %q: got %q, want %q", all, got, want)
		}
		if !slices.Equal(given, strings.Fields(all)) {
			t.Errorf("%q was changed to %q", all, given)
		}
	}
}

func TestSortAddresses(t *testing.T) {
	for _, tc := range []struct{ all, hosts, want string }{
		{"", "", ""},
		{"10.0.0.1", "fd00::9", "10.0.0.1"},
		{"fd00::1 10.0.0.1", "192.0.2.1", "10.0.0.1 fd00::1"},
		{"fd00::1 10.0.0.1", "fd00::9 192.0.2.1", "fd00::1 10.0.0.1"},
		{"10.0.0.1 fd00::1", "fd00::9 192.0.2.1", "fd00::1 10.0.0.1"},
		{"fd00::1 10.0.0.1", "", "fd00::1 10.0.0.1"},
		{"10.0.0.1 10.0.0.2 fd00::1 fd00::2", "fd00::9", "fd00::1 10.0.0.1"},
		{"none 10.0.0.1", "192.0.2.1", "10.0.0.1"},
		{"010.0.0.1 FD00:0::1", "192.0.2.1", "10.0.0.1 fd00::1"},
	} {
		if got := strings.Join(SortAddresses(strings.Fields(tc.all), strings.Fields(tc.hosts)), " "); got != tc.want {
			t.Errorf("%q on %q: got %q, want %q", tc.all, tc.hosts, got, tc.want)
		}
	}
}
