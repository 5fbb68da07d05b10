package check

// compare reports that some page is stale: each run has its seal, and all fit each other, but they are not
// those of the state. (Of a state whose sum is known each run had a fingerprint: one that has none is no better than one that has
// another.) It says nothing if something else is known to be wrong that the sum shows too.
func (c *checker) compare() {
	if c.unread || c.faulty || c.stopped || !c.in.Sum.Known || c.sum == c.in.Sum {
		return
	}
	c.fault(c.in.Meta.Root, "the checksums of all pages do not add up to what the last commit has recorded: some pages are stale; "+
		"the file is a copy of one in use, or the disk has lost writes")
}
