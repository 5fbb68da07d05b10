//go:build !linux

package snapshot_test

import "holdfast/worker/snapshot"

const deferredWorks = false

// repairRoot is not used: directories cannot be exchanged.
const repairRoot = "SNAPSHOT_REPAIR_ROOT"

func repairVictim(string, string) error { return snapshot.ErrUnsupported }
