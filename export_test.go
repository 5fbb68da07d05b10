package holdfast

// LookForVacuum has the automatic vacuum look now, as its timer would, and tells whether it is to look again.
func (db *DB) LookForVacuum() (again bool) {
	db.auto.look()
	db.auto.mu.Lock()
	defer db.auto.mu.Unlock()
	return db.auto.wound
}
