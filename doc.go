/*
Package holdfast is an embedded key-value store in one file. It has the API of
bbolt v1.5.0, name for name and meaning for meaning, and reads and writes bbolt's
file format, so that a database can go back and forth between the two.

# The four types

A [DB] is an open file. Only one process can have it open for writing.

A [Tx] is a transaction: the database as it was when the transaction began.
Any number may read at once; one may write. All that it does happens at once
when it commits, or not at all.

A [Bucket] is a sorted collection of keys with values, and of further buckets.
Every key belongs to one. Buckets exist only within a transaction: ask for them
by name each time.

A [Cursor] is a place in a bucket, and moves over its keys in order. For plain
loops [Bucket.All], [Bucket.Range] and [Bucket.Backward] are shorter.

# Transactions

[DB.View] and [DB.Update] run a function in a transaction and end it, whatever
happens:

	err := db.Update(func(tx *holdfast.Tx) error {
		b, err := tx.CreateBucketIfNotExists([]byte("fruit"))
		if err != nil {
			return err // and nothing of this transaction happened
		}
		return b.Put([]byte("apple"), []byte("red"))
	})

When Update has returned nil the change is on the disk. An error of the function,
or a panic in it, undoes everything. Many small transactions of many goroutines
are cheaper together: [DB.Batch].

[DB.Begin] gives a transaction that you end yourself, with [Tx.Commit] or
[Tx.Rollback]. A reading transaction must be ended too, or the pages that it sees
are never used again and the file grows. Several goroutines may use one reading
transaction, each with cursors of its own. A writing one is for one goroutine.

# How long a slice is good

Keys and values that come from a transaction point into the mapped file. They are
good until the transaction ends, and must not be changed; writing to one ends the
program. Copy what you keep:

	var color []byte
	err := db.View(func(tx *holdfast.Tx) error {
		color = bytes.Clone(tx.Bucket([]byte("fruit")).Get([]byte("apple")))
		return nil
	})

The other way round, a value that was given to [Bucket.Put] must stay as it is
until the transaction has ended. Keys are copied.

# What differs from bbolt

Readers hold no lock. A writer that has to grow the file does not wait for them,
they do not wait for it, and a new reader does not wait for either.

No freelist is written with a commit, however many pages are free. [DB.Close]
writes it once, in bbolt's format, unless [Options.NoFreelistSync] is set.

A commit takes one flush, which it shares with those that are under way at the same
time. After a crash stock bbolt may find the state before the last flush, until
Holdfast has opened the file once for writing, or [Settle] was called;
[Options.StrictCompat] has commits take two flushes instead. [Options.Durability]
chooses what a commit waits for.

Damage in the file is an error: a [*CorruptError], which names the page. Where a call
has no error to return, such as [Bucket.Get], it returns nothing, and the transaction
keeps the error: [Tx.Err] returns it, and so do View, Update, Batch, Commit and Rollback,
joined to the error of the function if there is one. A transaction that has met damage
cannot be committed. In a reading transaction from [DB.Begin], whose Rollback is often
deferred and its error dropped, such a call panics with the error, unless
[Options.OnDamage] is [DamageIsError].

The function of Update may run on top of a commit that is still being flushed. If that flush
fails, both fail; but what the function did elsewhere stays. A function that renames or
deletes files needs [Options.DurableBase].

After a flush has failed nothing more is written until the database has been
opened again, because it is not known what the disk holds: [ErrStopped].

No goroutine runs while a database is idle.

# Errors

Where bbolt returns a bare error value, so does this package: compare with ==.
Errors of the system are wrapped; use errors.Is. Damage is found with errors.As:

	var damage *holdfast.CorruptError
	if errors.As(err, &damage) {
		log.Printf("page %d: %s", damage.Page, damage.Reason)
	}

docs/errors.md in the repository has a table of what each bad input gives.
*/
package holdfast
