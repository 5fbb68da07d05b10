package mount

// Feature is something that some of the supported kernels lack. A kernel must be Linux 5.14 or newer.
type Feature string

// The features that are looked for when a Manager is opened.
const (
	FeatureCloneDetached Feature = "open_tree of a detached mount"
	FeatureLayerFD       Feature = "overlay layers by descriptor"
	FeatureLowerAppend   Feature = "lowerdir+"
	FeatureErofsFile     Feature = "erofs from a file"
	FeatureInotify       Feature = "inotify of unmounts"
	FeatureUstat         Feature = "ustat"
)

// FeatureState says whether a feature is used, and what is done without it.
type FeatureState struct {
	Feature Feature
	Since   string // the version of Linux that brought it
	Used    bool   // it is there and used
	Instead string // what is done without it
	Err     error  // why it is not used
}

// features is the one table of what kernels lack. docs/worker/mounts.md has it, too.
var features = []FeatureState{
	{Feature: FeatureCloneDetached, Since: "6.15", Instead: "masters are attached in a namespace of their own and cloned from there"},
	{Feature: FeatureLayerFD, Since: "6.13", Instead: "lowerdir+ with paths of descriptors"},
	{Feature: FeatureLowerAppend, Since: "6.5", Instead: "overlays are mounted with mount(2)"},
	{Feature: FeatureErofsFile, Since: "6.12", Instead: "a loop device"},
	{Feature: FeatureInotify, Since: "2.6.13", Instead: "whether an overlay is gone is asked again and again, by ustat"},
	{Feature: FeatureUstat, Since: "1.0 (not on arm64)", Instead: "the mountinfo of every namespace is read"},
}
