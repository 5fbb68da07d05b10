package step

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"holdfast/worker/snapshot"
)

// Network is what a step sees of the network.
type Network uint8

// Networks.
const (
	NetworkNone Network = 0 // a loopback device of its own
	NetworkHost Network = 1 // that of the machine
)

// User is who runs a command. The numbers are those of the process's user namespace.
type User struct {
	// Name is USER or USER:GROUP, names or numbers, as images and docker run --user have it. It is looked
	// up in /etc/passwd and /etc/group of the base when the step runs (symbolic links stay in the base; 4
	// MiB each at most): a user without a GROUP has the group of the first file, and is in those of the
	// second that list it; a USER that is a number and not there has the group 0. The other fields must be
	// zero then. What is part of the step's ID is this text.
	Name string

	UID, GID uint32
	Groups   []uint32 // further ones
}

// Mount is what a step sees beside its base. What is written to it is not part of the result.
type Mount struct {
	// Source is a directory or file of the host, "" for an empty tmpfs. If it is ReadOnly its content is
	// part of the step's ID, and its path is not. Otherwise the step is not cached: see Result.Uncached.
	Source string

	// Cache is, in place of a Source, the name of a cache: a directory of the store that stays from one
	// step to the next, and that steps with a cache of that name share as Sharing says. Only the name is part
	// of the step's ID: the result must not depend on what is in it.
	Cache   string
	Sharing Sharing

	// Target is where the step sees it; what is missing of the path is made, and stays in
	// the result as an empty directory or file. It is not "/", nor in /proc or /dev.
	Target   string
	ReadOnly bool
}

// Copy is what is copied from the host into the step's snapshot before its command begins, and so is part
// of the result. It belongs to root there. Its content, without owners and times, is part of the step's ID,
// and its path is not.
type Copy struct {
	// Source is a directory, whose content is copied, or a file.
	Source string

	// Target is the directory that gets the content of a directory besides what it has, or the file that is
	// made. If it ends with / a file gets into that directory under its own name. What is missing of the
	// path is made; symbolic links on the way lead nowhere out of the base.
	Target string
}

// DefaultPids is how many processes and threads a step can have at once that says nothing else: more than builds
// have, and a fraction of what a machine has numbers for.
const DefaultPids = 4096

// Limits bound a run; 0 is not a limit. They are not part of the ID: a result within wider limits is
// also a result within narrower ones.
type Limits struct {
	Memory int64         // bytes, of all processes together; swapping is off where the kernel can
	CPU    float64       // processors: 0.5 is half of one
	Pids   int64         // processes and threads at once; 0: DefaultPids, where the machine can limit them
	Time   time.Duration // from the start of the command to its end

	// Disk is how many bytes the result may take (as snapshot.Usage says) without its
	// parents. It is looked at before the commit, and now and then before, as the step runs: a
	// step may exceed it for short times. With project quotas the kernel refuses what is beyond.
	// It bounds inodes too: the result may have the part of them that goes with so many bytes of
	// the file system (disk.FS.Share), 10,000 at least, where the file system counts them.
	Disk int64
}

// Step says what to run. All but Limits, Hold, NoCache and Reserve is part of its ID: see the fields for what of them.
type Step struct {
	Base    string   // name of a committed snapshot
	Command []string // the first is a path, or is looked for in the PATH of Env in the base
	Env     []string // NAME=VALUE, each name once, in any order; nothing else is set
	Dir     string   // working directory, made if it is not there; "": /
	User    User
	Mounts  []Mount // in this order
	Copies  []Copy  // in this order, before the mounts
	Secrets []Secret
	Stdin   *os.File // a regular file of MaxStdin bytes at most, which stays as it is until Run returns; nil: the input is empty
	Network Network
	Limits  Limits

	// Runtime runs the command; nil: that of the Runner.
	Runtime Runtime

	// UserNamespaces can be UserNamespacesOff, where the Runner has them.
	UserNamespaces UserNamespaces

	// NewPrivileges has set-user-ID programs, and capabilities of files, of the base count that the command starts.
	// They get what root in the step has at most. With Native that takes a user namespace: without one it is
	// errors.ErrUnsupported. With Runc, which has none, it undoes what another User than root is good for.
	NewPrivileges bool

	// Labels are those of the result's snapshot, such as the configuration of an image that further steps
	// go by. Those that begin with "holdfast.step" are the Runner's.
	Labels map[string]string

	// Hold is how long the result stays for a further step on it though it could be pruned: see HoldLease. 0
	// is what the Runner has; negative: not at all. It is not part of the ID.
	Hold time.Duration

	// NoCache has the command run though there is a result. What it leaves takes the place of that result,
	// unless something stands on it.
	NoCache bool

	// Reserve is called when it is the step's turn to run, of Options.Concurrency, and what it returns when the step has run: for
	// what steps that wait do not need yet, as room on the disk. The step fails with its error; others that wait for the same step
	// then try theirs. ctx ends with the last that wants the step. It may be nil.
	Reserve func(ctx context.Context) (release func(), err error)
}

// ID is the hash of a step.
type ID [sha256.Size]byte

// String is the ID in hexadecimal.
func (id ID) String() string { return hex.EncodeToString(id[:]) }

// Names of snapshots.
const (
	// ResultPrefix begins the names of results.
	ResultPrefix = "step-"

	// RunPrefix begins the names of what runs. They come before those of results and of most others, so that what a crash
	// has left is found without reading all names.
	RunPrefix = "!run/"
)

// Snapshot is the name of the snapshot that the step's result is.
func (id ID) Snapshot() string { return ResultPrefix + id.String() }

func (id ID) running() string { return RunPrefix + id.String() }

// ParseSnapshot is the inverse of ID.Snapshot: ok is false if name is not that of a result.
func ParseSnapshot(name string) (id ID, ok bool) {
	text, ok := strings.CutPrefix(name, ResultPrefix)
	if !ok || len(text) != 2*len(id) || strings.ToLower(text) != text {
		return ID{}, false
	}
	b, err := hex.DecodeString(text)
	if err != nil {
		return ID{}, false
	}
	return ID(b), true
}

// MaxSize is how many bytes all texts of a step may have together.
const MaxSize = 1 << 20

// normalize verifies a step and returns it in the one form that all of its spellings have.
func (s Step) normalize() (Step, error) {
	if err := s.checkTexts(); err != nil {
		return s, err
	}
	if s.Base == "" {
		return s, invalidf("a step without a base")
	}
	if len(s.Command) == 0 || s.Command[0] == "" {
		return s, invalidf("a step without a command")
	}
	if s.Network > NetworkHost {
		return s, invalidf("network %d", s.Network)
	}
	l := s.Limits
	if l.Memory < 0 || !(l.CPU >= 0 && l.CPU <= 1<<20) || l.Pids < 0 || l.Time < 0 || l.Disk < 0 {
		return s, invalidf("limits %+v", l)
	}
	if s.Dir == "" {
		s.Dir = "/"
	}
	if !path.IsAbs(s.Dir) {
		return s, invalidf("working directory %q is not an absolute path", s.Dir)
	}
	s.Dir = path.Clean(s.Dir)
	var err error
	if s.Env, err = normalEnv(s.Env); err != nil {
		return s, err
	}
	s.Mounts, err = normalMounts(s.Mounts)
	if err == nil {
		s.Copies, err = normalCopies(s.Copies)
	}
	if err == nil {
		s.Secrets, err = normalSecrets(s.Secrets, s.Mounts)
	}
	if err == nil {
		s.Labels, err = normalLabels(s.Labels)
	}
	if err == nil {
		err = s.User.normalize()
	}
	if err == nil {
		err = s.checkStdin()
	}
	return s, err
}

func (s *Step) checkTexts() error {
	texts := slices.Concat([]string{s.Base, s.Dir, s.User.Name}, s.Command, s.Env)
	for _, m := range s.Mounts {
		texts = append(texts, m.Source, m.Cache, m.Target)
	}
	for _, c := range s.Copies {
		texts = append(texts, c.Source, c.Target)
	}
	for i := range s.Secrets {
		texts = append(texts, s.Secrets[i].ID, s.Secrets[i].Target)
	}
	for k, v := range s.Labels {
		texts = append(texts, k, v)
	}
	size := 0
	for _, t := range texts {
		size += len(t) + 1
		if strings.IndexByte(t, 0) >= 0 {
			return invalidf("a zero byte in %q", t)
		}
	}
	if size > MaxSize {
		return invalidf("a step of %d bytes, %d are possible", size, MaxSize)
	}
	return nil
}

func normalEnv(env []string) ([]string, error) {
	sorted := slices.Clone(env)
	slices.Sort(sorted)
	names := make(map[string]bool, len(env))
	for _, e := range sorted {
		name, _, ok := strings.Cut(e, "=")
		if !ok || name == "" {
			return nil, invalidf("environment %q is not NAME=VALUE", e)
		}
		if names[name] {
			return nil, invalidf("%s is twice in the environment", name)
		}
		names[name] = true
	}
	return sorted, nil
}

func normalMounts(mounts []Mount) ([]Mount, error) {
	clean := slices.Clone(mounts)
	for i := range clean {
		m := &clean[i]
		if !path.IsAbs(m.Target) || m.Source != "" && !path.IsAbs(m.Source) {
			return nil, invalidf("mount of %q at %q: not absolute paths", m.Source, m.Target)
		}
		if m.Cache != "" && m.Source != "" {
			return nil, invalidf("mount of %q at %q: it cannot be the cache %q, too", m.Source, m.Target, m.Cache)
		}
		if len(m.Cache) > snapshot.MaxNamespaceSize {
			return nil, invalidf("the name of a cache has %d bytes, %d are possible", len(m.Cache), snapshot.MaxNamespaceSize)
		}
		if err := normalCache(clean, i); err != nil {
			return nil, err
		}
		m.Target = path.Clean(m.Target)
		if m.Source != "" {
			m.Source = path.Clean(m.Source)
		}
		if m.Target == "/" {
			return nil, invalidf("a mount at /: it would hide the base; choose another target")
		}
		if err := notOwn("mount at", m.Target); err != nil {
			return nil, err
		}
	}
	return clean, nil
}

// notOwn is an error if a target is one of the file systems that each sandbox has for itself, or in one: there it would
// hide what hides the kernel's, or be hidden.
func notOwn(what, target string) error {
	for _, own := range []string{"/proc", "/dev", "/sys"} {
		if target == own || strings.HasPrefix(target, own+"/") {
			return invalidf("a %s %s: each step has a /proc, /dev and /sys of its own; choose another target", what, target)
		}
	}
	return nil
}

// normalCopies leaves the / at the end of a target: it says what that is.
func normalCopies(copies []Copy) ([]Copy, error) {
	clean := slices.Clone(copies)
	for i := range clean {
		c := &clean[i]
		if !path.IsAbs(c.Target) || !path.IsAbs(c.Source) {
			return nil, invalidf("copy of %q to %q: not absolute paths", c.Source, c.Target)
		}
		into := strings.HasSuffix(c.Target, "/")
		c.Source, c.Target = path.Clean(c.Source), path.Clean(c.Target)
		if err := notOwn("copy to", c.Target); err != nil {
			return nil, err
		}
		if into && c.Target != "/" {
			c.Target += "/"
		}
	}
	return clean, nil
}

// normalLabels are the labels that have a value.
func normalLabels(labels map[string]string) (map[string]string, error) {
	kept := map[string]string{}
	for k, v := range labels {
		if k == "" || strings.HasPrefix(k, labelPrefix) {
			return nil, invalidf("the label %q", k)
		}
		if v != "" {
			kept[k] = v
		}
	}
	return kept, nil
}

// path of the environment, where commands are looked for.
func (s *Step) searchPath() []string {
	for _, e := range s.Env {
		if v, ok := strings.CutPrefix(e, "PATH="); ok {
			return strings.Split(v, ":")
		}
	}
	return []string{"/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"}
}

func invalidf(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrInvalid, fmt.Sprintf(format, args...))
}
