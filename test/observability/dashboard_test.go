package observability

import (
	"encoding/json"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

type dashboard struct {
	Templating struct {
		List []struct {
			Name       string `json:"name"`
			Type       string `json:"type"`
			Definition string `json:"definition"`
		} `json:"list"`
	} `json:"templating"`
	Panels []panel `json:"panels"`
}

type panel struct {
	ID         int                  `json:"id"`
	Title      string               `json:"title"`
	Type       string               `json:"type"`
	Datasource struct{ UID string } `json:"datasource"`
	Targets    []struct {
		Expr         string `json:"expr"`
		LegendFormat string `json:"legendFormat"`
	} `json:"targets"`
}

var (
	variable    = regexp.MustCompile(`\$(\w+)|\$\{(\w+)\}`)
	ofLegend    = regexp.MustCompile(`\{\{(\w+)\}\}`)
	labelValues = regexp.MustCompile(`^label_values\((.*), (\w+)\)$`)
)

func TestDashboardAsksForWhatThereIs(t *testing.T) {
	text, err := os.ReadFile("../../deploy/grafana/virtual-kubelet.json")
	if err != nil {
		t.Fatal(err)
	}
	var d dashboard
	if err := json.Unmarshal(text, &d); err != nil {
		t.Fatal(err)
	}
	metrics := readMetrics(t)
	known := []string{"__rate_interval"}
	for _, v := range d.Templating.List {
		known = append(known, v.Name)
		if v.Type != "query" {
			continue
		}
		query := labelValues.FindStringSubmatch(v.Definition)
		if query == nil {
			t.Fatalf("variable %s: %q is no label_values(metric, label)", v.Name, v.Definition)
		}
		labels, problems := check(metrics, query[1])
		if len(problems) > 0 || !slices.Contains(labels, query[2]) {
			t.Errorf("variable %s: %v, or no label %s", v.Name, problems, query[2])
		}
	}
	ids, expressions := map[int]bool{}, 0
	for _, p := range d.Panels {
		if ids[p.ID] || p.Title == "" {
			t.Errorf("panel %d (%q) has no title, or the ID of another", p.ID, p.Title)
		}
		ids[p.ID] = true
		if p.Type == "row" {
			continue
		}
		if p.Datasource.UID != "${datasource}" || len(p.Targets) == 0 {
			t.Errorf("panel %q has the data source %q and %d queries", p.Title, p.Datasource.UID, len(p.Targets))
		}
		for _, target := range p.Targets {
			expressions++
			for _, v := range variable.FindAllStringSubmatch(target.Expr, -1) {
				if !slices.Contains(known, v[1]+v[2]) {
					t.Errorf("panel %q: there is no variable %s", p.Title, v[0])
				}
			}
			labels, problems := check(metrics, strings.ReplaceAll(target.Expr, "$__rate_interval", "5m"))
			for _, problem := range problems {
				t.Errorf("panel %q: %s", p.Title, problem)
			}
			for _, match := range ofLegend.FindAllStringSubmatch(target.LegendFormat, -1) {
				if !slices.Contains(labels, match[1]) {
					t.Errorf("panel %q: the legend names the label %q, which %s does not have", p.Title, match[1], target.Expr)
				}
			}
		}
	}
	if expressions < 30 {
		t.Errorf("found %d expressions only", expressions)
	}
}
