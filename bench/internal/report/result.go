// Package report makes tables and pictures of what scenarios have measured: as
// text, as Markdown, as SVG, and as JSON, from which the others can be made again.
package report

import "slices"

// Result is what a scenario has measured, and all that a table of it needs.
type Result struct {
	Title string `json:"title"`
	// Conditions are what one has to know to compare the figures.
	Conditions []string  `json:"conditions"`
	Measures   []Measure `json:"measures"` // the rows, in order
	// RequestUnit is what Sample.Requests count, such as "a pod".
	RequestUnit string `json:"requestUnit"`
	// Phases are where Sample.Requests are by phase, too, in order: their kinds
	// then begin with one of these and a colon.
	Phases []string `json:"phases,omitempty"`
	// Course are the measures of Sample.Course, of which the picture then is, and
	// Every the minutes between two of their values.
	Course []Measure `json:"course,omitempty"`
	Every  float64   `json:"every,omitempty"`
	// Agents are who was measured. Where there is a floor it comes first, and
	// the agent that the goals are for comes after it.
	Agents []Agent `json:"agents"`
}

// Measure is a row of the table.
type Measure struct {
	Name string `json:"name"`
	Unit string `json:"unit,omitempty"`
	Goal *Goal  `json:"goal,omitempty"`
}

// Agent is a column of the table.
type Agent struct {
	Name    string   `json:"name"`
	Floor   bool     `json:"floor,omitempty"`
	Samples []Sample `json:"samples"`
}

// Sample is one run of an agent.
type Sample struct {
	// Values are by the name of the measure; what could not be measured is not
	// there.
	Values map[string]float64 `json:"values"`
	// Requests are the agent's to the API server, by verb and resource.
	Requests map[string]float64 `json:"requests,omitempty"`
	// Latencies are all of a phase, in seconds.
	Latencies map[string][]float64 `json:"latencies,omitempty"`
	// Course are the values of a measure over time.
	Course map[string][]float64 `json:"course,omitempty"`
}

// spread is the median of the values that there are, and the outermost.
type spread struct {
	median, least, most float64
	count               int
}

// of returns the spread of a measure.
func (a Agent) of(measure string) spread {
	return spreadOf(a.Samples, func(s Sample) (float64, bool) {
		v, ok := s.Values[measure]
		return v, ok
	})
}

// ofRequests returns the spread of a kind of request; none is 0.
func (a Agent) ofRequests(kind string) spread {
	return spreadOf(a.Samples, func(s Sample) (float64, bool) { return s.Requests[kind], true })
}

func spreadOf(samples []Sample, value func(Sample) (float64, bool)) spread {
	var values []float64
	for _, s := range samples {
		if v, ok := value(s); ok {
			values = append(values, v)
		}
	}
	if len(values) == 0 {
		return spread{}
	}
	slices.Sort(values)
	mid := len(values) / 2
	median := values[mid]
	if len(values)%2 == 0 {
		median = (values[mid-1] + values[mid]) / 2
	}
	return spread{median, values[0], values[len(values)-1], len(values)}
}

// floor returns the floor, if it was measured.
func (r Result) floor() (Agent, bool) {
	i := slices.IndexFunc(r.Agents, func(a Agent) bool { return a.Floor })
	if i < 0 {
		return Agent{}, false
	}
	return r.Agents[i], true
}

// candidate returns the agent that the goals are for.
func (r Result) candidate() (Agent, bool) {
	i := slices.IndexFunc(r.Agents, func(a Agent) bool { return !a.Floor })
	if i < 0 {
		return Agent{}, false
	}
	return r.Agents[i], true
}
