package shim

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// restrict sets limits and takes rights from the calling thread, in an order in
// which each step still may be taken.
func (c *Command) restrict() error {
	if c.OOMScoreAdj != nil {
		// Lower scores need a right that even root may lack.
		_ = os.WriteFile("/proc/thread-self/oom_score_adj", []byte(strconv.Itoa(*c.OOMScoreAdj)), 0o644)
	}
	for _, l := range c.Rlimits {
		if err := setRlimit(l); err != nil {
			return fmt.Errorf("rlimit %d (soft %d, hard %d): %w", l.Resource, l.Soft, l.Hard, err)
		}
	}
	if c.NoNewPrivileges {
		if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
			return fmt.Errorf("no new privileges: %w", err)
		}
	}
	if err := c.bound(); err != nil {
		return err
	}
	// As long as this thread may do so without NoNewPrivileges; nothing that follows
	// is denied.
	if c.FilterCalls {
		if err := filterCalls(); err != nil {
			return err
		}
	}
	if err := c.User.become(); err != nil {
		return err
	}
	if c.Capabilities != nil && os.Geteuid() == 0 {
		return setCapabilities(c.Capabilities)
	}
	return nil
}

// setRlimit sets a limit. Where we may not raise the hard limit as far as asked,
// it stays as high as it is.
func setRlimit(l Rlimit) error {
	limit := syscall.Rlimit{Cur: l.Soft, Max: l.Hard}
	err := syscall.Setrlimit(l.Resource, &limit)
	if !errors.Is(err, unix.EPERM) {
		return err
	}
	var now syscall.Rlimit
	if err := syscall.Getrlimit(l.Resource, &now); err != nil {
		return err
	}
	return syscall.Setrlimit(l.Resource, &syscall.Rlimit{Cur: min(l.Soft, now.Max), Max: min(l.Hard, now.Max)})
}

// bound drops what is not in Capabilities from the bounding set, so that no
// binary can bring it back.
func (c *Command) bound() error {
	if c.Capabilities == nil {
		return nil
	}
	for n := 0; n <= unix.CAP_LAST_CAP; n++ {
		if slices.Contains(c.Capabilities, n) {
			continue
		}
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, uintptr(n), 0, 0, 0); err != nil && !errors.Is(err, unix.EINVAL) {
			return fmt.Errorf("drop capability %d: %w", n, err)
		}
	}
	return nil
}

// become changes the user. The calls are for this thread only, as all of it.
func (u *User) become() error {
	if u == nil {
		return nil
	}
	groups := make([]int, len(u.Groups))
	for i, g := range u.Groups {
		groups[i] = int(g)
	}
	if err := unix.Setgroups(groups); err != nil {
		return fmt.Errorf("groups %d: %w", groups, err)
	}
	if err := unix.Setresgid(int(u.GID), int(u.GID), int(u.GID)); err != nil {
		return fmt.Errorf("group %d: %w", u.GID, err)
	}
	if err := unix.Setresuid(int(u.UID), int(u.UID), int(u.UID)); err != nil {
		return fmt.Errorf("user %d: %w", u.UID, err)
	}
	return nil
}

// setCapabilities leaves root with those capabilities that it has of the wanted.
func setCapabilities(wanted []int) error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return fmt.Errorf("capabilities: %w", err)
	}
	for i := range data {
		var mask uint32
		for _, n := range wanted {
			if n/32 == i {
				mask |= 1 << (n % 32)
			}
		}
		data[i].Permitted &= mask
		data[i].Effective = data[i].Permitted
		data[i].Inheritable = 0
	}
	if err := unix.Capset(&header, &data[0]); err != nil {
		return fmt.Errorf("capabilities: %w", err)
	}
	return nil
}
