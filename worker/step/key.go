package step

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"

	"holdfast/worker/internal/fstree"
	"holdfast/worker/internal/idmap"
	"holdfast/worker/snapshot"
)

// Labels of results.
const (
	labelPrefix = "holdfast.step"

	// LabelVersion is the version of the encoding of which the ID in the result's name is.
	LabelVersion = labelPrefix + ".version"

	// LabelLocal is on results that stand on a snapshot of which only this store knows what it is: no other
	// store ever has a result of that name.
	LabelLocal = labelPrefix + ".local"

	// LabelUncached says why the result is not a hit for the same step.
	LabelUncached = labelPrefix + ".uncached"

	// LabelContent says what the result is with its base by content, for a RemoteCache: see ContentOf. It is on
	// results that were exported or fetched.
	LabelContent = labelPrefix + ".content"

	// LabelExport is on results that a RemoteCache is going to export, or never will.
	LabelExport = labelPrefix + ".export"
)

// Values of LabelExport.
const (
	ExportPending = "pending"
	ExportNever   = "never" // other stores cannot have it the same
)

// encodingVersion is the version of what is hashed, of the way in which steps are run as far as
// results depend on it, and the first byte of it.
const encodingVersion = 2

// Kinds of mounts in the encoding.
const (
	keyTmpfs = iota
	keySource
	keyCache
	keyWritable
)

// What only some steps have in the encoding.
const (
	keySecrets = iota + 1
	keyStdin
	keyNewPrivileges
)

// inputs is what a step is made from, by content.
type inputs struct {
	base    string       // its identity
	runtime string       // its name, and what else of it changes results
	mounts  []fstree.Sum // of each mount; zero of those that have no content
	copies  []fstree.Sum // of each copy
	targets []string     // of each copy: where it goes
	stdin   input
}

// id is the cache key: the hash of a normalized step (Step.normalize) with its inputs. Whoever changes what is hashed
// raises encodingVersion.
func (s *Step) id(in *inputs) ID {
	b := append([]byte("holdfast step"), 0, encodingVersion)
	b = appendText(b, in.base)
	b = appendTexts(b, s.Command)
	b = appendTexts(b, s.Env)
	b = appendText(b, s.Dir)
	b = appendText(b, s.User.Name)
	b = binary.AppendUvarint(b, uint64(s.User.UID))
	b = binary.AppendUvarint(b, uint64(s.User.GID))
	b = binary.AppendUvarint(b, uint64(len(s.User.Groups)))
	for _, g := range s.User.Groups {
		b = binary.AppendUvarint(b, uint64(g))
	}
	b = appendText(b, in.runtime)
	b = append(b, byte(s.Network))
	b = binary.AppendUvarint(b, uint64(len(s.Mounts)))
	for i, m := range s.Mounts {
		b = m.appendKey(b, in.mounts[i])
	}
	b = binary.AppendUvarint(b, uint64(len(s.Copies)))
	for i, sum := range in.copies {
		b = append(appendText(b, in.targets[i]), sum[:]...)
	}
	b = binary.AppendUvarint(b, uint64(len(s.Labels)))
	for _, k := range slices.Sorted(maps.Keys(s.Labels)) {
		b = appendText(appendText(b, k), s.Labels[k])
	}
	// What not all steps have comes after a byte that says what it is: the others keep their IDs.
	if len(s.Secrets) > 0 {
		b = appendSecretsKey(append(b, keySecrets), s.Secrets)
	}
	if s.Stdin != nil {
		b = in.stdin.appendKey(append(b, keyStdin))
	}
	if s.NewPrivileges {
		b = append(b, keyNewPrivileges)
	}
	return sha256.Sum256(b)
}

func (m *Mount) appendKey(b []byte, sum fstree.Sum) []byte {
	flag := byte(0)
	if m.ReadOnly {
		flag = 1
	}
	b = append(appendText(b, m.Target), flag)
	switch {
	case m.Cache != "":
		return appendText(append(b, keyCache), m.Cache)
	case m.Source == "":
		return append(b, keyTmpfs)
	case m.ReadOnly:
		return append(append(b, keySource), sum[:]...)
	}
	return appendText(append(b, keyWritable), m.Source)
}

func appendText(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

func appendTexts(b []byte, list []string) []byte {
	b = binary.AppendUvarint(b, uint64(len(list)))
	for _, s := range list {
		b = appendText(b, s)
	}
	return b
}

// unique is an ID that no other run has.
func (id ID) unique() ID {
	b := append([]byte("holdfast run\x00"), id[:]...)
	return sha256.Sum256(append(b, rand.Text()...))
}

// identity says what a base is by content. local: the text is of this store alone.
func identity(base snapshot.Info, store [storeIDSize]byte) (text string, local bool) {
	if id, ok := ParseSnapshot(base.Name); ok && base.Labels[LabelVersion] == strconv.Itoa(encodingVersion) {
		return "step " + id.String(), base.Labels[LabelLocal] != ""
	}
	if content := base.Labels[snapshot.LabelContent]; content != "" {
		return "content " + content, false
	}
	return fmt.Sprintf("local %s %d", hex.EncodeToString(store[:]), base.ID), true
}

// plan is what there is to know of a step before it runs.
type plan struct {
	step     *Step
	id       ID // of what it is
	run      ID // under which it runs: id, or one of this run alone
	uncached string
	local    bool
	way      *way
	ids      idmap.Map // that it has outside; none: it has no user namespace
	mounts   []source  // of each mount; without a path if it has no content
	copies   []source
	targets  []string
	stdin    input
}

// plan finds out what a step is. The step is normalized.
func (r *Runner) plan(ctx context.Context, s *Step) (*plan, error) {
	base, err := r.opt.Namespace.Stat(ctx, s.Base)
	if err == nil && base.Kind != snapshot.Committed {
		err = fmt.Errorf("snapshot %q: %w: %v, not committed", s.Base, snapshot.ErrKind, base.Kind)
	}
	if err != nil {
		return nil, fmt.Errorf("step: base: %w", err)
	}
	w, err := r.wayOf(s)
	if err != nil {
		return nil, err
	}
	p := &plan{step: s, way: w, ids: w.idsFor(&s.User), mounts: make([]source, len(s.Mounts)), copies: make([]source, len(s.Copies)), targets: make([]string, len(s.Copies))}
	in := inputs{runtime: w.runtimeKey(p.ids), mounts: make([]fstree.Sum, len(s.Mounts)), copies: make([]fstree.Sum, len(s.Copies)), targets: p.targets}
	in.base, p.local = identity(base, r.results.store)
	for i, m := range s.Mounts {
		if m.Source == "" {
			continue
		}
		if err := r.planMount(ctx, p, i, &m); err != nil {
			return nil, fmt.Errorf("step: mount at %s: %w", m.Target, err)
		}
		in.mounts[i] = p.mounts[i].seen()
	}
	for i, c := range s.Copies {
		if err := r.planCopy(ctx, p, i, &c); err != nil {
			return nil, fmt.Errorf("step: copy to %s: %w", c.Target, err)
		}
		in.copies[i] = p.copies[i].sum
	}
	if p.stdin, err = lookAtStdin(ctx, s.Stdin); err != nil {
		return nil, err
	}
	in.stdin = p.stdin
	p.id = s.id(&in)
	p.run = p.id
	if s.NoCache || p.uncached != "" {
		p.run = p.id.unique()
	}
	return p, nil
}

func (r *Runner) planMount(ctx context.Context, p *plan, i int, m *Mount) error {
	if err := r.outsideStore(m.Source); err != nil {
		return err
	}
	if !m.ReadOnly {
		p.notCached(m.Target + " can be written")
		return nil
	}
	shown := make(chan error, 1)
	go func() { shown <- r.canShow(m.Source, p.ids) }() // the kernel takes its time to forget that it was asked
	found, err := r.look(ctx, m.Source, false)
	showErr := <-shown
	found.unmapped = errors.Is(showErr, errors.ErrUnsupported)
	if err == nil && !found.unmapped {
		err = showErr
	}
	if err != nil {
		return err
	}
	p.mounts[i] = found
	if found.unknown != nil {
		p.notCached(fmt.Sprintf("of %s not all is known: %v", m.Target, found.unknown))
	}
	return nil
}

func (r *Runner) planCopy(ctx context.Context, p *plan, i int, c *Copy) error {
	if err := r.outsideStore(c.Source); err != nil {
		return err
	}
	found, err := r.look(ctx, c.Source, true)
	if err == nil {
		err = found.unknown
	}
	if err != nil {
		return err
	}
	p.copies[i], p.targets[i] = found, c.Target
	switch {
	case found.dir:
		p.targets[i] = path.Clean(c.Target)
	case c.Target == "/" || strings.HasSuffix(c.Target, "/"):
		p.targets[i] = path.Join(c.Target, path.Base(c.Source))
	}
	return nil
}

// seen is the content of a source as a step finds it. Where ids cannot be mapped it finds other owners, and
// what it may read differs.
func (s *source) seen() fstree.Sum {
	if !s.unmapped {
		return s.sum
	}
	return sha256.Sum256(append([]byte("holdfast unmapped\x00"), s.sum[:]...))
}

// notCached says why a step is not cached. The first reason counts.
func (p *plan) notCached(why string) {
	if p.uncached == "" {
		p.uncached = why
	}
}

// labels are those of the result.
func (p *plan) labels(uncached string) map[string]string {
	all := maps.Clone(p.step.Labels)
	all[LabelVersion] = strconv.Itoa(encodingVersion)
	all[LabelUncached] = uncached
	all[LabelCommand] = CommandText(p.step.Command)
	if p.local {
		all[LabelLocal] = "true"
	}
	return all
}
