package procfs

import (
	"encoding/hex"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Listeners returns the addresses at which processes listen on a TCP port, in the
// network of this process, as far as we may see their files.
func Listeners(port uint16, processes []Process) ([]netip.Addr, error) {
	sockets, err := listeners(port)
	if err != nil {
		return nil, err
	}
	if len(sockets) == 0 {
		return nil, nil
	}
	var found []netip.Addr
	for _, p := range processes {
		links, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", p.PID))
		for _, link := range links {
			target, _ := os.Readlink(link)
			if addr, ok := sockets[target]; ok && !slices.Contains(found, addr) {
				found = append(found, addr)
			}
		}
	}
	return found, nil
}

// ListensIPv4 reports whether a socket for IPv4 alone listens on a TCP port, of any process.
func ListensIPv4(port uint16) (bool, error) {
	sockets, err := listeners(port)
	for _, addr := range sockets {
		if addr.Is4() {
			return true, nil
		}
	}
	return false, err
}

// listeners are the sockets that listen on a port.
func listeners(port uint16) (map[string]netip.Addr, error) {
	sockets := map[string]netip.Addr{}
	for _, table := range []string{"/proc/self/net/tcp", "/proc/self/net/tcp6"} {
		data, err := os.ReadFile(table)
		if errors.Is(err, os.ErrNotExist) {
			continue // no IPv6
		}
		if err != nil {
			return nil, err
		}
		if err := listening(string(data), port, sockets); err != nil {
			return nil, fmt.Errorf("%s: %w", table, err)
		}
	}
	return sockets, nil
}

// listening adds the sockets of a table that listen on a port, by what links of
// /proc/PID/fd call them.
func listening(table string, port uint16, sockets map[string]netip.Addr) error {
	const listen = "0A"
	for line := range strings.Lines(table) {
		fields := strings.Fields(line)
		if len(fields) < 10 || fields[3] != listen {
			continue
		}
		address, number, _ := strings.Cut(fields[1], ":")
		if n, err := strconv.ParseUint(number, 16, 16); err != nil || uint16(n) != port {
			continue
		}
		addr, err := parseAddress(address)
		if err != nil {
			return err
		}
		sockets["socket:["+fields[9]+"]"] = addr
	}
	return nil
}

// parseAddress reads an address as the kernel writes it: in groups of four bytes,
// each in the order of the machine, which is the lowest first.
func parseAddress(text string) (netip.Addr, error) {
	raw, err := hex.DecodeString(text)
	if err != nil || len(raw)%4 != 0 {
		return netip.Addr{}, fmt.Errorf("%q is no address", text)
	}
	for group := range slices.Chunk(raw, 4) {
		slices.Reverse(group)
	}
	addr, ok := netip.AddrFromSlice(raw)
	if !ok {
		return netip.Addr{}, fmt.Errorf("%q is no address", text)
	}
	return addr.Unmap(), nil
}
