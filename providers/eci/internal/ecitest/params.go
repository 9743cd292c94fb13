package ecitest

import (
	"strconv"
	"strings"
)

// params are the parameters of a call.
type params map[string]string

// each returns the parameters of each element of a list, without its prefix:
// of Container.1.Name and so on.
func (p params) each(name string) []params {
	var list []params
	for i := 1; ; i++ {
		prefix := name + "." + strconv.Itoa(i) + "."
		one := params{}
		for key, value := range p {
			if rest, ok := strings.CutPrefix(key, prefix); ok {
				one[rest] = value
			}
		}
		if len(one) == 0 {
			return list
		}
		list = append(list, one)
	}
}

// list returns the values of a list: of Command.1 and so on.
func (p params) list(name string) []string {
	var list []string
	for i := 1; ; i++ {
		value, ok := p[name+"."+strconv.Itoa(i)]
		if !ok {
			return list
		}
		list = append(list, value)
	}
}

func (p params) integer(name string) int {
	n, _ := strconv.Atoi(p[name])
	return n
}

func (p params) float(name string) float64 {
	f, _ := strconv.ParseFloat(p[name], 64)
	return f
}
