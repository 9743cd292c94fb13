#!/bin/sh
# Builds the control plane binary: controlplane/build.sh OUTPUT
# Does nothing when OUTPUT was built from the same sources by the same Go.
# The first build takes minutes; later ones use Go's build cache.
set -eu

[ $# -eq 1 ] || { echo "usage: $0 OUTPUT" >&2; exit 2; }
case $1 in /*) out=$1 ;; *) out=$PWD/$1 ;; esac
cd "$(dirname "$0")"
export CGO_ENABLED=0 GOWORK=off

# The one place that says which Kubernetes this is: go.mod.
version=$(go list -m -f '{{.Version}}' k8s.io/kubernetes)
minor=${version#v1.}
minor=${minor%%.*}

stamp=$({ go version; cat go.mod go.sum build.sh; find . -name '*.go' ! -name '*_test.go' | sort | xargs cat; } | sha256sum | cut -d' ' -f1)
if [ -x "$out" ] && [ "$(cat "$out.stamp" 2>/dev/null)" = "$stamp" ]; then
	exit 0
fi

x="-X k8s.io/component-base/version"
c="-X k8s.io/client-go/pkg/version" # the User-Agent of clients
flags="-s -w"
for p in "$x" "$c"; do
	flags="$flags $p.gitVersion=$version $p.gitMajor=1 $p.gitMinor=$minor $p.gitTreeState=clean"
done

mkdir -p "$(dirname "$out")"
rm -f "$out.stamp"
# Another name first: a running binary is not overwritten, and an interrupted
# build leaves the old one.
tmp=$out.tmp.$$
trap 'rm -f "$tmp"' EXIT
../scripts/gobuild.sh "the control plane" "$tmp" . -trimpath -ldflags "$flags"
mv "$tmp" "$out"
echo "$stamp" >"$out.stamp"
