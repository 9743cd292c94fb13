package report

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

func example() Result {
	sample := func(cpu, writes float64) Sample {
		return Sample{
			Values:   map[string]float64{"agent CPU": cpu, "writes": writes},
			Requests: map[string]float64{"PATCH pods/status": writes, "GET <nodes>": 0.001},
		}
	}
	return Result{
		Title: "2 pods & more", Conditions: []string{"2 CPUs", "load 1.5"}, RequestUnit: "a pod",
		Measures: []Measure{
			{Name: "agent CPU", Unit: "s", Goal: AtMostOfFloor(1.5)},
			{Name: "writes", Goal: AtMost(2)},
			{Name: "heap", Unit: "MB", Goal: AtMost(1)},
		},
		Agents: []Agent{
			{Name: "floor", Floor: true, Samples: []Sample{sample(2, 1)}},
			{Name: "ours", Samples: []Sample{sample(9, 2), sample(3, 2), sample(4, 2)}},
		},
	}
}

func TestText(t *testing.T) {
	var out bytes.Buffer
	if err := example().Text(&out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"2 pods & more floor ours ratio goal: met",
		"agent CPU, s 2 4 (3–9) 2 ≤ 1.5 × floor: no",
		"writes 1 2 2 ≤ 2: yes",
		"heap, MB – – – ≤ 1",
		"requests a pod floor ours",
		"PATCH pods/status 1 2",
		"2 CPUs; load 1.5",
	} {
		if !strings.Contains(strings.Join(strings.Fields(out.String()), " "), want) {
			t.Errorf("no %q in\n%s", want, &out)
		}
	}
	plain := example()
	for i := range plain.Measures {
		plain.Measures[i].Goal = nil
	}
	var without bytes.Buffer
	if err := plain.Text(&without); err != nil || strings.Contains(without.String(), "goal") {
		t.Errorf("a table without goals has a column for them (%v):\n%s", err, &without)
	}
	if strings.Contains(out.String(), "GET") {
		t.Error("there is a row of requests of which there are as good as none")
	}
}

// Requests by phase are in the order of the phases, the most frequent of each first.
func TestRequestsByPhase(t *testing.T) {
	r := Result{RequestUnit: "in all", Phases: []string{"create", "delete"}, Agents: []Agent{{Name: "ours", Samples: []Sample{
		{Requests: map[string]float64{"delete: DELETE pods": 9, "create: PATCH pods/status": 2, "create: POST events": 5}},
	}}}}
	var out bytes.Buffer
	if err := r.Markdown(&out); err != nil {
		t.Fatal(err)
	}
	if want := "| create: POST events | 5 |\n| create: PATCH pods/status | 2 |\n| delete: DELETE pods | 9 |\n"; !strings.Contains(out.String(), want) {
		t.Errorf("no %q in\n%s", want, &out)
	}
}

func TestMarkdown(t *testing.T) {
	var out bytes.Buffer
	if err := example().Markdown(&out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"| 2 pods & more | floor | ours | ratio | goal: met |\n|---|---:|---:|---:|---:|\n",
		"| writes | 1 | 2 | 2 | ≤ 2: yes |\n",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, &out)
		}
	}
}

func TestSVGIsXML(t *testing.T) {
	var out bytes.Buffer
	if err := example().SVG(&out); err != nil {
		t.Fatal(err)
	}
	rects, goals := 0, 0
	for decoder := xml.NewDecoder(&out); ; {
		token, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if start, ok := token.(xml.StartElement); ok && start.Name.Local == "rect" {
			rects++
		} else if ok && start.Name.Local == "line" {
			goals++
		}
	}
	if rects != 1+2+4 || goals != 2 { // paper, legend, and two bars in each row that has any
		t.Errorf("%d rectangles and %d marks", rects, goals)
	}
}

// The picture of a course has a curve for each measure, from 0 to its highest value.
func TestCurves(t *testing.T) {
	r := Result{Title: "a & b", Course: []Measure{{Name: "heap", Unit: "MB"}, {Name: "files"}, {Name: "unseen"}}, Every: 1,
		Agents: []Agent{{Name: "ours", Samples: []Sample{{Course: map[string][]float64{"heap": {10, 20, 5}, "files": {0}}}}}}}
	var out bytes.Buffer
	if err := r.SVG(&out); err != nil {
		t.Fatal(err)
	}
	if err := xml.Unmarshal(out.Bytes(), new(struct{})); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(out.String(), "<polyline"); n != 2 {
		t.Errorf("%d curves", n)
	}
	if want := fmt.Sprintf(`points="%d,%d.0 %d,%d.0 %d,%d.0"`, curvesLeft, top+curveHeight/2, curvesLeft+curveLength/2, top,
		curvesLeft+curveLength, top+curveHeight*3/4); !strings.Contains(out.String(), want) {
		t.Errorf("no %s in\n%s", want, &out)
	}
}

func TestGoals(t *testing.T) {
	at := func(v float64) spread { return spread{median: v, count: 1} }
	for _, tc := range []struct {
		goal         *Goal
		value, floor spread
		want         string
	}{
		{nil, at(1), at(1), ""},
		{AtMost(2), at(2), spread{}, "yes"},
		{AtMost(2), at(2.1), spread{}, "no"},
		{AtMost(2), at(2.001), spread{}, "yes"},
		{AtMost(2), spread{}, spread{}, ""},
		{AtLeast(2), at(2), spread{}, "yes"},
		{AtLeast(2), at(1), spread{}, "no"},
		{AtMostOfFloor(1.5), at(3), at(2), "yes"},
		{AtMostOfFloor(1.5), at(3.1), at(2), "no"},
		{AtMostOfFloor(1.5), at(3), spread{}, ""},
		{AtLeastOfFloor(0.95), at(95), at(100), "yes"},
		{AtLeastOfFloor(0.95), at(94), at(100), "no"},
	} {
		if got := tc.goal.verdict(tc.value, tc.floor); got != tc.want {
			t.Errorf("%v with %v beside %v: %q", tc.goal, tc.value, tc.floor, got)
		}
	}
}

// What is saved is enough to make the table again.
func TestSaveAndLoad(t *testing.T) {
	dir := t.TempDir()
	if err := example().Save(dir, "pods"); err != nil {
		t.Fatal(err)
	}
	got, err := Load(filepath.Join(dir, "pods.json"))
	if err != nil || !reflect.DeepEqual(got, example()) {
		t.Errorf("got %+v, %v", got, err)
	}
	if _, err := Load(filepath.Join(dir, "pods.md")); err == nil {
		t.Error("a table is a result")
	}
}
