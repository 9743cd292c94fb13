package chart

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// Without a namespace helm upgrade does not find the release that the page has installed.
func TestCommandsOfThePageNameTheNamespace(t *testing.T) {
	page, err := os.ReadFile("../../docs/install.md")
	if err != nil {
		t.Fatal(err)
	}
	commands := regexp.MustCompile("helm (?:install|upgrade|template) [^`]*?charts/virtual-kubelet(?:\\\\\n|[^`\n])*").FindAllString(string(page), -1)
	if len(commands) < 2 {
		t.Errorf("the page has the commands %q", commands)
	}
	for _, command := range commands {
		if !strings.Contains(command, "--namespace ") {
			t.Errorf("%s names no namespace", command)
		}
	}
}
