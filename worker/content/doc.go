// Package content keeps content by its digest, as registries and containerd name it, in one file of the engine:
//
//	store, err := content.Open("content.db", content.Options{})
//	w, err := store.Writer(ctx, "layer-1", content.Expected{Size: n, Digest: d})
//	_, err = io.Copy(w, r)
//	info, err := w.Commit(ctx, n, d, labels)
//	n, err := store.ReadAt(ctx, d, p, offset)
//
// What is written has a name, its ref, until it is committed. A writer that is closed before that, also by the end of the
// process, is continued by the next one of the same ref: at the offset that its Status tells. One writer at a time has a ref.
//
// Content that is committed is on the disk. What is deleted frees its space in the background. A Store is safe for concurrent
// use; reading holds no transaction open between calls.
//
// Data are chunks of a blob.Store, so equal chunks are stored once and each is compared with its hash when it is read.
package content
