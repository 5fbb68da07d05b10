//go:build unix

package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Snapshot writes a copy of the member's database to a file, as etcdctl does: the hash that etcdutl expects is at its end.
func (m *Member) Snapshot(ctx context.Context, file string) (err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, m.client+"/v3/maintenance/snapshot", strings.NewReader("{}"))
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	for d := json.NewDecoder(resp.Body); ; {
		var piece struct {
			Result struct{ Blob []byte }
			Error  json.RawMessage
		}
		switch err := d.Decode(&piece); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("snapshot: %w", err)
		case len(piece.Error) > 0:
			return fmt.Errorf("snapshot: %s", piece.Error)
		}
		if _, err := f.Write(piece.Result.Blob); err != nil {
			return err
		}
	}
}

// restored makes a new cluster of a snapshot of one member, each of its members on the other engine than the one that it stands for. It must
// have all that the old one had.
func (r *runner) restored(ctx context.Context) error {
	file := filepath.Join(r.cluster.Dir, "snapshot.db")
	m := r.one()
	if err := patient(ctx, func() error { return m.Snapshot(ctx, file) }); err != nil {
		return err
	}
	c := &Cluster{Binaries: r.o.Binaries, Dir: filepath.Join(r.cluster.Dir, "restored"), Env: r.cluster.Env, Flags: r.cluster.Flags}
	var engines []Engine
	for _, m := range r.cluster.Members {
		engines = append(engines, 1-m.Engine)
	}
	if err := c.Form(engines...); err != nil {
		return err
	}
	defer c.Close()
	for _, m := range c.Members {
		out, err := exec.CommandContext(ctx, r.o.Utilities[m.Engine], "snapshot", "restore", file, "--name", m.Name, "--data-dir", m.data(),
			"--initial-cluster", m.initial, "--initial-cluster-token", clusterToken, "--initial-advertise-peer-urls", m.peer).CombinedOutput()
		if err != nil {
			return fmt.Errorf("etcdutl on %v: %w: %s", m.Engine, err, out)
		}
		if err := m.Start(); err != nil {
			return err
		}
	}
	there := &runner{o: r.o, rng: r.rng, cluster: c, load: r.load}
	if err := there.await(ctx); err != nil {
		return err
	}
	if err := there.sameEverywhere(ctx); err != nil {
		return err
	}
	return there.nothingLost(ctx)
}
