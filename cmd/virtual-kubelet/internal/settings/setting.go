package settings

import (
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/spf13/pflag"
)

// Setting is a value that a flag, an environment variable, or a field of the configuration
// file sets. The first of these that is given counts.
type Setting struct {
	// Field is the path in the file, such as kubeletAPI.port. A setting without one has
	// OnlyFlag.
	Field string
	// OnlyFlag is why the file has no such field.
	OnlyFlag string
	// Flag is the name of the flag; empty means none.
	Flag string
	// Env is the environment variable that is the default of the flag; empty means none.
	Env string
	// FromEnv returns the value that variables set, and whether they do. Nil means the
	// value of Env, unless that is empty.
	FromEnv func(getenv func(string) string) (value string, set bool)

	// Value is where the value is: a *string, *bool, *int, *float32, *time.Duration or
	// *map[string]string.
	Value any
	// Default is the value without any of these; nil means the zero value.
	Default any
	// Object is set to the value of the field if that is an object, which a setting with
	// an Object may be in the file. It is never printed, since it may have secrets.
	Object *[]byte
	// Path means that the value is the path of a file. In the configuration file it is
	// relative to that file's directory.
	Path bool

	// Usage describes the setting in a phrase.
	Usage string
	// OneOf are the values of a string, besides an empty one if that is the Default.
	OneOf []string
	// Min and Max limit a number, or a duration in seconds; nil means no limit.
	Min, Max *float64
	// NotZero refuses zero.
	NotZero bool
	// Check returns what else is wrong with the value, in a phrase; nil means nothing.
	Check func() string
	// Reloaded means that a change to the file is applied while the process runs.
	Reloaded bool

	origin Origin
}

// Limit returns a Min or Max.
func Limit(n float64) *float64 { return &n }

// Origin is what has set a value.
type Origin struct {
	// Name is that of the flag with its dashes, of the environment variable, or of the
	// file; empty if nothing has set the value.
	Name string
	// Line is that in the file, from 1 on; zero elsewhere.
	Line int
}

// String returns the origin in words.
func (o Origin) String() string {
	switch {
	case o.Name == "":
		return "default"
	case o.Line > 0:
		return fmt.Sprintf("%s:%d", o.Name, o.Line)
	case strings.HasPrefix(o.Name, "--"):
		return "flag " + o.Name
	}
	return "environment variable " + o.Name
}

// Mistake is what is wrong with a value, and where that comes from.
type Mistake struct {
	Origin
	Text string
}

// Error implements error.
func (m Mistake) Error() string {
	if m.Line > 0 {
		return fmt.Sprintf("%s:%d: %s", m.Name, m.Line, m.Text)
	}
	return m.Text
}

// Table has all settings of a command.
type Table struct {
	Settings []Setting
	// APIVersion and Kind are those of the file.
	APIVersion, Kind string

	flags    *pflag.FlagSet
	mistakes []Mistake // of environment variables
}

// AddFlags sets all values to their defaults or to those of environment variables, and
// declares the flags.
func (t *Table) AddFlags(flags *pflag.FlagSet, getenv func(string) string) {
	t.flags = flags
	for i := range t.Settings {
		s := &t.Settings[i]
		s.reset()
		if s.Flag != "" {
			s.declare(flags)
		}
		text, set := s.environment(getenv)
		if !set {
			continue
		}
		s.origin = Origin{Name: s.Env}
		if s.Flag == "" {
			*s.Value.(*string) = text
			continue
		}
		flag := flags.Lookup(s.Flag)
		if err := flag.Value.Set(text); err != nil {
			t.mistakes = append(t.mistakes, Mistake{s.origin, fmt.Sprintf("%s: it is %q, and has to be of type %s", s.Env, text, flag.Value.Type())})
			continue
		}
		flag.DefValue = flag.Value.String() // the help shows the value in force
	}
}

func (s *Setting) environment(getenv func(string) string) (string, bool) {
	if s.FromEnv != nil {
		return s.FromEnv(getenv)
	}
	if s.Env == "" {
		return "", false
	}
	value := getenv(s.Env)
	return value, value != ""
}

// reset sets the value to its default.
func (s *Setting) reset() {
	switch p := s.Value.(type) {
	case *string:
		*p, _ = s.Default.(string)
	case *bool:
		*p, _ = s.Default.(bool)
	case *int:
		*p, _ = s.Default.(int)
	case *float32:
		*p, _ = s.Default.(float32)
	case *time.Duration:
		*p, _ = s.Default.(time.Duration)
	case *map[string]string:
		*p, _ = s.Default.(map[string]string)
	}
}

// declare declares the flag, with the value as its default.
func (s *Setting) declare(flags *pflag.FlagSet) {
	switch p := s.Value.(type) {
	case *string:
		flags.StringVar(p, s.Flag, *p, s.Usage)
	case *bool:
		flags.BoolVar(p, s.Flag, *p, s.Usage)
	case *int:
		flags.IntVar(p, s.Flag, *p, s.Usage)
	case *float32:
		flags.Float32Var(p, s.Flag, *p, s.Usage)
	case *time.Duration:
		flags.DurationVar(p, s.Flag, *p, s.Usage)
	case *map[string]string:
		flags.StringToStringVar(p, s.Flag, *p, s.Usage)
	}
}

// Origin returns what has set the setting of that flag or field. That of an unknown one is
// the default.
func (t *Table) Origin(name string) Origin {
	if s := t.find(name); s != nil {
		return t.originOf(s)
	}
	return Origin{}
}

func (t *Table) originOf(s *Setting) Origin {
	if s.Flag != "" && t.flags != nil && t.flags.Changed(s.Flag) {
		return Origin{Name: "--" + s.Flag}
	}
	return s.origin
}

// SetOrigin records that something else has set the setting of that flag or field.
func (t *Table) SetOrigin(name string, origin Origin) {
	if s := t.find(name); s != nil {
		s.origin = origin
	}
}

func (t *Table) find(name string) *Setting {
	for i, s := range t.Settings {
		if s.Flag == name || s.Flag == "" && s.Field == name {
			return &t.Settings[i]
		}
	}
	return nil
}

// Name returns the name by which a user knows the setting of that flag or field: that of
// the field if the file has set it, of the variable if that has, and else of the flag.
func (t *Table) Name(name string) string {
	s := t.find(name)
	if s == nil {
		return "--" + name
	}
	return t.nameOf(s)
}

func (t *Table) nameOf(s *Setting) string {
	switch origin := t.originOf(s); {
	case origin.Line > 0:
		return s.Field
	case origin.Name != "":
		return strings.TrimPrefix(origin.String(), "flag ")[strings.LastIndex(strings.TrimPrefix(origin.String(), "flag "), " ")+1:]
	case s.Flag == "":
		return s.Env
	}
	return "--" + s.Flag
}

// Mistake returns a mistake about the settings of these flags or fields, at the first of
// them that is in the file.
func (t *Table) Mistake(names []string, format string, args ...any) Mistake {
	m := Mistake{Text: fmt.Sprintf(format, args...)}
	for _, name := range names {
		if origin := t.Origin(name); origin.Line > 0 {
			m.Origin = origin
			break
		}
	}
	return m
}

var flagInText = regexp.MustCompile(`--([a-z][a-z-]*[a-z])(=\S+)?`)

// Describe returns the Usage with the names of fields in the place of flags.
func (t *Table) Describe(s Setting) string {
	return flagInText.ReplaceAllStringFunc(s.Usage, func(text string) string {
		name, value, hasValue := strings.Cut(strings.TrimPrefix(text, "--"), "=")
		other := t.find(name)
		if other == nil || other.Field == "" {
			return text
		}
		if hasValue {
			return other.Field + ": " + value
		}
		return other.Field
	})
}
