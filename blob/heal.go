package blob

// VerifyStored says whether what is put is compared with what is stored of it: each chunk that is there already is read
// then, by Put, Writers and Ingests of this Store, and stored again if it is damaged or missing. Without it the
// index is believed, and nothing is read.
func (s *Store) VerifyStored(on bool) { s.verifies = on }

// unsound tells whether a chunk that the index has must be stored again when its bytes have come.
func (s *Store) unsound(k *chunkKey, e *entry) (bool, error) {
	if e.lost() || !s.verifies {
		return e.lost(), nil
	}
	x := takeExpanded()
	defer x.release()
	if _, err := s.loadWith(k, e, &x); err == nil {
		return false, nil
	}
	return true, s.damage()
}

// unknownParents are added to the count of a chunk that stored nodes name though the index did not have it,
// or as one that none names: how many do is not known. So it is not removed with the next of them; a repair
// counts anew.
const unknownParents = 1 << 40

// heal has a chunk stay that a stored node names, in a store that is damaged: its bytes have come, and are not given
// up with the node that they have come with, which is there already.
func (p *pending) heal(found bool) {
	if p.state&claimed != 0 && (!found || p.parents == 0) {
		p.parents += unknownParents
		p.state &^= unchanged
	}
}
