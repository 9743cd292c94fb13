package podenv

import (
	"strings"
	"testing"
)

func lookupIn(vars map[string]string) func(string) (string, bool) {
	return func(name string) (string, bool) {
		v, ok := vars[name]
		return v, ok
	}
}

func TestExpand(t *testing.T) {
	lookup := lookupIn(map[string]string{
		"A": "a", "B": "$(A)", "EMPTY": "", "a.b-c": "dots", "X(": "paren", "DOLLAR": "$",
	})
	for in, want := range map[string]string{
		"":                  "",
		"plain":             "plain",
		"$(A)":              "a",
		"<$(A)>":            "<a>",
		"$(A)$(A)":          "aa",
		"$(B)":              "$(A)", // values are not expanded again
		"$(EMPTY)":          "",
		"$(a.b-c)":          "dots",
		"$(MISSING)":        "$(MISSING)",
		"$(MISSING)$(A)":    "$(MISSING)a",
		"$$(A)":             "$(A)",
		"$$$(A)":            "$a",
		"$$$$(A)":           "$$(A)",
		"$$$$$(A)":          "$$a",
		"$$":                "$",
		"$":                 "$",
		"a$":                "a$",
		"$A":                "$A",
		"${A}":              "${A}",
		"$()":               "$()",
		"$(":                "$(",
		"$(A":               "$(A",
		"$(A$(A)":           "$(A$(A)",
		"$(A $$":            "$(A $",
		"$(X()":             "paren",
		"$(DOLLAR)(A)":      "$(A)",
		"f() { $(A); }":     "f() { a; }",
		"$é$(A)é":           "$éaé",
		"echo $HOME $(A) $": "echo $HOME a $",
		"$( A )":            "$( A )",
	} {
		if got := expand(in, lookup); got != want {
			t.Errorf("expand(%q) is %q, want %q", in, got, want)
		}
	}
}

func FuzzExpand(f *testing.F) {
	for _, s := range []string{"", "$(A)", "$$(A)", "$$$(A)x", "$(", "$(A$(B)", "a$b$", "$()", "\xff$(\xff)"} {
		f.Add(s, "value$(A)")
	}
	f.Fuzz(func(t *testing.T, s, value string) {
		known := lookupIn(map[string]string{"A": value})
		unknown := lookupIn(nil)

		expand(s, known) // does not panic
		if !strings.Contains(s, "$") && expand(s, known) != s {
			t.Errorf("%q changed", s)
		}
		if !strings.Contains(s, "$$") && expand(s, unknown) != s {
			t.Errorf("%q has no known reference and changed", s)
		}
		if escaped := strings.ReplaceAll(s, "$", "$$"); expand(escaped, known) != s {
			t.Errorf("%q escaped becomes %q", s, expand(escaped, known))
		}
		if !strings.HasSuffix(s, "$") && !strings.Contains(s, "$(") {
			if got := expand(s+"$(A)", known); !strings.HasSuffix(got, value) {
				t.Errorf("%q + $(A) becomes %q", s, got)
			}
		}
	})
}
