package podspec

import (
	"reflect"
	"testing"
)

// The rules are those of resolv.conf(5).
func TestParseResolvConf(t *testing.T) {
	for _, test := range []struct {
		what, text string
		want       ResolvConf
	}{
		{"empty", "", ResolvConf{}},
		{"all", "nameserver 192.0.2.1\nnameserver 2001:db8::1\nsearch a.example b.example\noptions ndots:2 rotate\n",
			ResolvConf{[]string{"192.0.2.1", "2001:db8::1"}, []string{"a.example", "b.example"}, []string{"ndots:2", "rotate"}}},
		{"without a line feed at the end", "nameserver 192.0.2.1", ResolvConf{Nameservers: []string{"192.0.2.1"}}},
		{"white space", "  nameserver\t192.0.2.1  \r\n\n\tsearch  a\t b\n", ResolvConf{Nameservers: []string{"192.0.2.1"}, Searches: []string{"a", "b"}}},
		{"comments", "# nameserver 192.0.2.1\n; search a\n#search b\nnameserver 192.0.2.2 # this\n", ResolvConf{Nameservers: []string{"192.0.2.2"}}},
		{"the last search wins", "search a b\nsearch c\n", ResolvConf{Searches: []string{"c"}}},
		{"domain is a search of one", "search a b\ndomain c\n", ResolvConf{Searches: []string{"c"}}},
		{"search after domain", "domain c\nsearch a b\n", ResolvConf{Searches: []string{"a", "b"}}},
		{"dots at the end", "search a.example. .\n", ResolvConf{Searches: []string{"a.example"}}},
		{"options add up", "options ndots:2 rotate\noptions ndots:3 edns0\n", ResolvConf{Options: []string{"ndots:3", "rotate", "edns0"}}},
		{"without a value", "nameserver\nsearch\noptions\n", ResolvConf{}},
		{"unknown", "sortlist 192.0.2.0/24\nnonsense x\n", ResolvConf{}},
	} {
		t.Run(test.what, func(t *testing.T) {
			if got := ParseResolvConf(test.text); !reflect.DeepEqual(got, test.want) {
				t.Errorf("got %+v, want %+v", got, test.want)
			}
		})
	}
}

func TestResolvConfText(t *testing.T) {
	conf := ResolvConf{[]string{"192.0.2.1", "192.0.2.2"}, []string{"a", "b"}, []string{"ndots:5", "rotate"}}
	const want = "search a b\nnameserver 192.0.2.1\nnameserver 192.0.2.2\noptions ndots:5 rotate\n"
	if got := conf.String(); got != want {
		t.Errorf("got %q", got)
	}
	if again := ParseResolvConf(want); !reflect.DeepEqual(again, conf) {
		t.Errorf("read back: %+v", again)
	}
	if got := (ResolvConf{}).String(); got != "" {
		t.Errorf("empty: %q", got)
	}
}
