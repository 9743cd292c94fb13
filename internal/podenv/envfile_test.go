package podenv_test

import (
	"testing"

	"github.com/virtual-kubelet/virtual-kubelet/internal/podenv"
)

func TestFileValue(t *testing.T) {
	const none, broken = "(none)", "(broken)"
	for text, want := range map[string]string{
		"":                               none,
		"K='v'":                          "v",
		"K='v'\n":                        "v",
		"K='v'\r\n":                      "v",
		"  K='v' # why":                  "v",
		"# K='x'\n\n \t\nK='v'":          "v",
		"A='1'\nK='v'\nbroken":           "v",
		"A='1'":                          none,
		"K='two\nlines'":                 "two\nlines",
		"A='two\nK=wrong\nlines'\nK='v'": "v",
		"K='$HOME \\n \"x\" ='":          "$HOME \\n \"x\" =",
		"K=''":                           none,
		"K=":                             none,
		"K= 'v'":                         none,
		"A= 'v'\nK='v'":                  "v",
		"K ='v'":                         broken,
		"='v'\nK='v'":                    broken,
		"no assignment\nK='v'":           broken,
		"K=v":                            broken,
		"K=\"v\"":                        broken,
		"K='v":                           broken,
		"K='v' more":                     broken,
		"K='first'\nK='second'":          "first",
		"KK='other'\nK='v'":              "v",
		"A='it''s'\nK='v'":               broken,
		"A='x=\\'\nK='v'":                "v",
	} {
		value, found, err := podenv.FileValue(text, "K")
		got := value
		switch {
		case err != nil:
			got = broken
		case !found:
			got = none
		}
		if got != want {
			t.Errorf("%q: got %q (%v), want %q", text, got, err, want)
		}
	}
}

func FuzzFileValue(f *testing.F) {
	f.Add("K='v'\nA= 'x' # c\n", "K")
	f.Fuzz(func(_ *testing.T, text, key string) { _, _, _ = podenv.FileValue(text, key) })
}
