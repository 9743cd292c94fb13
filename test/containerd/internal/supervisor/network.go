//go:build linux

package supervisor

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// network is the bridge of one containerd. Its name is also the CNI network's.
type network struct {
	Name    string
	Subnet  string
	Gateway string // this machine's address in it
	mac     string // of the bridge
}

// networkPrefix begins the names of bridges; names of interfaces end at 15 bytes.
const networkPrefix = "vkcri"

// newNetwork takes the first subnet that nobody uses. Making the bridge is what
// reserves it: of two supervisors, one fails.
func newNetwork() (network, error) {
	unlock, err := lockNetworks()
	if err != nil {
		return network{}, err
	}
	defer unlock()
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		return network{}, fmt.Errorf("list the machine's addresses: %w", err)
	}
	var last error
	for i := range 256 {
		n := network{
			Name:    fmt.Sprintf("%s%d", networkPrefix, i),
			Subnet:  fmt.Sprintf("10.93.%d.0/24", i),
			Gateway: fmt.Sprintf("10.93.%d.1", i),
			mac:     fmt.Sprintf("0a:58:0a:5d:%02x:01", i),
		}
		if n.overlaps(addresses) {
			continue
		}
		// Without an address of its own the bridge takes the least of the pods', and
		// changes it as they come and go: the others then lose this machine.
		if last = run("ip", "link", "add", n.Name, "address", n.mac, "type", "bridge"); last != nil {
			continue
		}
		if err := n.setUp(); err != nil {
			return network{}, errors.Join(err, n.remove())
		}
		return n, nil
	}
	return network{}, fmt.Errorf("find a subnet in 10.93.0.0/16 for pods: all are taken: %w", last)
}

func (n network) overlaps(addresses []net.Addr) bool {
	_, subnet, err := net.ParseCIDR(n.Subnet)
	return err != nil || slices.ContainsFunc(addresses, func(a net.Addr) bool {
		ip, other, err := net.ParseCIDR(a.String())
		return err == nil && (subnet.Contains(ip) || other.Contains(subnet.IP))
	})
}

// setUp gives the bridge its address, and lets it forward: pods reach each other
// by ports of the machine.
func (n network) setUp() error {
	return errors.Join(
		run("ip", "address", "add", n.Gateway+"/24", "dev", n.Name),
		run("ip", "link", "set", n.Name, "up"),
		os.WriteFile(filepath.Join("/proc/sys/net/ipv4/conf", n.Name, "forwarding"), []byte("1"), 0o644),
	)
}

// remove removes the bridge, and the firewall's rules of pods that had no time
// to go in order. The bridge reserves the name, so it goes after all that is
// found by the name: the next one may have it at once.
func (n network) remove() error {
	errs := []error{n.removeRules(), n.removeResults()}
	if _, err := net.InterfaceByName(n.Name); err == nil {
		errs = append(errs, run("ip", "link", "delete", n.Name))
	}
	return errors.Join(errs...)
}

// removeRules removes the portmap plugin's chains. Each pod has one, and its
// rule in a common chain has the network's name in a comment.
func (n network) removeRules() error {
	rules, err := natRules()
	if err != nil {
		return err
	}
	var errs []error
	for _, rule := range rules {
		if rule[0] != "-A" || !slices.ContainsFunc(rule, func(word string) bool {
			return strings.Contains(word, `name: "`+n.Name+`"`)
		}) {
			continue
		}
		errs = append(errs, nat(append([]string{"-D"}, rule[1:]...)...))
		if at := slices.Index(rule, "-j"); at >= 0 && at+1 < len(rule) && strings.HasPrefix(rule[at+1], "CNI-DN-") {
			errs = append(errs, nat("-F", rule[at+1]), nat("-X", rule[at+1]))
		}
	}
	return errors.Join(errs...)
}

// removeResults removes what libcni remembers of pods, in a place of its own.
func (n network) removeResults() error {
	paths, err := filepath.Glob(filepath.Join(cniResults, n.Name+"-*"))
	for _, path := range paths {
		err = errors.Join(err, os.Remove(path))
	}
	return err
}

func nat(args ...string) error {
	return run("iptables", append([]string{"-w", "-t", "nat"}, args...)...)
}

// natRules returns the rules as words.
func natRules() ([][]string, error) {
	out, err := exec.Command("iptables", "-w", "-t", "nat", "-S").Output()
	if err != nil {
		return nil, fmt.Errorf("list the firewall's rules: %w", err)
	}
	var rules [][]string
	for line := range strings.Lines(string(out)) {
		if words := splitWords(strings.TrimSpace(line)); len(words) >= 2 {
			rules = append(rules, words)
		}
	}
	return rules, nil
}

// splitWords splits a line of "iptables -S": words in double quotes may have
// spaces, and quotes after a backslash.
func splitWords(line string) []string {
	var words []string
	var word strings.Builder
	quoted, escaped, any := false, false, false
	for _, r := range line {
		switch {
		case escaped:
			word.WriteRune(r)
			escaped = false
		case r == '\\':
			escaped = true
		case r == '"':
			quoted, any = !quoted, true
		case r == ' ' && !quoted:
			if any {
				words = append(words, word.String())
			}
			word.Reset()
			any = false
		default:
			word.WriteRune(r)
			any = true
		}
	}
	if any {
		words = append(words, word.String())
	}
	return words
}

func run(name string, args ...string) error {
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, strings.TrimSpace(string(out)))
	}
	return nil
}
