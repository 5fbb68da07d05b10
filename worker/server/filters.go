package server

import (
	"fmt"
	"strings"

	"github.com/containerd/containerd/v2/pkg/filters"

	"holdfast/worker/content"
	"holdfast/worker/snapshot"
)

// Limits on the filters of a list: each is looked at, and its expressions compiled, for each row.
const (
	maxFilters     = 64
	maxFilterBytes = 16 << 10 // together
)

// parseFilters reads filters in containerd's language.
func parseFilters(list []string) (filters.Filter, error) {
	if len(list) > maxFilters {
		return nil, fmt.Errorf("%w: %d filters; at most %d", content.ErrInvalid, len(list), maxFilters)
	}
	n := 0
	for _, f := range list {
		n += len(f)
	}
	if n > maxFilterBytes {
		return nil, fmt.Errorf("%w: filters of %d bytes; at most %d", content.ErrInvalid, n, maxFilterBytes)
	}
	f, err := filters.ParseAll(list...)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", content.ErrInvalid, err)
	}
	return f, nil
}

// fields are what a filter can ask for: some by name, and labels.
func fields(named map[string]string, labels map[string]string) filters.Adaptor {
	return filters.AdapterFunc(func(path []string) (string, bool) {
		if len(path) == 0 {
			return "", false
		}
		if path[0] == "labels" {
			v, ok := labels[strings.Join(path[1:], ".")]
			return v, ok
		}
		v, ok := named[path[0]]
		return v, ok
	})
}

func snapshotFields(i *snapshot.Info) filters.Adaptor {
	return fields(map[string]string{"kind": strings.ToLower(i.Kind.String()), "name": i.Name, "parent": i.Parent}, i.Labels)
}

func contentFields(i *content.Info) filters.Adaptor {
	return fields(map[string]string{"digest": i.Digest.String(), "size": fmt.Sprint(i.Size)}, i.Labels)
}

func statusFields(s *content.Status) filters.Adaptor {
	return fields(map[string]string{"ref": s.Ref}, nil)
}
