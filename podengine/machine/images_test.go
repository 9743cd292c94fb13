package machine

import (
	"reflect"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/json"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/podengine"
)

func TestImageConfig(t *testing.T) {
	for text, want := range map[string]struct {
		gc    podengine.ImageGC
		pulls int
	}{
		`{}`: {podengine.ImageGC{HighThresholdPercent: 85, LowThresholdPercent: 80, MinAge: 2 * time.Minute}, 1},
		`{"imageGCHighThresholdPercent": 50, "imageGCLowThresholdPercent": 40, "imageMinimumGCAge": "1m", "imageMaximumGCAge": "24h"}`: {
			podengine.ImageGC{HighThresholdPercent: 50, LowThresholdPercent: 40, MinAge: time.Minute, MaxAge: 24 * time.Hour}, 1,
		},
		`{"imageGCHighThresholdPercent": 100, "serializeImagePulls": false}`: {
			podengine.ImageGC{Off: true, HighThresholdPercent: 100, LowThresholdPercent: 80, MinAge: 2 * time.Minute}, -1,
		},
		`{"imageGCHighThresholdPercent": 100, "imageMaximumGCAge": "1h", "maxParallelImagePulls": 5}`: {
			podengine.ImageGC{HighThresholdPercent: 100, LowThresholdPercent: 80, MinAge: 2 * time.Minute, MaxAge: time.Hour}, 5,
		},
		`{"serializeImagePulls": true, "maxParallelImagePulls": 1}`: {
			podengine.ImageGC{HighThresholdPercent: 85, LowThresholdPercent: 80, MinAge: 2 * time.Minute}, 1,
		},
	} {
		var cfg ImageConfig
		if _, err := json.UnmarshalStrict([]byte(text), &cfg); err != nil {
			t.Fatal(err)
		}
		if err := cfg.Validate(); err != nil {
			t.Errorf("%s: %v", text, err)
		}
		if got := cfg.gc(); !reflect.DeepEqual(got, want.gc) || cfg.parallelPulls() != want.pulls {
			t.Errorf("%s: %+v and %d pulls at once, want %+v", text, got, cfg.parallelPulls(), want)
		}
	}
}

func TestImageConfigRefuses(t *testing.T) {
	minute := metav1.Duration{Duration: time.Minute}
	for says, bad := range map[string]ImageConfig{
		"imageGCHighThresholdPercent is 101": {ImageGCHighThresholdPercent: ptr.To(101)},
		"imageGCLowThresholdPercent is 0":    {ImageGCLowThresholdPercent: ptr.To(0)},
		"the low one must be less":           {ImageGCHighThresholdPercent: ptr.To(70)},
		"must not be negative":               {ImageMinimumGCAge: metav1.Duration{Duration: -1}},
		"the maximum must be more":           {ImageMaximumGCAge: minute},
		"maxParallelImagePulls is 0":         {MaxParallelImagePulls: ptr.To(0)},
		"serializeImagePulls forbids":        {MaxParallelImagePulls: ptr.To(2), SerializeImagePulls: ptr.To(true)},
	} {
		if err := bad.Validate(); !errdefs.IsInvalidInput(err) || !strings.Contains(err.Error(), says) {
			t.Errorf("%v, want an error that says %q", err, says)
		}
	}
}
