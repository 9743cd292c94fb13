#!/bin/sh
# Makes a container image of virtual-kubelet, without Docker and as any user:
#
#	scripts/image.sh BINARY IMAGE ARCHIVE
#
# ARCHIVE is both an OCI layout and what "docker save" writes: "docker load", "ctr
# images import", "crane push", "skopeo copy oci-archive:" and "kind load
# image-archive" take it. In the image are the binary, which has to be static, and
# the certificate authorities that this machine trusts. The same binary and
# authorities make the same image.
set -eu

[ $# -eq 3 ] || { sed -n '2,/^set/s/^# \{0,1\}//p' "$0" >&2; exit 2; }
binary=$1 image=$2 archive=$3
authorities=/etc/ssl/certs/ca-certificates.crt

fail() {
	echo "$0: $1" >&2
	exit 1
}
# built SETTING: what the binary was built with.
built() {
	go version -m "$binary" | sed -n "s/^\tbuild\t$1=//p"
}
case ${image##*/} in
*@*) fail "$image has a digest: give a name and a tag" ;;
*:*) tag=${image##*:} ;;
*) fail "$image has no tag: give one, as in $image:v1" ;;
esac
[ -e "$authorities" ] || fail "there is no $authorities: install ca-certificates"
[ "$(built GOOS)" = linux ] || fail "$binary is for \"$(built GOOS)\": build it with GOOS=linux"
[ "$(built CGO_ENABLED)" = 0 ] || fail "$binary may need libraries, which the image has not: build it with CGO_ENABLED=0"

mkdir -p "$(dirname "$archive")"
work=$(mktemp -d "$archive.XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 1' INT TERM
mkdir -p "$work/root/etc/ssl/certs" "$work/layout/blobs/sha256"

# pack FOLDER: an archive of what is in it, by names that do not begin with "./", since
# crane finds no others. It does not say who made it, when.
pack() (
	cd "$1" && tar --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner --mode=u=rwX,go=rX -c *
)
# add FILE: puts it in the layout, under its digest, which it prints.
add() {
	sum=$(sha256sum <"$1")
	sum=${sum%% *}
	mv "$1" "$work/layout/blobs/sha256/$sum"
	echo "$sum"
}
size() { wc -c <"$work/layout/blobs/sha256/$1"; }

cp "$binary" "$work/root/virtual-kubelet"
cp "$authorities" "$work/root$authorities"
pack "$work/root" >"$work/layer"
content=$(sha256sum <"$work/layer")
content=${content%% *}
gzip -n "$work/layer"
layer=$(add "$work/layer.gz")

cat >"$work/config" <<END
{"architecture":"$(built GOARCH)","os":"linux",
"config":{"User":"65532:65532","Entrypoint":["/virtual-kubelet"]},
"rootfs":{"type":"layers","diff_ids":["sha256:$content"]}}
END
config=$(add "$work/config")

cat >"$work/manifest" <<END
{"schemaVersion":2,"mediaType":"application/vnd.oci.image.manifest.v1+json",
"config":{"mediaType":"application/vnd.oci.image.config.v1+json","digest":"sha256:$config","size":$(size "$config")},
"layers":[{"mediaType":"application/vnd.oci.image.layer.v1.tar+gzip","digest":"sha256:$layer","size":$(size "$layer")}]}
END
manifest=$(add "$work/manifest")

echo '{"imageLayoutVersion":"1.0.0"}' >"$work/layout/oci-layout"
cat >"$work/layout/index.json" <<END
{"schemaVersion":2,"mediaType":"application/vnd.oci.image.index.v1+json",
"manifests":[{"mediaType":"application/vnd.oci.image.manifest.v1+json","digest":"sha256:$manifest","size":$(size "$manifest"),
"annotations":{"io.containerd.image.name":"$image","org.opencontainers.image.ref.name":"$tag"}}]}
END
cat >"$work/layout/manifest.json" <<END
[{"Config":"blobs/sha256/$config","RepoTags":["$image"],"Layers":["blobs/sha256/$layer"]}]
END
pack "$work/layout" >"$work/archive"
mv "$work/archive" "$archive"
echo "$archive is $image" >&2
