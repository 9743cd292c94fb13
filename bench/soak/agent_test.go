package main

import "testing"

func TestQuarters(t *testing.T) {
	for _, tc := range []struct {
		course       []float64
		second, last float64
	}{
		{[]float64{9, 1, 2, 4, 4, 5, 6, 8}, 3, 7},
		{[]float64{9, 1, 2, 4, 5}, 1, 5},
		{[]float64{3, 5}, 5, 5},
		{[]float64{3}, 3, 3},
	} {
		if second, last := quarters(tc.course); second != tc.second || last != tc.last {
			t.Errorf("%v: got %v and %v, want %v and %v", tc.course, second, last, tc.second, tc.last)
		}
	}
}

func TestSettingsAreChecked(t *testing.T) {
	for _, args := range [][]string{
		{"--provider", "cloud"}, {"--pods", "0"}, {"--rate", "0"}, {"--every", "0s"}, {"--for", "1m"}, {"--faults", "rain=1"},
	} {
		command := newCommand()
		command.SetArgs(append(args, "--bin", t.TempDir()))
		command.SetOut(t.Output())
		command.SetErr(t.Output())
		if err := command.ExecuteContext(t.Context()); err == nil {
			t.Errorf("%v was taken", args)
		}
	}
}
