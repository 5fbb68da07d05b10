package command

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"holdfast/command/cli"
	"holdfast/worker/snapshot"
	"holdfast/worker/step"
)

// Caches of steps are active snapshots. df counts them, and prune removes those that no step has used for some time.

// cacheAge is after what time without use prune removes a cache, and a step for which there is no room.
const cacheAge = 14 * 24 * time.Hour

// cache is one of steps.
type cache struct {
	Name     string    `json:"name"`
	Bytes    int64     `json:"bytes"`
	LastUsed time.Time `json:"last_used"`

	snapshot string
	inodes   int64
}

// caches are those that were not used for a time.
func (c *call) caches(t *snapshot.Namespace, unused time.Duration) (list []cache, err error) {
	before := time.Now().Add(-unused)
	err = t.WalkPrefix(c.ctx, step.CachePrefix, func(i snapshot.Info) error {
		if name := strings.TrimPrefix(i.Name, step.CachePrefix); i.Kind == snapshot.Active && i.LastUsed.Before(before) {
			list = append(list, cache{Name: name, LastUsed: i.LastUsed, snapshot: i.Name})
		}
		return nil
	})
	for n := range list {
		u, e := t.Usage(c.ctx, list[n].snapshot)
		list[n].Bytes, list[n].inodes, err = u.Size, u.Inodes, errors.Join(err, e)
	}
	return list, err
}

// removeCaches removes caches, and says so unless it is told as JSON. It returns those that are gone: a step that runs keeps its own.
func (c *call) removeCaches(t *snapshot.Namespace, list []cache) (gone []cache, err error) {
	for _, one := range list {
		err := t.Remove(c.ctx, one.snapshot)
		if errors.Is(err, snapshot.ErrInUse) {
			continue
		}
		if err != nil {
			return gone, err
		}
		gone = append(gone, one)
		if !c.json {
			fmt.Fprintf(c.out, "removed the cache %s with %s, %s\n", printable(one.Name), cli.Size(one.Bytes), one.unused())
		}
	}
	return gone, nil
}

func (o *cache) unused() string { return "last used " + ago(o.LastUsed) }
