package program

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"holdfast/bench/suite"
	"holdfast/internal/vfs"
)

// options are what the command line says.
type options struct {
	args     []string // of the command line
	config   suite.Config
	names    []string // of groups; none: all
	document string   // whose tables are replaced, if any
	json     bool
}

func (p *Program) parse(args []string) (*options, error) {
	f := flag.NewFlagSet(p.Name, flag.ContinueOnError)
	full := f.Bool("full", false, "the sizes of the documentation")
	keys := f.Int("keys", 0, "keys of the large database")
	rounds := f.Int("rounds", 0, "rounds of each workload")
	loads := f.Int("loads", 0, "rounds of bulk loading")
	emptied := f.Int64("emptied", 0, "MiB put into the file that is emptied")
	thinned := f.Int64("thinned", 0, "MiB of the file of which four fifths are deleted at random")
	live := f.String("live", "", "MiB of data in the files that are opened, such as 100,1024")
	writers := f.String("writers", "", "goroutines that commit at once, such as 1,8,64")
	length := f.Duration("time", 0, "of one measurement")
	dir := f.String("dir", "", "where to put the databases; default: the temporary directory, or /var/tmp if that one is in memory")
	update := f.String("update", "", "a document whose tables, between <!-- bench GROUP --> and <!-- end -->, are replaced")
	asJSON := f.Bool("json", false, "print JSON in place of tables")
	verbose := f.Bool("v", false, "say what is being done")
	if err := f.Parse(args); err != nil {
		return nil, err
	}
	c := p.Quick
	if *full {
		c = p.Full
	}
	override(&c.Keys, *keys)
	override(&c.Rounds, *rounds)
	override(&c.Loads, *loads)
	override(&c.Emptied, *emptied<<20)
	override(&c.Thinned, *thinned<<20)
	override(&c.Time, *length)
	if *live != "" {
		var err error
		if c.Live, err = sizes(*live); err != nil {
			return nil, err
		}
	}
	if *writers != "" {
		counts, err := numbers(*writers)
		if err != nil {
			return nil, err
		}
		c.Writers = counts
	}
	if *verbose {
		c.Log = os.Stderr
	}
	if c.Dir = *dir; c.Dir == "" {
		c.Dir = vfs.TempDir()
	}
	c.CommitPeers = p.CommitPeers
	for _, name := range f.Args() {
		if !slices.ContainsFunc(p.Groups, func(g suite.Group) bool { return g.Name == name }) {
			return nil, fmt.Errorf("there is no group %q", name)
		}
	}
	return &options{args: args, config: c, names: f.Args(), document: *update, json: *asJSON}, nil
}

// override sets what was asked for.
func override[T int | int64 | time.Duration](field *T, value T) {
	if value > 0 {
		*field = value
	}
}

// sizes reads numbers of MiB with commas between.
func sizes(list string) (bytes []int64, err error) {
	all, err := numbers(list)
	for _, n := range all {
		bytes = append(bytes, int64(n)<<20)
	}
	return bytes, err
}

// numbers reads positive numbers with commas between.
func numbers(list string) (all []int, err error) {
	for part := range strings.SplitSeq(list, ",") {
		n, err := strconv.ParseInt(strings.TrimSpace(part), 10, 32)
		if err != nil || n <= 0 {
			return nil, fmt.Errorf("invalid number %q in %q", part, list)
		}
		all = append(all, int(n))
	}
	return all, nil
}
