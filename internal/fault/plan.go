package fault

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
)

// Kind is a kind of fault.
type Kind string

// What can be wrong with a provider and with the API server.
const (
	// Delay makes a call take longer.
	Delay Kind = "delay"
	// LostAnswer has a call fail after it has done what was asked.
	LostAnswer Kind = "lost-answer"
)

// What can be wrong with a provider.
const (
	// Error has a call fail, with an error of any class, before the provider
	// knows of it.
	Error Kind = "error"
	// Panic has a call panic, before or after the provider knows of it.
	Panic Kind = "panic"
	// Hang has a call wait until its context ends, or until Calm, and fail then.
	Hang Kind = "hang"
	// Stubborn has a call wait, regardless of its context, and act then.
	Stubborn Kind = "stubborn"
	// HangCreate has CreatePod wait until its context ends, or until Calm, and fail
	// then; where its context has ended it may have acted all the same.
	HangCreate Kind = "hang-create"
	// LostNotice has the provider say nothing of a change.
	LostNotice Kind = "lost-notice"
	// RepeatedNotice has the provider say a thing twice.
	RepeatedNotice Kind = "repeated-notice"
	// StaleNotice has the provider say again what was true before the last change.
	StaleNotice Kind = "stale-notice"

	// Overlook has the provider not know for a moment a pod that it holds. It is
	// a lie: see Provider.Lied.
	Overlook Kind = "overlook"
	// Vanish has a pod end in the provider, without a word. It is a lie.
	Vanish Kind = "vanish"
	// WrongUID has the provider show a pod with a UID that is not its own. It is
	// a lie.
	WrongUID Kind = "wrong-uid"
)

// What can be wrong with the API server.
const (
	// TooMany is an answer 429 with a Retry-After.
	TooMany Kind = "429"
	// Internal is an answer 500.
	Internal Kind = "500"
	// Unavailable is an answer 503.
	Unavailable Kind = "503"
	// Conflict is an answer 409 to a write.
	Conflict Kind = "409"
	// Expired is an answer 410 to a list or watch from a resource version.
	Expired Kind = "410"
	// Refused has a request fail before it has reached the server.
	Refused Kind = "refused"
	// Forbidden is an answer 403 to a read of a ConfigMap or Secret, as the node
	// authorizer gives it to a node of whose pod it does not know yet.
	Forbidden Kind = "403"
	// DropWatch ends a watch after a while.
	DropWatch Kind = "drop-watch"
	// StallWatch has a watch say nothing more, and end after a while.
	StallWatch Kind = "stall-watch"
	// Partition begins one (see Transport.Partition) with a request.
	Partition Kind = "partition"
)

// The kinds of each, in the order in which they are drawn.
var (
	ProviderKinds  = []Kind{Delay, LostAnswer, Error, Panic, Hang, Stubborn, LostNotice, RepeatedNotice, StaleNotice, Overlook, Vanish, WrongUID}
	TransportKinds = append(slices.Clone(anyRequest), Forbidden)
	CreateKinds    = []Kind{HangCreate} // of CreatePod alone
)

// anyRequest are the kinds that are drawn for each request. Others are drawn after
// them, and only where they may occur: histories that were kept go the same way again.
var anyRequest = []Kind{Delay, LostAnswer, TooMany, Internal, Unavailable, Conflict, Expired, Refused, DropWatch, StallWatch, Partition}

// Plan says how often each kind of fault occurs: from 0, never, to 1, always. A
// kind that it does not name does not occur.
type Plan map[Kind]float64

// String returns the plan as ParsePlan reads it.
func (p Plan) String() string {
	words := make([]string, 0, len(p))
	for _, kind := range slices.Sorted(maps.Keys(p)) {
		words = append(words, fmt.Sprintf("%s=%g", kind, p[kind]))
	}
	return strings.Join(words, " ")
}

// ParsePlan reads a plan such as "error=0.3 hang=0.01".
func ParsePlan(text string) (Plan, error) {
	plan := Plan{}
	for word := range strings.FieldsSeq(text) {
		name, value, _ := strings.Cut(word, "=")
		kind := Kind(name)
		if !slices.Contains(ProviderKinds, kind) && !slices.Contains(CreateKinds, kind) && !slices.Contains(TransportKinds, kind) {
			return nil, fmt.Errorf("%q: there is no such kind of fault", name)
		}
		rate, err := strconv.ParseFloat(value, 64)
		if err != nil || !(rate >= 0 && rate <= 1) {
			return nil, fmt.Errorf("%q: want a rate from 0 to 1, as in %s=0.1", word, name)
		}
		plan[kind] = rate
	}
	return plan, nil
}

// draw draws which of some kinds occur. It takes as many numbers from random
// for any rates.
func (p Plan) draw(random *rand.Rand, kinds []Kind) map[Kind]bool {
	var drawn map[Kind]bool
	for _, kind := range kinds {
		if random.Float64() < p[kind] {
			if drawn == nil {
				drawn = map[Kind]bool{}
			}
			drawn[kind] = true
		}
	}
	return drawn
}
