#!/bin/busybox sh
# The first program of a virtual machine. It runs /command with the second serial
# port as its terminal, says there how it ended, and switches the machine off.
/bin/busybox --install -s /bin
export PATH=/programs:/bin HOME=/root TMPDIR=/tmp
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mount -t tmpfs tmp /tmp
while read -r module; do
	insmod "$module" || echo "insmod $module failed"
done </modules
stty raw -echo </dev/ttyS1
echo "machine: ready" >/dev/ttyS1
sh /command </dev/ttyS1 >/dev/ttyS1 2>&1
echo "machine: exit $?" >/dev/ttyS1
poweroff -f
