package report

import (
	_ "embed"
	"io"
	"text/template"
)

// The sizes of the picture, in pixels.
const (
	barHeight = 12
	barLength = 300 // of the longest in a row
	rowGap    = 10
	barsLeft  = 250
	top       = 64
	width     = barsLeft + barLength + 200
)

//go:embed picture.svg.tmpl
var pictureSource string

var picture = template.Must(template.New("picture").Parse(pictureSource))

// bar is one agent's in a row.
type bar struct {
	Color, Y, Length int
	TextX, TextY     int
	Text             string
}

// barRow is a measure with the bars of all agents, each row to a scale of its
// own.
type barRow struct {
	Label string
	TextY int
	Bars  []bar
	Goal  *goalMark // nil if there is none, or it is off the scale
}

type goalMark struct{ X, Top, Bottom int }

type legend struct {
	Color, X int
	Name     string
}

// SVG writes a picture of the table: bars of the medians, those of an agent
// below those of the floor. It is readable on light and dark backgrounds.
func (r Result) SVG(w io.Writer) error {
	if len(r.Course) > 0 {
		return r.curves(w)
	}
	rows, height := r.bars()
	var legends []legend
	for i, a := range r.Agents {
		legends = append(legends, legend{i, barsLeft + i*150, a.Name})
	}
	return picture.Execute(w, map[string]any{
		"Title": r.Title, "Width": width, "Height": height, "LabelX": barsLeft - 10, "BarX": barsLeft, "BarHeight": barHeight - 2,
		"Rows": rows, "Legends": legends,
	})
}

func (r Result) bars() (rows []barRow, height int) {
	floor, _ := r.floor()
	y := top
	for _, m := range r.Measures {
		longest := 0.0
		for _, a := range r.Agents {
			longest = max(longest, a.of(m.Name).median)
		}
		if longest == 0 {
			continue // nothing to see
		}
		scale := func(v float64) int { return int(v / longest * barLength) }
		row := barRow{Label: m.label(), TextY: y + len(r.Agents)*barHeight/2 + 4}
		start := y
		for i, a := range r.Agents {
			value := a.of(m.Name)
			row.Bars = append(row.Bars, bar{Color: i, Y: y, TextX: barsLeft + scale(value.median) + 5, TextY: y + barHeight - 3, Length: scale(value.median), Text: value.String()})
			y += barHeight
		}
		if bound, ok := m.Goal.bound(floor.of(m.Name)); ok && bound <= longest {
			row.Goal = &goalMark{X: barsLeft + scale(bound), Top: start - 2, Bottom: y}
		}
		rows = append(rows, row)
		y += rowGap
	}
	return rows, y + rowGap
}
