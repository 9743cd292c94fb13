package virtualkubelet_test

import (
	"regexp"
	"strings"
	"testing"
)

// TestTokensAreWrittenForTheirOwner keeps readers of documents from writing tokens to files that
// others of their machine can read.
func TestTokensAreWrittenForTheirOwner(t *testing.T) {
	written := regexp.MustCompile(`\bcreate token\b.*>`)
	found := 0
	walkText(t, func(path string) {
		if !strings.HasSuffix(path, ".md") {
			return
		}
		for _, line := range readLines(t, path) {
			if !written.MatchString(line) {
				continue
			}
			found++
			if !strings.HasPrefix(strings.TrimSpace(line), "(umask 077; ") {
				t.Errorf("%s: write (umask 077; COMMAND > FILE): %s", path, line)
			}
		}
	})
	if found == 0 {
		t.Error("no document has a command that writes a token to a file: remove this test")
	}
}
