package podstatus

import (
	"encoding/json"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// diff is JSON that is being written. A field that was set, and is no more, is
// null.
type diff struct {
	buf []byte
	err error // the first
}

func (d *diff) open(bracket byte)  { d.buf = append(d.buf, bracket) }
func (d *diff) close(bracket byte) { d.buf = append(d.buf, bracket) }

// next separates what follows from what precedes it.
func (d *diff) next() {
	switch d.buf[len(d.buf)-1] {
	case '{', '[':
	default:
		d.buf = append(d.buf, ',')
	}
}

// key begins a field. Its name needs no escapes.
func (d *diff) key(name string) {
	d.next()
	d.buf = append(d.buf, '"')
	d.buf = append(d.buf, name...)
	d.buf = append(d.buf, '"', ':')
}

func (d *diff) null() { d.buf = append(d.buf, "null"...) }

func (d *diff) text(name, was, is string) {
	if was == is {
		return
	}
	d.key(name)
	if is == "" {
		d.null()
		return
	}
	d.string(is)
}

func (d *diff) number(name string, was, is int64) {
	if was == is {
		return
	}
	d.key(name)
	if is == 0 {
		d.null()
		return
	}
	d.buf = strconv.AppendInt(d.buf, is, 10)
}

func (d *diff) time(name string, was, is metav1.Time) {
	if sameTime(was, is) {
		return
	}
	d.key(name)
	if is.IsZero() {
		d.null()
		return
	}
	d.buf = append(d.buf, '"')
	d.buf = is.UTC().AppendFormat(d.buf, time.RFC3339)
	d.buf = append(d.buf, '"')
}

// string writes a string. Nearly all are of plain characters.
func (d *diff) string(s string) {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '"' || c == '\\' {
			d.value(s)
			return
		}
	}
	d.buf = append(d.buf, '"')
	d.buf = append(d.buf, s...)
	d.buf = append(d.buf, '"')
}

func (d *diff) value(v any) {
	encoded, err := json.Marshal(v)
	if d.err == nil {
		d.err = err
	}
	d.buf = append(d.buf, encoded...)
}
