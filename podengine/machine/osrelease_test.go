package machine

import "testing"

func TestPrettyName(t *testing.T) {
	for release, want := range map[string]string{
		"NAME=\"Debian GNU/Linux\"\nPRETTY_NAME=\"Debian GNU/Linux 12 (bookworm)\"\nID=debian\n": "Debian GNU/Linux 12 (bookworm)",
		"PRETTY_NAME='Alpine Linux v3.22'\n":                                                     "Alpine Linux v3.22",
		"PRETTY_NAME=Plain":                                                                      "Plain",
		"NAME=x\n":                                                                               "",
	} {
		if got := prettyName(release); got != want {
			t.Errorf("%q: %q, want %q", release, got, want)
		}
	}
}
