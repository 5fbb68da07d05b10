package mount

// Call is something of the kernel that older kernels lack, and that has another way.
type Call string

// The calls for which there is another way. docs/worker/mounts.md has the table.
const (
	CallOpenTree      Call = "open_tree"
	CallMoveMount     Call = "move_mount"
	CallCloneDetached Call = "open_tree of a detached mount"
	CallFsopen        Call = "fsopen"
	CallLayerFD       Call = "overlay layers by descriptor"
	CallLowerAppend   Call = "lowerdir+"
	CallMountSetattr  Call = "mount_setattr"
	CallErofsFile     Call = "erofs from a file"
	CallInotify       Call = "inotify of unmounts"
	CallUstat         Call = "ustat"
	CallPidfd         Call = "pidfd_open"
)

// Way says how something is done.
type Way struct {
	Call  Call
	Since string // the version of Linux that brought it
	Used  bool   // it is there and used
	Else  string // what is done without it
	Err   error  // why it is not used
}

// ways lists the calls, those first that others need.
var ways = []Way{
	{Call: CallOpenTree, Since: "5.2", Else: "masters are mounted in the nursery and attached there only, by bind"},
	{Call: CallMoveMount, Since: "5.2", Else: "masters are mounted in the nursery and attached there only, by bind"},
	{Call: CallCloneDetached, Since: "6.15", Else: "masters are mounted in a namespace of their own and cloned from there"},
	{Call: CallFsopen, Since: "5.2", Else: "mount(2)"},
	{Call: CallLayerFD, Since: "6.13", Else: "lowerdir+ with paths of descriptors"},
	{Call: CallLowerAppend, Since: "6.5", Else: "overlays are mounted with mount(2)"},
	{Call: CallMountSetattr, Since: "5.12", Else: "flags are set with mount(2) in a namespace of their own"},
	{Call: CallErofsFile, Since: "6.12", Else: "a loop device"},
	{Call: CallInotify, Since: "2.6.13", Else: "whether an overlay is gone is asked again and again, by ustat"},
	{Call: CallUstat, Since: "1.0 (not on arm64)", Else: "the mountinfo of every namespace is read"},
	{Call: CallPidfd, Since: "5.3", Else: "kill(2)"},
}
