package podengine

import (
	"bytes"
	"encoding/json"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// logRecord is a line of a log file: a line that a container wrote, or a part of one.
type logRecord struct {
	at     time.Time
	stream runtimeapi.LogStreamType
	text   []byte // with the newline, unless it is a part
}

// parseLogRecord reads a line of a log file, in the format of the CRI or, as
// cri-dockerd's, in Docker's. It reports whether it is one.
func parseLogRecord(line []byte) (logRecord, bool) {
	if len(line) > 0 && line[0] == '{' {
		return parseDockerRecord(line)
	}
	stamp, rest, ok1 := bytes.Cut(line, []byte(" "))
	stream, rest, ok2 := bytes.Cut(rest, []byte(" "))
	tags, text, ok3 := bytes.Cut(rest, []byte(" "))
	if !ok1 || !ok2 || !ok3 {
		return logRecord{}, false
	}
	at, err := time.Parse(time.RFC3339Nano, string(stamp))
	r := logRecord{at, runtimeapi.LogStreamType(stream), text}
	if err != nil || r.stream != runtimeapi.Stdout && r.stream != runtimeapi.Stderr {
		return logRecord{}, false
	}
	tag, _, _ := bytes.Cut(tags, []byte(runtimeapi.LogTagDelimiter))
	if runtimeapi.LogTag(tag) == runtimeapi.LogTagPartial {
		r.text = bytes.TrimSuffix(r.text, []byte("\n"))
	}
	return r, true
}

func parseDockerRecord(line []byte) (logRecord, bool) {
	var r struct {
		Log    string
		Stream runtimeapi.LogStreamType
		Time   time.Time
	}
	if json.Unmarshal(line, &r) != nil || r.Stream != runtimeapi.Stdout && r.Stream != runtimeapi.Stderr {
		return logRecord{}, false
	}
	return logRecord{r.Time, r.Stream, []byte(r.Log)}, true
}
