package programs

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"holdfast/test/cluster"
)

// Docker runs dockerd above a containerd on the same engine: it makes volumes and runs containers.
type Docker struct {
	Bin        Bin // dockerd
	Containerd *Containerd
	Rounds     int
	Volumes    int // made in each round, on young and on aged databases
	Containers int
	MiB        int // that databases hold before they are emptied
	Log        io.Writer
}

func (x *Docker) String() string { return "dockerd" }

// dockerd is a running daemon and its containerd.
type dockerd struct {
	daemon
	containerd *containerd
	client     *http.Client
}

func (x *Docker) begin(ctx context.Context, e cluster.Engine) (*dockerd, error) {
	c, err := x.Containerd.begin(ctx, e)
	if err != nil {
		return nil, err
	}
	d := &dockerd{containerd: c}
	dir, socket := c.dir, filepath.Join(c.dir, "docker.socket")
	d.client = &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var dialer net.Dialer
		return dialer.DialContext(ctx, "unix", socket)
	}}}
	config := filepath.Join(dir, "docker.json")
	// Debian's runc knows no namespaces of time.
	if err := os.WriteFile(config, []byte(`{"features": {"time-namespaces": false}}`), 0o644); err != nil {
		return nil, errors.Join(err, c.close())
	}
	d.Binary, d.Env, d.Log = filepath.Join(x.Bin[e], "dockerd"), c.Env, filepath.Join(filepath.Dir(x.Containerd.Disk.Dir), "dockerd.log")
	d.Args = []string{
		"--data-root", d.root(), "--exec-root", filepath.Join(dir, "docker-state"), "--pidfile", filepath.Join(dir, "docker.pid"),
		"--host", "unix://" + socket, "--containerd", c.socket(), "--config-file", config,
		"--bridge", "none", "--iptables=false", "--ip6tables=false", "--userland-proxy=false",
	}
	d.ready = func() error { return d.call(ctx, http.MethodGet, "/_ping", nil, nil) }
	if err := d.start(ctx); err != nil {
		return nil, errors.Join(err, d.close())
	}
	return d, nil
}

func (d *dockerd) root() string { return filepath.Join(d.containerd.dir, "docker") }

// close ends both daemons and removes what they have.
func (d *dockerd) close() error {
	d.Stop()
	return d.containerd.close()
}

// call calls the API. The body in is a reader or is sent as JSON; out gets the JSON of the answer, or all its bytes.
func (d *dockerd) call(ctx context.Context, method, path string, in, out any) error {
	body, sent := in.(io.Reader)
	if in != nil && !sent {
		b, err := json.Marshal(in)
		if err != nil {
			return err
		}
		body = bytes.NewReader(b)
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://docker"+path, body)
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	if sent {
		req.Header.Set("Content-Type", "application/x-tar")
	}
	resp, err := d.client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if resp.StatusCode >= http.StatusBadRequest {
		return fmt.Errorf("%s %s: %s: %s", method, path, resp.Status, b)
	}
	switch out := out.(type) {
	case nil:
		return nil
	case *[]byte:
		*out = b
		return nil
	default:
		return json.Unmarshal(b, out)
	}
}

func (x *Docker) load(ctx context.Context, d *dockerd) error {
	f, err := os.Open(x.Containerd.Image)
	if err != nil {
		return err
	}
	defer f.Close()
	var out []byte
	err = d.call(ctx, http.MethodPost, "/images/load?quiet=1", f, &out)
	if err == nil && bytes.Contains(out, []byte(`"errorDetail"`)) {
		err = fmt.Errorf("load an image: %s", out)
	}
	return err
}

// container runs one that writes a word, and looks at the word.
func (d *dockerd) container(ctx context.Context, name string) (err error) {
	var made struct{ ID string }
	in := map[string]any{
		"Image": imageName, "Cmd": []string{"/bin/busybox", "echo", name}, "Tty": true,
		"HostConfig": map[string]any{"NetworkMode": "none", "Binds": []string{name + ":/data"}},
	}
	if err := d.call(ctx, http.MethodPost, "/containers/create?name="+name, in, &made); err != nil {
		return err
	}
	path := "/containers/" + made.ID
	defer func() { err = errors.Join(err, d.call(ctx, http.MethodDelete, path+"?force=1", nil, nil)) }()
	if err := d.call(ctx, http.MethodPost, path+"/start", nil, nil); err != nil {
		return err
	}
	var ended struct{ StatusCode int }
	if err := d.call(ctx, http.MethodPost, path+"/wait", nil, &ended); err != nil {
		return err
	}
	var out []byte
	if err := d.call(ctx, http.MethodGet, path+"/logs?stdout=1&stderr=1", nil, &out); err != nil {
		return err
	}
	if got := string(bytes.TrimSpace(out)); ended.StatusCode != 0 || got != name {
		return fmt.Errorf("container %s ended with %d and printed %q", name, ended.StatusCode, got)
	}
	return nil
}

// volume makes a volume.
func (d *dockerd) volume(ctx context.Context, name string) error {
	return d.call(ctx, http.MethodPost, "/volumes/create", map[string]string{"Name": name}, nil)
}

// prune removes all volumes that no container has.
func (d *dockerd) prune(ctx context.Context) error {
	return d.call(ctx, http.MethodPost, "/volumes/prune?filters="+url.QueryEscape(`{"all":["true"]}`), nil, nil)
}

// volumes are the names of all.
func (d *dockerd) volumes(ctx context.Context) (map[string]bool, error) {
	var out struct{ Volumes []struct{ Name string } }
	err := d.call(ctx, http.MethodGet, "/volumes", nil, &out)
	names := map[string]bool{}
	for _, v := range out.Volumes {
		names[v.Name] = true
	}
	return names, err
}

// Measure measures volumes and containers, on databases that are young and then aged.
func (x *Docker) Measure(ctx context.Context) (*Table, error) {
	t := &Table{Title: fmt.Sprintf("dockerd: %d volumes, %d containers; aged: each database of dockerd and containerd held %d MiB and was emptied", x.Volumes, x.Containers, x.MiB)}
	return t, rounds(x.Log, x, x.Rounds, func(e cluster.Engine) error { return x.measure(ctx, e, t) })
}

func (x *Docker) measure(ctx context.Context, e cluster.Engine, t *Table) (err error) {
	d, err := x.begin(ctx, e)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.close()) }()
	if err := x.load(ctx, d); err != nil {
		return err
	}
	if err := x.work(ctx, d, e, t, "young"); err != nil {
		return err
	}
	d.Stop()
	d.containerd.Stop()
	if err := errors.Join(age(x.Log, d.root(), x.MiB), age(x.Log, d.containerd.root(), x.MiB)); err != nil {
		return err
	}
	if err := d.containerd.start(ctx); err != nil {
		return err
	}
	began := time.Now()
	if err := d.start(ctx); err != nil {
		return err
	}
	t.Add(e, "aged: start", Seconds, time.Since(began).Seconds())
	return x.work(ctx, d, e, t, "aged")
}

func (x *Docker) work(ctx context.Context, d *dockerd, e cluster.Engine, t *Table, name string) error {
	m := meter{t, e, x.Containerd.Disk, name}
	err := m.each("a volume is made", x.Volumes, func(i int) error { return d.volume(ctx, fmt.Sprintf("%s-%d", name, i)) })
	if err != nil {
		return err
	}
	err = m.each("a container runs", x.Containers, func(i int) error { return d.container(ctx, fmt.Sprintf("c-%s-%d", name, i)) })
	if err != nil {
		return err
	}
	return m.once("volumes pruned", func() error { return d.prune(ctx) })
}

// Kill kills dockerd while it makes volumes and runs containers, again and again. Volumes that it acknowledged must be there afterwards, and
// containers must run.
func (x *Docker) Kill(ctx context.Context, e cluster.Engine, times int) (err error) {
	d, err := x.begin(ctx, e)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.close()) }()
	if err := x.load(ctx, d); err != nil {
		return err
	}
	var made []string
	for i := range times {
		_, err := d.killWithin(ctx, time.Second, func() error {
			for n := 0; ; n++ {
				name := fmt.Sprintf("kill-%d-%d", i, n)
				if err := d.volume(ctx, name); err != nil {
					return err
				}
				made = append(made, name)
				if n%8 == 7 {
					if err := d.container(ctx, "c-"+name); err != nil {
						return err
					}
				}
			}
		})
		if err == nil {
			err = d.sound(ctx, made)
		}
		if err == nil {
			err = d.container(ctx, fmt.Sprintf("after-%d", i))
		}
		if err != nil {
			return fmt.Errorf("after kill %d: %w", i+1, err)
		}
	}
	return d.prune(ctx)
}

// sound looks for volumes.
func (d *dockerd) sound(ctx context.Context, made []string) error {
	there, err := d.volumes(ctx)
	if err != nil {
		return err
	}
	for _, name := range made {
		if !there[name] {
			return fmt.Errorf("volume %s was acknowledged, and is lost", name)
		}
	}
	return nil
}

// Damaged prepares dockerd for it: it has a volume, and has run a container.
func (x *Docker) Damaged(ctx context.Context) (*Verdict, error) {
	d, err := x.begin(ctx, cluster.Stock)
	if err != nil {
		return nil, err
	}
	use := func(name string) error { return errors.Join(d.volume(ctx, name), d.container(ctx, "c-"+name)) }
	if err := errors.Join(x.load(ctx, d), use("whole")); err != nil {
		return nil, errors.Join(err, d.close())
	}
	d.Stop()
	tries := 0
	v, err := (&Damaged{
		name: "dockerd", root: d.root(), log: x.Log, start: d.damaged(x.Bin),
		works: func() error {
			tries++
			return use(fmt.Sprintf("damaged-%d", tries))
		},
		end: func() error {
			d.Kill()
			return unmountBelow(d.root())
		},
	}).Compare(ctx)
	return v, errors.Join(err, d.close())
}
