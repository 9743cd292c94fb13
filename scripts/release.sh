#!/usr/bin/env bash
# Makes the files of a release of the binary, from the commit that has its tag
# (cmd/virtual-kubelet/VERSION; CONTRIBUTING.md, "Modules and releases"):
#
#	scripts/release.sh -k KEY [-a "ARCH ..."] [-p "PROVIDER ..."] [-i REPOSITORY] VERSION DIRECTORY
#
# DIRECTORY, which must not exist, gets a binary and a bill of materials for each
# architecture (default: amd64 arm64), an image of all of them named REPOSITORY:VERSION
# (default: localhost/virtual-kubelet), the provenance, SHA256SUMS, and its signature by
# KEY, an SSH key as for git. With -p the binary has those providers alone. It needs Go,
# make, git, jq and ssh-keygen, and no Docker. The same commit and tools make the same
# files. docs/release.md says what is in them, and how to verify them.
set -euo pipefail

usage() {
	sed -n '2,/^set/s/^# \{0,1\}//p' "$0" >&2
	exit 2
}
fail() {
	echo "$0: $1" >&2
	exit 1
}

key='' arches='amd64 arm64' providers='' repository=localhost/virtual-kubelet
while getopts k:a:p:i: option; do
	case $option in
	k) key=$OPTARG ;;
	a) arches=$OPTARG ;;
	p) providers=$OPTARG ;;
	i) repository=$OPTARG ;;
	*) usage ;;
	esac
done
shift $((OPTIND - 1))
[ $# = 2 ] && [ -n "$key" ] && [ -n "$arches" ] || usage
version=$1 directory=$2
[[ $version =~ ^v[0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z.]+)?$ ]] || fail "$version is no version: give one such as v1.2.3"
[ -r "$key" ] || fail "the key $key cannot be read: make one with ssh-keygen -t ed25519 -f $key"
[ ! -e "$directory" ] || fail "$directory is there already: name a directory that is not"
for program in jq ssh-keygen git make; do
	command -v "$program" >/dev/null || fail "there is no $program: install it"
done
go=${GO:-go}
root=$(cd "$(dirname "$0")/.." && pwd)
tag=cmd/virtual-kubelet/$version
commit=$(git -C "$root" rev-parse --quiet --verify "refs/tags/$tag^{commit}") || fail "there is no tag $tag: release the modules first (CONTRIBUTING.md)"

mkdir -p "$(dirname "$directory")"
directory=$(cd "$(dirname "$directory")" && pwd)/$(basename "$directory")
work=$(mktemp -d "$directory.XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 1' INT TERM
source=$work/source files=$work/files layout=$work/layout
mkdir -p "$files" "$layout/blobs/sha256"
# Without other tags: a binary has the highest version that its commit has.
git clone -q --no-checkout --no-tags "$root" "$source"
git -C "$source" fetch -q --no-tags origin "refs/tags/$tag:refs/tags/$tag"
git -C "$source" checkout -q --detach "$commit"

digest() { sha256sum <"$1" | cut -d ' ' -f 1; }
# blob FILE: puts it into the layout, and prints what refers to it.
blob() {
	local sum
	sum=$(digest "$1")
	jq -cn --arg digest "sha256:$sum" --argjson size "$(wc -c <"$1")" '{$digest, $size}'
	mv "$1" "$layout/blobs/sha256/$sum"
}
# bill BINARY [BINARY ...]: a bill of materials (CycloneDX) of the first one, which has the others in it.
bill() {
	"$go" version -m -json "$@" | jq -s --arg version "$version" --arg name "${1##*/}" --arg sha256 "$(digest "$1")" '
		def purl: "pkg:golang/\(.name)@\(.version | gsub("\\+"; "%2B"))";
		def component: {type: "library", "bom-ref": purl, name, version, purl: purl};
		(.[0].Main.Path) as $main
		| ([.[].Deps[]?
			| if .Replace == null then . elif .Replace.Path | startswith(".") then .Version = $version else .Replace end
			| {name: .Path, version: .Version}]
			+ [.[] | {name: "std", version: (.GoVersion | ltrimstr("go"))}]
			| map(select(.name != $main) | component) | unique_by(.purl)) as $components
		| ({name: $main, version: $version} | purl) as $ref
		| {
			bomFormat: "CycloneDX", specVersion: "1.6", version: 1,
			metadata: {component: {
				type: "application", "bom-ref": $ref, name: $name, version: $version, purl: $ref,
				hashes: [{alg: "SHA-256", content: $sha256}]}},
			components: $components,
			dependencies: [{ref: $ref, dependsOn: [$components[]."bom-ref"]}]
		}'
}

manifests='[]'
for arch in $arches; do
	echo "building for linux/$arch" >&2
	(cd "$source" && MAKEFLAGS='' GOFLAGS=-buildvcs=true GOWORK=off GOAMD64=v1 GOARM64=v8.0 GOOS=linux GOARCH=$arch make build GO="$go" PROVIDERS="$providers") >&2
	name=virtual-kubelet-$version-linux-$arch
	embedded=()
	case " ${providers:-process} " in *' process '*) embedded=("$source/bin/shim") ;; esac
	cp "$source/bin/virtual-kubelet" "$files/$name"
	bill "$files/$name" "${embedded[@]}" >"$files/$name.cdx.json"
	GOOS='' GOARCH='' "$source/scripts/image.sh" "$files/$name" "$repository:$version" "$work/$arch.tar"
	mkdir "$work/$arch"
	tar -C "$work/$arch" -xf "$work/$arch.tar"
	cp "$work/$arch"/blobs/sha256/* "$layout/blobs/sha256/"
	manifests=$(jq -c --arg architecture "$arch" --argjson all "$manifests" \
		'$all + [.manifests[0] | del(.annotations) + {platform: {os: "linux", $architecture}}]' "$work/$arch/index.json")
done

# One name is of the image for all architectures.
index=application/vnd.oci.image.index.v1+json
jq -cn --arg index "$index" --argjson manifests "$manifests" '{schemaVersion: 2, mediaType: $index, $manifests}' >"$work/index"
jq -cn --arg index "$index" --arg image "$repository:$version" --arg version "$version" --argjson blob "$(blob "$work/index")" '
	{schemaVersion: 2, mediaType: $index, manifests: [{mediaType: $index} + $blob
		+ {annotations: {"io.containerd.image.name": $image, "org.opencontainers.image.ref.name": $version}}]}' >"$layout/index.json"
echo '{"imageLayoutVersion":"1.0.0"}' >"$layout/oci-layout"
(cd "$layout" && tar --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner --mode=u=rwX,go=rX -c -- *) >"$files/virtual-kubelet-$version-image.tar"

cd "$files"
sha256sum -- * | jq -Rn --arg version "$version" --arg tag "$tag" --arg commit "$commit" --arg arches "$arches" --arg providers "$providers" \
	--arg image "$repository:$version" --arg go "$("$go" env GOVERSION)" --arg authorities "$(digest /etc/ssl/certs/ca-certificates.crt)" '
	"https://github.com/virtual-kubelet/virtual-kubelet" as $repository
	| {
		_type: "https://in-toto.io/Statement/v1",
		subject: [inputs | capture("^(?<sha256>[0-9a-f]{64}) .(?<name>.*)$") | {name, digest: {sha256}}],
		predicateType: "https://slsa.dev/provenance/v1",
		predicate: {
			buildDefinition: {
				buildType: "\($repository)/blob/main/docs/release.md",
				externalParameters: {$version, $image, architectures: ($arches | split(" ")), providers: ($providers | split(" "))},
				internalParameters: {$go},
				resolvedDependencies: [
					{uri: "git+\($repository)@refs/tags/\($tag)", digest: {gitCommit: $commit}},
					{name: "ca-certificates.crt", digest: {sha256: $authorities}}]},
			runDetails: {builder: {id: "\($repository)/blob/main/scripts/release.sh"}}}
	}' >"$work/provenance"
mv "$work/provenance" "virtual-kubelet-$version.provenance.json"
sha256sum -- * >"$work/SHA256SUMS"
mv "$work/SHA256SUMS" .
cd - >/dev/null
ssh-keygen -q -Y sign -f "$key" -n virtual-kubelet-release "$files/SHA256SUMS"
mv "$files" "$directory"
echo "$directory has $version: docs/release.md says how to verify it" >&2
