package image

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"maps"
	"strings"
	"syscall"
	"time"

	"github.com/opencontainers/go-digest"
	v1 "github.com/opencontainers/image-spec/specs-go/v1"

	"holdfast/worker/mount"
	"holdfast/worker/snapshot"
)

// importing begins the names of snapshots that are being extracted.
const importing = "importing "

// leaseTime is how long the snapshots of an import are held: should it be killed, they can be
// pruned after that.
const leaseTime = 24 * time.Hour

// importer is one import.
type importer struct {
	ctx       context.Context
	namespace *snapshot.Namespace
	o         Options
	lease     string
	budget    *budget
	made      []string // snapshots, the lowest first
	result    Result
}

// incoming is a layer that may have to be extracted.
type incoming struct {
	layer       Layer // with Snapshot and DiffID, if they are known before it is read
	parent      string
	descriptor  *v1.Descriptor // of the blob, nil if there is none
	compression compression
	open        func() (io.ReadCloser, error)
	made        int64 // device nodes
}

func begin(ctx context.Context, namespace *snapshot.Namespace, o Options) (*importer, error) {
	im := &importer{ctx: ctx, namespace: namespace, o: o, lease: "import-" + rand.Text(), budget: &budget{limits: o.Limits.filled()}}
	if o.Progress == nil {
		im.o.Progress = &Progress{}
	}
	if o.Name != "" {
		if err := CheckName(o.Name); err != nil {
			return nil, err
		}
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return im, im.sweep()
}

// sweep removes what imports have left whose process was killed. Others than of this process cannot be under way: the
// store is open.
func (im *importer) sweep() error {
	var left []string
	err := im.namespace.WalkPrefix(im.ctx, importing, func(i snapshot.Info) error {
		if i.Kind == snapshot.Active {
			left = append(left, i.Name)
		}
		return nil
	})
	for _, name := range left {
		end, _ := importLocks.Try(im.lockOf(name))
		if end == nil { // it is being made
			continue
		}
		if e := im.drop(name); !errors.Is(e, snapshot.ErrInUse) { // it is in use
			err = errors.Join(err, e)
		}
		end()
	}
	return err
}

// lockOf names the lock of the snapshot with a name.
func (im *importer) lockOf(name string) lockName {
	return lockName{im.namespace.Store(), im.namespace.Name(), name}
}

// finish ends an import: of one that failed nothing stays.
func (im *importer) finish(err error) (*Result, error) {
	ctx := context.WithoutCancel(im.ctx)
	release := func() error {
		err := im.namespace.ReleaseAll(ctx, im.lease)
		if errors.Is(err, snapshot.ErrNotFound) {
			err = nil
		}
		return err
	}
	if err == nil {
		if err = im.name(); err == nil {
			return &im.result, release()
		}
	}
	errs := []error{err, release()}
	for i := len(im.made) - 1; i >= 0; i-- {
		// What is a parent already stays.
		if err := im.drop(im.made[i]); err != nil && !errors.Is(err, snapshot.ErrInUse) {
			errs = append(errs, err)
		}
	}
	return nil, errors.Join(errs...)
}

// image imports the layers of an image.
func (im *importer) image(l *layout, chosen *image) error {
	for _, d := range chosen.manifest.Layers {
		im.o.Progress.total.Add(d.Size)
	}
	im.result.Image, im.result.Ref, im.result.Platform = chosen.descriptor.Digest, chosen.ref, chosen.platform.String()
	im.result.Config = configOf(chosen.config.Config)
	if err := im.tell(l, chosen); err != nil {
		return err
	}
	parent := ""
	for i, d := range chosen.manifest.Layers {
		in := &incoming{
			layer:  Layer{Snapshot: chosen.chain[i].String(), DiffID: chosen.config.RootFS.DiffIDs[i], Digest: d.Digest, Size: d.Size},
			parent: parent, descriptor: &d, compression: layerTypes[d.MediaType],
			open: func() (io.ReadCloser, error) { return l.blob(d) },
		}
		if err := im.one(in); err != nil {
			return fmt.Errorf("layer %d of %d (%s): %w", i+1, len(chosen.manifest.Layers), d.Digest, err)
		}
		parent = in.layer.Snapshot
	}
	return nil
}

// digest reads an archive for its digest.
func (im *importer) digest(r io.Reader) (digest.Digest, error) {
	s := &source{ctx: im.ctx, r: r, seen: &im.o.Progress.read}
	b, end, err := decompress(s, compressAuto, im.budget.limits)
	if err != nil {
		return "", err
	}
	defer end()
	hash := digest.SHA256.Digester()
	_, err = io.Copy(hash.Hash(), b)
	return hash.Digest(), err
}

// one imports one layer, unless it is there.
func (im *importer) one(in *incoming) error {
	key := importing + rand.Text()
	if in.layer.Snapshot != "" {
		key = importing + in.layer.Snapshot
	}
	end, err := importLocks.Lock(im.ctx, im.lockOf(key))
	if err != nil {
		return err
	}
	defer end()
	if in.layer.Snapshot != "" {
		unusable, err := im.hold(in)
		if err == nil {
			return im.existing(in, unusable)
		}
		if !errors.Is(err, snapshot.ErrNotFound) {
			return err
		}
	}
	// No other import makes it now: one that is there is of a process that was killed.
	if err := im.drop(key); err != nil {
		return err
	}
	if err := im.extract(in, key); err != nil {
		return errors.Join(err, im.drop(key))
	}
	return im.commit(in, key)
}

// drop removes a snapshot that need not be there.
func (im *importer) drop(name string) error {
	err := im.namespace.Remove(context.WithoutCancel(im.ctx), name)
	if errors.Is(err, snapshot.ErrNotFound) {
		return nil
	}
	return err
}

// hold takes the lease on the snapshot of a layer, which may not be fit for use; ErrNotFound if it is not there.
func (im *importer) hold(in *incoming) (unusable, err error) {
	info, err := im.namespace.Stat(im.ctx, in.layer.Snapshot)
	if err == nil {
		err = im.namespace.Lease(im.ctx, im.lease, in.layer.Snapshot, leaseTime)
	}
	switch {
	case err != nil:
		return nil, err
	case info.Kind != snapshot.Committed || info.Parent != in.parent:
		return nil, fmt.Errorf("snapshot %q: %w: %v on %q, which no import has made; remove it", info.Name, ErrNotBase, info.Kind, info.Parent)
	}
	if err := im.fits(in, info); err != nil {
		return nil, err
	}
	return im.namespace.Store().Unusable(&info), nil
}

// existing is for a layer that is there, and held.
func (im *importer) existing(in *incoming, unusable error) (err error) {
	in.layer.Existed = true
	switch {
	case unusable == nil:
		im.o.Progress.read.Add(in.layer.Size)
	case im.o.Repair:
		err = im.repair(in)
	default:
		err = fmt.Errorf("snapshot %q: %w", in.layer.Snapshot, unusable)
	}
	if err == nil {
		im.note(in)
	}
	return err
}

// repair extracts a layer that is there again, if it is damaged. It is held.
func (im *importer) repair(in *incoming) error {
	o := snapshot.RepairOptions{
		Fill: func(_ context.Context, mounts []mount.Mount) error { return im.fill(in, mounts) },
		// Import has mounted no view, and who builds on a base prepares a snapshot.
		Unused: func(i snapshot.Info) bool { return i.Labels[LabelBase] != "" },
	}
	if im.o.Mounts != nil {
		o.Forget = im.o.Mounts.Forget
	}
	err := im.namespace.Repair(im.ctx, in.layer.Snapshot, o)
	in.layer.Repaired = err == nil
	return err
}

func (im *importer) note(in *incoming) {
	im.result.Layers = append(im.result.Layers, in.layer)
	im.result.Snapshot = in.layer.Snapshot
	im.result.LeftOut.add(in.layer.LeftOut)
}

// extract makes the snapshot key of a layer. When it fails, key may be there or not.
func (im *importer) extract(in *incoming, key string) error {
	mounts, err := im.namespace.Prepare(im.ctx, key, in.parent)
	if err != nil {
		return err
	}
	return im.fill(in, mounts)
}

// fill extracts a layer into what mounts show of a prepared snapshot.
func (im *importer) fill(in *incoming, mounts []mount.Mount) error {
	r, err := in.open()
	if err != nil {
		return err
	}
	defer r.Close()
	t, root, err := openTree(im.ctx, mounts, in.parent != "", im.o.Mounts, &in.layer.LeftOut, im.budget)
	if err != nil {
		return err
	}
	defer t.close()
	err = im.unpack(in, t, r)
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		err = errors.Join(err, empty(root)) // removing the snapshot takes some room
	}
	return err
}

// unpack extracts what is read from r, and verifies it.
func (im *importer) unpack(in *incoming, t *tree, r io.Reader) error {
	blob := digest.SHA256
	if in.descriptor != nil {
		blob = in.descriptor.Digest.Algorithm()
		r = io.LimitReader(r, in.descriptor.Size+1)
	}
	packed := blob.Digester()
	diffs := digest.SHA256
	if in.layer.DiffID != "" {
		diffs = in.layer.DiffID.Algorithm()
	}
	plain := diffs.Digester()
	s := &source{ctx: im.ctx, r: io.TeeReader(r, packed.Hash()), seen: &im.o.Progress.read}
	b, end, err := decompress(s, in.compression, im.budget.limits)
	if err != nil {
		return im.lied(in, s, packed, err)
	}
	defer end()
	x := &extraction{
		ctx: im.ctx, tree: t, devices: im.o.Devices, budget: im.budget,
		noImage: in.descriptor == nil && im.o.Format == FormatAuto, noEmpty: in.descriptor == nil, // layers of images may be empty
	}
	err = x.run(io.TeeReader(b, plain.Hash()))
	in.layer.LeftOut.add(x.left)
	in.made = x.made
	if err != nil {
		return im.lied(in, s, packed, err)
	}
	if _, err := io.Copy(io.Discard, s); err != nil { // what the decompressor did not want
		return err
	}
	if in.descriptor != nil {
		if err := verify(*in.descriptor, s.n, packed.Digest()); err != nil {
			return err
		}
	}
	got := plain.Digest()
	if in.layer.DiffID != "" && got != in.layer.DiffID {
		return fmt.Errorf("%w: its content has the digest %s, and should have %s", ErrDigest, got, in.layer.DiffID)
	}
	if in.layer.DiffID == "" {
		in.layer.DiffID, in.layer.Snapshot, in.layer.Size = got, got.String(), s.n
	}
	return nil
}

// lied adds to an error of reading a blob that the blob is not what was promised, if so.
func (im *importer) lied(in *incoming, s *source, packed digest.Digester, err error) error {
	if in.descriptor == nil || !errors.Is(err, ErrFormat) {
		return err
	}
	if _, rest := io.Copy(io.Discard, s); rest != nil {
		return err
	}
	return errors.Join(verify(*in.descriptor, s.n, packed.Digest()), err)
}

// commit gives the snapshot key its name.
func (im *importer) commit(in *incoming, key string) error {
	content, err := im.content(in)
	if err != nil {
		return errors.Join(err, im.drop(key))
	}
	labels := map[string]string{snapshot.LabelContent: content}
	if in.layer.LeftOut != (LeftOut{}) {
		labels[labelLeftOut] = in.layer.LeftOut.label()
	}
	if in.made > 0 {
		labels[labelDevices] = fmt.Sprint(in.made)
	}
	err = im.namespace.Commit(im.ctx, in.layer.Snapshot, key, snapshot.WithLease(im.lease, leaseTime), snapshot.WithLabels(labels))
	if err == nil {
		im.made = append(im.made, in.layer.Snapshot)
		im.note(in)
		return nil
	}
	dropped := im.drop(key)
	if !errors.Is(err, snapshot.ErrExists) || dropped != nil {
		return errors.Join(err, dropped)
	}
	in.layer.Existed = true // an archive whose digest was not known
	unusable, err := im.hold(in)
	if err == nil && unusable != nil {
		err = fmt.Errorf("snapshot %q: %w", in.layer.Snapshot, unusable)
	}
	if err == nil {
		im.note(in)
	}
	return err
}

// content says what a layer that was extracted is with those below it: its chain id, which was verified, unless
// something was left out, as that depends on who imports it and how. "": on a layer of which that is not known, as it
// was made before there were labels.
func (im *importer) content(in *incoming) (string, error) {
	below := ""
	if in.parent != "" {
		parent, err := im.namespace.Stat(im.ctx, in.parent)
		if err != nil {
			return "", err
		}
		if below = parent.Labels[snapshot.LabelContent]; below == "" {
			return "", nil
		}
	}
	if below == in.parent && in.layer.LeftOut == (LeftOut{}) {
		return in.layer.Snapshot, nil
	}
	l := in.layer.LeftOut
	text := fmt.Sprintf("%s on %s without %d owners, %d attributes, %d devices, %d modes", in.layer.Snapshot, below, l.Owners, l.Xattrs, l.Devices, l.Modes)
	return "partial " + digest.FromString(text).String(), nil
}

// labels are those that tell of the base.
func (im *importer) labels() map[string]string {
	kind := "archive"
	if im.result.Image != "" {
		kind = "image"
	}
	labels := map[string]string{LabelBase: kind, LabelImage: string(im.result.Image), LabelRef: im.result.Ref, LabelPlatform: im.result.Platform}
	if !im.o.NoConfig {
		maps.Copy(labels, im.result.Config.Labels())
	}
	maps.DeleteFunc(labels, func(_, v string) bool { return v == "" })
	return labels
}

// name gives the base its name, or its labels.
func (im *importer) name() error {
	im.result.Existed = len(im.made) == 0
	labels := im.labels()
	if im.o.Name == "" {
		return im.label(labels)
	}
	im.result.Name = im.o.Name
	options := []snapshot.Option{snapshot.WithLabels(labels)}
	info, err := im.namespace.Stat(im.ctx, im.o.Name)
	switch {
	case errors.Is(err, snapshot.ErrNotFound):
	case err != nil:
		return err
	case info.Kind == snapshot.View && info.Parent == im.result.Snapshot && maps.Equal(info.Labels, labels):
		return nil
	case info.Kind != snapshot.View || info.Labels[LabelBase] == "":
		return fmt.Errorf("%q: %w: it is the name of a snapshot that is not a base", im.o.Name, snapshot.ErrExists)
	case !im.o.Replace:
		return fmt.Errorf("base %q: %w, and is another", im.o.Name, snapshot.ErrExists)
	default: // in one transaction: no reader finds the name without a base
		options = append(options, snapshot.Replacing(info.ID))
	}
	im.result.Existed = false
	_, err = im.namespace.View(im.ctx, im.o.Name, im.result.Snapshot, options...)
	return err
}

// label labels the topmost snapshot.
func (im *importer) label(labels map[string]string) error {
	info, err := im.namespace.Stat(im.ctx, im.result.Snapshot)
	if err != nil {
		return err
	}
	changed := maps.Clone(info.Labels)
	if changed == nil {
		changed = map[string]string{}
	}
	// What another image with the same layers says is not of this one.
	maps.DeleteFunc(changed, func(k, _ string) bool { return k == LabelBase || strings.HasPrefix(k, LabelBase+".") })
	maps.Copy(changed, labels)
	if maps.Equal(changed, info.Labels) {
		return nil
	}
	_, err = im.namespace.Update(im.ctx, snapshot.Info{Name: info.Name, Labels: changed}, "labels")
	return err
}
