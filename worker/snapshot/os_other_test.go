//go:build !linux

package snapshot_test

import (
	"testing"

	"holdfast/worker/snapshot"
)

const deferredWorks = false

// repairRoot is not used: directories cannot be exchanged.
const repairRoot = "SNAPSHOT_REPAIR_ROOT"

func repairVictim(string, string) error { return snapshot.ErrUnsupported }

// machineVariable is not used: machines have Linux.
const machineVariable = "SNAPSHOT_MACHINE"

func inMachine(*testing.M, string) int { return 1 }
