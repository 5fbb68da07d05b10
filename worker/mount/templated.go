package mount

import "fmt"

// Templated gives the mounts of a snapshot as containerd's mount manager takes them: an overlay whose lower layers are to be
// mounted first has the type "format/overlay" and a template for the directories of the mounts before it. Other lists stay as
// they are.
func Templated(list []Mount) []Mount {
	n := len(list) - 1
	if n <= 0 {
		return list
	}
	list = append([]Mount(nil), list...)
	lower := "lowerdir={{ mount 0 }}" // of one alone there is no range
	if n > 1 {
		lower = fmt.Sprintf("lowerdir={{ overlay 0 %d }}", n-1)
	}
	top := &list[n]
	top.Type = "format/" + top.Type
	top.Options = append(top.Options[:len(top.Options):len(top.Options)], lower)
	return list
}
