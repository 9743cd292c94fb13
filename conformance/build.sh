#!/bin/sh
# Builds the programs of the conformance suite:
#
#	conformance/build.sh FOLDER NAME...
#
# Names: e2e.test, the suite; kubelet, the reference node; agnhost and nnp, the
# suite's own programs for images (all four of the Kubernetes in go.mod);
# pause, nginx, sh, images, run, cluster and table, the programs of this module;
# images.tar, the archive of images.
# What is of Kubernetes is built once for each version of it and of Go: the first
# build takes minutes.
set -eu

[ $# -ge 2 ] || { sed -n '2,/^set/s/^# \{0,1\}//p' "$0" >&2; exit 2; }
mkdir -p "$1"
folder=$(cd "$1" && pwd)
shift
cd "$(dirname "$0")"
export CGO_ENABLED=0 GOWORK=off

# The one place that says which Kubernetes this is: go.mod.
version=$(go list -m -f '{{.Version}}' k8s.io/kubernetes)
minor=${version#v1.}
minor=${minor%%.*}
stamp=$({ go version; cat go.mod go.sum build.sh; } | sha256sum | cut -d' ' -f1)

flags="-s -w"
for p in k8s.io/component-base/version k8s.io/client-go/pkg/version; do
	flags="$flags -X $p.gitVersion=$version -X $p.gitMajor=1 -X $p.gitMinor=$minor -X $p.gitTreeState=clean"
done

# cached NAME PACKAGE FLAG...: builds the package with go build's flags unless that was done.
# Another name first: a running binary is not overwritten, and an interrupted
# build leaves the old one.
trap 'rm -f "$folder"/*.tmp.$$' EXIT
cached() {
	out=$folder/$1 package=$2
	shift 2
	if [ -x "$out" ] && [ "$(cat "$out.stamp" 2>/dev/null)" = "$stamp" ]; then
		return
	fi
	echo "Building $out" >&2
	rm -f "$out.stamp"
	../scripts/gobuild.sh "$name" "$out.tmp.$$" "$package" "$@" -trimpath
	mv "$out.tmp.$$" "$out"
	echo "$stamp" >"$out.stamp"
}

for name; do
	case $name in
	e2e.test) cached "$name" k8s.io/kubernetes/test/e2e -c -ldflags "$flags" ;;
	kubelet) cached "$name" k8s.io/kubernetes/cmd/kubelet -ldflags "$flags" ;;
	agnhost) cached "$name" k8s.io/kubernetes/test/images/agnhost -ldflags "-s -w" ;;
	nnp) cached "$name" k8s.io/kubernetes/test/images/nonewprivs -ldflags "-s -w" ;;
	pause | nginx | sh) go build -trimpath -ldflags "-s -w" -o "$folder/$name" "./images/$name" ;;
	images | run | cluster | table) go build -trimpath -o "$folder/$name" "./$name" ;;
	images.tar)
		sh ./build.sh "$folder" agnhost nnp pause nginx sh images
		"$folder/images" -bin "$folder" -kubernetes "$(go list -m -f '{{.Dir}}' k8s.io/kubernetes)" -out "$folder/images.tar"
		;;
	*)
		echo "$0: there is no program $name: see the first lines of $0" >&2
		exit 2
		;;
	esac
done
