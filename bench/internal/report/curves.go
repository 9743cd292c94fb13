package report

import (
	_ "embed"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/template"
)

// The sizes of a curve, in pixels.
const (
	curveHeight = 60
	curveLength = 480
	curveGap    = 26
	curvesLeft  = 150
)

//go:embed curves.svg.tmpl
var curvesSource string

var curves = template.Must(template.New("curves").Parse(curvesSource))

// curve is a measure over time, from 0 to its highest value.
type curve struct {
	Label, Highest, Last string
	Top, Middle, Bottom  int
	Points               string
}

// curves writes a picture of the course of the agent's first sample.
func (r Result) curves(w io.Writer) error {
	agent, _ := r.candidate()
	if len(agent.Samples) == 0 {
		return fmt.Errorf("%s: nothing was measured", r.Title)
	}
	var all []curve
	y, looks := top, 0
	for _, m := range r.Course {
		values := agent.Samples[0].Course[m.Name]
		if len(values) == 0 {
			continue
		}
		looks = max(looks, len(values))
		c := curve{Label: m.label(), Top: y, Middle: y + curveHeight/2 + 4, Bottom: y + curveHeight,
			Highest: number(slices.Max(values)), Last: number(values[len(values)-1])}
		var points strings.Builder
		for i, value := range values {
			x, height := curvesLeft, 0.0
			if len(values) > 1 {
				x += i * curveLength / (len(values) - 1)
			}
			if highest := slices.Max(values); highest > 0 {
				height = value / highest * curveHeight
			}
			fmt.Fprintf(&points, "%d,%.1f ", x, float64(c.Bottom)-height)
		}
		c.Points = strings.TrimSpace(points.String())
		all = append(all, c)
		y += curveHeight + curveGap
	}
	return curves.Execute(w, map[string]any{
		"Title": r.Title, "Width": curvesLeft + curveLength + 70, "Height": y, "Curves": all,
		"LabelX": curvesLeft - 10, "Left": curvesLeft, "Right": curvesLeft + curveLength, "LastX": curvesLeft + curveLength + 6,
		"Note": fmt.Sprintf("each from 0 to its highest value; a look each %s min, %d of them", number(r.Every), looks),
	})
}
