// Package vm runs programs on a kernel of its own, in a virtual machine whose
// power can be cut.
//
// QEMU emulates the machine (no KVM, no root). Its kernel is Debian's
// linux-image-cloud-amd64, unpacked and not installed: scripts/vm-kernel does
// that. Its root is an initramfs of busybox, the modules that were asked for,
// and programs of the host with their libraries. A command runs in it and writes
// to a serial port; kernel messages go to another one.
//
// Cut kills QEMU. What the guest had in its memory is gone: page cache, journals,
// programs. What a virtual disk has been given, it keeps; disks are files of the
// host. A disk that loses writes, too, that it has been given and not been told to
// flush is made by dm-log-writes, see Log.
//
//	HOLDFAST_VM=dir        the unpacked kernel; bin/vm/kernel of the repository otherwise
//	HOLDFAST_VM_NEEDED=1   tests fail where they would be skipped
//	HOLDFAST_SEED=n        the random choices of this run only
//	HOLDFAST_SOAK=10m      each random test for that long
package vm
