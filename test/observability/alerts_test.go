package observability

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

type ruleFile struct {
	Groups []struct {
		Name  string `json:"name"`
		Rules []rule `json:"rules"`
	} `json:"groups"`
}

type rule struct {
	Alert       string            `json:"alert"`
	Expr        string            `json:"expr"`
	For         string            `json:"for"`
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
}

var ofLabel = regexp.MustCompile(`\$labels\.(\w+)`)

func TestAlertsAskForWhatThereIs(t *testing.T) {
	text, err := os.ReadFile("../../deploy/prometheus/alerts.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var file ruleFile
	if err := yaml.UnmarshalStrict(text, &file); err != nil {
		t.Fatal(err)
	}
	metrics := readMetrics(t)
	count := 0
	for _, group := range file.Groups {
		for _, r := range group.Rules {
			count++
			labels, problems := check(metrics, r.Expr)
			for _, problem := range problems {
				t.Errorf("%s: %s", r.Alert, problem)
			}
			for _, match := range ofLabel.FindAllStringSubmatch(r.Annotations["summary"], -1) {
				if !slices.Contains(labels, match[1]) {
					t.Errorf("%s names the label %q, which its metrics do not have", r.Alert, match[1])
				}
			}
			if !slices.Contains([]string{"warning", "critical"}, r.Labels["severity"]) {
				t.Errorf("%s has the severity %q", r.Alert, r.Labels["severity"])
			}
			if !strings.HasSuffix(strings.TrimSpace(r.Annotations["runbook"]), ".") || r.Annotations["summary"] == "" {
				t.Errorf("%s does not say what is the matter, and what to do", r.Alert)
			}
		}
	}
	if count < 10 {
		t.Errorf("found %d alerts only", count)
	}
}

// Alerts that the text of others sends people to exist.
func TestAlertsNameEachOther(t *testing.T) {
	text, err := os.ReadFile("../../deploy/prometheus/alerts.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range regexp.MustCompile(`Virtual(?:Kubelet|Node)[A-Z]\w+`).FindAllString(string(text), -1) {
		if !strings.Contains(string(text), "- alert: "+name+"\n") {
			t.Errorf("there is no alert %s", name)
		}
	}
}

func TestScrapeConfigurationsAreYAML(t *testing.T) {
	for _, file := range []string{"scrape.yaml", "scrape-port-per-node.yaml"} {
		text, err := os.ReadFile("../../deploy/prometheus/" + file)
		if err != nil {
			t.Fatal(err)
		}
		var config struct {
			Jobs []struct {
				Name string `json:"job_name"`
			} `json:"scrape_configs"`
		}
		if err := yaml.Unmarshal(text, &config); err != nil {
			t.Fatal(err)
		}
		// The name by which the alerts know what is ours.
		if len(config.Jobs) == 0 || config.Jobs[0].Name != "virtual-kubelet" {
			t.Errorf("the jobs of %s are %v, want virtual-kubelet first", file, config.Jobs)
		}
	}
}
