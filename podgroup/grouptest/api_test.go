package grouptest_test

import (
	"strings"
	"testing"

	"github.com/virtual-kubelet/virtual-kubelet/podgroup/grouptest"
)

func TestSchema(t *testing.T) {
	schema := grouptest.Schema{"unit": "name labels containers groups", "containers": "*container", "container": "image", "groups": "name"}
	for text, want := range map[string]string{
		`{"name": "a", "labels": {"any": {"thing": 1}}, "containers": {"main": {"image": "b"}}, "groups": [{"name": "c"}]}`: "",
		`{"size": 1}`:                            "unit.size",
		`{"containers": {"main": {"img": "b"}}}`: "container.img",
		`{"groups": [{}, {"id": 1}]}`:            "groups.id",
		`{"name": 1}`:                            "cannot unmarshal",
		`{`:                                      "unexpected end",
	} {
		var into struct{ Name string }
		got, err := schema.Decode(strings.NewReader(text), "unit", &into)
		if want == "" && (err != nil || got != text || into.Name != "a") || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %+v, %v; want %q", text, into, err, want)
		}
	}
}
