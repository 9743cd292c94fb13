package config_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/virtual-kubelet/virtual-kubelet/internal/config"
)

type inlined struct {
	Root string `json:"root,omitempty"`
}

type item struct {
	Key   string `json:"key"`
	Count *int   `json:"count"`
	Port  uint16 `json:"port"`
}

type settings struct {
	inlined  `json:",inline"`
	Name     string                       `json:"name"`
	Enabled  bool                         `json:"enabled"`
	Memory   *resource.Quantity           `json:"memory"`
	Capacity map[string]resource.Quantity `json:"capacity"`
	After    metav1.Duration              `json:"after"`
	Items    []item                       `json:"items"`
	Anything any                          `json:"anything"`
	Ratio    float64                      `json:"ratio"`
}

func TestFormatsAreEqual(t *testing.T) {
	for name, text := range map[string]string{
		"JSON":           "{\n\t\"root\": \"/srv\", \"name\": \"a\", \"enabled\": true, \"memory\": \"1Gi\", \"after\": \"2s\", \"items\": [{\"key\": \"k\", \"count\": 3}]}",
		"YAML":           "root: /srv\nname: a\nenabled: true\nmemory: 1Gi\nafter: 2s\nitems:\n- key: k\n  count: 3\n",
		"flow YAML":      "{root: /srv, name: a, enabled: true, memory: 1Gi, after: 2s, items: [{key: k, count: 3}]}",
		"after comments": "# settings\n---\n{root: /srv, name: a, enabled: true, memory: 1Gi, after: 2s, items: [{key: k, count: 3}]}\n---\n",
	} {
		for _, loose := range []bool{false, true} {
			var s settings
			if err := (config.Decoder{Loose: loose}).Decode([]byte(text), &s, nil); err != nil {
				t.Errorf("%s, loose %v: %v", name, loose, err)
				continue
			}
			if s.Root != "/srv" || s.Name != "a" || !s.Enabled || s.Memory.Value() != 1<<30 || s.After.Duration != 2*time.Second || *s.Items[0].Count != 3 {
				t.Errorf("%s, loose %v: got %+v", name, loose, s)
			}
		}
	}
}

func TestEmptyDataLeavesDefaults(t *testing.T) {
	for _, text := range []string{"", " \n", "# nothing", "null", "{}"} {
		s := settings{Name: "default"}
		if err := config.Decode([]byte(text), &s, nil); err != nil || s.Name != "default" {
			t.Errorf("%q: %+v, %v", text, s, err)
		}
	}
}

func TestMistakes(t *testing.T) {
	for text, want := range map[string]string{
		"nam: a":            `unknown field "nam": leave it out, or write "name"`,
		"Name: a":           `unknown field "Name": leave it out, or write "name"`,
		"frequency: a":      `unknown field "frequency": leave it out`,
		"items: [{kee: a}]": `unknown field "items[0].kee": leave it out, or write "key"`,
		"name: 5":           "name: it is of type number, and has to be of type string",
		"after: 5":          "after: it is of type number, and has to be of type string",
		"after: soon":       `after: time: invalid duration "soon"`,
		"items: [{count: two}, {port: 70000}]": "2 mistakes: items[0].count: it is of type string, and has to be of type integer; " +
			"items[1].port: it is out of range",
		"items: [{port: 1.5}]":           "items[0].port: it is of type number, and has to be of type integer from 0 on",
		"items: {}":                      "items: it is of type object, and has to be of type array",
		"[]":                             "it is of type array, and has to be of type object",
		"\n [1]":                         "it is of type array, and has to be of type object",
		"words":                          "it is of type string, and has to be of type object",
		`{"ratio": 1e400}`:               "ratio: it is out of range",
		"name: a\nname: b\nnam: c":       `2 mistakes: line 2: key "name" already set in map; unknown field "nam": leave it out, or write "name"`,
		`{"name": "a", "name": "b"}`:     `duplicate field "name"`,
		"name: a\n---\nname: b":          "there are several YAML documents",
		`{"name": "a"} {"name": "b"}`:    "this is no YAML or JSON: ",
		"name: [":                        "this is no YAML or JSON: ",
		"capacity: {cpu: lots, disk: 1}": "capacity.cpu: quantities must match",
	} {
		var s settings
		err := config.Decode([]byte(text), &s, nil)
		if err == nil || !strings.HasPrefix(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q: got %v, want %s", text, err, want)
		}
	}
}

func TestAllMistakesAreNamedAtOnce(t *testing.T) {
	var s settings
	text := `{"enabled": "yes", "enabled": true, "rot": "/", "items": [{"kee": 1, "count": []}], "memory": "much"}`
	err := config.Decode([]byte(text), &s, func() error {
		t.Error("values of wrong types are validated")
		return nil
	})
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{
		"5 mistakes: ", `duplicate field "enabled"`, `"rot"`, `"items[0].kee"`, "items[0].count: ", "memory: quantities must match",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%v\ndoes not have %s", err, want)
		}
	}
}

var errPrefix = errors.New("reason")

func TestValidation(t *testing.T) {
	for _, text := range []string{"name: a\nroott: b\n", `{"name": "a", "roott": "b"}`} {
		for _, loose := range []bool{false, true} {
			var s settings
			err := config.Decoder{Loose: loose}.Decode([]byte(text), &s, func() error {
				if s.Name != "a" {
					t.Errorf("validated %+v", s)
				}
				return errors.Join(errors.New("one"), errors.Join(errors.New("two"), fmt.Errorf("three: %w, %w", errPrefix, errPrefix)))
			})
			if err == nil || err.Error() != `4 mistakes: unknown field "roott": leave it out, or write "root"; one; two; three: reason, reason` || !errors.Is(err, errPrefix) {
				t.Errorf("got %v", err)
			}
		}
	}
	if err := config.Decode(nil, &settings{}, func() error { return errPrefix }); err != errPrefix {
		t.Errorf("one mistake is %v", err)
	}
}

func TestLoose(t *testing.T) {
	var s settings
	loose := config.Decoder{Loose: true}
	if err := loose.Decode([]byte("NAME: 5\nEnabled: true\n"), &s, nil); err != nil || s.Name != "5" || !s.Enabled {
		t.Errorf("got %+v, %v", s, err)
	}
	err := loose.Decode([]byte("NAME: 5\nitemz: []\nENABLED: 1\nname: []\n"), &s, nil)
	want := `3 mistakes: ENABLED: it is of type number, and has to be of type bool; unknown field "itemz": leave it out, or write "items"; ` +
		`name: it is of type array, and has to be of type string`
	if err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

// What is after the first document would otherwise be ignored, however wrong it is.
func TestSeveralDocumentsAreRefused(t *testing.T) {
	for _, loose := range []bool{false, true} {
		for _, text := range []string{"name: a\n---\nname: b\n", "---\nname: a\n---\n---\nnam: b\n", "{name: a}\n---\n[]\n"} {
			err := config.Decoder{Loose: loose}.Decode([]byte(text), &settings{}, nil)
			if err == nil || err.Error() != "there are several YAML documents: write all into one" {
				t.Errorf("%q, loose %v: got %v", text, loose, err)
			}
		}
	}
}

func TestVersionOfYAML(t *testing.T) {
	for _, loose := range []bool{false, true} {
		var s settings
		if err := (config.Decoder{Loose: loose}).Decode([]byte("# of an editor\n\n%YAML 1.2\n---\nname: a\n"), &s, nil); err != nil || s.Name != "a" {
			t.Errorf("loose %v: got %+v, %v", loose, s, err)
		}
		err := config.Decoder{Loose: loose}.Decode([]byte("%YAML 2.0\n---\nname: a\n"), &s, nil)
		if err == nil || !strings.Contains(err.Error(), "incompatible YAML") {
			t.Errorf("loose %v: another version: %v", loose, err)
		}
	}
}

func TestPartOfAFile(t *testing.T) {
	var i item
	d := config.Decoder{At: "items[a]", Docs: "docs/x.md"}
	mistakes, decoded := d.Mistakes([]byte(`{"key": "a", "colour": "red"}`), &i)
	if !decoded || i.Key != "a" || config.Join(mistakes...).Error() != `items[a]: unknown field "colour": leave it out: see docs/x.md` {
		t.Errorf("got %v, decoded %v, %+v", mistakes, decoded, i)
	}
	mistakes, decoded = d.Mistakes([]byte(`{"key": 1}`), &i)
	if decoded || config.Join(mistakes...).Error() != "items[a].key: it is of type number, and has to be of type string: see docs/x.md" {
		t.Errorf("got %v, decoded %v", mistakes, decoded)
	}
}

// The texts of equal values are compared.
func TestJSONAsYAML(t *testing.T) {
	var s struct {
		Raw json.RawMessage `json:"raw"`
		N   int             `json:"n"`
	}
	err := config.Decoder{YAML: true}.Decode([]byte(`{"n": 1.0, "raw": {"b": [ 1 ], "a": "x"}}`), &s, nil)
	if err != nil || s.N != 1 || string(s.Raw) != `{"a":"x","b":[1]}` {
		t.Errorf("got %d, %s, %v", s.N, s.Raw, err)
	}
	if err := config.Decode([]byte(`{"n": 1.0}`), &s, nil); err == nil {
		t.Error("1.0 is an integer in JSON")
	}
}

func TestMistakesShowNoSecrets(t *testing.T) {
	for _, text := range []string{"enabled: hunter2", "items: hunter2", "name: [hunter2]", "hunter2", "name: hunter2\nname: hunter2", "name: 'hunter2", "name: *hunter2", "name: !!int hunter2", "name: !!float 'hunter2'", "name: @hunter2", "name: \"\\hunter2\"", "name: {{ hunter2 }}"} {
		for _, loose := range []bool{false, true} {
			err := config.Decoder{Loose: loose}.Decode([]byte(text), &settings{}, nil)
			if err == nil && !loose || err != nil && strings.Contains(err.Error(), "hunter2") {
				t.Errorf("%s: %v", text, err)
			}
		}
	}
}

func TestEnvironment(t *testing.T) {
	name, region, cpu, memory, disk := "file", "file", resource.MustParse("1"), resource.MustParse("1"), resource.MustParse("1")
	env := map[string]string{"NAME": "env", "CPU": "2", "MEMORY": "much", "DISK": "more"}
	err := config.Environment(func(key string) string { return env[key] }, map[string]any{
		"NAME": &name, "REGION": &region, "CPU": &cpu, "MEMORY": &memory, "DISK": &disk,
	})
	if err == nil || !strings.HasPrefix(err.Error(), "2 mistakes: DISK: quantities") || !strings.Contains(err.Error(), "; MEMORY: ") {
		t.Errorf("got %v", err)
	}
	if name != "env" || region != "file" || cpu.Value() != 2 {
		t.Errorf("got %s, %s, %s", name, region, cpu.String())
	}
}

func TestFlatTOML(t *testing.T) {
	var s settings
	text := "# comment\nName = \"a = b\" # another\n  Enabled=true\nMemory\t= \"1Gi\"\n\nRatio = 0.5\n"
	if err := (config.Decoder{Loose: true}).Decode(config.FromFlatTOML([]byte(text)), &s, nil); err != nil || s.Name != "a = b" || !s.Enabled || s.Memory.Value() != 1<<30 || s.Ratio != 0.5 {
		t.Errorf("%+v, %v", s, err)
	}
	for _, text := range []string{"name: a=b", `{"name": "a = b"}`, "items:\n- key: a = b\n"} {
		if got := config.FromFlatTOML([]byte(text)); string(got) != text {
			t.Errorf("%q became %q", text, got)
		}
	}
}
