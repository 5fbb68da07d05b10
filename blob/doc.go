// Package blob keeps values of any size, from nothing to terabytes, in a bucket
// of a Holdfast database. A blob is written and removed in ordinary
// transactions, so it commits together with the row that names it.
//
// A blob is immutable and named by its content: a [Ref] holds the hash of the
// blob, its size, and how many levels its tree has. A blob of at most a leaf
// (65,488 bytes with pages of 4 KiB, unless Options.LeafSize says otherwise) is one chunk, and its address
// is the plain hash of its bytes: with SHA-256 the digest that OCI registries
// use. A longer one is a tree of chunks, each named by the hash of its bytes.
// Equal content is stored once, however often and in whatever pieces it was
// written.
//
// [Create] makes a [Store] of an empty bucket and [Open] opens it in a
// transaction. [Store.Put] writes a value that is in memory, [Store.Writer] one
// that comes in pieces, [Store.Reader] reads any part of a blob and verifies
// every chunk against its address. [Store.Delete] gives up one use of a blob;
// what is not used any more is removed by Collect, in pieces.
//
// # Transactions and lifetime
//
// A Store, and all that comes from it, belongs to the transaction of its bucket
// and is valid as long as that. In a reading transaction it may be used by
// several goroutines at once; in a writing one by one goroutine. New chunks are
// gathered in memory, a MiB at most, and brought to the bucket in the order
// of their addresses; what is left is brought there when the transaction
// commits. A second Store on the same bucket in the same transaction is
// correct, but does not see what the first has gathered until then.
//
// # Encryption
//
// A store that is created with Options.Key has nothing of the content in clear in the file: leaves are
// encrypted, each address is a hash with the key, [FastCDC] cuts as the key says, and what is kept of unfinished
// ingests and of digests of whole blobs is encrypted, too. [OpenEncrypted] opens it. Its Refs, [KeyedBLAKE3], name
// nothing in other stores, unless these have the same key, and tell nothing of the content but its size. What is to be
// seen in the file: how many chunks there are, how long each is, before and after compression, how they are joined to
// blobs, and how often each is used; when what was written; the names of leases and ingests. Bytes that were changed without
// the key are errors, as all that is damaged; but a whole file, or store, can be replaced by an older state of it.
//
// # Limits
//
// A blob has at most 2^63-1 bytes. A single value of a bucket is never longer
// than four times the leaf size. Memory does not depend on the size of
// blobs: some 10 MiB for a Store that writes, two of the longest leaves for each Writer,
// 64 KiB for a Reader. With compression it is some 4 MiB more, 3 MiB (ZstdBetter: 6) for each goroutine that compresses, and two
// of the longest leaves more for each Reader; a Writer that is Concurrent, and a Put, have up to 16 leaves compressed beside. What a transaction has changed is written early when it takes
// more than 2 MiB (holdfast.Tx.Spill).
package blob
