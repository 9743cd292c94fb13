package settings

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Check returns what is wrong with values by themselves, wherever they come from.
func (t *Table) Check() []Mistake {
	mistakes := slices.Clone(t.mistakes)
	for i := range t.Settings {
		s := &t.Settings[i]
		if problem := s.problem(); problem != "" {
			mistakes = append(mistakes, Mistake{t.originOf(s), t.nameOf(s) + ": " + problem})
		}
	}
	return mistakes
}

// problem returns what is wrong with the value, in a phrase.
func (s *Setting) problem() string {
	number, isNumber := 0.0, true
	switch p := s.Value.(type) {
	case *int:
		number = float64(*p)
	case *float32:
		number = float64(*p)
	case *time.Duration:
		number = p.Seconds()
	default:
		isNumber = false
	}
	switch text, isText := s.Value.(*string); {
	case isText && *text == "" && s.preset() == "":
	case isText && s.OneOf != nil && !slices.Contains(s.OneOf, *text):
		return fmt.Sprintf("it is %q: use one of %s", *text, strings.Join(s.OneOf, ", "))
	case isNumber && (s.Min != nil && number < *s.Min || s.Max != nil && number > *s.Max):
		return fmt.Sprintf("it is %s: use one %s", s.text(), s.limits())
	case isNumber && s.NotZero && number == 0:
		return "it is 0: use a positive number, or -1 for no limit"
	}
	if s.Check != nil {
		return s.Check()
	}
	return ""
}

func (s *Setting) preset() string {
	text, _ := s.Default.(string)
	return text
}

// limits describes Min and Max.
func (s *Setting) limits() string {
	text := "from " + s.limit(*s.Min) + " on"
	if s.Max != nil {
		text = strings.TrimSuffix(text, " on") + " to " + s.limit(*s.Max)
	}
	return text
}

func (s *Setting) limit(n float64) string {
	if _, ok := s.Value.(*time.Duration); ok {
		return durationText(time.Duration(n * float64(time.Second)))
	}
	return fmt.Sprint(n)
}
