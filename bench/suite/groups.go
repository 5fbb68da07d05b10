package suite

// Group is a group of workloads with one table.
type Group struct {
	Name string
	Run  func(Config) (Table, error)
}

// Groups are all groups.
var Groups = []Group{
	{"read", Read},
	{"readers", Readers},
	{"write", Write},
	{"load", Load},
	{"aged", Aged},
	{"grow", Growing},
	{"compact", Compact},
}

// CommitGroups are those about commits, opening and what both need; each has
// targets.
func CommitGroups() []Group {
	return append([]Group{
		{"emptied", Emptied},
		{"age", Age},
		{"opening", Opening},
		{"writers", Writers},
		{"readers", Readers},
		{"free", FreePages},
	}, modeGroups...)
}
