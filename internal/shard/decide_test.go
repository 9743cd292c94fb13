package shard_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/virtual-kubelet/virtual-kubelet/internal/shard"
)

// leasesOf reads leases: the holder of each, "-" for nobody, "!" after the name of one
// whose lease has run out, "~" where one's own is ending, "+" where it is due.
func leasesOf(text string, now time.Time) (leases []shard.Lease) {
	for _, word := range strings.Fields(text) {
		l := shard.Lease{Holder: strings.TrimRight(word, "-!~+"), Expires: now.Add(time.Second), RenewAt: now.Add(time.Millisecond)}
		switch word[len(word)-1] {
		case '!':
			l.Expires = now
		case '~':
			l.Ending = true
		case '+':
			l.RenewAt = now
		}
		leases = append(leases, l)
	}
	return leases
}

func TestDecide(t *testing.T) {
	for _, c := range []struct {
		name, me, members, leases string
		claim, renew, release     []int
	}{
		{"the only member takes all", "a", "a", "- - - -", []int{0, 1, 2, 3}, nil, nil},
		{"a member that does not see itself yet, too", "a", "", "- -", []int{0, 1}, nil, nil},
		{"two that begin share without asking: the first", "a", "a b", "- - - - -", []int{0, 1, 2}, nil, nil},
		{"two that begin share without asking: the second", "b", "a b", "- - - - -", []int{3, 4}, nil, nil},
		{"who has more keeps what is left over", "a", "a b", "b b - - -", []int{2, 3}, nil, nil},
		{"and takes it", "b", "a b", "b b - - -", []int{4}, nil, nil},
		{"at rest nothing happens", "a", "a b", "a b a", nil, nil, nil},
		{"renewed is what is due", "a", "a b", "a+ b a+", nil, []int{0, 2}, nil},
		{"and not what is another's", "b", "a b", "a+ b a+", nil, nil, nil},
		{"a killed member's are left while they last", "a", "a", "a b a b", nil, nil, nil},
		{"and taken once they have run out", "a", "a", "a b! a b!", []int{1, 3}, nil, nil},
		{"together", "a", "a c", "a b! a b! c b! b! c", []int{1, 3}, nil, nil},
		{"together, the other", "c", "a c", "a b! a b! c b! b! c", []int{5, 6}, nil, nil},
		{"not before the one that is gone is known to be", "a", "a b", "a b! a b!", nil, nil, nil},
		{"a joining member is given one at a time", "a", "a b c", "a a a b b b", nil, nil, []int{2}},
		{"and none while one is free", "a", "a b c", "a a a b b -", nil, nil, nil},
		{"nor while one is being given away", "a", "a b c", "a a a b b a~", nil, nil, nil},
		{"what it is to have is free: it takes it", "c", "a b c", "a a a b b -", []int{5}, nil, nil},
		{"what is given away is not renewed", "a", "a b", "a+ a+ a+", nil, []int{0, 1}, []int{2}},
		{"what is ending is neither claimed nor renewed", "a", "a", "a~ a+", nil, []int{1}, nil},
		{"one's own that has run out is claimed again", "a", "a", "a! a", []int{0}, nil, nil},
		{"more members than shards: some have none", "c", "a b c", "a b", nil, nil, nil},
		{"one more member than shards, and all are one's own", "a", "a b c", "a a", nil, nil, []int{1}},
		{"no shards", "a", "a b", "", nil, nil, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			now := time.Unix(1000, 0)
			got := shard.Decide(shard.View{Now: now, Me: c.me, Members: strings.Fields(c.members), Shards: leasesOf(c.leases, now)})
			for _, p := range []struct {
				what      string
				got, want []int
			}{{"claims", got.Claim, c.claim}, {"renews", got.Renew, c.renew}, {"releases", got.Release, c.release}} {
				if !slices.Equal(p.got, p.want) {
					t.Errorf("it %s %v, want %v", p.what, p.got, p.want)
				}
			}
		})
	}
}
