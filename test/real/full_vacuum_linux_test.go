package real

import (
	"context"

	"holdfast"
)

// vacuum makes the file shorter on a disk that is full: where nothing is free in the
// file it fails with the system's error, if at all, and where something is it gives the
// disk what others can use.
func (d *fullDisk) vacuum() {
	d.open()
	d.model.fill = 40 << 10
	d.commitUntilFull(2000)
	again := func(when string) (shorter int64, err error) {
		d.Helper()
		before := fileSize(d.path)
		_, err = d.db.Vacuum(context.Background(), holdfast.VacuumOptions{})
		d.sound(when)
		after := fileSize(d.path)
		if after > before {
			d.Errorf("%s: the file has grown from %d to %d bytes", when, before, after)
		}
		return before - after, err
	}
	if _, err := again("vacuum of a full file"); err != nil {
		d.full("vacuum of a full file", err)
	}
	d.model.fill, d.model.purge = 0, d.model.number+1
	for n := 0; ; n++ { // what a commit has freed is free after another flush
		err := d.commit()
		if err == nil {
			break
		}
		if d.full("purge", err); n == 3 {
			d.Fatalf("what fills the disk cannot be deleted: %v", err)
		}
	}
	free := d.fillDisk()
	before := fileSize(d.path)
	shorter, err := again("vacuum on a full disk")
	if err != nil {
		d.Fatalf("vacuum on a full disk, page size %d: %v", d.opts.PageSize, err)
	}
	if shorter < before/2 {
		d.Errorf("page size %d: of %d bytes %d were given back", d.opts.PageSize, before, shorter)
	}
	must(d.T, unixSync(d.dir))
	d.model.fill = 40 << 10
	for i := range 5 {
		if err := d.commit(); err != nil {
			d.Fatalf("commit %d behind it: %v", i, err)
		}
	}
	d.reopen("made shorter and filled again")
	free()
	must(d.T, d.commit())
}
