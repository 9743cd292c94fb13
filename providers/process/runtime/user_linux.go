package runtime

import (
	"errors"
	"os/user"
	"slices"
	"strconv"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/virtual-kubelet/virtual-kubelet/providers/process/runtime/internal/shim"
)

// userOf decides whom a container runs as. One that asks for nobody runs as its
// image's user, usual, or as own, the pod's.
func (p *policy) userOf(sc *runtimeapi.LinuxContainerSecurityContext, own account, image *account) (*shim.User, error) {
	usual := own
	if image != nil {
		usual = *image
	}
	if sc.GetRunAsGroup() != nil && sc.GetRunAsUser() == nil && sc.GetRunAsUsername() == "" {
		return nil, invalid("a group (runAsGroup) needs a user (runAsUser)")
	}
	who, err := p.accountOf(sc, usual)
	if err != nil {
		return nil, err
	}
	if who.uid != usual.uid && who.uid != own.uid && (!p.users.contain(who.uid) || p.podUsers.contain(who.uid)) {
		return nil, denied("running as user %d is not allowed on this node (the default is %d): its operator may add it to users", who.uid, usual.uid)
	}
	u := &shim.User{UID: uint32(who.uid), GID: uint32(who.gid)}
	if sc.GetRunAsGroup() != nil && who.gid != usual.gid && !p.mayJoin(who.gid, own) {
		return nil, denied("running with group %d is not allowed on this node: its operator may add it to groups", who.gid)
	}
	for _, g := range sc.GetSupplementalGroups() {
		if g < 0 || g > maxID {
			return nil, invalid("%d is no group", g)
		}
		if g != who.gid && !p.mayJoin(g, own) {
			return nil, denied("the group %d (of fsGroup or supplementalGroups) is not allowed on this node: its operator may add it to groups", g)
		}
		u.Groups = append(u.Groups, uint32(g))
	}
	return u, p.possible(u)
}

// isPodsOwn reports whether a user stands for that of the pod, also if that is another one. Images
// have it, since callers of the CRI name the image's user where a pod names none.
func (p *policy) isPodsOwn(uid int64) bool {
	return len(p.podUsers) > 0 && uid == p.podUsers[0][0]
}

// mayJoin reports whether a container of a pod may name a group. One of the range
// of podUsers is that of another pod.
func (p *policy) mayJoin(group int64, own account) bool {
	return group == own.gid || p.groups.contain(group) && !p.podUsers.contain(group) ||
		!p.root && slices.Contains(p.ownGroups, int(group))
}

// accountOf finds the user and main group that are asked for. A user whose group
// nobody names has the one that the machine knows for it, and else the usual one:
// never root's by itself.
func (p *policy) accountOf(sc *runtimeapi.LinuxContainerSecurityContext, usual account) (account, error) {
	who := usual
	var known *user.User
	switch {
	case sc.GetRunAsUser() != nil && p.isPodsOwn(sc.GetRunAsUser().GetValue()):
	case sc.GetRunAsUser() != nil:
		who.uid = sc.GetRunAsUser().GetValue()
		if who.uid < 0 || who.uid > maxID {
			return who, invalid("%d is no user", who.uid)
		}
		if who.uid != usual.uid {
			known, _ = user.LookupId(strconv.FormatInt(who.uid, 10))
		}
	case sc.GetRunAsUsername() != "":
		var err error
		if known, err = user.Lookup(sc.GetRunAsUsername()); err != nil {
			return who, invalid("the machine knows no user %q", sc.GetRunAsUsername())
		}
	}
	if known != nil {
		uid, err1 := parseID(known.Uid)
		gid, err2 := parseID(known.Gid)
		if err := errors.Join(err1, err2); err != nil {
			return who, invalid("user %s: %v", known.Username, err)
		}
		who = account{uid, gid}
	}
	if g := sc.GetRunAsGroup(); g != nil {
		who.gid = g.GetValue()
		if who.gid < 0 || who.gid > maxID {
			return who, invalid("%d is no group", who.gid)
		}
	}
	return who, nil
}

// possible reports whether we are able to run something as u, which needs root
// unless we are u.
func (p *policy) possible(u *shim.User) error {
	if p.root {
		return nil
	}
	own := p.defaultUser
	if int64(u.UID) != own.uid || int64(u.GID) != own.gid {
		return denied("running as %d:%d is not possible: virtual-kubelet runs as %d:%d, and not as root", u.UID, u.GID, own.uid, own.gid)
	}
	for _, g := range u.Groups {
		if !slices.Contains(p.ownGroups, int(g)) && int64(g) != own.gid {
			return denied("the group %d is not possible: virtual-kubelet does not run as root and is not in it", g)
		}
	}
	return nil
}

// homeOf is the home directory of a user, or / if it has none.
func homeOf(uid uint32) string {
	if u, err := user.LookupId(strconv.FormatUint(uint64(uid), 10)); err == nil && u.HomeDir != "" {
		return u.HomeDir
	}
	return "/"
}
