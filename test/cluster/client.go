//go:build unix

package cluster

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"time"
)

// callTime is how long a client waits for a member.
const callTime = 4 * time.Second

// wholeTime is how long it waits for what goes through all of a database: on bbolt, compacting 8 GB takes more than a minute.
const wholeTime = 10 * time.Minute

// client keeps few connections: a member that is killed leaves none that hang.
var client = &http.Client{Timeout: callTime}

// call calls etcd by its gateway from JSON to gRPC. An error does not tell whether it was done.
func (m *Member) call(ctx context.Context, path string, in, out any) error {
	return m.callFor(ctx, client, path, in, out)
}

func (m *Member) callFor(ctx context.Context, client *http.Client, path string, in, out any) error {
	b, err := json.Marshal(in)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, m.client+path, bytes.NewReader(b))
	if err != nil {
		return err
	}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if b, err = io.ReadAll(resp.Body); err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s: %.200s", path, resp.Status, b)
	}
	return json.Unmarshal(b, out)
}

type header struct {
	MemberID string `json:"member_id"`
	Revision int64  `json:"revision,string"`
}

// Put puts a key.
func (m *Member) Put(ctx context.Context, key, value string) error {
	var out struct{ Header header }
	return m.call(ctx, "/v3/kv/put", map[string][]byte{"key": []byte(key), "value": []byte(value)}, &out)
}

// Get gets a key: "" if there is none.
func (m *Member) Get(ctx context.Context, key string) (string, error) {
	var out struct {
		Kvs []struct{ Value []byte }
	}
	err := m.call(ctx, "/v3/kv/range", map[string][]byte{"key": []byte(key)}, &out)
	if err != nil || len(out.Kvs) == 0 {
		return "", err
	}
	return string(out.Kvs[0].Value), nil
}

// Keys gets some of the keys from one on, up to another.
func (m *Member) Keys(ctx context.Context, from, to string, most int) (keys []string, err error) {
	var out struct {
		Kvs []struct{ Key []byte }
	}
	err = m.call(ctx, "/v3/kv/range", map[string]any{"key": []byte(from), "range_end": []byte(to), "keys_only": true, "limit": most, "sort_target": "KEY", "sort_order": "ASCEND"}, &out)
	for _, kv := range out.Kvs {
		keys = append(keys, string(kv.Key))
	}
	return keys, err
}

// A Status is what a member says of itself.
type Status struct {
	Header header
	Leader string
	DBSize int64 `json:"dbSize,string"`
	InUse  int64 `json:"dbSizeInUse,string"`
}

// Status asks a member how it is.
func (m *Member) Status(ctx context.Context) (s Status, err error) {
	return s, m.call(ctx, "/v3/maintenance/status", struct{}{}, &s)
}

// Hash is the sum of all revisions of all keys up to one.
func (m *Member) Hash(ctx context.Context, revision int64) (hash, compacted string, err error) {
	var out struct {
		Hash            json.Number
		CompactRevision string `json:"compact_revision"`
	}
	err = m.call(ctx, "/v3/maintenance/hashkv", map[string]any{"revision": fmt.Sprint(revision)}, &out)
	return out.Hash.String(), out.CompactRevision, err
}

// DeleteAll deletes all keys. Their revisions stay until Compact.
func (m *Member) DeleteAll(ctx context.Context) error {
	return m.callFor(ctx, &http.Client{Timeout: wholeTime}, "/v3/kv/deleterange", map[string][]byte{"key": {0}, "range_end": {0}}, new(struct{}))
}

// Delete deletes keys, at most 128 of them, which is what etcd takes in one transaction.
func (m *Member) Delete(ctx context.Context, keys [][]byte) error {
	var deletes []any
	for _, key := range keys {
		deletes = append(deletes, map[string]any{"request_delete_range": map[string][]byte{"key": key}})
	}
	return m.call(ctx, "/v3/kv/txn", map[string]any{"success": deletes}, new(struct{}))
}

// Metrics is what the member tells Prometheus, as text.
func (m *Member) Metrics(ctx context.Context) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, m.client+"/metrics", nil)
	if err != nil {
		return "", err
	}
	resp, err := client.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return string(b), err
}

// URL is where it serves clients.
func (m *Member) URL() string { return m.client }

// Compact forgets revisions of keys below one.
func (m *Member) Compact(ctx context.Context, revision int64) error {
	return m.callFor(ctx, &http.Client{Timeout: wholeTime}, "/v3/kv/compaction", map[string]any{"revision": fmt.Sprint(revision), "physical": true}, new(struct{}))
}

// Defrag writes the file of a member anew, which serves nothing meanwhile.
func (m *Member) Defrag(ctx context.Context) error {
	return m.callFor(ctx, &http.Client{Timeout: wholeTime}, "/v3/maintenance/defragment", struct{}{}, new(struct{}))
}

// remove takes a member out of the cluster, and join tells the cluster of a new one.
func (m *Member) remove(ctx context.Context, id string) error {
	return m.call(ctx, "/v3/cluster/member/remove", map[string]any{"ID": id}, new(struct{}))
}

func (m *Member) join(ctx context.Context, peer string) error {
	return m.call(ctx, "/v3/cluster/member/add", map[string]any{"peerURLs": []string{peer}}, new(struct{}))
}
