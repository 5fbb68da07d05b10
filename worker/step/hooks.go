package step

// Points in a run at which tests look around, or end the process.
type point int

const (
	atPrepared  point = iota // the active snapshot is there
	atMounted                // and mounted
	atEnded                  // the command has ended
	atUnmounted              // the mount is gone
	atRecorded               // its record is written, and the snapshot is not committed
	atCommitted              // it is
)
