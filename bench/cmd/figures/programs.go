package main

import (
	"encoding/json"
	"fmt"
	"strings"
)

// programs is what the command programs of module test writes with -json.
type programs struct {
	source
	Tables []struct {
		Title string
		Rows  []struct {
			What, Unit string
			Gain       float64
		}
	}
}

// gain is that of a row in a table whose title begins so.
func (p *programs) gain(title, what string) (float64, bool) {
	for _, t := range p.Tables {
		for _, r := range t.Rows {
			if strings.HasPrefix(t.Title, title) && r.What == what && r.Gain > 0 {
				return r.Gain, true
			}
		}
	}
	return 0, false
}

// programRow is a bar: a row of the table whose title begins so.
type programRow struct{ label, table, what string }

// drawPrograms draws how many times less real programs write, or wait, on Holdfast: with young databases, and with those that have held much.
func drawPrograms(data []byte) ([]byte, error) {
	var all programs
	if err := json.Unmarshal(data, &all); err != nil {
		return nil, err
	}
	pic := picture{Title: "Real programs on bbolt, as a multiple of what they take on Holdfast", Caption: all.caption()}
	const commit = "64 clients: 99th percentile of a backend commit"
	for _, g := range []struct {
		title string
		rows  []programRow
	}{
		{"containerd", []programRow{
			{"young: bytes of a snapshot", "containerd", "young: a snapshot is prepared, bytes written"},
			{"aged: bytes of a snapshot", "containerd", "aged: a snapshot is prepared, bytes written"},
			{"aged: bytes of a container", "containerd", "aged: a container runs, bytes written"},
			{"aged: time to remove an image", "containerd", "aged: image removed, and its content"},
		}},
		{"BuildKit", []programRow{
			{"young: bytes of a build", "BuildKit", "young: build, bytes written"},
			{"aged: bytes of a build", "BuildKit", "aged: build, bytes written"},
			{"aged: bytes of a prune", "BuildKit", "aged: prune all, bytes written"},
			{"aged: time of a prune", "BuildKit", "aged: prune all"},
		}},
		{"dockerd", []programRow{
			{"young: bytes of a volume", "dockerd", "young: a volume is made, bytes written"},
			{"aged: bytes of a volume", "dockerd", "aged: a volume is made, bytes written"},
			{"aged: bytes of a container", "dockerd", "aged: a container runs, bytes written"},
			{"aged: bytes of a prune", "dockerd", "aged: volumes pruned, bytes written"},
		}},
		{"etcd, 64 clients", []programRow{
			{"young: 99th percentile of a commit", "etcd on a young file", commit},
			{"aged: 99th percentile of a commit", "etcd on a file", commit},
		}},
	} {
		bars := group{Title: g.title}
		for _, row := range g.rows {
			gain, ok := all.gain(row.table, row.what)
			if !ok {
				return nil, fmt.Errorf("%w: %s, %s", errNothing, row.table, row.what)
			}
			class := "a"
			if strings.HasPrefix(row.label, "young") {
				class = "d"
			}
			bars.add(row.label, class, gain)
		}
		pic.groups = append(pic.groups, bars)
	}
	return render(pic)
}
