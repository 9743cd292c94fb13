package config

import "strings"

// Nearest returns the known name that an unknown one is a misspelling of, the first of
// several, or "" if there is none.
func Nearest(name string, known []string) string {
	best, least := "", min(2, len(name)/2)+1
	for _, other := range known {
		if n := distance(strings.ToLower(name), strings.ToLower(other)); n < least {
			best, least = other, n
		}
	}
	return best
}

// distance returns how many characters have to be added, removed or replaced to get one
// text from another.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			replaced := diagonal
			if a[i] != b[j] {
				replaced++
			}
			diagonal = row[j+1]
			row[j+1] = min(replaced, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
