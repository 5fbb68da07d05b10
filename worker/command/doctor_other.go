//go:build !linux

package command

import "runtime"

func (d *checkup) system() {
	d.add("System", "kernel", stateMissing, runtime.GOOS+": mounting and importing are not supported there", "use Linux")
}
