// Package junit is the format of a run's results, JUnit's XML.
package junit

import (
	"encoding/xml"
	"fmt"
	"os"
	"time"
)

// Names of properties.
const (
	Setup      = "setup"      // what the node is
	Kubernetes = "kubernetes" // version of the suite
)

// Suite is a run on one node.
type Suite struct {
	XMLName    xml.Name   `xml:"testsuite"`
	Name       string     `xml:"name,attr"`
	Tests      int        `xml:"tests,attr"`
	Failures   int        `xml:"failures,attr"`
	Skipped    int        `xml:"skipped,attr"`
	Seconds    float64    `xml:"time,attr"`
	Begin      time.Time  `xml:"timestamp,attr"`
	Properties []Property `xml:"properties>property"`
	Cases      []Case     `xml:"testcase"`
}

// Property is something that is known of a run.
type Property struct {
	Name  string `xml:"name,attr"`
	Value string `xml:"value,attr"`
}

// Case is a spec.
type Case struct {
	Name    string   `xml:"name,attr"`
	Class   string   `xml:"classname,attr"`
	Seconds float64  `xml:"time,attr"`
	Failure *Message `xml:"failure"`
	Skipped *Message `xml:"skipped"`
}

// Message says why.
type Message struct {
	Text string `xml:"message,attr"`
}

// Encode returns the file's content.
func (s *Suite) Encode() ([]byte, error) {
	data, err := xml.MarshalIndent(s, "", "  ")
	return append([]byte(xml.Header), append(data, '\n')...), err
}

// Read reads a file.
func Read(path string) (*Suite, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read results: %w", err)
	}
	s := &Suite{}
	if err := xml.Unmarshal(data, s); err != nil {
		return nil, fmt.Errorf("read results: %s: %w", path, err)
	}
	return s, nil
}

// Property returns a property, or nothing.
func (s *Suite) Property(name string) string {
	for _, p := range s.Properties {
		if p.Name == name {
			return p.Value
		}
	}
	return ""
}
