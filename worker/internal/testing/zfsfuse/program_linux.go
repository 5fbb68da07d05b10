package zfsfuse

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// This file is the program that the driver calls as zfs and zpool: the test program, by symbolic links in PATH.

const (
	envPath   = "HOLDFAST_TEST_ZFS_PATH"   // PATH without the links
	envPoints = "HOLDFAST_TEST_ZFS_POINTS" // the directory below which the daemon mounts datasets
)

// install makes the links in a directory, and puts it into PATH.
func install(dir string) error {
	self, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return err
	}
	bin, path := filepath.Join(dir, "bin"), os.Getenv("PATH")
	err = errors.Join(os.Mkdir(bin, 0o755),
		os.Symlink(self, filepath.Join(bin, "zfs")), os.Symlink(self, filepath.Join(bin, "zpool")),
		os.Setenv(envPath, path), os.Setenv(envPoints, filepath.Join(dir, "points")), os.Setenv("PATH", bin+":"+path))
	return err
}

// RunAsProgram runs the program as zfs or zpool, and exits, if it was started by that name. TestMain calls it first.
func RunAsProgram() {
	name := filepath.Base(os.Args[0])
	if !InOwn() || name != "zfs" && name != "zpool" {
		return
	}
	if err := translate(name, os.Args[1:]); err != nil {
		var ended *exec.ExitError
		if errors.As(err, &ended) {
			os.Exit(ended.ExitCode())
		}
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// translate does what a command of OpenZFS does, in one session.
func translate(name string, args []string) error {
	if slices.Equal(args, []string{"version"}) {
		fmt.Println("zfs-2.1.0 (zfs-fuse stands in for it)")
		return nil
	}
	s, err := Begin(context.Background())
	if err != nil {
		return err
	}
	defer s.End()
	run := func(args ...string) error {
		cmd, err := s.command(context.Background(), "zfs", args...)
		if err != nil {
			return err
		}
		cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
		return cmd.Run()
	}
	dataset := args[len(args)-1]
	switch {
	case name == "zpool" && args[0] == "sync":
		// zfs-fuse has no such command. It sets a property when that, and what was written before, is on the disk.
		return run("set", "holdfast:synced=yes", dataset)
	case args[0] == "userspace":
		n, err := s.objects(dataset)
		fmt.Println(n)
		return err
	case args[0] == "get" && args[len(args)-2] == "mountpoint":
		fmt.Println("legacy")
		return run("get", "-H", "-o", "value", "-s", "none", "mountpoint", dataset) // fails if there is no dataset
	}
	// zfs-fuse has no legacy mounts, and mounts a clone at once if that can be mounted.
	later := false
	for i, o := range args {
		switch o {
		case "mountpoint=legacy":
			args[i] = "mountpoint=" + filepath.Join(os.Getenv(envPoints), dataset)
		case "canmount=noauto":
			args[i], later = "canmount=off", true
		}
	}
	if err := run(args...); err != nil || !later {
		return err
	}
	return run("set", "canmount=noauto", dataset)
}

// objects counts the objects of a dataset, which it mounts for that unless it is mounted.
func (s *Session) objects(dataset string) (int64, error) {
	places, err := mountsOf(dataset)
	if err != nil {
		return 0, err
	}
	if len(places) > 0 {
		return statObjects(places[0])
	}
	at, err := s.mount(context.Background(), dataset)
	if err != nil {
		return 0, err
	}
	n, err := statObjects(at)
	return n, errors.Join(err, s.Unmount(at))
}

// command is zfs or zpool of zfs-fuse, which the session lasts as long as.
func (s *Session) command(ctx context.Context, name string, args ...string) (*exec.Cmd, error) {
	cmd, err := real(ctx, name, args...)
	if err == nil && s.lock != nil {
		cmd.ExtraFiles = []*os.File{s.lock}
	}
	return cmd, err
}

// real is zfs or zpool of zfs-fuse.
func real(ctx context.Context, name string, args ...string) (*exec.Cmd, error) {
	for _, dir := range append(filepath.SplitList(os.Getenv(envPath)), "/sbin", "/usr/sbin") {
		if path := filepath.Join(dir, name); unix.Access(path, unix.X_OK) == nil {
			return exec.CommandContext(ctx, path, args...), nil
		}
	}
	return nil, fmt.Errorf("the program %s of zfs-fuse is missing; Debian has it in zfs-fuse", name)
}

// mountsOf lists where the root of a dataset is mounted in this namespace.
func mountsOf(dataset string) (places []string, err error) {
	mounts, err := Mounts()
	for _, m := range mounts {
		if m.Dataset == dataset {
			places = append(places, m.At)
		}
	}
	return places, err
}

// mount has the daemon mount a dataset, and returns where.
func (s *Session) mount(ctx context.Context, dataset string) (string, error) {
	cmd, err := s.command(ctx, "zfs", "mount", dataset)
	if err != nil {
		return "", err
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("zfs mount %s: %w: %s", dataset, err, strings.TrimSpace(string(out)))
	}
	places, err := mountsOf(dataset)
	if err == nil && len(places) == 0 {
		err = fmt.Errorf("zfs mount %s: it was mounted in another mount namespace, that of the zfs-fuse daemon", dataset)
	}
	if err != nil {
		return "", err
	}
	return places[0], s.orAbort(places[0])
}

// orAbort asks what is mounted, and unmounts it if it does not answer.
func (s *Session) orAbort(path string) error {
	if err := answers(path); err != nil {
		return errors.Join(err, s.Abort(path))
	}
	return nil
}
