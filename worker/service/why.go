package service

import (
	"fmt"
	"strings"

	"holdfast/worker/image"
	"holdfast/worker/prune"
	"holdfast/worker/snapshot"
	"holdfast/worker/step"
)

// kindOf is what people call the kind of a snapshot.
func kindOf(i *snapshot.Info) string {
	switch {
	case i.Kind == snapshot.View && i.Labels[image.LabelBase] != "":
		return "base"
	case i.Kind == snapshot.Active && strings.HasPrefix(i.Name, step.CachePrefix):
		return "cache"
	}
	return strings.ToLower(i.Kind.String())
}

// Reason says for people why a snapshot stays: what k says, with what bases, caches and held results are, and what lets them go.
// shown is a name as it is written.
func Reason(i *snapshot.Info, k *prune.Kept, shown func(name string) string) string {
	if k.Cause == prune.Child {
		because := make([]string, 0, len(k.Because))
		for n := range k.Because {
			why, _ := ownReason(&k.Child.Info, &k.Because[n])
			because = append(because, why)
		}
		return fmt.Sprintf("%s stands on it, and stays: %s", shown(k.Child.Name), strings.Join(because, "; "))
	}
	why, end := ownReason(i, k)
	return why + end
}

// ownReason is what keeps a snapshot itself, and what ends that.
func ownReason(i *snapshot.Info, k *prune.Kept) (why, end string) {
	switch kind := kindOf(i); {
	case k.Cause == prune.InUse && kind == "base":
		return "it is a base", ", which stays until holdfastd snapshot rm removes it"
	case k.Cause == prune.InUse && kind == "cache":
		return "it is a cache", ", which stays until no step has used it for as long as prune --caches says"
	case k.Cause == prune.Leased && k.Lease == step.HoldLease:
		return fmt.Sprintf("it is held for the next step on it, until %s at most", k.Until.UTC().Format("2006-01-02 15:04:05 UTC")),
			"; holdfastd snapshot rm and prune --held remove it"
	}
	return k.String(), ""
}

// reasons is why a snapshot stays, with names whole.
func reasons(i *snapshot.Info, answer *prune.Answer) []string {
	var list []string
	for n := range answer.Kept {
		list = append(list, Reason(i, &answer.Kept[n], func(name string) string { return name }))
	}
	if answer.More {
		list = append(list, "more snapshots stand on it")
	}
	return list
}
