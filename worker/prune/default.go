package prune

// DefaultText is a configuration with every field explained, which Parse reads: the defaults.
func DefaultText() string { return defaultText }

const defaultText = `# What is removed when, and what is kept.
#
# The policies are followed one after the other, each with what the one before has left. A policy selects
# snapshots by its filters and their age; of these the one that was not used for the longest time goes first,
# children before their parents, until the bounds of the policy are kept. Without any of the bounds
# maxUsedSpace, minFreeSpace and maxSnapshots, all that it selects go.
#
# Never removed is what is leased or pinned, what belongs to a client such as containerd, what a step is
# working on, and what something stands on that is kept.
#
# Sizes are a number with a unit ("10GB" is 10^10 bytes, "10GiB" is 10 * 2^30), or a part of the file
# system ("20%"). Durations are such as "60d", "36h", "90m"; a number is seconds.

# maxMounts is how many mounts there may be after pruning: idle ones are unmounted. Without it, any number.
#maxMounts = 1000

# First: what was not used for two months.
[[policy]]
# filters says which snapshots the policy is for: those that one of them matches. A filter is a list of conditions,
# divided by commas, that must all hold: on namespace, name, labels.KEY or labels."KEY", with == or != and a
# value, or ~= and a regular expression; labels.KEY alone: there is such a label. Without filters, all.
#filters = ["namespace==build,name~=^nightly/", 'labels.team==a']
# all is whether the policy is also for snapshots with the label "holdfast.keep", which others spare.
#all = false
# keepDuration: what was used less than this ago stays.
keepDuration = "60d"
# reservedSpace: the policy removes nothing while no more than this is used, nor a larger part of the inodes.
reservedSpace = "10%"

# Then: as much as there is room for.
[[policy]]
reservedSpace = "10%"
# maxUsedSpace: at most this is used, by snapshots, metadata, and all else in the directory of the store. What is
# removed already and not deleted yet does not count.
maxUsedSpace = "60%"
# minFreeSpace: at least this is free on the file system, what others use there included, and the same part of its inodes.
minFreeSpace = "20%"
# maxSnapshots: there are at most so many, of all namespaces.
maxSnapshots = 50000

# Last, if that was not enough: also what is to be kept.
[[policy]]
all = true
reservedSpace = "10%"
maxUsedSpace = "60%"
minFreeSpace = "20%"
maxSnapshots = 50000
`

// Default is the configuration of DefaultText.
func Default() Config {
	const day = Duration(24 * 60 * 60 * 1e9)
	tenth := Size{Percent: 10}
	bounded := Policy{ReservedSpace: tenth, MaxUsedSpace: Size{Percent: 60}, MinFreeSpace: Size{Percent: 20}, MaxSnapshots: 50000}
	last := bounded
	last.All = true
	return Config{Policies: []Policy{{KeepDuration: 60 * day, ReservedSpace: tenth}, bounded, last}}
}
