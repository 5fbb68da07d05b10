package command

// WhileLocked has fn called in place of the rest before a store that is locked is tried again.
func WhileLocked(fn func()) (restore func()) {
	before := lockWait
	lockWait = fn
	return func() { lockWait = before }
}
