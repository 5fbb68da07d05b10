package transfer

import (
	"holdfast"
	"holdfast/command/cli"
	"holdfast/command/internal/rows"
)

// plainRow is an error if what is to be put into b, not by --blob-columns, is not a row and b has rows with columns of
// blobs.
func (m *importer) plainRow(b *holdfast.Bucket, r record) error {
	if m.plain != b {
		t, err := rows.Read(b)
		if err != nil {
			return err
		}
		m.plain, m.found = b, t
	}
	if m.found == nil || m.rows == nil && m.found.Takes(r.value) == nil {
		return nil
	}
	return m.conflict(r.line, "; give the --blob-columns with which they were imported, or another bucket", "bucket %s has rows with columns of blobs", cli.BriefPath(r.path))
}
