//go:build integration

package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/virtual-kubelet/virtual-kubelet/bench/internal/report"
)

// The scenarios start the floor as this program.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "floor" {
		main()
		return
	}
	os.Exit(m.Run())
}

// scenario runs a scenario with few pods, and returns what it has measured of
// virtual-kubelet. How long anything takes is of no account here.
func scenario(t *testing.T, name string, args ...string) report.Sample {
	t.Parallel()
	dir := t.TempDir()
	var stdout bytes.Buffer
	command := newCommand()
	command.SetArgs(append(args, "--bin", "../bin", "--out", dir))
	command.SetOut(&stdout)
	command.SetErr(t.Output())
	if err := command.ExecuteContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Logf("\n%s", &stdout)
	result, err := report.Load(filepath.Join(dir, name+".json"))
	if err != nil {
		t.Fatal(err)
	}
	for _, suffix := range []string{".md", ".svg"} {
		if _, err := os.Stat(filepath.Join(dir, name+suffix)); err != nil {
			t.Error(err)
		}
	}
	last := result.Agents[len(result.Agents)-1]
	want := ourName
	if strings.HasSuffix(name, "-remote") {
		want = remoteName
	} else if strings.HasPrefix(name, "clusters-") {
		want = "kubernetes"
	}
	if last.Name != want || len(last.Samples) != 1 {
		t.Fatalf("the last column is %s with %d samples", last.Name, len(last.Samples))
	}
	for _, m := range result.Measures {
		if _, ok := last.Samples[0].Values[m.Name]; !ok {
			t.Errorf("%q was not measured", m.Name)
		}
	}
	return last.Samples[0]
}

func TestPods(t *testing.T) {
	s := scenario(t, "pods-20-rich", "pods", "--pods", "20", "--shape", "rich", "--rounds", "1", "--settle", "1s", "--rest", "1s")
	if writes := s.Values[podWrites]; writes < 3 || writes > 3.5 {
		t.Errorf("%v writes per pod, want its status, its last status and its removal", writes)
	}
	if left := s.Values[podsLeft]; left != 0 {
		t.Errorf("%v pods are left", left)
	}
	for phase, latencies := range s.Latencies {
		if len(latencies) != 20 {
			t.Errorf("%s: %d latencies of 20 pods", phase, len(latencies))
		}
	}
}

// A provider in another process costs no request more, and what it uses is part of the agent's.
func TestRemotePods(t *testing.T) {
	s := scenario(t, "pods-20-remote", "pods", "--pods", "20", "--remote", "--rounds", "1", "--settle", "1s", "--rest", "1s")
	if writes := s.Values[podWrites]; writes < 3 || writes > 3.5 {
		t.Errorf("%v writes per pod, want its status, its last status and its removal", writes)
	}
	if left := s.Values[podsLeft]; left != 0 {
		t.Errorf("%v pods are left", left)
	}
	for whole, part := range map[string]string{createCPU: providerCreateCPU, deleteCPU: providerDeleteCPU, runningRSS: providerRSS} {
		if s.Values[part] > s.Values[whole] || part == providerRSS && s.Values[part] == 0 {
			t.Errorf("%s: %v, %s: %v", whole, s.Values[whole], part, s.Values[part])
		}
	}
}

// An agent that was killed takes up its pods without a write, and asks for them
// once.
func TestRestart(t *testing.T) {
	s := scenario(t, "restart-20", "restart", "--pods", "20", "--settle", "1s", "--quiet", "5s")
	if s.Values[restartWrite] != 0 || s.Values[podLists] != 1 || s.Values[podReads] != 0 || s.Values[podsCounted] != 20 {
		t.Errorf("%v pods with %v", s.Values[podsCounted], s.Requests)
	}
}

// A node at rest renews its lease, and does nothing else.
func TestNodes(t *testing.T) {
	s := scenario(t, "nodes-1-pods-20", "nodes", "--pods", "20", "--settle", "10s", "--for", "21s")
	if s.Requests["PUT leases"] == 0 {
		t.Error("no lease was renewed")
	}
	for kind, aMinute := range s.Requests {
		// An unchanged status is reported each five minutes, from a random time on: once at most of these 21 s.
		if report := kind == "PATCH nodes/status" && aMinute*21/60 < 1.5; !report && !strings.HasSuffix(kind, " leases") {
			t.Errorf("requests at rest: %v", s.Requests)
		}
	}
}

// A pod in another cluster is one pod there, and is deleted there and at home.
func TestClusters(t *testing.T) {
	s := scenario(t, "clusters-20", "clusters", "--pods", "20", "--rounds", "1", "--settle", "1s", "--for", "1s")
	for kind, want := range map[string]float64{creation + ": POST pods there": 20, deletion + ": DELETE pods there": 20, deletion + ": DELETE pods": 20} {
		if s.Requests[kind] != want {
			t.Errorf("%s: %v, want %v", kind, s.Requests[kind], want)
		}
	}
}
