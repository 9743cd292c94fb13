package main

import "testing"

func TestQuarters(t *testing.T) {
	if first, last := quarters([]float64{9, 1, 2, 3, 4, 5, 6, 8}); first != 5 || last != 7 {
		t.Errorf("got %v and %v", first, last)
	}
	if first, last := quarters([]float64{3, 5}); first != 3 || last != 5 {
		t.Errorf("of two: %v and %v", first, last)
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
