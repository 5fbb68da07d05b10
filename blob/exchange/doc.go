// Package exchange copies blobs from one store to another over a pair of byte streams: a
// network connection, pipes, the standard input and output of a command that ssh runs. Of
// each blob only the chunks are sent that the receiving store does not have.
//
// One side calls [Serve], the other [Push] or [Pull]:
//
//	err := exchange.Serve(ctx, conn, db, open, exchange.Options{})             // there
//	stats, err := exchange.Push(ctx, conn, db, open, refs, exchange.Options{   // here
//		Lease: "nightly", Expires: time.Now().Add(24 * time.Hour)})
//
// # What is received
//
// The receiver goes through the tree of each blob from its root, and asks for what it does
// not have: nodes, and then leaves in the order of the content, so many at a time that the
// delay of the connection does not bound the rate. It knows the address, level and size of
// each chunk that it asks for from the reference or from a node that it has verified, and
// compares what arrives with them before it stores any of it. So a peer that lies, or data
// that is damaged on the way, is an error, and nothing else. A chunk of its own store that the
// receiver has to read, and finds damaged, it asks for, too, and stores again.
//
// A blob that is there in whole is held by the lease of Options.Lease, which is its only new user: retain
// it, or name it in a row, and then release the lease. What has arrived of a blob is an ingest
// of the store (blob.Ingest), named "exchange", the lease and the reference. It is committed
// after each 16 MiB, and when the connection breaks; the next exchange with the same lease goes on there.
// If there is none for as long as Options.Keep says, Collect removes it.
//
// Both stores must have the same hash function, chunking and leaf size: with others, equal
// content has other addresses. Of encrypted stores both must have the same key: each side tells its id, and chunks are
// encrypted on the way, so that a peer without the key learns none of the content. The SHA-256 of whole blobs (blob.Store.ByDigest) is not
// carried over, for it cannot be verified chunk by chunk.
//
// # Limits
//
// The receiver takes some 50 MiB of memory, or five of the longest leaves if that is
// more, whatever the peer sends; the sender a few MiB, or three of the longest leaves. The
// list of all blobs of a store takes 100 bytes of memory for each. No transaction is open
// while a peer is waited for.
//
// # Trust
//
// A peer that is served can read each blob of the store, and any chunk whose address it
// knows. Unless Options.ReadOnly is set it can store blobs, and name a lease for them; with
// Options.Lease that one holds them, whatever the peer names. Who may connect, and what is to
// be seen on the way, is for what makes the connection. A peer that is silent is waited for
// until the context ends; so is the rest of a message whose length was damaged on the way.
package exchange
