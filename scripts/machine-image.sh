#!/usr/bin/env bash
# Makes the image of the machines of the driver qemu (providers/machine/README.md):
# Debian's kernel, and a root with busybox, bash and the binary as the machine's agent.
# Usage: machine-image.sh BINARY DIR, where DIR gets vmlinuz, initrd and root.img, and
# keeps the kernel's package.
set -euo pipefail
binary=$(realpath "$1")
mkdir -p "$2"
dir=$(realpath "$2")
[ "$(uname -m)" = x86_64 ] || { echo "machine-image: only the kernel for amd64 is known here" >&2; exit 1; }

if ! ls "$dir"/kernel/boot/vmlinuz-* >/dev/null 2>&1; then
	package=$(apt-cache depends linux-image-cloud-amd64 | awk '/Depends: linux-image-[0-9]/ { print $2; exit }')
	(cd "$dir" && rm -rf kernel linux-image-*.deb && apt-get download -q -o APT::Sandbox::User=root "$package" &&
		dpkg-deb -x linux-image-*.deb kernel.new && mv kernel.new kernel && rm linux-image-*.deb)
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# The first root has the modules of the disks, the network and the user data, in the
# order in which they need each other, and leaves for that on the disks.
first=$work/first
mkdir -p "$first"/{bin,dev,modules,proc,ro,root,rw}
cp "$(command -v busybox)" "$first/bin/busybox"
for module in virtio_ring virtio virtio_pci_legacy_dev virtio_pci_modern_dev virtio_pci virtio_blk failover net_failover virtio_net rng-core virtio-rng qemu_fw_cfg overlay; do
	file=$(find "$dir"/kernel/lib/modules "$dir"/kernel/usr/lib/modules \( -name "$module.ko" -o -name "$module.ko.xz" \) 2>/dev/null | head -n 1 || true)
	case $file in
	*.xz) xz -dc "$file" >"$first/modules/$module.ko" ;;
	*.ko) cp "$file" "$first/modules/$module.ko" ;;
	*) continue ;; # it is part of the kernel
	esac
	echo "$module" >>"$first/modules/order"
done
cat >"$first/init" <<'INIT'
#!/bin/busybox sh
/bin/busybox --install -s /bin
mount -t proc proc /proc
mount -t devtmpfs dev /dev
case " $(cat /proc/cmdline) " in *" vk.probe "*) echo vk-probe-ok; poweroff -f ;; esac
while read -r module; do insmod "/modules/$module.ko"; done </modules/order
tries=0
until [ -b /dev/vda ] && [ -b /dev/vdb ] || [ $tries = 300 ]; do sleep 0.1; tries=$((tries + 1)); done
mount -o ro /dev/vda /ro && mount /dev/vdb /rw && mkdir -p /rw/upper /rw/work &&
	mount -t overlay -o lowerdir=/ro,upperdir=/rw/upper,workdir=/rw/work root /root &&
	mkdir -p /root/data && mount -o bind /rw /root/data && mount -o move /dev /root/dev && umount /proc &&
	exec switch_root /root /sbin/init
echo "machine: its disks cannot be used"
poweroff -f
INIT
chmod +x "$first/init"
(cd "$first" && find . | cpio -o -H newc --quiet | gzip -1) >"$dir/initrd.new"

root=$work/root
mkdir -p "$root"/{bin,data,dev,etc,home,mnt,proc,root,run,sbin,sys,tmp,usr/bin,usr/local/bin,usr/sbin,var/lib,var/log,var/tmp}
chmod 1777 "$root/tmp" "$root/var/tmp"
cp "$(command -v busybox)" "$root/bin/busybox"
for applet in $(busybox --list | grep -vx busybox); do ln -s busybox "$root/bin/$applet"; done
ln -s ../bin/busybox "$root/sbin/init"
ln -s ../../bin/env "$root/usr/bin/env"
# Debian's ash drops environment variables whose names are no identifiers.
cp "$(command -v bash-static)" "$root/bin/bash"
ln -sf bash "$root/bin/sh"
cp "$binary" "$root/usr/local/bin/virtual-kubelet"
printf 'root:x:0:0::/root:/bin/sh\nnobody:x:65534:65534::/:/bin/false\n' >"$root/etc/passwd"
printf 'root:x:0:\nnogroup:x:65534:\n' >"$root/etc/group"
printf '127.0.0.1 localhost\n::1 localhost\n' >"$root/etc/hosts"
: >"$root/etc/resolv.conf"
printf '::sysinit:/etc/start\n::respawn:/etc/agent\n' >"$root/etc/inittab"
cat >"$root/etc/start" <<'START'
#!/bin/sh
mount -t proc proc /proc
mount -t sysfs sys /sys
mkdir -p /dev/pts /dev/shm
mount -t devpts -o ptmxmode=666 devpts /dev/pts
mount -t tmpfs -o mode=1777 shm /dev/shm
mount -t tmpfs -o mode=755 run /run
mount -t cgroup2 none /sys/fs/cgroup
for argument in $(cat /proc/cmdline); do
	case $argument in
	vk.address=*) address=${argument#*=} ;;
	vk.gateway=*) gateway=${argument#*=} ;;
	esac
done
ip link set lo up
ip link set eth0 up
ip address add "$address" dev eth0
ip route add default via "$gateway"
echo "machine: $address has started"
START
cat >"$root/etc/agent" <<'AGENT'
#!/bin/sh
exec /usr/local/bin/virtual-kubelet agent --state-dir /data/agent --provider-config /etc/process.json \
	--bootstrap /sys/firmware/qemu_fw_cfg/by_name/opt/org.virtual-kubelet/bootstrap/raw
AGENT
echo '{"root": "/data/pods", "runtime": {"sharedNetwork": true}, "evictionHard": {}}' >"$root/etc/process.json"
chmod +x "$root/etc/start" "$root/etc/agent"
chmod -R go+rX "$root"
rm -f "$dir/root.img.new"
truncate -s $(($(du -sm "$root" | cut -f1) * 11 / 10 + 16))M "$dir/root.img.new"
mkfs.ext4 -q -F -m 0 -O ^has_journal -E root_owner=0:0 -d "$root" "$dir/root.img.new"

# Machines that run keep the files that they were started with.
cp "$dir"/kernel/boot/vmlinuz-* "$dir/vmlinuz.new"
for file in vmlinuz initrd root.img; do mv "$dir/$file.new" "$dir/$file"; done
echo "machine-image: $dir has $(basename "$dir"/kernel/boot/vmlinuz-*)"
