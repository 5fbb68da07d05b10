package suite

// Group is a group of workloads with one table.
type Group struct {
	Name string
	Run  func(Config) (Table, error)
}

// A new benchmark is a function of Config that gives a Table, in a file of its own, and a line in one of
// these lists: of bench, bench-commit, bench-share, bench-vacuum or bench-blob.

// Groups are those of bench.
var Groups = []Group{
	{"read", Read},
	{"readers", Readers},
	{"write", Write},
	{"load", Load},
	{"aged", Aged},
	{"grow", Growing},
	{"compact", Compact},
}

// CommitGroups are those about commits, opening and what both need, and of modes of Holdfast; each
// has targets.
var CommitGroups = []Group{
	{"emptied", Emptied},
	{"age", Age},
	{"opening", Opening},
	{"writers", Writers},
	{"readers", Readers},
	{"free", FreePages},
	{"relaxed", Relaxed},
	{"seals", Seals},
}

// SharedGroups are those about databases that other processes read. Each has targets.
var SharedGroups = []Group{
	{"shared-cost", SharedCost},
	{"shared-copy", SharedCopy},
	{"shared-get", SharedGet},
}

// VacuumGroups are those about vacuum. Each has targets.
var VacuumGroups = []Group{
	{"vacuum-emptied", VacuumEmptied},
	{"vacuum-thinned", VacuumThinned},
	{"vacuum-loose", VacuumLoose},
	{"vacuum-offline", VacuumOffline},
}

// BlobGroups are those about blobs. Each has targets.
var BlobGroups = []Group{
	{"blob-write", BlobWrite},
	{"blob-bytes", BlobBytes},
	{"blob-rows", BlobRows},
	{"blob-memory", BlobMemory},
	{"blob-read", BlobRead},
	{"blob-remove", BlobRemove},
	{"blob-small", BlobSmall},
}
