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

// coveredShare returns a mount point at or below dir where something else is mounted on a shared
// mount, if there is one: what is unmounted there goes from the host, too.
func coveredShare(mountinfo, dir string) string {
	type place struct{ point, device, root string }
	shared := map[string]place{} // by the mount's ID
	for line := range strings.Lines(mountinfo) {
		fields := strings.Fields(line)
		if len(fields) < 7 || !strings.HasPrefix(unescape(fields[4])+"/", dir+"/") {
			continue
		}
		own := place{fields[4], fields[2], fields[3]}
		if below, ok := shared[fields[1]]; ok && below.point == own.point && below != own {
			return unescape(own.point)
		}
		if strings.HasPrefix(fields[6], "shared:") { // the first of the optional fields
			shared[fields[0]] = own
		}
	}
	return ""
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
