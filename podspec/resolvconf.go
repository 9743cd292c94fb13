package podspec

import (
	"slices"
	"strings"
)

// ResolvConf is what resolv.conf(5) says to a resolver.
type ResolvConf struct {
	Nameservers []string
	Searches    []string
	Options     []string
}

// ParseResolvConf reads the text of a resolv.conf. Lines that it does not know,
// and those without a value, are skipped, as resolvers do. Domains lose the dot
// at their end, so that the same domain with and without it counts once.
func ParseResolvConf(text string) ResolvConf {
	var conf ResolvConf
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) < 2 || line[0] == '#' || line[0] == ';' {
			continue
		}
		switch fields[0] {
		case "nameserver":
			conf.Nameservers = append(conf.Nameservers, fields[1])
		case "search":
			conf.Searches = domains(fields[1:]) // the last instance wins
		case "domain":
			conf.Searches = domains(fields[1:2])
		case "options":
			conf.Options = mergeOptions(conf.Options, fields[1:])
		}
	}
	return conf
}

// String is the text of a resolv.conf.
func (c ResolvConf) String() string {
	var b strings.Builder
	if len(c.Searches) > 0 {
		b.WriteString("search " + strings.Join(c.Searches, " ") + "\n")
	}
	for _, server := range c.Nameservers {
		b.WriteString("nameserver " + server + "\n")
	}
	if len(c.Options) > 0 {
		b.WriteString("options " + strings.Join(c.Options, " ") + "\n")
	}
	return b.String()
}

// domains leaves out the root, which as a search path means to search nowhere.
func domains(fields []string) (list []string) {
	for _, field := range fields {
		if domain := strings.TrimSuffix(field, "."); domain != "" {
			list = append(list, domain)
		}
	}
	return list
}

// mergeOptions adds options (NAME or NAME:VALUE) to others; those of the same
// name take their place.
func mergeOptions(options, more []string) []string {
	merged := slices.Clone(options)
	for _, option := range more {
		name, _, _ := strings.Cut(option, ":")
		i := slices.IndexFunc(merged, func(other string) bool {
			otherName, _, _ := strings.Cut(other, ":")
			return otherName == name
		})
		if i < 0 {
			merged = append(merged, option)
		} else {
			merged[i] = option
		}
	}
	return merged
}
