#!/usr/bin/env bash
# Releases the modules that are released with the library, once its version is
# tagged and pushed (CONTRIBUTING.md, "Modules and releases"):
#
#	scripts/release-modules.sh [-n] VERSION
#
# It commits to the current branch, which must be clean and no branch that others
# work on, and pushes a tag for each module. With -n it edits the go.mod files only.
set -euo pipefail
cd "$(dirname "$0")/.."

dry=
if [ "${1-}" = -n ]; then dry=1 && shift; fi
version=${1-}
if ! [[ $version =~ ^v[0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z.]+)?$ ]]; then
	echo "usage: scripts/release-modules.sh [-n] VERSION, such as v1.2.3" >&2
	exit 2
fi
go=${GO:-go}
root=github.com/virtual-kubelet/virtual-kubelet

# release DIR REQUIRED … has the module in DIR require the version of others.
release() {
	local dir=$1 edits=() module
	shift
	for module; do edits+=(-dropreplace "$module" -require "$module@$version"); done
	(cd "$dir" && "$go" mod edit "${edits[@]}")
	if [ -n "$dry" ]; then return; fi
	# The tag was pushed a moment ago, which proxies learn late.
	(cd "$dir" && GOWORK=off GOPROXY=direct GONOSUMDB="$root" "$go" mod tidy && GOWORK=off "$go" build -o /dev/null ./...)
	git add "$dir/go.mod" "$dir/go.sum"
	git commit -q -m "$dir $version"
	git tag "$dir/$version"
	git push origin "$dir/$version"
}

if [ -z "$dry" ]; then
	[ -z "$(git status --porcelain)" ] || { echo "commit or stash what is changed first" >&2 && exit 1; }
	[ "$(git rev-list -n1 "$version")" = "$(git rev-parse HEAD)" ] || { echo "check out $version on a branch of its own first" >&2 && exit 1; }
fi
release providers/aci "$root"
release providers/azurebatch "$root"
release providers/eci "$root"
release providers/fargate "$root"
release providers/machine/ec2 "$root"
release providers/nomad "$root"
release providers/zun "$root"
release cmd/virtual-kubelet "$root" "$root/providers/aci" "$root/providers/azurebatch" "$root/providers/eci" "$root/providers/fargate" "$root/providers/machine/ec2" "$root/providers/nomad" "$root/providers/zun"
