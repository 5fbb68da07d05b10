package main

import (
	"fmt"
	"os"
	"text/tabwriter"
	"time"
)

// What is meant to be reached.
const (
	ownLimit     = 4 * time.Millisecond
	manyLimit    = 1.1 // many snapshots against few
	foreignLimit = 1.2 // as many foreign mounts against none
)

func (b *bench) print() {
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "own time of a step, medians\tclients\tforeign mounts\t%d snapshots\t%d\tratio\n", *few, *many)
	for _, r := range b.rows {
		if r.MedianMany == 0 {
			fmt.Fprintf(w, "%s\t%d\t%d\t%v\t\t\n", r.Runtime, r.Clients, r.Foreign, short(r.MedianFew))
			continue
		}
		fmt.Fprintf(w, "%s\t%d\t%d\t%v\t%v\t%.2f\n", r.Runtime, r.Clients, r.Foreign, short(r.MedianFew), short(r.MedianMany), ratio(r.MedianMany, r.MedianFew))
		if r.Clients > 1 {
			fmt.Fprintf(w, "  all by their number\t\t\t%v\t%v\t%.2f\n", short(r.EachFew), short(r.EachMany), ratio(r.EachMany, r.EachFew))
		}
	}
	_ = w.Flush()
	fmt.Println()
	for _, t := range b.targets() {
		met := "met"
		if !t.met {
			met = "NOT met"
		}
		fmt.Printf("%s: %s, %s: %s\n", t.name, t.measured, t.wanted, met)
	}
}

type target struct {
	name, wanted, measured string
	met                    bool
}

func (b *bench) targets() []target {
	var list []target
	alone := map[int]*row{} // native, without foreign mounts, by clients
	for _, r := range b.rows {
		switch {
		case r.Runtime != "native":
			continue
		case r.Foreign > 0:
			if was := alone[r.Clients]; was != nil {
				x := ratio(r.few(), was.few())
				list = append(list, target{fmt.Sprintf("%d foreign mounts, clients: %d", r.Foreign, r.Clients), fmt.Sprintf("at most %v of none", foreignLimit), fmt.Sprintf("%.2f", x), x <= foreignLimit})
			}
			continue
		}
		alone[r.Clients] = r
		if r.Clients == 1 {
			list = append(list, target{"own time with " + fmt.Sprint(*many) + " snapshots", fmt.Sprintf("at most %v", ownLimit), fmt.Sprint(short(r.MedianMany)), r.MedianMany <= ownLimit})
		}
		x := ratio(r.many(), r.few())
		list = append(list, target{fmt.Sprintf("%d snapshots, clients: %d", *many, r.Clients), fmt.Sprintf("at most %v of %d", manyLimit, *few), fmt.Sprintf("%.2f", x), x <= manyLimit})
	}
	return list
}

// few is what the targets are for: of one client the median, of several the time of all by their number.
func (r *row) few() time.Duration {
	if r.Clients == 1 {
		return r.MedianFew
	}
	return r.EachFew
}

func (r *row) many() time.Duration {
	if r.Clients == 1 {
		return r.MedianMany
	}
	return r.EachMany
}

func ratio(a, b time.Duration) float64 {
	if b == 0 {
		return 0
	}
	return float64(a) / float64(b)
}

func short(d time.Duration) time.Duration { return d.Round(10 * time.Microsecond) }
