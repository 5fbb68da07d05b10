//go:build (unix && !linux && !darwin && !openbsd) || windows

package vfs

// copyLimit bounds the buffer that small buffers are copied into.
var copyLimit = vecLimit{buffers: 1024, bytes: 256 << 10}

// writeVec copies small buffers together, because copying them costs less
// than a system call for each.
func (f *OSFile) writeVec(bufs [][]byte, off int64) error {
	var together []byte
	return writeVec(bufs, off, copyLimit, func(batch [][]byte, off int64) (int, error) {
		if len(batch) == 1 {
			return f.file.WriteAt(batch[0], off)
		}
		together = together[:0]
		for _, buf := range batch {
			together = append(together, buf...)
		}
		return f.file.WriteAt(together, off)
	})
}
