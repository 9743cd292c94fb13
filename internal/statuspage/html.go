package statuspage

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"html"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"
)

// maxRows is how many pods the page shows; those that need attention come first.
const maxRows = 200

// style makes a list of each row where the window is narrow.
const style = `:root{color-scheme:light dark;--line:#8884;--bad:#c62828;--good:#2e7d32;--soft:#8882}
body{font:15px/1.4 system-ui,sans-serif;margin:0 auto;padding:1rem;max-width:76rem}
h1{font-size:1.4rem;margin:0 0 .5rem}h2{font-size:1.1rem;margin:1.5rem 0 .4rem}
table{border-collapse:collapse;width:100%}th,td{text-align:left;padding:.25rem .6rem .25rem 0;vertical-align:top;border-bottom:1px solid var(--line)}
td{overflow-wrap:anywhere}td.n{white-space:nowrap}td.p{min-width:12rem}
.good{color:var(--good)}.bad{color:var(--bad)}.note{opacity:.75}
svg{background:var(--soft);vertical-align:middle}rect.c{fill:currentColor;opacity:.55}rect.e{fill:var(--bad)}
@media(max-width:46rem){thead{display:none}tr{display:block;padding:.4rem 0;border-bottom:1px solid var(--line)}
td{display:flex;gap:.6rem;border:0;padding:.1rem 0}td.n{white-space:normal}td.p{min-width:0}td:empty{display:none}
td::before{content:attr(data-label);flex:0 0 6.5rem;opacity:.7}}`

// script replaces what the page shows by what the server sends. Without it the page loads
// itself again.
const script = `var s=new EventSource("?watch=true"),live=document.getElementById("live");
s.onmessage=function(e){document.querySelector("main").innerHTML=e.data;live.textContent="live"};
s.onerror=function(){live.textContent="not connected: what is shown is old"}`

// contentSecurityPolicy lets a browser run nothing but the style and the script of the page,
// also if a name or a message were to get through that is not escaped.
var contentSecurityPolicy = fmt.Sprintf("default-src 'none'; style-src 'sha256-%s'; script-src 'sha256-%s'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
	hash(style), hash(script))

func hash(text string) string {
	sum := sha256.Sum256([]byte(text))
	return base64.StdEncoding.EncodeToString(sum[:])
}

// document is a page of HTML. Package html/template would have the linker keep all methods of
// the program.
type document struct{ bytes.Buffer }

// put writes markup, in which each %s is replaced by an argument that is escaped.
func (d *document) put(markup string, texts ...string) {
	escaped := make([]any, len(texts))
	for i, text := range texts {
		escaped[i] = html.EscapeString(text)
	}
	fmt.Fprintf(d, markup, escaped...)
}

// HTML returns the whole page.
func (s *Status) HTML() []byte {
	var d document
	d.put(`<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">`+
		`<title>%s</title><style>`, s.Node)
	d.WriteString(style)
	d.WriteString(`</style><noscript><meta http-equiv="refresh" content="10"></noscript></head><body><main>`)
	d.main(s)
	d.WriteString(`</main><p class="note" id="live"></p><script>`)
	d.WriteString(script)
	d.WriteString("</script></body></html>\n")
	return d.Bytes()
}

// Main returns the part of the page that changes.
func (s *Status) Main() []byte {
	var d document
	d.main(s)
	return d.Bytes()
}

func (d *document) main(s *Status) {
	now := s.Time.Time
	if s.Ready() {
		d.put(`<h1>%s <span class="good">ready</span></h1>`, s.Node)
	} else {
		d.put(`<h1>%s <span class="bad">not ready</span></h1>`, s.Node)
	}
	d.put(`<p class="note">virtual-kubelet %s, started %s ago`, s.Version, age(now, &s.Started))
	if s.Nodes > 1 {
		d.put(`; %s nodes in this process, %s ready`, fmt.Sprint(s.Nodes), fmt.Sprint(s.ReadyNodes))
	}
	d.put(`; as of %s</p>`, now.UTC().Format(time.RFC3339))
	d.checks(s)
	d.pods(s)
	d.calls(s)
	d.queues(s)
	d.others(s)
	d.events(s)
}

func (d *document) checks(s *Status) {
	d.table("Health", "check", "state", "last")
	for _, c := range s.Checks {
		d.put(`<tr><td data-label="check" class="n">%s</td>`, c.Name)
		if c.Error == "" {
			d.put(`<td data-label="state" class="good">ok</td>`)
		} else {
			d.put(`<td data-label="state" class="bad">%s</td>`, c.Error)
		}
		d.when("last", s.Time.Time, c.Last)
		d.put(`</tr>`)
	}
	d.put(`</tbody></table>`)
}

func (d *document) pods(s *Status) {
	title := "No pods"
	if n := len(s.Pods); n > 0 {
		var parts []string
		for _, p := range s.phases() {
			parts = append(parts, fmt.Sprintf("%d %s", p.n, p.phase))
		}
		title = fmt.Sprintf("Pods: %s", strings.Join(parts, ", "))
	}
	d.table(title, "pod", "phase", "created", "seen", "at provider", "running", "ready", "problem")
	pods := s.attention()
	more := max(0, len(pods)-maxRows)
	for _, p := range pods[:len(pods)-more] {
		d.put(`<tr><td data-label="pod" class="p">%s</td><td data-label="phase">%s</td>`, p.Namespace+"/"+p.Name, p.phase())
		d.when("created", s.Time.Time, p.Requested)
		d.when("seen", s.Time.Time, p.Seen)
		d.when("at provider", s.Time.Time, p.Created)
		d.when("running", s.Time.Time, p.Running)
		d.when("ready", s.Time.Time, p.Ready)
		d.put(`<td data-label="problem" class="bad">%s</td></tr>`, p.problem(s.Time.Time))
	}
	d.put(`</tbody></table>`)
	if more > 0 {
		d.put(`<p class="note">and %s more, of which none has a problem that those above have not: virtual-kubelet status shows all</p>`, fmt.Sprint(more))
	}
}

// phase is what a pod does, in a word or two.
func (p *Pod) phase() string {
	text := string(p.Phase)
	switch {
	case p.Orphan:
		text = "Orphan"
	case p.Stopped != nil:
		text = "Stopping"
	case p.Deleted != nil:
		text = "Terminating"
	}
	if p.Waiting != "" && p.Waiting != text {
		text += " (" + p.Waiting + ")"
	}
	return text
}

// problem is the last error, its next try, and the call that is waited for.
func (p *Pod) problem(now time.Time) string {
	var parts []string
	if p.Error != "" {
		parts = append(parts, p.Error)
	}
	if p.Tries > 0 {
		parts = append(parts, fmt.Sprintf("tried %d times", p.Tries))
	}
	if p.NextTry != nil {
		parts = append(parts, "next in "+duration.HumanDuration(max(0, p.NextTry.Sub(now))))
	}
	if p.Call != nil {
		parts = append(parts, fmt.Sprintf("%s since %s", p.Call.Method, age(now, &p.Call.Since)))
	}
	return strings.Join(parts, "; ")
}

func (d *document) calls(s *Status) {
	title := "Calls of the provider, the last half hour"
	if s.Nodes > 1 {
		title += ", of all nodes of the process"
	}
	d.table(title, "method", "a minute", "calls", "errors", "mean", "in flight")
	for i := range s.Calls {
		m := &s.Calls[i]
		all := m.sum()
		d.put(`<tr><td data-label="method" class="n">%s</td><td data-label="a minute">`, m.Name)
		d.chart(m.Minutes)
		d.put(`</td><td data-label="calls" class="n">%s</td>`, fmt.Sprint(all.Calls))
		if all.Errors > 0 {
			d.put(`<td data-label="errors" class="n bad">%s</td>`, fmt.Sprint(all.Errors))
		} else {
			d.put(`<td data-label="errors" class="n">0</td>`)
		}
		d.put(`<td data-label="mean" class="n">%s</td><td data-label="in flight" class="n">%s</td></tr>`, mean(all), inFlight(s.Time.Time, m))
	}
	d.put(`</tbody></table>`)
}

// mean is how long a call took, on the average.
func mean(all Minute) string {
	if all.Calls == 0 {
		return ""
	}
	took := time.Duration(all.Seconds / float64(all.Calls) * float64(time.Second))
	switch {
	case took >= 10*time.Second:
		return duration.HumanDuration(took)
	case took >= time.Second:
		return took.Round(100 * time.Millisecond).String()
	case took >= time.Millisecond:
		return took.Round(100 * time.Microsecond).String()
	}
	return took.Round(time.Microsecond).String()
}

func inFlight(now time.Time, m *Method) string {
	if m.Oldest == nil {
		return fmt.Sprint(m.InFlight)
	}
	return fmt.Sprintf("%d, since %s", m.InFlight, age(now, m.Oldest))
}

const (
	barWidth    = 4
	chartHeight = 24
)

// chart draws a bar for each minute, with the share of the errors at its foot.
func (d *document) chart(minutes []Minute) {
	most := 1
	for _, m := range minutes {
		most = max(most, m.Calls)
	}
	fmt.Fprintf(d, `<svg width="%d" height="%d" role="img"><title>at most %d calls a minute</title>`, barWidth*len(minutes), chartHeight, most)
	for i, m := range minutes {
		if m.Calls == 0 {
			continue
		}
		bar := max(1, chartHeight*m.Calls/most)
		fmt.Fprintf(d, `<rect class="c" x="%d" y="%d" width="%d" height="%d"/>`, barWidth*i, chartHeight-bar, barWidth-1, bar)
		if m.Errors > 0 {
			bad := max(2, bar*m.Errors/m.Calls)
			fmt.Fprintf(d, `<rect class="e" x="%d" y="%d" width="%d" height="%d"/>`, barWidth*i, chartHeight-bad, barWidth-1, bad)
		}
	}
	d.WriteString(`</svg>`)
}

func (d *document) queues(s *Status) {
	d.table("Queues", "queue", "waiting", "handled")
	for _, q := range s.Queues {
		d.put(`<tr><td data-label="queue">%s</td><td data-label="waiting" class="n">%s</td><td data-label="handled" class="n">%s</td></tr>`,
			q.Name, fmt.Sprint(q.Waiting), fmt.Sprint(q.Handled))
	}
	d.put(`</tbody></table>`)
}

func (d *document) others(s *Status) {
	if len(s.Others) == 0 {
		return
	}
	d.table("Other nodes of the process", "node", "state", "lease", "provider")
	for i := range s.Others {
		o := &s.Others[i]
		class := "good"
		if o.Failing != "" {
			class = "bad"
		}
		d.put(`<tr><td data-label="node">%s</td><td data-label="state" class="`+class+`">%s</td>`, o.Name, o.state())
		d.when("lease", s.Time.Time, o.Lease)
		d.when("provider", s.Time.Time, o.Ping)
		d.put(`</tr>`)
	}
	d.put(`</tbody></table>`)
	if more := s.Nodes - 1 - len(s.Others); more > 0 {
		d.put(`<p class="note">and %s more</p>`, fmt.Sprint(more))
	}
}

// state is that of another node, in a word or two.
func (o *Other) state() string {
	if o.Failing == "" {
		return "ready"
	}
	return "not ready (" + o.Failing + ")"
}

func (d *document) events(s *Status) {
	title := "No events"
	if len(s.Events) > 0 {
		title = "Recent events"
	}
	d.table(title, "last", "reason", "object", "message")
	for _, e := range s.Events {
		d.put(`<tr>`)
		d.when("last", s.Time.Time, &e.Time)
		class := "n"
		if e.Type == corev1.EventTypeWarning {
			class = "n bad"
		}
		message := e.Message
		if e.Count > 1 {
			message += fmt.Sprintf(" (%d times)", e.Count)
		}
		d.put(`<td data-label="reason" class="`+class+`">%s</td><td data-label="object">%s</td><td data-label="message">%s</td></tr>`, e.Reason, e.Object, message)
	}
	d.put(`</tbody></table>`)
}

// table begins a section with a table, to be ended with </tbody></table>.
func (d *document) table(title string, columns ...string) {
	d.put(`<h2>%s</h2><table><thead><tr>`, title)
	for _, c := range columns {
		d.put(`<th>%s</th>`, c)
	}
	d.put(`</tr></thead><tbody>`)
}

// when writes a cell with the age of a time; the time itself is shown to those who point at it.
func (d *document) when(label string, now time.Time, t *metav1.Time) {
	if t == nil {
		d.put(`<td data-label="%s" class="n"></td>`, label)
		return
	}
	d.put(`<td data-label="%s" class="n" title="%s">%s</td>`, label, t.UTC().Format(time.RFC3339), age(now, t))
}

func age(now time.Time, t *metav1.Time) string {
	if t == nil {
		return ""
	}
	return duration.HumanDuration(max(0, now.Sub(t.Time)))
}
