package command

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"holdfast/command/cli"
	"holdfast/worker/image"
	"holdfast/worker/mount"
	"holdfast/worker/snapshot"
)

func init() { register((*app).newImport) }

const importHelp = `Import an image or an archive as a base for build steps.

SOURCE is an OCI image layout (a directory, or a tar archive of one), or a tar archive
of files, plain or compressed with gzip or zstd; - is such an archive from standard
input; or docker://REF, an image of a registry, as of holdfastd pull. NAME is what the base
is called. Layers that are there already are not made again.

What is read is verified, and what would lead out of the tree refused. An import
that fails leaves nothing.`

type importFlags struct {
	format, ref, platform, devices string
	maxBytes                       int64
	maxEntries, maxRatio           int64
	replace, noConfig, repair      bool
}

func (a *app) newImport() *cobra.Command {
	var f importFlags
	cmd := &cobra.Command{
		Use:   "import SOURCE [NAME]",
		Short: "Import an image or an archive as a base",
		Long:  importHelp,
		Example: "  tar -C DIRECTORY -cf - . | holdfastd import - base\n" +
			"  docker export CONTAINER | holdfastd import - base\n" +
			"  skopeo copy docker://debian:stable oci:debian && holdfastd import debian debian\n" +
			"  holdfastd import --replace --ref 13 debian debian",
		Args: cobra.RangeArgs(1, 2),
		RunE: a.action(func(c *call) error { return c.importBase(&f) }),
	}
	flags := cmd.Flags()
	flags.StringVar(&f.format, "format", "auto", "what SOURCE is: auto|oci|tar")
	flags.StringVar(&f.ref, "ref", "", "the image of this name, in a layout with several")
	f.add(a, flags)
	return cmd
}

// add adds the flags that import and pull have.
func (f *importFlags) add(a *app, flags *pflag.FlagSet) {
	flags.StringVar(&f.platform, "platform", "", "platform of the image, such as linux/arm64; default: that of this machine")
	flags.StringVar(&f.devices, "devices", "skip", "device nodes, of which a step has its own: skip|refuse|make")
	flags.BoolVar(&f.replace, "replace", false, "replace the base NAME if it is another")
	flags.BoolVar(&f.repair, "repair", false, "extract layers again that are damaged (holdfastd verify), where drivers can: overlay, copy, btrfs")
	flags.BoolVar(&f.noConfig, "no-config", false, "do not record what the image runs (environment, command, directory, user)")
	flags.BoolVar(&a.digests, "digests", false, digestsUsage)
	cli.SizeRangeVar(flags, &f.maxBytes, "max-bytes", 64<<30, 1, 1<<62, "how much all files may have together")
	flags.Int64Var(&f.maxEntries, "max-entries", image.DefaultEntries, "how many entries all layers may have together")
	flags.Int64Var(&f.maxRatio, "max-ratio", image.DefaultRatio, "to how many times its size a layer may expand, beyond 256 MiB")
}

func (f *importFlags) options() (o image.Options, err error) {
	formats := map[string]image.Format{"auto": image.FormatAuto, "oci": image.FormatOCI, "tar": image.FormatTar}
	devices := map[string]image.Devices{"refuse": image.DevicesRefuse, "skip": image.DevicesSkip, "make": image.DevicesMake}
	var ok bool
	if o.Format, ok = formats[f.format]; !ok {
		return o, cli.Usagef("--format is %q; it can be auto, oci or tar", f.format)
	}
	if o.Devices, ok = devices[f.devices]; !ok {
		return o, cli.Usagef("--devices is %q; it can be refuse, skip or make", f.devices)
	}
	if o.Devices == image.DevicesMake && os.Geteuid() != 0 {
		return o, cli.Usagef("--devices make is for root")
	}
	if o.Platform, err = image.ParsePlatform(f.platform); err != nil {
		return o, &cli.UsageError{Err: err}
	}
	if f.maxEntries <= 0 || f.maxRatio <= 0 {
		return o, cli.Usagef("--max-entries and --max-ratio are numbers above 0, such as 1000 and 200")
	}
	o.Limits = image.Limits{Bytes: f.maxBytes, Entries: f.maxEntries, Ratio: f.maxRatio}
	o.Ref, o.Replace, o.NoConfig, o.Progress = f.ref, f.replace, f.noConfig, &image.Progress{}
	o.Repair = f.repair
	return o, nil
}

func (c *call) importBase(f *importFlags) error {
	o, err := f.options()
	if err != nil {
		return err
	}
	source := c.args[0]
	if ref, ok := strings.CutPrefix(source, "docker://"); ok {
		if f.ref != "" || o.Format != image.FormatAuto {
			return cli.Usagef("--ref and --format are for files: %s says which image it is", source)
		}
		return c.pullBase(ref, o, f, &registryFlags{})
	}
	if len(c.args) > 1 {
		o.Name = c.args[1]
		if err := image.CheckName(o.Name); err != nil {
			return &cli.UsageError{Err: err}
		}
	}
	if source == "-" && o.Format == image.FormatOCI {
		return cli.Usagef("an image layout cannot be read from standard input; write it to a file first")
	}
	if source != "-" {
		source = c.path(source)
		if _, err := os.Stat(source); err != nil { // before a store is made
			return err
		}
	}
	return c.importing(o, f, func(t *snapshot.Namespace, o image.Options) (*image.Result, error) { return c.doImport(t, source, o) })
}

// importing has fn import into the store, which is made if there is none, and reports what it has.
func (c *call) importing(o image.Options, f *importFlags, fn func(*snapshot.Namespace, image.Options) (*image.Result, error)) error {
	if !privileged() && (c.driver == "erofs" || strings.HasPrefix(c.driver, "zfs:")) {
		return cli.Usagef("--driver %s is for root: it mounts what it imports; overlay and copy are for other users, too", c.driver)
	}
	return c.withStore(true, func(t *snapshot.Namespace) (err error) {
		if d := t.Store().Driver().Name(); d == "erofs" || d == "zfs" { // it has to mount what it looks at
			m, done, err := c.someMounts()
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, done()) }()
			o.Mounts = m
		}
		r, err := fn(t, o)
		if err != nil {
			return explainImport(err, f.repair)
		}
		return c.printImport(r)
	})
}

// someMounts is the daemon's manager of mounts, or one until done.
func (c *call) someMounts() (m *mount.Manager, done func() error, err error) {
	if c.shared != nil {
		return c.shared.mounts, func() error { return nil }, nil
	}
	m, err = c.openMounts()
	return m, func() error { return m.Close(context.WithoutCancel(c.ctx)) }, err
}

func (c *call) doImport(t *snapshot.Namespace, source string, o image.Options) (*image.Result, error) {
	what := "importing"
	var stop func()
	if source == "-" {
		stop = cli.Progress{Writer: c.cmd.ErrOrStderr(), What: what, Step: cli.ProgressStep}.Start()
		defer stop()
		r, err := image.ImportArchive(c.ctx, t, c.cmd.InOrStdin(), o)
		if err != nil {
			err = fmt.Errorf("import standard input: %w", err)
		}
		return r, err
	}
	// How much there is to read is known when it has begun: it is shown in thousandths.
	stop = cli.Progress{Writer: c.cmd.ErrOrStderr(), What: what, Total: 1000, Step: cli.ProgressStep, Done: func() int64 {
		done, total := o.Progress.Read()
		if total == 0 {
			return 0
		}
		return done * 1000 / total
	}}.Start()
	defer stop()
	return image.Import(c.ctx, t, source, o)
}

func explainImport(err error, repair bool) error {
	switch {
	case !repair && (errors.Is(err, snapshot.ErrDamaged) || errors.Is(err, snapshot.ErrDistrusted)):
		return &nextError{err, "with --repair it is extracted again"}
	case errors.Is(err, snapshot.ErrExists):
		return &nextError{err, "give another name, or --replace"}
	case errors.Is(err, image.ErrChoice):
		return &nextError{err, "choose with --platform, and of a layout with --ref"}
	case errors.Is(err, image.ErrLeftOut):
		return &nextError{err, "remove it, with what stands on it (holdfastd snapshot rm), and import again; or leave --devices out: a step has a /dev of its own"}
	case errors.Is(err, image.ErrDevices):
		return &nextError{err, "give --devices make, too; or remove it, with what stands on it (holdfastd snapshot rm), and import again"}
	case errors.Is(err, image.ErrUnsafe) && strings.Contains(err.Error(), "devices are not to be made"):
		return &nextError{err, "--devices skip leaves them out, --devices make makes them"}
	case errors.Is(err, image.ErrUnsafe):
		return &nextError{err, "the archive must not be used as it is: nothing was imported"}
	}
	return err
}

type importedLayer struct {
	Snapshot string `json:"snapshot"`
	DiffID   string `json:"diff_id"`
	Digest   string `json:"digest"`
	Bytes    int64  `json:"bytes"`
	Existed  bool   `json:"existed"`
	Repaired bool   `json:"repaired"`
}

type importReport struct {
	Name     string          `json:"name"`
	Snapshot string          `json:"snapshot"`
	Image    string          `json:"image"`
	Ref      string          `json:"ref"`
	Platform string          `json:"platform"`
	Existed  bool            `json:"existed"`
	Layers   []importedLayer `json:"layers"`
	LeftOut  struct {
		Owners  int64 `json:"owners"`
		Xattrs  int64 `json:"xattrs"`
		Devices int64 `json:"devices"`
		Modes   int64 `json:"modes"`
	} `json:"left_out"`
}

func (c *call) printImport(r *image.Result) error {
	report := importReport{Name: r.Name, Snapshot: r.Snapshot, Image: r.Image.String(), Ref: r.Ref, Platform: r.Platform, Existed: r.Existed}
	report.LeftOut.Modes = r.LeftOut.Modes
	report.LeftOut.Owners, report.LeftOut.Xattrs, report.LeftOut.Devices = r.LeftOut.Owners, r.LeftOut.Xattrs, r.LeftOut.Devices
	made, repaired := 0, 0
	for _, l := range r.Layers {
		report.Layers = append(report.Layers, importedLayer{l.Snapshot, l.DiffID.String(), l.Digest.String(), l.Size, l.Existed, l.Repaired})
		if !l.Existed {
			made++
		}
		if l.Repaired {
			repaired++
		}
	}
	if c.json {
		return cli.PrintJSON(c.out, report)
	}
	var lines [][2]string
	add := func(name, value string) {
		if value != "" {
			lines = append(lines, [2]string{name, value})
		}
	}
	add("Base", r.Name)
	add("Snapshot", r.Snapshot)
	add("Image", r.Image.String())
	add("Platform", r.Platform)
	layers := fmt.Sprintf("%s, %s new", cli.Count(len(r.Layers)), cli.Count(made))
	if repaired > 0 {
		layers += fmt.Sprintf(", %s repaired", cli.Count(repaired))
	}
	add("Layers", layers)
	cli.Rows(c.out, lines...)
	for _, left := range []struct {
		n         int64
		what, why string
	}{
		{r.LeftOut.Owners, "owner", ": only root can give files away (setuid and setgid are left out with them)"},
		{r.LeftOut.Xattrs, "extended attribute", ""},
		{r.LeftOut.Devices, "device node", ""},
		{r.LeftOut.Modes, "mode", " with which an owner may not read: the owner may"},
	} {
		if left.n > 0 {
			fmt.Fprintf(c.out, "left out: %s%s\n", cli.Plural(int(left.n), left.what), left.why)
		}
	}
	return nil
}
