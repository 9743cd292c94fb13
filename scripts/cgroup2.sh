#!/usr/bin/env bash
# Runs the tests of control groups in a virtual machine whose kernel (Debian's) has all
# controllers in version 2: on a machine with version 1, or a mixture, they have nothing
# to test there. The machine is emulated, since not every host that has /dev/kvm can run
# a kernel with it. Usage: cgroup2.sh DIR, where DIR keeps the kernel.
set -euo pipefail
cd "$(dirname "$0")/.."
dir=$1
[ "$(uname -m)" = x86_64 ] || { echo "cgroup2: only the kernel for amd64 is known here" >&2; exit 1; }
mkdir -p "$dir"
dir=$(realpath "$dir")

if ! ls "$dir"/kernel/boot/vmlinuz-* >/dev/null 2>&1; then
	package=$(apt-cache depends linux-image-cloud-amd64 | awk '/Depends: linux-image-[0-9]/ { print $2; exit }')
	(cd "$dir" && rm -f linux-image-*.deb && apt-get download -q -o APT::Sandbox::User=root "$package" && dpkg-deb -x linux-image-*.deb kernel && rm linux-image-*.deb)
fi

root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
mkdir -p "$root"/{bin,dev,etc,init.d,mnt,proc,run,sys,test,tmp,usr/bin,var/lib}
cp "$(command -v busybox)" "$root/bin/busybox"
for applet in $(busybox --list | grep -vx busybox); do ln -s busybox "$root/bin/$applet"; done
ln -s ../../bin/env "$root/usr/bin/env"
printf 'root:x:0:0::/:/bin/sh\nnobody:x:65534:65534::/:/bin/sh\n' >"$root/etc/passwd"
printf 'root:x:0:\nnogroup:x:65534:\n' >"$root/etc/group"
CGO_ENABLED=0 "${GO:-go}" test -c -o "$root/test/cgroup.test" ./providers/process/runtime/internal/cgroup
CGO_ENABLED=0 "${GO:-go}" test -c -o "$root/test/runtime.test" ./providers/process/runtime
cat >"$root/init" <<'INIT'
#!/bin/sh
# The first root of a kernel cannot be left by pivot_root, which containers do.
if [ ! -e /moved ]; then
	mount -t tmpfs root /mnt
	cp -a bin etc init test usr var /mnt
	mkdir /mnt/dev /mnt/mnt /mnt/proc /mnt/run /mnt/sys /mnt/tmp
	touch /mnt/moved
	mount -t devtmpfs dev /mnt/dev
	exec switch_root -c /dev/console /mnt /init
fi
mount -t proc proc /proc
mount -t sysfs sys /sys
mkdir /dev/pts /dev/shm
mount -t devpts -o ptmxmode=666 devpts /dev/pts
mount -t tmpfs -o mode=1777 shm /dev/shm
mount -t cgroup2 none /sys/fs/cgroup
chmod 1777 /tmp
ip link set lo up
export HOME=/ PATH=/bin:/usr/bin
cd /test
dmesg -n 1
echo
echo "kernel $(uname -r), controllers: $(cat /sys/fs/cgroup/cgroup.controllers)"
./cgroup.test -test.v
echo "cgroup ended with $?"
./runtime.test -test.v -test.run '^(TestStats|TestMemoryLimit|TestSwap|TestLimitsThatCannotBeAppliedRefuseTheContainer|TestLimitsWithoutControlGroups|TestHostileForkBombAsRoot|TestKilledAtAnyMoment)$'
echo "runtime ended with $?"
poweroff -f
INIT
chmod +x "$root/init"
(cd "$root" && find . | cpio -o -H newc --quiet | gzip -1) >"$dir/initrd.gz"

# Starts the machine, and returns when its init has begun: whether it has, as the boot of
# an emulated kernel whose host is busy can fail, which says nothing about the tests.
boot() {
	: >"$dir/log"
	timeout -k 20 900 qemu-system-x86_64 -M q35 -accel tcg,thread=multi -cpu max -m 3G -smp 2 -display none -no-reboot -serial "file:$dir/log" \
		-kernel "$dir"/kernel/boot/vmlinuz-* -initrd "$dir/initrd.gz" \
		-append "console=ttyS0 cgroup_no_v1=all no_timer_check panic=-1" </dev/null &
	machine=$!
	for _ in {1..300}; do
		if grep -aq '^kernel [0-9]' "$dir/log"; then return 0; fi
		kill -0 "$machine" 2>/dev/null || return 1
		sleep 1
	done
	kill "$machine"
	wait "$machine"
	return 1
}
failed() {
	tail -n 40 "$dir/log" >&2
	echo "cgroup2: $1; all that the machine said is in $dir/log" >&2
	exit 1
}
machine=
trap 'kill $machine 2>/dev/null || true; rm -rf "$root"' EXIT
boot || boot || boot || failed "the machine did not start, in three attempts"
wait "$machine" || true
sed -i 's/\r$//' "$dir/log"
grep -aE '^(kernel [0-9]| *--- |panic|(cgroup|runtime) ended| .*_test\.go:)' "$dir/log" || true
grep -aqx 'cgroup ended with 0' "$dir/log" && grep -aqx 'runtime ended with 0' "$dir/log" || failed "tests failed, or did not come to an end"
