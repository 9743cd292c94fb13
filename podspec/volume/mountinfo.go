package volume

import (
	"strconv"
	"strings"
)

// mountsBelow returns the mount points that /proc/PID/mountinfo shows below dir,
// in its order, which is that of mounting.
func mountsBelow(mountinfo, dir string) []string {
	var found []string
	for line := range strings.Lines(mountinfo) {
		fields := strings.Fields(line)
		if len(fields) < 5 {
			continue
		}
		if point := unescape(fields[4]); strings.HasPrefix(point, dir+"/") {
			found = append(found, point)
		}
	}
	return found
}

// unescape undoes the kernel's \NNN for blanks and backslashes.
func unescape(s string) string {
	if !strings.Contains(s, `\`) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) {
			if code, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				b.WriteByte(byte(code))
				i += 3
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}
