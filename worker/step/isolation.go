package step

// Isolation is what a runtime puts between steps and this machine.
type Isolation struct {
	Runtime string   // its name
	Err     error    // why it cannot be had; nil
	Has     []string // what it has here
	Lacks   []string // what it could have on another machine, each with the reason
}
