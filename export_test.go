package holdfast

import "time"

// LookForVacuum has the automatic vacuum look now, as its timer would, and tells whether it is to look again.
func (db *DB) LookForVacuum() (again bool) {
	db.auto.look()
	db.auto.mu.Lock()
	defer db.auto.mu.Unlock()
	return db.auto.wound
}

// WarnAfter has a writer that waits that long for the writer lock tell the log.
func (db *DB) WarnAfter(d time.Duration) { db.waits.after = d }

// FireAfterWait has the timer of a writer look once its wait has ended, as it does that had begun to before,
// and tells whether it is to look again.
func (db *DB) FireAfterWait(meanwhile func()) (again bool) {
	one := db.newWait()
	meanwhile()
	one.end()
	return one.look()
}

// HasSum tells whether the file says what the seals of the transaction's state add up to.
func HasSum(tx *Tx) bool { return tx.state.Sum.Known }
