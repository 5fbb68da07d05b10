package image

import (
	"errors"
	"fmt"

	"holdfast/worker/snapshot"
)

// What could not, or should not, be made of a layer is recorded with its snapshot: another import finds
// that, and must not say that everything is there. content.go of package snapshot has the label that says
// what a layer is by content.

// ErrLeftOut: a layer is there, from an import that has left out what this one is told to make.
var ErrLeftOut = errors.New("left out by an earlier import")

// labelLeftOut says what was left out of a layer. A layer without it, of which LabelContent says that
// something was, was made before there was this label.
const labelLeftOut = "holdfast.left-out"

// ErrDevices: a layer is there with device nodes, which this import is told to leave out or to refuse.
var ErrDevices = errors.New("it is there with device nodes, which an earlier import has made")

// labelDevices says how many device nodes were made of a layer. Without it none were, or it was made before there was
// this label.
const labelDevices = "holdfast.devices"

const leftOutFormat = "owners=%d,attributes=%d,devices=%d,modes=%d"

func (l LeftOut) label() string {
	return fmt.Sprintf(leftOutFormat, l.Owners, l.Xattrs, l.Devices, l.Modes)
}

// leftOut is what was left out of a layer that is there, as far as that is known.
func (im *importer) leftOut(in *incoming, info snapshot.Info) (l LeftOut, known bool) {
	if text, ok := info.Labels[labelLeftOut]; ok {
		n, err := fmt.Sscanf(text, leftOutFormat, &l.Owners, &l.Xattrs, &l.Devices, &l.Modes)
		return l, err == nil && n == 4
	}
	whole := *in
	whole.layer.LeftOut = LeftOut{}
	content, err := im.content(&whole)
	return LeftOut{}, err == nil && content != "" && content == info.Labels[snapshot.LabelContent]
}

// fits says whether a layer that is there has the device nodes that this import is told to make, and none otherwise.
// What was left out of it is noted.
func (im *importer) fits(in *incoming, info snapshot.Info) error {
	left, known := im.leftOut(in, info)
	in.layer.LeftOut = left
	switch {
	case im.o.Devices == DevicesRefuse && left.Devices > 0:
		return errNoDevices
	case im.o.Devices != DevicesMake && info.Labels[labelDevices] != "":
		return fmt.Errorf("snapshot %q: %w (%s)", info.Name, ErrDevices, info.Labels[labelDevices])
	case im.o.Devices == DevicesMake && left.Devices > 0:
		return fmt.Errorf("snapshot %q: %w: it is there without the device nodes of its layer (%d)", info.Name, ErrLeftOut, left.Devices)
	case im.o.Devices == DevicesMake && !known:
		return fmt.Errorf("snapshot %q: %w: it may be there without the device nodes of its layer", info.Name, ErrLeftOut)
	}
	return nil
}
