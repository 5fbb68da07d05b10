package image

import (
	"holdfast/worker/internal/keylock"
	"holdfast/worker/snapshot"
)

// lockName is a snapshot that only one import makes at a time. Other processes cannot have the store.
type lockName struct {
	store     *snapshot.Store
	namespace string
	key       string
}

var importLocks keylock.Locks[lockName]
