/* commit_store.pml: part of commit.pml: a page cache over a disk, and what
 * crashes and failed flushes leave of it.
 *
 * A write goes to the page cache and makes a block dirty.  The kernel may write a
 * dirty block back at any time; that matters only if the block is then written
 * again (wr, wrslot), is lost (power) or is thrown away (evict).  A flush writes
 * all that is dirty.  A flush that fails writes some of it and calls all of it
 * clean: from then on the cache shows what the disk has not, and a later flush
 * succeeds without writing it.
 *
 * The content of a page is a stamp: the name of the transaction that wrote it.
 * Reading a stamp that is not the expected one stands for a hash or a structure
 * that is wrong, so the hash itself is taken to be perfect.
 */

/* a page that cannot be read: torn, zero, behind the end of the file */
#define UNREADABLE 0
#ifdef MUT_NO_BOUNDS
#define EOFV 254		/* behind the end of the file, told apart */
#else
#define EOFV UNREADABLE
#endif
#define FLS 100			/* stamp of a freelist page that was written for state d: FLS+d */

/* kinds of meta page */
#define INVALID 0		/* its checksum is wrong */
#define V2 1			/* a valid v2 meta, and no extension that verifies */
#define EXT 2			/* a valid v2 meta, and an extension */

typedef Slot {			/* a meta page */
	byte kind;
	byte label;		/* v2 txid */
	byte v2;		/* the state that the v2 meta names: what stock opens */
	byte trail;		/* the state that a trailing extension names; 0: plain */
	byte flist		/* freelist page + 1; 0: 2^64-1, none */
};
Slot cslot[2];			/* in the page cache */
Slot dslot[2];			/* on the disk */
byte cache[NP];			/* in the page cache */
byte disk[NP];			/* on the disk */
int dirty; byte sdirty;	/* dirty pages, dirty slots: what a flush writes */
int inflush; byte sinflush;	/* what the flush that is running must write (Periodic) */
bit stale;			/* a flush has failed since the machine was started */

#define BIT(p) (1<<(p))
#define HAS(set, p) (((set)>>(p)) & 1)
#define VALID(s) (cslot[s].kind != INVALID)

inline cpslot(a, b) {
	a.kind = b.kind; a.label = b.label; a.v2 = b.v2; a.trail = b.trail; a.flist = b.flist
}
inline clrslot(a) {
	a.kind = INVALID; a.label = 0; a.v2 = 0; a.trail = 0; a.flist = 0
}

/* write a page */
inline wr(pg, val) {
	if
	:: HAS(dirty, pg) && cache[pg] != disk[pg] ->	/* written back before */
		disk[pg] = cache[pg]; inflush = inflush & ~BIT(pg)
	:: skip
	fi;
	cache[pg] = val;
	dirty = dirty | BIT(pg)
}
/* write meta page s: kind EXT but for stock's */
inline wrslot(s, K, L, dd, tt, fn) {
	if
	:: HAS(sdirty, s) -> cpslot(dslot[s], cslot[s]); sinflush = sinflush & ~BIT(s)
	:: skip
	fi;
	x = L; y = s;		/* the arguments may depend on the slot */
	cslot[y].kind = K; cslot[y].label = x; cslot[y].v2 = dd; cslot[y].trail = tt; cslot[y].flist = fn;
	sdirty = sdirty | BIT(y);
	x = 0; y = 0
}
/* writes of a process that may be killed among them: any of them may be missing,
 * because they are issued in any order */
inline wr_or_die(pg, val) {
	if
	:: dies -> skip
	:: wr(pg, val)
	fi
}
inline wrslot_or_die(s, K, L, dd, tt, fn) {
	if
	:: dies -> skip
	:: wrslot(s, K, L, dd, tt, fn)
	fi
}

/* a flush that succeeds */
inline flush() {
	d_step {
		i = 0;
		do
		:: i == NP -> break
		:: else -> if :: HAS(dirty, i) -> disk[i] = cache[i] :: else fi; i++
		od;
		if :: HAS(sdirty, 0) -> cpslot(dslot[0], cslot[0]) :: else fi;
		if :: HAS(sdirty, 1) -> cpslot(dslot[1], cslot[1]) :: else fi;
		dirty = 0; sdirty = 0; inflush = 0; sinflush = 0; i = 0
	}
}
/* a flush that fails */
inline flush_fails() {
	i = 0;
	do
	:: i == NP -> break
	:: i < NP && HAS(dirty, i) -> disk[i] = cache[i]; i++
	:: i < NP -> i++
	od;
	if :: HAS(sdirty, 0) -> cpslot(dslot[0], cslot[0]) :: skip fi;
	if :: HAS(sdirty, 1) -> cpslot(dslot[1], cslot[1]) :: skip fi;
	dirty = 0; sdirty = 0; inflush = 0; sinflush = 0; i = 0; stale = 1
}

/* what is clean of pages set is read from the disk again */
inline drop_pages(set) {
	d_step {
		i = 0;
		do
		:: i == NP -> break
		:: else -> if :: HAS(set, i) && !HAS(dirty, i) -> cache[i] = disk[i] :: else fi; i++
		od;
		i = 0
	}
}
inline drop_slots() {
	d_step {
		if :: !HAS(sdirty, 0) -> cpslot(cslot[0], dslot[0]) :: else fi;
		if :: !HAS(sdirty, 1) -> cpslot(cslot[1], dslot[1]) :: else fi
	}
}
/* the kernel does that by itself, to one block; it shows only after a failed flush */
inline evict() {
	i = 0;
	do
	:: i == NP -> break
	:: i < NP && !HAS(dirty, i) && cache[i] != disk[i] -> cache[i] = disk[i]; break
	:: i < NP -> i++
	od;
	i = 0
}

inline power_slot(s) {
	if
	:: HAS(sdirty, s) -> cpslot(dslot[s], cslot[s])		/* written */
	:: HAS(sdirty, s) -> clrslot(dslot[s])			/* torn in the v2 meta */
	:: HAS(sdirty, s) && cslot[s].kind == EXT ->		/* torn in the extension */
		cpslot(dslot[s], cslot[s]); dslot[s].kind = V2; dslot[s].trail = 0
#ifdef MUT_EXT_COVERS
	:: HAS(sdirty, s) && cslot[s].kind == EXT && dslot[s].kind == EXT ->
		/* the new v2 meta over the old extension, whose checksum is right */
		dslot[s].label = cslot[s].label; dslot[s].v2 = cslot[s].v2; dslot[s].flist = cslot[s].flist
#endif
	:: skip							/* not written */
	fi;
	cpslot(cslot[s], dslot[s])
}
/* power loss: each dirty block is old, new or garbage; the cache is gone */
inline power() {
	i = 0;
	do
	:: i == NP -> break
	:: i < NP && HAS(dirty, i) -> disk[i] = cache[i]; i++
	:: i < NP && HAS(dirty, i) && disk[i] != UNREADABLE && disk[i] != EOFV ->
		disk[i] = UNREADABLE; cache[i] = UNREADABLE; i++
	:: i < NP -> cache[i] = disk[i]; i++
	od;
	power_slot(0); power_slot(1);
	dirty = 0; sdirty = 0; i = 0; killed = 0; stale = 0
}
