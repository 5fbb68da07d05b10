//go:build unix

package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/anishathalye/porcupine"
)

// A history in which a read gives what was overwritten before it began is found, and one in which an unanswered put was done late is not.
func TestRegister(t *testing.T) {
	put := func(from, to int64, value string) porcupine.Operation {
		return porcupine.Operation{Input: request{"r", true, value}, Call: from, Output: answer{}, Return: to}
	}
	get := func(from, to int64, value string) porcupine.Operation {
		return porcupine.Operation{Input: request{"r", false, ""}, Call: from, Output: answer{value: value}, Return: to}
	}
	for _, c := range []struct {
		name    string
		history []porcupine.Operation
		want    bool
	}{
		{"one after the other", []porcupine.Operation{put(1, 2, "a"), get(3, 4, "a"), put(5, 6, "b"), get(7, 8, "b")}, true},
		{"stale", []porcupine.Operation{put(1, 2, "a"), put(3, 4, "b"), get(5, 6, "a")}, false},
		{"lost", []porcupine.Operation{put(1, 2, "a"), get(3, 4, "")}, false},
		{"at once", []porcupine.Operation{put(1, 4, "a"), get(2, 3, ""), get(2, 3, "a")}, true},
		{"back and forth", []porcupine.Operation{put(1, 9, "a"), get(2, 3, "a"), get(4, 5, "")}, false},
		{"done late", []porcupine.Operation{put(1, 2, "a"), put(3, forever, "b"), get(5, 6, "a"), get(7, 8, "b")}, true},
		{"never done", []porcupine.Operation{put(1, 2, "a"), put(3, forever, "b"), get(5, 6, "a")}, true},
	} {
		if got := porcupine.CheckOperations(register, c.history); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

// fake is a member that answers with these keys and this sum.
func fake(t *testing.T, keys []string, sum int) *Member {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var in struct{ Key []byte }
		b, _ := io.ReadAll(r.Body)
		_ = json.Unmarshal(b, &in)
		switch {
		case strings.HasSuffix(r.URL.Path, "/status"):
			fmt.Fprint(w, `{"header":{"revision":"7"},"leader":"1"}`)
		case strings.HasSuffix(r.URL.Path, "/hashkv"):
			fmt.Fprintf(w, `{"hash":%d,"compact_revision":"1"}`, sum)
		default:
			var kvs []map[string][]byte
			for _, key := range keys {
				if key >= string(in.Key) {
					kvs = append(kvs, map[string][]byte{"key": []byte(key)})
				}
			}
			_ = json.NewEncoder(w).Encode(map[string]any{"kvs": kvs})
		}
	}))
	t.Cleanup(s.Close)
	return &Member{Name: fmt.Sprint(len(keys)), client: s.URL}
}

// What a member lost, or has too much, and members that differ, are found.
func TestJudge(t *testing.T) {
	acked := map[string]bool{"k/1": true, "k/2": true, "k/3": false}
	for _, c := range []struct {
		name string
		keys []string
		sum  int
		want string
	}{
		{"all", []string{"k/1", "k/2"}, 5, ""},
		{"what nobody knows", []string{"k/1", "k/2", "k/3"}, 5, ""},
		{"a lost key", []string{"k/1", "k/3"}, 5, "has lost k/2"},
		{"none", nil, 5, "has lost k/1"},
		{"a key too many", []string{"k/1", "k/2", "k/4"}, 5, "k/4, which no client put"},
		{"another sum", []string{"k/1", "k/2"}, 6, "the members differ at revision 7"},
	} {
		members := []*Member{fake(t, []string{"k/1", "k/2"}, 5), fake(t, c.keys, c.sum)}
		for range 2 {
			r := &runner{cluster: &Cluster{Members: members}, load: &load{acked: acked}}
			if _, err := r.judge(context.Background()); (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: %v, want %q", c.name, err, c.want)
			}
			slices.Reverse(members)
		}
	}
}
