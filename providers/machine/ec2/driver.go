package ec2

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/internal/config"
	"github.com/virtual-kubelet/virtual-kubelet/log"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup"
	"github.com/virtual-kubelet/virtual-kubelet/providers/machine"
)

const (
	// propagation is for how long EC2 may not know an instance that it has just made.
	propagation = 5 * time.Minute
	// soon is the delay before EC2 is asked again about what it does not know yet.
	soon = 5 * time.Second
	// lackTime is for how long a place that had no room is not asked again: each refusal counts as a
	// call, and others wait for their turn.
	lackTime = 50 * time.Second
)

// driver is the machine.Driver of EC2. All that has to last is in the tags of instances.
type driver struct {
	cfg *Config
	api *client

	mu       sync.Mutex
	launches map[string]*launched   // by name; of the last hour
	known    map[string][]*instance // of the last list, by name
	lacking  map[place]lack
	deaf     bool // notices cannot be read
}

// place is where a machine can be made.
type place struct {
	instanceType, subnet string
	spot                 bool
}

// lack is the refusal of a place that has no room.
type lack struct {
	err error
	at  time.Time
}

// launched is what is known of the creation of a machine beyond what EC2 lists.
type launched struct {
	at        time.Time        // when a call was made last
	machine   *machine.Machine // as RunInstances has answered, or the last list that had it; nil without
	uncertain place            // that of a call without an answer; zero for none
	since     time.Time        // of uncertain
	round     int              // of client tokens
	mismatch  time.Time        // since when EC2 knows the token, and shows no instance
}

var _ machine.Driver = (*driver)(nil)

// New returns the driver that the field ec2 of a configuration of provider machine describes, for
// machine.New. Of the account it uses the credentials, the client of HTTP and, where the field has
// none, the region and the endpoint. It calls nothing.
func New(c machine.Config, account aws.Config) (machine.Driver, error) {
	if len(c.EC2) == 0 {
		return nil, errdefs.InvalidInput("machine config: ec2: it is missing")
	}
	cfg, err := read(c)
	if err != nil {
		return nil, config.Invalid("machine", err)
	}
	api, err := newClient(cfg, account)
	if err != nil {
		return nil, err
	}
	return &driver{cfg: cfg, api: api, launches: map[string]*launched{}, known: map[string][]*instance{}, lacking: map[place]lack{}}, nil
}

// Create implements machine.Driver. It tries the places in turn.
func (d *driver) Create(ctx context.Context, spec machine.Spec) (machine.Machine, error) {
	var wrong config.Checks
	l := d.cfg.launch(spec.Type, spec.Arguments, "types["+spec.Type+"].arguments.", &wrong)
	if err := wrong.Err(); err != nil {
		return machine.Machine{}, errdefs.AsPermanent(err)
	}
	parameters, err := d.cfg.parameters(&spec, &l)
	if err != nil {
		return machine.Machine{}, err
	}
	if m, ok := d.existing(spec.Name); ok {
		return m, nil
	}
	var failed error
	places := d.order(spec.Name, l.places())
	for _, p := range places {
		if err := d.lackOf(spec.Name, p); err != nil {
			failed = err
			continue
		}
		m, err := d.run(ctx, &spec, &l, p, parameters)
		if err == nil || !slices.Contains(lacks, codeOf(err)) {
			return m, err
		}
		log.G(ctx).WithFields(log.Fields{"machine": spec.Name, "instanceType": p.instanceType, "subnet": p.subnet}).WithError(err).Info("A subnet has no room for a machine")
		d.mu.Lock()
		d.lacking[p] = lack{err, time.Now()}
		d.mu.Unlock()
		failed = err
	}
	if len(places) > 1 {
		failed = fmt.Errorf("none of %d types of instances in %d subnets has room for it; the last: %w", len(l.instanceTypes), len(l.subnets), failed)
	}
	return machine.Machine{}, failed
}

// lackOf returns the error of a place that had no room a moment ago. One that may have the machine
// already is asked all the same.
func (d *driver) lackOf(name string, p place) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if l := d.launches[name]; l != nil && l.uncertain == p || time.Since(d.lacking[p].at) > lackTime {
		return nil
	}
	return d.lacking[p].err
}

// existing returns the machine of a name, if it was made a moment ago or the last list has it.
func (d *driver) existing(name string) (machine.Machine, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if l := d.launches[name]; l != nil && l.machine != nil && time.Since(l.at) < propagation && l.machine.State != machine.Ended {
		return *l.machine, true
	}
	if known := d.known[name]; len(known) > 0 && known[0].State != "terminated" {
		return known[0].machine(), true
	}
	return machine.Machine{}, false
}

// order returns the places in the order in which they are tried: the one whose answer was lost comes
// first, and no other before it has answered. If it does not for so long that lists would have the
// instance, its zone is out of order, and the others come first.
func (d *driver) order(name string, places []place) []place {
	d.mu.Lock()
	defer d.mu.Unlock()
	l := d.launches[name]
	if l == nil || l.uncertain == (place{}) {
		return places
	}
	others := slices.DeleteFunc(slices.Clone(places), func(p place) bool { return p == l.uncertain })
	if time.Since(l.since) > propagation {
		return append(others, l.uncertain)
	}
	return slices.Concat([]place{l.uncertain}, others)
}

// run makes the instance of a machine in a place.
func (d *driver) run(ctx context.Context, spec *machine.Spec, l *launch, p place, parameters url.Values) (machine.Machine, error) {
	parameters = maps.Clone(parameters)
	parameters.Set("InstanceType", p.instanceType)
	parameters.Set("NetworkInterface.1.SubnetId", p.subnet)
	token := tokenOf(spec, p, d.begin(spec.Name))
	parameters.Set("ClientToken", token)
	var made struct {
		Instances []*instance `xml:"instancesSet>item"`
	}
	err := d.api.call(ctx, runInstances, parameters, &made)
	d.finish(spec.Name, p, outcomeOf(err))
	switch code := codeOf(err); {
	case code == "IdempotentInstanceTerminated":
		// It was made, and has ended, before this process began: another one is made.
		return machine.Machine{Name: spec.Name, Tags: spec.Tags, State: machine.Ended}, nil
	case code == "IdempotentParameterMismatch":
		return d.earlier(ctx, spec, l)
	case err != nil:
		return machine.Machine{}, err
	case len(made.Instances) != 1 || made.Instances[0].ID == "":
		return machine.Machine{}, errdefs.AsUnavailable(fmt.Errorf("EC2 was asked for one instance, and has answered with %d", len(made.Instances)))
	}
	l.warnOfDevice(ctx, made.Instances[0])
	m := made.Instances[0].machine()
	if len(m.Tags) == 0 { // which then are those of this call: EC2 compares it with the first one
		m.Name, m.Tags = spec.Name, spec.Tags
	}
	if m.Name != spec.Name {
		return machine.Machine{}, errdefs.AsUnavailable(fmt.Errorf("EC2 was asked for machine %s, and has answered with instance %s of other tags", spec.Name, m.ID))
	}
	d.made(&m)
	return m, nil
}

// begin returns the round of a creation, and forgets those that are long over.
func (d *driver) begin(name string) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	maps.DeleteFunc(d.launches, func(_ string, l *launched) bool { return time.Since(l.at) > time.Hour })
	l := d.launches[name]
	if l == nil {
		l = &launched{}
		d.launches[name] = l
	}
	if !l.mismatch.IsZero() && time.Since(l.mismatch) > propagation {
		// The instance of the token has ended so long ago that EC2 does not list it any more.
		l.round, l.mismatch = l.round+1, time.Time{}
	}
	l.at = time.Now()
	return l.round
}

// finish records whether the answer of a creation was lost.
func (d *driver) finish(name string, p place, o outcome) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch l := d.launches[name]; {
	case l == nil || o == unchanged:
	case o == uncertain && l.uncertain != p:
		l.uncertain, l.since = p, time.Now()
	case o == decided && l.uncertain == p:
		l.uncertain = place{}
	}
}

// made records a machine that EC2 may not list yet.
func (d *driver) made(m *machine.Machine) {
	d.mu.Lock()
	defer d.mu.Unlock()
	next := &launched{at: time.Now(), machine: m}
	if l := d.launches[m.Name]; l != nil {
		next.round = l.round
	}
	d.launches[m.Name] = next
}

// earlier returns the instance that was made with the token of a creation, and other parameters: by a
// process that has ended, with another token in the user data.
func (d *driver) earlier(ctx context.Context, spec *machine.Spec, l *launch) (machine.Machine, error) {
	d.mu.Lock()
	known := d.launches[spec.Name]
	if known == nil { // a list has had it since then
		known = &launched{at: time.Now()}
		d.launches[spec.Name] = known
	}
	round := known.round
	if known.mismatch.IsZero() {
		known.mismatch = time.Now()
	}
	d.mu.Unlock()
	var tokens []string
	for _, p := range l.places() {
		tokens = append(tokens, tokenOf(spec, p, round))
	}
	filter := url.Values{}
	addFilter(filter, 1, "client-token", tokens...)
	found, err := d.api.describe(ctx, filter)
	if err != nil {
		return machine.Machine{}, err
	}
	if len(found) == 0 {
		return machine.Machine{}, errdefs.AsRetryAfter(errdefs.AsUnavailable(errors.New("EC2 has made an instance for this machine before, and does not list it: it is too new, or has ended long ago")), soon)
	}
	newest := slices.MinFunc(found, rank)
	if newest.State == "terminated" { // and may have lost its tags since then
		return machine.Machine{ID: newest.ID, Name: spec.Name, Tags: spec.Tags, State: machine.Ended}, nil
	}
	m := newest.machine()
	if m.Name != spec.Name {
		return machine.Machine{}, errdefs.AsUnavailable(fmt.Errorf("instance %s was made for machine %s, and has other tags now", m.ID, spec.Name))
	}
	d.made(&m)
	return m, nil
}

// List implements machine.Driver.
func (d *driver) List(ctx context.Context, tags map[string]string) ([]machine.Machine, error) {
	began := time.Now()
	found, err := d.api.describe(ctx, filters(tags))
	if err != nil {
		return nil, err
	}
	byName := map[string][]*instance{}
	spot := false
	for _, i := range found {
		if m := i.machine(); m.Name != "" {
			byName[m.Name] = append(byName[m.Name], i)
			spot = spot || i.Lifecycle == "spot" && i.runs()
		}
	}
	taken := map[string]time.Time{}
	if spot {
		taken = d.notices(ctx, tags)
	}
	all := map[string]machine.Machine{}
	for name, instances := range byName {
		slices.SortFunc(instances, rank)
		m := instances[0].machine()
		if instances[0].runs() {
			m.TakenAt = taken[m.ID]
		}
		all[name] = m
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.known = byName
	for name, l := range d.launches {
		switch m, listed := all[name]; {
		case l.machine == nil:
		case listed:
			l.machine = &m
		case began.Sub(l.at) < propagation && hasAll(l.machine.Tags, tags):
			all[name] = *l.machine // lists do not have it yet, or not each of them
		}
	}
	return slices.Collect(maps.Values(all)), nil
}

func hasAll(has, tags map[string]string) bool {
	for key, value := range tags {
		if has[key] != value {
			return false
		}
	}
	return true
}

// notices returns when spot instances will be taken. Without them pods end with their instances, which
// is no reason for a list to fail.
func (d *driver) notices(ctx context.Context, tags map[string]string) map[string]time.Time {
	taken, err := d.api.notices(ctx, tags)
	d.mu.Lock()
	was := d.deaf
	d.deaf = err != nil
	d.mu.Unlock()
	if err != nil && !was {
		log.G(ctx).WithError(err).Warn("Cannot read whether spot instances will be taken: their pods get no notice")
	}
	return taken
}

// Delete implements machine.Driver. It terminates all instances of the machine's name: there can be two
// where answers were lost in two subnets.
func (d *driver) Delete(ctx context.Context, m machine.Machine) error {
	ids, isNew, err := d.instancesOf(ctx, m)
	if err != nil {
		return err
	}
	notYet := errdefs.AsRetryAfter(errdefs.AsUnavailable(fmt.Errorf("EC2 does not know the instance of machine %s yet", m.Name)), soon)
	if len(ids) == 0 && isNew {
		return notYet
	}
	for _, id := range ids {
		err := d.api.call(ctx, terminate, url.Values{"InstanceId.1": {id}}, &struct{}{})
		switch {
		case codeOf(err) == notFound && isNew:
			return notYet
		case err != nil && codeOf(err) != notFound:
			return err
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if l := d.launches[m.Name]; l != nil && l.machine != nil {
		ending := *l.machine
		ending.State = machine.Ending
		l.machine = &ending
	}
	return nil
}

// instancesOf returns the instances of a machine that have not ended; isNew means that EC2 may not know
// them yet.
func (d *driver) instancesOf(ctx context.Context, m machine.Machine) (ids []string, isNew bool, err error) {
	add := func(id string) {
		if id != "" && !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	d.mu.Lock()
	ended := map[string]bool{}
	for _, i := range d.known[m.Name] {
		if ended[i.ID] = i.State == "terminated"; !ended[i.ID] {
			add(i.ID)
		}
	}
	if l := d.launches[m.Name]; l != nil && time.Since(l.at) < propagation {
		switch {
		case l.machine == nil:
			isNew = l.uncertain != place{} || !l.mismatch.IsZero()
		case l.machine.State != machine.Ended:
			isNew = true
			add(l.machine.ID)
		}
	}
	d.mu.Unlock()
	if !ended[m.ID] {
		add(m.ID)
	}
	if len(ids) > 0 || len(ended) > 0 || m.Tags[tagName] != m.Name {
		return ids, isNew, nil
	}
	// The answer to its creation was lost. The tags of a pod that got it from the reserve are not the
	// instance's.
	identity := map[string]string{}
	for _, key := range []string{tagName, podgroup.TagClusterUID, podgroup.TagClusterName, podgroup.TagNodeName} {
		if value, ok := m.Tags[key]; ok {
			identity[key] = value
		}
	}
	found, err := d.api.describe(ctx, filters(identity))
	for _, i := range found {
		if i.State != "terminated" {
			add(i.ID)
		}
	}
	return ids, isNew, err
}

// Console implements machine.Driver: why EC2 has ended the instance, if it has, and what the instance has
// written last.
func (d *driver) Console(ctx context.Context, m machine.Machine, limit int) (string, error) {
	d.mu.Lock()
	var why string
	for _, i := range d.known[m.Name] {
		if i.ID == m.ID && !i.runs() && i.Reason.Code != "" {
			why = fmt.Sprintf("EC2: %s; ", i.Reason.Message)
		}
	}
	d.mu.Unlock()
	why = why[:min(len(why), limit)]
	if m.ID == "" {
		return why, nil
	}
	var answer struct {
		Output string `xml:"output"`
	}
	err := d.api.call(ctx, consoleOutput, url.Values{"InstanceId": {m.ID}, "Latest": {"true"}}, &answer)
	if codeOf(err) == "UnsupportedOperation" { // it is no instance of Nitro
		err = d.api.call(ctx, consoleOutput, url.Values{"InstanceId": {m.ID}}, &answer)
	}
	if err != nil && why == "" {
		return "", err
	}
	text, err := base64.StdEncoding.DecodeString(strings.Join(strings.Fields(answer.Output), ""))
	if err != nil {
		return why, nil
	}
	return why + string(text[max(0, len(text)+len(why)-limit):]), nil
}
