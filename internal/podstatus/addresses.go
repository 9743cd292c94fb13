package podstatus

import (
	"slices"

	utilnet "k8s.io/utils/net"
)

// OnePerFamily returns the first of a list of addresses, and the first of the other family: the API
// refuses a status with more.
func OnePerFamily[T any](list []T, address func(T) string) []T {
	if len(list) < 2 {
		return list
	}
	first := utilnet.IPFamilyOfString(address(list[0]))
	i := slices.IndexFunc(list, func(one T) bool {
		family := utilnet.IPFamilyOfString(address(one))
		return family != first && family != utilnet.IPFamilyUnknown
	})
	switch {
	case i < 0:
		return list[:1:1]
	case len(list) == 2:
		return list
	default:
		return []T{list[0], list[i]}
	}
}

// SortAddresses returns, as a kubelet does, the first address of each family, that of the family of the
// host's first one first. What is no address is left out.
func SortAddresses(all, hosts []string) []string {
	var valid []string
	for _, text := range all {
		if ip := utilnet.ParseIPSloppy(text); ip != nil {
			valid = append(valid, ip.String())
		}
	}
	valid = OnePerFamily(valid, func(ip string) string { return ip })
	if len(valid) == 2 && len(hosts) > 0 && utilnet.IPFamilyOfString(valid[1]) == utilnet.IPFamilyOfString(hosts[0]) {
		valid[0], valid[1] = valid[1], valid[0]
	}
	return valid
}
