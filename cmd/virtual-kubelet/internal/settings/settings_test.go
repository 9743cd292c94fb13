package settings_test

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/spf13/pflag"
	"sigs.k8s.io/yaml"

	"github.com/virtual-kubelet/virtual-kubelet/cmd/virtual-kubelet/internal/settings"
)

// values are what a table sets.
type values struct {
	name, path, os string
	object         []byte
	port           int
	qps            float32
	wait           time.Duration
	tags           map[string]string
	lease          bool
}

func (v *values) table() *settings.Table {
	return &settings.Table{APIVersion: "example.com/v1", Kind: "Example", Settings: []settings.Setting{
		{Field: "file", Flag: "file", Value: &v.path, Path: true, Object: &v.object, Usage: "path of a file"},
		{Field: "node.name", Flag: "nodename", Env: "NAME", Value: &v.name, Default: "vk", Usage: "name"},
		{Field: "node.os", Flag: "os", Value: &v.os, OneOf: []string{"linux", "windows"}, Usage: "operating system"},
		{Field: "api.port", Flag: "port", Env: "PORT", Value: &v.port, Default: 10250, Min: settings.Limit(0), Max: settings.Limit(65535), Usage: "port"},
		{Field: "api.qps", Flag: "qps", Value: &v.qps, Default: float32(-1), NotZero: true, Usage: "requests per second"},
		{Field: "api.wait", Flag: "wait", Value: &v.wait, Default: time.Minute, Min: settings.Limit(0), Usage: "how long to wait, with --port"},
		{Field: "api.lease", Flag: "lease", Value: &v.lease, Default: true, Usage: "have a lease"},
		{Field: "tags", Flag: "tag", Value: &v.tags, Usage: "tags"},
	}}
}

const head = "apiVersion: example.com/v1\nkind: Example\n"

// load returns the mistakes in a text and in the values that it results in, each in a line.
func (v *values) load(t *testing.T, text string, env map[string]string, args ...string) (*settings.Table, string) {
	t.Helper()
	table := v.table()
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	table.AddFlags(flags, func(name string) string { return env[name] })
	if err := flags.Parse(args); err != nil {
		t.Fatal(err)
	}
	file := table.Parse("/etc/f.yaml", []byte(text), "Other")
	if file == nil {
		t.Fatalf("%q has no configuration", text)
	}
	var lines []string
	for _, mistake := range append(table.Apply(file), table.Check()...) {
		lines = append(lines, mistake.Error())
	}
	return table, strings.Join(lines, "\n")
}

// What a file may have, and may not; and the schema says the same.
func TestFilesAndTheirSchema(t *testing.T) {
	text, err := new(values).table().Schema()
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	compiler := jsonschema.NewCompiler()
	if err := compiler.AddResource("schema.json", parsed); err != nil {
		t.Fatal(err)
	}
	schema, err := compiler.Compile("schema.json")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ text, want string }{
		{"", ""},
		{"node: {name: a, os: windows}\napi: {port: 0, qps: 0.5, wait: 1h30m, lease: false}\ntags: {a: b}\nfile: a/b\n", ""},
		{"node:\napi:\n  port: 65535\n", ""},
		{"file: {endpoint: here}\n", ""},
		{"node: {os: \"\"}\n", ""},
		{"nod: {}\n", "/etc/f.yaml:3: nod: unknown field: leave it out, or write node"},
		{"node:\n  nmae: a\n", "/etc/f.yaml:4: node.nmae: unknown field: leave it out, or write node.name"},
		{"node: {Name: a}\n", "/etc/f.yaml:3: node.Name: unknown field: leave it out, or write node.name"},
		{"nodename: a\n", "/etc/f.yaml:3: nodename: unknown field: leave it out, or write node.name"},
		{"node: {port: 1}\n", "/etc/f.yaml:3: node.port: unknown field: leave it out, or write api.port"},
		{"zzz: 1\n", "/etc/f.yaml:3: zzz: unknown field: leave it out"},
		{"node: 5\n", "/etc/f.yaml:3: node: it is of type integer, and has to be of type object"},
		{"node: []\n", "/etc/f.yaml:3: node: it is of type array, and has to be of type object"},
		{"node: {name: 5}\n", "/etc/f.yaml:3: node.name: it is of type integer, and has to be of type string"},
		{"node: {name: }\n", "/etc/f.yaml:3: node.name: it is of type null, and has to be of type string"},
		{"node: {os: beos}\n", `/etc/f.yaml:3: node.os: it is "beos": use one of linux, windows`},
		{"api: {port: \"80\"}\n", "/etc/f.yaml:3: api.port: it is of type string, and has to be of type integer"},
		{"api: {port: 1.5}\n", "/etc/f.yaml:3: api.port: it is of type number, and has to be of type integer"},
		{"api: {port: 70000}\n", "/etc/f.yaml:3: api.port: it is 70000: use one from 0 to 65535"},
		{"api: {port: -1}\n", "/etc/f.yaml:3: api.port: it is -1: use one from 0 to 65535"},
		{"api: {port: 99999999999999999999}\n", "/etc/f.yaml:3: api.port: it is of type number, and has to be of type integer"},
		{"api: {qps: 0}\n", "/etc/f.yaml:3: api.qps: it is 0: use a positive number, or -1 for no limit"},
		{"api: {wait: 5}\n", `/etc/f.yaml:3: api.wait: it is of type integer, and has to be of type string, such as "30s"`},
		{"api: {wait: soon}\n", `/etc/f.yaml:3: api.wait: "soon" is no duration: write one such as 30s or 1h30m`},
		{"api: {wait: -5s}\n", "/etc/f.yaml:3: api.wait: it is -5s: use one from 0s on"},
		{"api: {lease: \"true\"}\n", "/etc/f.yaml:3: api.lease: it is of type string, and has to be of type bool, true or false"},
		{"tags: {a: 1}\n", "/etc/f.yaml:3: tags: a is of type integer, and has to be of type string"},
		{"tags: [a]\n", "/etc/f.yaml:3: tags: it is of type array, and has to be of type object"},
		{"file: []\n", "/etc/f.yaml:3: file: it is of type array, and has to be of type string (the path of a file) or object"},
	} {
		_, got := new(values).load(t, head+c.text, nil)
		if got != c.want {
			t.Errorf("%q:\n%s\nwant\n%s", c.text, got, c.want)
		}
		var value any
		if err := yaml.Unmarshal([]byte(head+c.text), &value); err != nil {
			t.Fatal(err)
		}
		if err := schema.Validate(value); (err == nil) != (c.want == "") {
			t.Errorf("%q: the schema says %v, and the checker %q", c.text, err, c.want)
		}
	}
}

// A configuration in the place of its path may have secrets, and does not become a path, which is printed.
func TestTextInPlaceOfAPath(t *testing.T) {
	for _, text := range []string{"|\n  a: 1\n  token: s3cret", "'token: s3cret'", `'{"token": "s3cret"'`} {
		v := new(values)
		_, got := v.load(t, head+"file: "+text+"\n", nil)
		if got != "/etc/f.yaml:3: file: write the configuration as an object, not as text (without |), or the path of its file" {
			t.Errorf("%s: got %s", text, got)
		}
		if v.path != "" {
			t.Errorf("%s: it is the path %q", text, v.path)
		}
	}
}

// What a schema does not see: several documents, fields that are there twice, no YAML. All
// mistakes are named at once, in the order of their lines.
func TestMistakesInDocuments(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"kind: Example\n", "/etc/f.yaml:1: apiVersion: it is missing: write example.com/v1"},
		{"kind: Example\napiVersion: v2\n", `/etc/f.yaml:2: apiVersion: it is "v2": use example.com/v1`},
		{head + "node: {name: a, name: b}\ntags: {a: b, a: c}\n", "/etc/f.yaml:3: node.name: it is set in line 3 already: leave out one of the two\n/etc/f.yaml:4: tags: a is set twice: leave out one of the two"},
		{"---\n" + head + "---\nkind: Other\n---\n", ""},
		{"# of an editor\n%YAML 1.2\n---\n" + head + "zzz: 1\n", "/etc/f.yaml:6: zzz: unknown field: leave it out"},
		{"%YAML 1.1 # older\r\n---\n" + head, ""},
		{"kind: Other\n---\n" + head + "zzz: 1\nxxx: 2\n", "/etc/f.yaml:5: zzz: unknown field: leave it out\n/etc/f.yaml:6: xxx: unknown field: leave it out"},
		{head + "---\n" + head, "/etc/f.yaml:4: there is a Example in line 1 already: write all into that one"},
		{head + "---\nkind: Third\n", `/etc/f.yaml:4: kind: it is "Third": use one of Example, Other`},
		{head + "---\n[secret", "/etc/f.yaml:3: this is no YAML or JSON: did not find expected ',' or ']'"},
		{head + "...\nnode: {name: a}\n", "/etc/f.yaml:1: this is no YAML or JSON: there is more after a line with three dots, which end it"},
		{head + "...\n", ""},
		{head + "node: *secret\n", "/etc/f.yaml:1: this is no YAML or JSON: unknown anchor a value referenced"},
		{`{"apiVersion": "example.com/v1", "kind": "Example", "zzz": 1}`, "/etc/f.yaml:1: zzz: unknown field: leave it out"},
	} {
		if _, got := new(values).load(t, c.text, nil); got != c.want {
			t.Errorf("%q:\n%s\nwant\n%s", c.text, got, c.want)
		}
	}
	for _, text := range []string{"", "kind: Other\n", "[", "# kind: Example\n"} {
		if new(values).table().Parse("f", []byte(text), "Other") != nil {
			t.Errorf("%q is taken for a configuration", text)
		}
	}
}

// A flag goes before a variable, that before the file, and that before the default; the view
// says which it was, and hides what may be secret.
func TestPrecedence(t *testing.T) {
	var v values
	table, wrong := v.load(t, head+"node:\n  name: file\napi:\n  port: 1\n  qps: 2\nfile: {token: secret}\n",
		map[string]string{"NAME": "env", "PORT": "5"}, "--port", "7")
	if wrong != "" {
		t.Fatal(wrong)
	}
	want := head + `file: "[hidden]" # /etc/f.yaml:8
node:
  name: env # environment variable NAME
  # os: "" # default
api:
  port: 7 # flag --port
  qps: 2 # /etc/f.yaml:7
  wait: 1m # default
  lease: true # default
# tags: {} # default
`
	if got := string(table.View()); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if v.name != "env" || v.port != 7 || v.qps != 2 || !strings.Contains(string(v.object), "token: secret") {
		t.Errorf("got %+v", v)
	}
	if table, wrong := v.load(t, head, map[string]string{"PORT": "x"}); wrong != `PORT: it is "x", and has to be of type int` || table.Name("port") != "PORT" {
		t.Errorf("a wrong variable is %q", wrong)
	}
	if _, wrong := v.load(t, head, nil, "--port", "70000"); wrong != "--port: it is 70000: use one from 0 to 65535" {
		t.Errorf("a wrong flag is %q", wrong)
	}
}

// Paths in the file are relative to it; those of flags are as they are.
func TestPaths(t *testing.T) {
	var v values
	if v.load(t, head+"file: a/b\n", nil); v.path != filepath.FromSlash("/etc/a/b") {
		t.Errorf("the path is %s", v.path)
	}
	if v.load(t, head+"file: a/b\n", nil, "--file", "c"); v.path != "c" {
		t.Errorf("the path is %s", v.path)
	}
}

// What is printed as default can be used, and changes nothing.
func TestDefault(t *testing.T) {
	var v values
	text := string(v.table().Default())
	if !strings.Contains(text, "  # how long to wait, with api.port\n  wait: 1m\n") || !strings.Contains(text, "# tags: {}\n") {
		t.Errorf("got\n%s", text)
	}
	_, wrong := v.load(t, text, nil)
	var none values
	without, _ := none.load(t, head, nil)
	table, _ := v.load(t, text, nil)
	got, want := table.Values(), without.Values()
	for field := range want {
		if got[field] != want[field] {
			t.Errorf("%s is %s, want %s", field, got[field], want[field])
		}
	}
	if wrong != "" {
		t.Error(wrong)
	}
}

func TestLineOf(t *testing.T) {
	text := []byte("\n\nname: a\npools:\n- name: front\n  count: 1\n- count: 2\n")
	for path, want := range map[string]int{"name": 3, "pools[front].count": 6, "pools[1].count": 7, "pools[1].name": 7, "pools[front].os": 5, "none": 3} {
		if got := settings.LineOf(text, path); got != want {
			t.Errorf("%s is in line %d, want %d", path, got, want)
		}
	}
	if settings.LineOf([]byte("["), "a") != 0 {
		t.Error("what is no YAML has lines")
	}
}
