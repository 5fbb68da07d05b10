package engine

import (
	"path/filepath"

	"holdfast"
	"holdfast/internal/share"
)

var sharedCases = map[string]func(*errorRow){
	"shared-not": func(r *errorRow) {
		r.try("no owner", newSample(r).data, func(path string) error { return openThrough(path) })
		r.try("Share is off", newSample(r).data, func(path string) error {
			_, err := holdfast.OpenShared(path, &holdfast.Options{Share: "off"})
			return err
		})
		r.tryShared("a later transaction", func(owner, reader *holdfast.DB) error {
			must(r, owner.Close())
			return reader.View(readAll)
		})
	},
	"shared-gone": func(r *errorRow) {
		r.tryShared("View", func(owner, reader *holdfast.DB) error {
			return reader.View(func(*holdfast.Tx) error { return owner.Close() })
		})
		r.tryShared("Rollback", func(owner, reader *holdfast.DB) error {
			tx := begin(r, reader, false)
			must(r, owner.Close())
			return tx.Rollback()
		})
	},
	"shared-ended": func(r *errorRow) {
		r.tryShared("View", func(owner, reader *holdfast.DB) error {
			return reader.View(func(*holdfast.Tx) error {
				list, err := share.List(shareOf(owner.Path()))
				must(r, err)
				view, err := share.Attach(shareOf(owner.Path()), list[0].Identity)
				must(r, err)
				defer view.Close()
				readers, err := view.Readers()
				must(r, err)
				_, err = view.EndReader(readers[0])
				return err
			})
		})
	},
	"shared-crowded": func(r *errorRow) {
		r.tryShared("one too many", func(_, reader *holdfast.DB) error {
			for range share.Slots {
				defer begin(r, reader, false).Rollback()
			}
			_, err := reader.Begin(false)
			return err
		})
	},
}

func shareOf(path string) string { return filepath.Join(filepath.Dir(path), "shares") }

// openThrough opens the database through its owner, and closes it.
func openThrough(path string) error {
	db, err := holdfast.OpenShared(path, &holdfast.Options{Share: shareOf(path)})
	if err != nil {
		return err
	}
	return db.Close()
}

// tryShared uses a database through its owner.
func (r *errorRow) tryShared(name string, use func(owner, reader *holdfast.DB) error) {
	r.Helper()
	r.try(name, newSample(r).data, func(path string) error {
		owner, err := holdfast.Open(path, 0o600, &holdfast.Options{Share: shareOf(path), NoFreelistSync: true})
		must(r, err)
		defer owner.Close()
		reader, err := holdfast.OpenShared(path, &holdfast.Options{Share: shareOf(path)})
		must(r, err)
		defer reader.Close()
		return use(owner, reader)
	})
}
