package virtualkubelet_test

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// unguardedReaction adds a reaction to a fake client without the lock under which requests read them.
var unguardedReaction = regexp.MustCompile(`\.PrependReactor\(`)

// What a test watches makes requests while the test goes on: it changes what a fake client answers with
// fakeapi.React, which is safe then.
func TestReactionsAreAddedUnderTheLock(t *testing.T) {
	if !unguardedReaction.MatchString("\tclient.PrependReactor(") {
		t.Fatal("none would be found")
	}
	walkText(t, func(path string) {
		if !strings.HasSuffix(path, "_test.go") || path == "fakeclient_test.go" {
			return
		}
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if found := unguardedReaction.Find(text); found != nil {
			t.Errorf("%s calls %s: use fakeapi.React", path, found)
		}
	})
}
