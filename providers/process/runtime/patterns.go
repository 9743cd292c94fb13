package runtime

import (
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
)

// patterns are patterns of absolute paths.
type patterns []string

// check reports whether all are patterns of absolute paths.
func (p patterns) check(field string) error {
	for _, pattern := range p {
		if !path.IsAbs(pattern) {
			return fmt.Errorf("%s: %q is no absolute path", field, pattern)
		}
		if _, err := path.Match(strings.TrimSuffix(pattern, "/**"), "/"); err != nil {
			return fmt.Errorf("%s: %q: %w", field, pattern, err)
		}
	}
	return nil
}

// match reports whether a clean path matches one of the patterns.
func (p patterns) match(name string) bool {
	for _, pattern := range p {
		if base, ok := strings.CutSuffix(pattern, "/**"); ok {
			if matchBelow(base, name) {
				return true
			}
			continue
		}
		if ok, err := path.Match(path.Clean(pattern), name); err == nil && ok {
			return true
		}
	}
	return false
}

// contain reports whether a clean path matches one of the patterns or is below a
// path that does.
func (p patterns) contain(name string) bool {
	return slices.ContainsFunc(p, func(pattern string) bool {
		return matchBelow(strings.TrimSuffix(pattern, "/**"), name)
	})
}

// matchBelow reports whether name is base, a pattern, or below it.
func matchBelow(base, name string) bool {
	if base == "" {
		return true
	}
	for at := name; ; at = path.Dir(at) {
		if ok, err := path.Match(path.Clean(base), at); err == nil && ok {
			return true
		}
		if at == "/" || at == "." {
			return false
		}
	}
}

// below reports whether name is dir or in it.
func below(dir, name string) bool {
	return dir == "/" || name == dir || strings.HasPrefix(name, strings.TrimSuffix(dir, "/")+"/")
}

// ids are ranges of numbers of users or groups.
type ids [][2]int64

// parseIDs reads numbers and ranges.
func parseIDs(field string, texts []string) (ids, error) {
	var all ids
	for _, text := range texts {
		low, high, isRange := strings.Cut(text, "-")
		if !isRange {
			high = low
		}
		from, err := parseID(low)
		if err == nil {
			var to int64
			if to, err = parseID(high); err == nil && to < from {
				err = fmt.Errorf("%d is less than %d", to, from)
			}
			all = append(all, [2]int64{from, to})
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %q is no number or range such as 1000-1999: %w", field, text, err)
		}
	}
	return all, nil
}

func parseID(text string) (int64, error) {
	id, err := strconv.ParseUint(strings.TrimSpace(text), 10, 32)
	if err == nil && id > maxID {
		err = fmt.Errorf("%d is more than %d", id, maxID)
	}
	return int64(id), err
}

// maxID is the highest number: the one after it means "no change" to the kernel.
const maxID = 1<<32 - 2

func (r ids) contain(id int64) bool {
	for _, pair := range r {
		if pair[0] <= id && id <= pair[1] {
			return true
		}
	}
	return false
}

// String is the ranges as they are configured.
func (r ids) String() string {
	texts := make([]string, len(r))
	for i, pair := range r {
		texts[i] = fmt.Sprintf("%d-%d", pair[0], pair[1])
	}
	return strings.Join(texts, ",")
}
