package slurm

import (
	"maps"
	"testing"
)

func TestParseUsage(t *testing.T) {
	const second = 1_000_000_000
	got := parseUsage("7.batch|00:01:02|14209024|\n7.0|00:00:01.500|1K\nsstat: error: no steps\n8.batch|1-02:03:04|2.5M\n9.batch|00:00:00|0\n10.batch||\n11.batch|x|1G\n12.batch|9:05|4\n13.batch|-1:00|4\n14.batch|1|-4\n")
	want := map[string]usage{
		"7": {63 * second, 14209024 + 1024}, "8": {(26*3600 + 3*60 + 4) * second, 5 << 19}, "11": {0, 1 << 30}, "12": {(9*60 + 5) * second, 4}, "13": {0, 4},
	}
	if !maps.Equal(got, want) {
		t.Errorf("the jobs use\n%v and not\n%v", got, want)
	}
}
