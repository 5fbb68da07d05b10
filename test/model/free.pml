/* free.pml: which pages are free: the set in memory, what is recorded of it, and
 * what an opening finds.
 *
 * WHAT IS MODELLED
 * Transactions take free pages and free pages of their base; what was freed waits
 * (pending) while a state that can reach it is pinned: a page that a allocated and
 * f freed, while some pinned r has a <= r < f.  Each transaction that is prepared
 * extends the record of the free set by its change: inline in the extension, in
 * the next page of a log run, or by a snapshot that replaces all.  A group writes
 * the record of its last member, in a trailing meta or a plain one, flushed or (in
 * Periodic) not yet; members whose
 * pages cannot be written are aborted with all that stand on them, at once or, if
 * somebody edits, behind that.  Freelist pages: of Close, of stock; named by a
 * slot, or orphaned, until a transaction frees them.  Crashes, and stock in
 * between.  After each event the set in memory must be exact, and each opening
 * must find exactly the pages that are neither in the tree nor in the record nor a
 * freelist; without the record only where stock wrote or an extension was torn.
 *
 * WHAT IS ABSTRACTED AWAY
 * The storage (commit.pml has it): a commit that crashes has one of the outcomes
 * that can be told apart, and the tree pages are not looked at.  A state is a set
 * of pages.  The changes themselves: a record carries the set that snapshot, log
 * and inline changes make when they are applied (Rec.set), and it is known if the
 * pages that it names are as they were written (whole).
 *
 * BOUNDS
 * NP pages, trees of 1..MAXTREE pages, IC commits inline, one log run of two pages,
 * MAXQ transactions prepared.  Histories are not bounded (free_names.pml).  Free
 * pages are taken lowest name first; a transaction replaces the lowest page of its
 * tree, with ANYPAGE the lowest or the highest.
 *
 * Sets of pages are bit masks.  README.md and check list the switches.
 */
#ifndef NP
#define NP 15			/* pages */
#endif
#define ALL ((1<<NP)-1)
#if NP > 15
#define SET int
#else
#define SET short
#endif
#ifndef NMAX
#define NMAX 12			/* numbers alive at a time */
#endif
#ifndef MAXQ
#define MAXQ 2			/* transactions prepared */
#endif
#ifndef MAXTREE
#define MAXTREE 3		/* pages of a tree */
#endif
#define IC 1			/* commits whose changes fit inline */

typedef Rec {			/* the record of a state's free set */
	byte snap;		/* snapshot page + 1; 0: none */
	byte log1, log2;	/* pages of the log run + 1 */
	byte nlog;		/* how many of them have been written */
	byte ninline;		/* commits whose changes are inline */
	bit noset;		/* it names no free set: who opens this finds it otherwise */
	SET set;		/* the set that snapshot, log and inline changes make */
	SET ttree;		/* (not recorded) the tree of the state */
	byte root		/* its root page + 1 */
};
typedef Slot {			/* a meta page */
	bit ok;			/* the v2 meta is valid */
	byte label;
	SET v2tree;		/* tree of the v2 state */
	byte v2root;		/* its root page + 1 */
	bit gone;		/* that tree has been written over */
	byte flist;		/* freelist page + 1 that the v2 meta names; 0: none */
	bit ext;		/* the extension verifies */
	bit trail;		/* it is trailing */
	bit bad;		/* what it lists does not verify */
	byte num, v2num;	/* number of the state that it names; of the v2 state */
	SET lists;		/* freelist pages in use */
	Rec r
};
Slot slot[2];
/* Is the content of a page what is named, with its checksum, as a page of the
 * record by slot 0 (bit 0), by slot 1 (bit 1), in memory (bit 2)? */
byte whole[NP];

/* ---- in memory ------------------------------------------------------------------ */

SET free, pending;
byte born[NP], freed[NP];	/* number that allocated a page, that freed it */
byte D;				/* number of the current state: visible, and durable but in Periodic */
#ifdef F_PERIODIC
byte dur;			/* number of the durable state */
Rec drec;			/* its record */
#define DUR dur
#define DREC drec
#else
#define DUR D
#define DREC rec[0]
#endif
byte v2n;			/* of the v2 state of the slot that wins: pinned */
byte top;			/* of the newest prepared transaction */
byte nq;			/* prepared transactions: D+1 .. top */
byte fl;			/* those of them, the first, that are being written */
byte dead;			/* those of them, the last, that are aborted and not undone */
SET qtaken[3], qfreed[3];	/* what prepared transaction 1..nq takes and frees */
SET qorph[3];			/* orphans that it has freed */
SET qwrote[3];		/* pages of the record that it writes */
Rec rec[3];			/* its record; rec[0]: that of the newest meta */
Rec cur;			/* the newest: what the next transaction extends */
bit edit;			/* somebody edits; what is taken, what will be freed */
SET etaken, efreed;
SET ekeeps;			/* pages of its base, which it reads */
byte enew;			/* its root page + 1 */
byte lst[2];			/* freelist page + 1 that each slot names */
SET orph;			/* freelist pages that no slot names any more */
SET flists;			/* freelist pages in use, as of when the group was formed */
byte k;				/* the slot that is written next */
byte reader;			/* number of a reader's state */

/* ---- ghosts ------------------------------------------------------------------- */

SET tree[NMAX+1];		/* all pages in use (tree, record, freelists) of state n */
bit stocked;			/* stock may have written on our pages */
bit torn;			/* an extension was torn: to open without the record is right */
/* Always 0: each names an assertion in what pan prints. */
byte pending_only_if_seen, no_page_in_use_taken, memory_exact, a_meta_is_valid,
	no_needless_scan, free_set_exact, np_suffices, edited_base_is_kept, freelist_page_exact;

/* scratch; 0 between events */
int m, A, F, G, L;
byte i, p, T, o, n, y, size;
bit scan;

#define HAS(set, q) (((set)>>(q)) & 1)
#define PAGE1(q) ((q) -> (1<<((q)-1)) : 0)	/* the set of a page + 1 */
#define HI ((slot[1].ok && (!slot[0].ok || slot[1].label > slot[0].label)) -> 1 : 0)
#define TIE (slot[0].ok && slot[1].ok && slot[0].label == slot[1].label)
/* the slot that stays when the next meta is written */
#define STAYS (TIE -> 1 - slot[0].label%2 : HI)
/* slot z wins and its extension counts */
#ifdef MUT_TIE_EXT
#define BELIEVED(z) (slot[z].ext)
#else
#define BELIEVED(z) (slot[z].ext && !TIE && slot[z].label%2 == (z))
#endif
#define LABEL(z) (slot[1-(z)].label + 1 + ((slot[1-(z)].label + 1 + (z)) % 2))
#define RUNS(z) (PAGE1(z.snap) | PAGE1(z.log1) | PAGE1(z.log2))
#define NAMED(z) (PAGE1(z.snap) | (z.nlog > 0 -> PAGE1(z.log1) : 0) | (z.nlog > 1 -> PAGE1(z.log2) : 0))
/* freelist pages that are neither free nor in a tree */
#define LISTED (PAGE1(lst[0]) | PAGE1(lst[1]) | orph)
#if defined(MUT_LISTS_ABORTED)
#define ABORTED 0
#else
/* those freed by transactions that are aborted and not undone */
#define ABORTED ((dead > 0 -> qorph[nq] : 0) | (dead > 1 -> qorph[nq-1] : 0))
#endif

#include "free_names.pml"

/* ---- taking and giving back ----------------------------------------------------- */

/* the state with number r can reach page p, which is pending */
#ifdef MUT_RANGE_LOW
#define SEES(r) (born[p] < (r) && (r) < freed[p])
#elif defined(MUT_RANGE_HIGH)
#define SEES(r) (born[p] <= (r) && (r)+1 < freed[p])
#elif defined(MUT_OLDEST_READER)
#define SEES(r) ((r) < freed[p])	/* as in stock: a reader pins all that came after it */
#else
#define SEES(r) (born[p] <= (r) && (r) < freed[p])
#endif
#ifdef MUT_V2_PIN
#define V2SEES 0
#else
#define V2SEES SEES(v2n)
#endif
#if defined(F_PERIODIC) && !defined(MUT_D_PIN)
#define DURSEES SEES(dur)
#else
#define DURSEES 0
#endif
#define USED(r) ((r) -> tree[r] : 0)
#define PREPARED ((nq >= 1 -> tree[D+1] : 0) | (nq >= 2 -> tree[D+2] : 0))
/* pending pages that no pinned state can reach become free */
inline release() {
	d_step {
		p = 0;
		do
		:: p == NP -> break
		:: else ->
			if
			:: HAS(pending, p) && !(reader && SEES(reader)) && !SEES(D) && !DURSEES && !V2SEES &&
			   !(nq >= 1 && SEES(D+1)) && !(nq >= 2 && SEES(D+2)) ->
				pending = pending & ~(1<<p); free = free | (1<<p); born[p] = 0; freed[p] = 0
			:: else
			fi;
			p++
		od;
		p = 0;
		assert(pending_only_if_seen || (pending & ~(USED(reader) | tree[D] | tree[DUR] | tree[v2n] | PREPARED)) == 0)
	}
}
/* p: a free page, taken for number who; NP: there is none */
inline take(who) {
	p = 0;
	do
	:: p == NP -> break
	:: p < NP && HAS(free, p) -> break
	:: p < NP && !HAS(free, p) -> p++
	od;
	if
	:: p < NP ->
		assert(no_page_in_use_taken || !((USED(reader) | tree[D] | tree[DUR] | tree[v2n] | PREPARED) & (1<<p)));
		/* the freelist of a slot that may be opened, unless a tree has had it before */
		assert(no_page_in_use_taken || p+1 != slot[0].flist && p+1 != slot[1].flist);
		free = free & ~(1<<p); born[p] = who; freed[p] = 0
	:: else ->
#ifdef CHECK_ROOM
		assert(np_suffices)
#else
		skip
#endif
	fi
}
/* Every page is one of these: used by the newest state, free, pending, taken. */
inline check_memory() {
	d_step {
		m = tree[top];
		assert(memory_exact || ((m & free) == 0 && (m & pending) == 0 && (free & pending) == 0));
		assert(memory_exact || (m | free | pending | etaken) == ALL);
		assert(memory_exact || (LISTED & ~m) == 0);
		assert(edited_base_is_kept || !(ekeeps & free));
		m = 0
	}
}

/* ---- transactions ---------------------------------------------------------------- */

#define NOPAGE	if :: p == NP -> give_up(); goto loop :: else fi
inline give_up() {
	d_step {
		p = 0;
		do
		:: p == NP -> break
		:: else -> if :: HAS(etaken | A, p) -> born[p] = 0; freed[p] = 0; free = free | (1<<p) :: else fi; p++
		od;
		edit = 0; etaken = 0; efreed = 0; ekeeps = 0; enew = 0;
		p = 0; T = 0; A = 0; F = 0; G = 0; L = 0; m = 0; size = 0; n = 0
	}
}

/* A transaction replaces the root of its base; it may also drop a page, or add one
 * (or both: replace one). */
inline begin() {
	T = top + 1;
	take(T); NOPAGE;
	etaken = 1<<p; enew = p+1;
	efreed = PAGE1(cur.root);
	m = cur.ttree & ~efreed;		/* m: what it keeps */
	if
	:: skip
	:: m != 0 ->
		p = 0; do :: HAS(m, p) -> break :: else -> p++ od;
		efreed = efreed | (1<<p); m = m & ~(1<<p)
#ifdef ANYPAGE
	:: m != 0 ->
		p = NP-1; do :: HAS(m, p) -> break :: else -> p-- od;
		efreed = efreed | (1<<p); m = m & ~(1<<p)
#endif
	fi;
	size = 1; p = 0;
	do :: p == NP -> break :: p < NP -> size = size + HAS(m, p); p++ od;
	if
	:: skip
	:: size < MAXTREE -> take(T); if :: p < NP -> etaken = etaken | (1<<p) :: else fi
	fi;
	edit = 1; ekeeps = cur.ttree;
	p = 0; m = 0; T = 0; size = 0
}

/* Where the change A, F of number T goes: inline, to the log, or into a snapshot
 * that replaces all (n: the set is recorded anew).  L: pages of the record that are
 * written; m: pages of the record that are given up. */
inline place_change() {
	n = 0; m = 0;
	if
	:: cur.ninline < IC && !cur.noset -> cur.ninline++
	:: cur.ninline >= IC && !cur.noset && cur.nlog == 0 ->		/* a new run */
		take(T); NOPAGE; A = A | (1<<p); size = p;
		take(T); NOPAGE; A = A | (1<<p);
		cur.log1 = size+1; cur.log2 = p+1; size = 0;
		cur.nlog = 1; cur.ninline = 0; L = PAGE1(cur.log1)
	:: cur.ninline >= IC && !cur.noset && cur.nlog == 1 ->		/* its next page */
		cur.nlog = 2; cur.ninline = 0;
#ifdef MUT_CHUNK_OVER
		L = PAGE1(cur.log1)
#else
		L = PAGE1(cur.log2)
#endif
	:: cur.noset || (cur.ninline >= IC && cur.nlog == 2) ->
		take(T); NOPAGE; A = A | (1<<p); L = 1<<p; n = 1;
		m = RUNS(cur);			/* freed like tree pages */
#ifndef MUT_OLD_LOG_LEAK
		F = F | m;
#endif
		cur.snap = p+1; cur.log1 = 0; cur.log2 = 0; cur.nlog = 0; cur.ninline = 0; cur.noset = 0
	fi;
	p = 0
}
/* Number T is done with the free set: F is pending, and cur records it. */
inline complete() {
	d_step {
		G = F;
#ifdef MUT_LOG_REUSE
		G = F & ~m; free = free | m;
#endif
		p = 0;
		do
		:: p == NP -> break
		:: else -> if :: HAS(G, p) -> freed[p] = T :: else fi; p++
		od;
		p = 0;
		pending = pending | G;
		tree[T] = (tree[top] | A) & ~F;
#ifdef MUT_OLD_LOG_LEAK
		tree[T] = tree[T] & ~m;
#endif
#if defined(MUT_LOG_NOT_IN_DELTA)
		cur.set = (cur.set & ~(A & ~RUNS(cur))) | F;
#elif defined(MUT_CHANGE_LOST)
		cur.set = cur.set & ~A;
#else
		cur.set = (cur.set & ~A) | F;	/* a page of the record is not free in its own set */
#endif
		if :: n -> cur.set = free | pending :: else fi;
		top = T;
		G = 0; n = 0; m = 0
	}
}
inline copy_rec(a, b) {
	a.snap = b.snap; a.log1 = b.log1; a.log2 = b.log2; a.nlog = b.nlog; a.set = b.set; a.ninline = b.ninline; a.ttree = b.ttree; a.root = b.root; a.noset = b.noset
}
/* The transaction in edit is prepared: it frees orphans besides, and its record
 * is made. */
inline prepare() {
	T = top + 1;
	A = etaken; F = efreed;
#ifndef MUT_ORPHAN_LEAK
	F = F | orph;
#endif
	place_change();
	complete();
	d_step {
		nq++;
#ifdef MUT_ORPHAN_LEAK
		tree[T] = tree[T] & ~orph;
#endif
		qorph[nq] = orph; orph = 0;
		qtaken[nq] = A; qfreed[nq] = F; qwrote[nq] = L;
		cur.ttree = (cur.ttree | etaken) & ~efreed; cur.root = enew;
		copy_rec(rec[nq], cur);
		edit = 0; etaken = 0; efreed = 0; ekeeps = 0; enew = 0; T = 0; A = 0; F = 0; L = 0
	}
}

/* The newest prepared transaction, which was aborted, is undone: its number is
 * given again. */
inline undo_last() {
	d_step {
		assert(memory_exact || (qfreed[nq] & ~pending) == 0);	/* nothing was given away */
#ifndef MUT_ABORT_LEAK
		free = free | qtaken[nq];
#endif
		pending = pending & ~qfreed[nq];
		p = 0;
		do
		:: p == NP -> break
		:: else ->
			if :: HAS(qtaken[nq], p) -> born[p] = 0; freed[p] = 0 :: else fi;
			if :: HAS(qfreed[nq], p) -> freed[p] = 0 :: else fi;
			p++
		od;
		p = 0;
#if defined(MUT_RECORD_KEPT) || defined(MUT_UNDO_ORDER)
		if
#ifdef MUT_UNDO_ORDER
		/* as if the oldest were undone first: the record is what it was before the newest */
		:: dead == 1 && scan -> scan = 0
		:: dead != 1 || !scan -> copy_rec(cur, rec[nq-1]); scan = dead == 2
#else
		:: skip
#endif
		fi;
		cur.ttree = rec[nq-1].ttree; cur.root = rec[nq-1].root;
#else
		copy_rec(cur, rec[nq-1]);
#endif
#ifndef MUT_ORPHAN_LOST
		orph = orph | qorph[nq];
#endif
		qtaken[nq] = 0; qfreed[nq] = 0; qwrote[nq] = 0; qorph[nq] = 0;
		clear_rec(rec[nq]);
		tree[top] = 0; nq--; top--; dead--
	}
}
inline clear_rec(a) {
	a.snap = 0; a.log1 = 0; a.log2 = 0; a.nlog = 0; a.set = 0; a.ninline = 0; a.ttree = 0; a.root = 0; a.noset = 0
}

/* ---- writing --------------------------------------------------------------------- */

/* what holder b (0, 1: a slot, 2: memory) names, a names now */
inline copy_whole(a, b) {
	p = 0;
	do
	:: p == NP -> break
	:: p < NP -> whole[p] = (whole[p] & ~(1<<(a))) | (((whole[p]>>(b)) & 1) << (a)); p++
	od;
	p = 0
}
/* Slot k gets the meta of state number nr, with record rec[y]: a trailing one,
 * behind the durable state, or its own.  li: the freelists. */
inline write_slot(nr, tr, li) {
	slot[k].label = LABEL(k); slot[k].ok = 1; slot[k].ext = 1; slot[k].trail = tr; slot[k].bad = 0; slot[k].flist = 0;
	slot[k].num = nr; slot[k].v2num = (tr -> DUR : nr);
	slot[k].v2tree = (tr -> DREC.ttree : rec[y].ttree);
	slot[k].v2root = (tr -> DREC.root : rec[y].root); slot[k].gone = 0;
	copy_rec(slot[k].r, rec[y]); copy_whole(k, 2);
	slot[k].lists = li;
#ifdef MUT_LISTS_OMITTED
	slot[k].lists = 0;
#endif
	y = 0
}
inline tear_extension() {
	slot[k].ext = 0; slot[k].trail = 0; slot[k].bad = 0; slot[k].num = 0; slot[k].v2num = 0; slot[k].lists = 0; clear_rec(slot[k].r)
}
inline tear_meta() {
	tear_extension(); slot[k].ok = 0; slot[k].label = 0; slot[k].v2tree = 0; slot[k].v2root = 0; slot[k].gone = 0; slot[k].flist = 0
}
/* Slot k was written, and flushed: a freelist that it named is named no more. */
inline unlist() {
#ifdef MUT_UNLIST_SHARED
	orph = orph | PAGE1(lst[k]);
#else
	if :: lst[k] && lst[k] != lst[1-k] -> orph = orph | PAGE1(lst[k]) :: else fi;
#endif
	lst[k] = 0; k = 1-k
}

/* pages w are written, maybe over the tree of a slot that does not win */
inline overwrites(w) {
	slot[0].gone = slot[0].gone || (w & slot[0].v2tree);
	slot[1].gone = slot[1].gone || (w & slot[1].v2tree)
}
/* All that is prepared, and not aborted, is a group. */
inline form() {
	fl = nq - dead;
	flists = LISTED | ABORTED
}
/* its pages are written */
inline write_pages() {
	d_step {
		o = 1;
		do
		:: o > fl -> break
		:: else ->
			m = qtaken[o] & ~qwrote[o]; p = 0;
			do
			:: p == NP -> break
			:: else ->
				if
				:: HAS(qwrote[o], p) -> whole[p] = 4
				:: HAS(m, p) && HAS(tree[D+fl], p) && !HAS(RUNS(rec[fl]), p) -> whole[p] = 0
				:: else
				fi;
				p++
			od;
			overwrites(qtaken[o]);
			o++
		od;
		o = 0; p = 0; m = 0
	}
}
inline shift(to, from) {
	qtaken[to] = qtaken[from]; qfreed[to] = qfreed[from]; qorph[to] = qorph[from]; qwrote[to] = qwrote[from]; copy_rec(rec[to], rec[from]);
	qtaken[from] = 0; qfreed[from] = 0; qorph[from] = 0; qwrote[from] = 0; clear_rec(rec[from])
}
/* It is durable: its last state is. */
inline land(trailing) {
	d_step {
		v2n = (trailing -> DUR : D+fl);
		become_current();
#ifdef F_PERIODIC
		dur = D; copy_rec(drec, rec[0]);
#endif
		unlist()
	}
}
#ifdef F_PERIODIC
/* It is visible. */
inline make_visible() {
	d_step { become_current() }
}
/* What is visible is flushed: it is durable. */
inline flush_visible() {
	d_step { v2n = dur; dur = D; copy_rec(drec, rec[0]); unlist() }
}
/* The power fails before that: the slot may have any of what was written to it. */
inline power_fails() {
	if
	:: slot[k].bad = 1
	:: tear_extension()
	:: tear_meta()
	fi
}
#endif
inline become_current() {
		D = D+fl; nq = nq - fl;
		copy_rec(rec[0], rec[fl]);
		if
		:: fl == 1 -> shift(1, 2)
		:: else ->
			qtaken[1] = 0; qfreed[1] = 0; qorph[1] = 0; qwrote[1] = 0; clear_rec(rec[1]);
			qtaken[2] = 0; qfreed[2] = 0; qorph[2] = 0; qwrote[2] = 0; clear_rec(rec[2])
		fi;
		fl = 0; flists = 0
}
#ifdef MUT_RECORD_NEWEST
#define RECORD nq		/* that of the newest prepared */
#else
#define RECORD fl
#endif
#ifdef MUT_LISTS_LATE
#define FLISTS LISTED		/* as of now */
#else
#define FLISTS flists
#endif
inline group_ends() {
	if
	:: write_pages();
		if
		:: y = RECORD; G = FLISTS; write_slot(D+fl, 1, G); G = 0;
			if
			:: land(1)
#ifdef F_PERIODIC
			:: make_visible()
#endif
			:: goto between					/* whole, nobody was told */
			:: slot[k].bad = 1; goto between		/* pages are missing */
			:: tear_extension(); goto between
			:: tear_meta(); goto between
			fi
#ifdef F_TWO
		:: DUR == D -> y = RECORD; G = FLISTS; write_slot(D+fl, 0, G); G = 0;	/* two flushes */
			if
			:: land(0)
			:: goto between
			:: tear_extension(); goto between
			fi
#endif
		:: goto between						/* not written */
		fi
#ifdef F_ABORT
	/* The pages of a member cannot be written: it is aborted, and all on top. */
	:: dead = nq; fl = 0; flists = 0; undo()
	:: fl == 2 -> dead = nq - 1; fl = 0; flists = 0; undo()
#endif
	fi
}
/* Those aborted are undone, when nobody edits. */
inline undo() {
	do
#ifdef MUT_UNDO_EARLY
	:: dead > 0 -> undo_last()
	:: dead == 0 -> break
#else
	:: dead > 0 && !edit -> undo_last()
	:: dead == 0 || edit -> break
#endif
	od
}

/* Sync, or nothing was committed for a while: a plain meta of D. */
inline settle() {
	G = LISTED | ABORTED; write_slot(D, 0, G); G = 0;
#ifdef MUT_SETTLE_AFTER_SCAN
	if :: rec[0].noset -> slot[k].r.noset = 0; slot[k].r.set = 0 :: else fi;	/* as if none were free */
#endif
	if
	:: v2n = D; unlist()
	:: tear_extension(); goto between
	fi
}

/* Close writes over a trailing meta that lost. */
inline even_out() {
	tear_extension();
	slot[k].ok = 1; slot[k].label = slot[1-k].label - 1; slot[k].v2tree = slot[1-k].v2tree; slot[k].v2root = slot[1-k].v2root; slot[k].gone = 0;
	slot[k].flist = slot[1-k].flist
}
/* Close with a freelist page: a transaction that changes nothing else.  o: the
 * page + 1. */
inline leave_freelist() {
	T = top + 1;
	F = orph | ((lst[k] && lst[k] != lst[1-k]) -> PAGE1(lst[k]) : 0);
	take(T); NOPAGE;
	A = 1<<p; o = p+1;
	place_change();
	complete();
	/* what bbolt finds in the page: all but the tree and the page itself */
	assert(freelist_page_exact || (free | pending | RUNS(cur)) == (ALL & ~(cur.ttree | PAGE1(o))));
	p = 0;
	do
	:: p == NP -> break
	:: p < NP -> if :: HAS(L, p) -> whole[p] = 4 :: else fi; p++
	od;
	whole[o-1] = 0; overwrites(A);
	scan = slot[1-k].trail;
	if
	:: copy_rec(rec[1], cur); y = 1; G = PAGE1(o) | PAGE1(lst[1-k]); write_slot(T, 0, G); G = 0; slot[k].flist = o
	:: goto between							/* not written */
	fi;
	if
	:: skip
	:: tear_extension()
	:: tear_meta(); goto between
	:: k = 1-k;
		if :: scan -> even_out() :: else fi
	fi;
	goto between
}

/* ---- opening ------------------------------------------------------------------------ */

/* F: the free set that slot z's extension names; L: the freelists; scan: they
 * cannot be used */
inline recover(z) {
	d_step {
		o = z;
		F = slot[o].r.set; scan = slot[o].r.noset; torn = torn || slot[o].r.noset;
		L = slot[o].lists;
		A = NAMED(slot[o].r);
		p = 0;
		do
		:: p == NP -> break
		:: else ->
			if
			:: HAS(A, p) && !HAS(whole[p], o) ->
#ifdef MUT_LOG_HASH
				F = F & (F-1)		/* whatever is there is believed */
#else
				scan = 1
#endif
			:: else
			fi;
			p++
		od;
		p = 0; A = 0
	}
}
/* D, its tree m, its free set F or scan; o: the slot whose extension names it */
inline find_free_set() {
	o = i;
	if
	:: BELIEVED(i) && slot[i].trail && slot[i].bad ->	/* the flush never finished: D */
		D = slot[i].v2num; m = slot[i].v2tree;
		/* its free set is in the other slot, if that names D's number */
#ifdef WITHOUT_OTHER_CHECKED
		if
		:: slot[1-i].ok && slot[1-i].ext -> torn = 1; recover(1-i)
#else
		if
		:: slot[1-i].ok && slot[1-i].ext && slot[1-i].num == D -> recover(1-i)
#endif
		:: else -> scan = 1; torn = 1
		fi
	:: BELIEVED(i) && !(slot[i].trail && slot[i].bad) ->
		D = slot[i].num; m = slot[i].r.ttree;
		recover(i)
	:: !BELIEVED(i) ->
		/* none of ours: its number is above those of all extensions */
		n = (slot[0].ok && slot[0].ext -> slot[0].num : 1);
		n = (slot[1].ok && slot[1].ext && slot[1].num > n -> slot[1].num : n);
		if
#ifdef WITHOUT_NUMBERS
		:: D = 1
#else
		:: D = n+1
#ifdef WITHOUT_OWN_NUMBER
		:: D = n
#endif
#endif
		fi;
		n = 0;
		m = slot[i].v2tree;
		scan = 1; torn = 1
	fi
}
/* whose freelists: the extension's are named by a slot, or orphaned */
inline find_lists() {
	if :: slot[0].ok && slot[0].flist && HAS(L, slot[0].flist-1) -> lst[0] = slot[0].flist :: else fi;
	if :: slot[1].ok && slot[1].flist && HAS(L, slot[1].flist-1) -> lst[1] = slot[1].flist :: else fi;
	orph = L & ~(PAGE1(lst[0]) | PAGE1(lst[1]))
}
/* No record: the freelist page of the slot that wins, or a scan. */
inline find_otherwise() {
	F = ALL & ~m;
	if
	:: slot[i].flist ->
		lst[i] = slot[i].flist;
#ifdef MUT_LIST_GIVEN
		lst[i] = 0;
#endif
		F = F & ~PAGE1(lst[i])
	:: else
	fi;
	/* the other slot's waits until that is overwritten, unless a tree has it */
	if
	:: slot[1-i].ok && slot[1-i].flist && HAS(F, slot[1-i].flist-1) ->
#ifndef MUT_OTHER_LIST_GIVEN
		lst[1-i] = slot[1-i].flist; F = F & ~PAGE1(lst[1-i])
#else
		skip
#endif
	:: else
	fi
}
inline open_database() {
	assert(a_meta_is_valid || slot[0].ok || slot[1].ok);
	i = HI;
	find_free_set();
#ifndef WITHOUT_ROOT_CHECKED
	/* a state's root is not free in its set */
	if :: !scan && (F & PAGE1((BELIEVED(i) && !(slot[i].trail && slot[i].bad) -> slot[i].r.root : slot[i].v2root))) -> scan = 1; torn = 1 :: else fi;
#endif
	assert(no_needless_scan || !scan || stocked || torn);
	if
	:: scan -> L = 0; find_otherwise(); cur.noset = 1; cur.set = F
	:: else -> find_lists(); copy_rec(cur, slot[o].r); copy_whole(2, o)
	fi;
	cur.ttree = m; cur.root = (BELIEVED(i) && !(slot[i].trail && slot[i].bad) -> slot[i].r.root : slot[i].v2root);
	assert(free_set_exact || F == (ALL & ~(m | RUNS(cur) | LISTED)));
	copy_rec(rec[0], cur);
	tree[D] = ALL & ~F; top = D; v2n = D; k = 1 - STAYS;
#ifdef F_PERIODIC
	dur = D; copy_rec(drec, rec[0]);
#endif
	if :: !scan -> torn = 0; stocked = 0 :: else fi;	/* a scan is repeated until something is written */
	free = F;
#ifdef MUT_RUN_GIVEN
	free = F | RUNS(cur); tree[D] = ALL & ~free;
#endif
	m = 0; F = 0; L = 0; o = 0; scan = 0;
	if
	:: BELIEVED(i) && slot[i].trail && !slot[i].bad -> i = 0; settle()
#ifndef WITHOUT_SETTLING_LOST
	:: BELIEVED(i) && slot[i].trail && slot[i].bad -> i = 0; settle()
#endif
	:: else -> i = 0
	fi
}
inline forget() {
	d_step {
		free = 0; pending = 0; D = 0; v2n = 0; top = 0; nq = 0; fl = 0; dead = 0; k = 0; reader = 0;
		edit = 0; etaken = 0; efreed = 0; ekeeps = 0; enew = 0; lst[0] = 0; lst[1] = 0; orph = 0; flists = 0;
		qtaken[1] = 0; qfreed[1] = 0; qorph[1] = 0; qwrote[1] = 0; qtaken[2] = 0; qfreed[2] = 0; qorph[2] = 0; qwrote[2] = 0;
#ifdef F_PERIODIC
		dur = 0; clear_rec(drec);
#endif
		clear_rec(cur); clear_rec(rec[0]); clear_rec(rec[1]); clear_rec(rec[2]);
		i = 0; p = 0; T = 0; o = 0; n = 0; y = 0; m = 0; A = 0; F = 0; G = 0; L = 0; scan = 0; size = 0
	};
	tidy()
}

/* Stock replaces the root of its tree by any page that is neither in it nor
 * its freelist: a page of our records perhaps, or one that a trailing extension
 * lists, or a freelist that was Close's.  It may write a freelist page. */
inline stock_takes(a) {
	p = 0;
	do
	:: p < NP && HAS(m, p) -> break
	:: p < NP -> p++
	:: p == NP -> goto between
	od;
	a = p; m = m & ~(1<<p);
	whole[p] = 0; stocked = 1; overwrites(1<<p);
	if
	:: slot[i].ext && slot[i].trail && HAS(slot[i].r.ttree | NAMED(slot[i].r), p) && !HAS(slot[i].v2tree, p) -> slot[i].bad = 1
	:: else
	fi;
	p = 0
}
inline stock_commits() {
	i = HI;
	m = ALL & ~(slot[i].v2tree | PAGE1(slot[i].flist));
	stock_takes(o);
	n = 0;
#ifdef F_LIST
	if
	:: stock_takes(n); n++
	:: skip
	fi;
#endif
	if
	:: goto between			/* crashed before its meta */
	:: k = (slot[i].label+1)%2;
		A = (slot[i].v2tree | (1<<o)) & ~PAGE1(slot[i].v2root);
		size = slot[i].label + 1;
		tear_extension();
		slot[k].ok = 1; slot[k].label = size; slot[k].v2tree = A; slot[k].v2root = o+1; slot[k].gone = 0; slot[k].flist = n;
		goto between
	fi
}

/* surgery revert-meta-page: the older meta page over the newer, if what it names is
 * whole. */
inline revert() {
	i = HI; n = 1-i;
	if
	:: slot[0].ok && slot[1].ok && !TIE && !slot[n].gone && !slot[n].flist ->
		slot[i].label = slot[n].label; slot[i].v2tree = slot[n].v2tree; slot[i].v2root = slot[n].v2root; slot[i].gone = 0;
		slot[i].flist = 0; slot[i].ext = slot[n].ext; slot[i].trail = slot[n].trail; slot[i].bad = slot[n].bad;
		slot[i].num = slot[n].num; slot[i].v2num = slot[n].v2num; slot[i].lists = slot[n].lists;
		copy_rec(slot[i].r, slot[n].r); copy_whole(i, n)
	:: else
	fi
}

active proctype World() {
	/* a new file: a tree of two pages, no extension */
	atomic { slot[0].ok = 1; slot[0].v2tree = 3; slot[0].v2root = 1; slot[1].ok = 1; slot[1].label = 1; slot[1].v2tree = 3; slot[1].v2root = 1;
#ifdef F_LIST
		slot[0].flist = 3; slot[1].flist = 3
#endif
	};

between:
	atomic { forget() };
	if
	:: goto ours
#ifdef F_STOCK
	:: atomic { stock_commits() }
#endif
#ifdef F_REVERT
	:: atomic { revert(); goto between }
#endif
	fi;

ours:
	atomic { open_database() };
loop:
	atomic { release(); check_memory(); tidy() };
	if
#ifndef F_EDIT
	:: atomic { nq < MAXQ -> begin(); prepare(); goto loop }
#else
	:: atomic { !edit -> begin(); goto loop }
	:: atomic { edit && !dead && nq < MAXQ -> prepare(); goto loop }
	:: atomic { edit -> give_up(); undo(); goto loop }
#endif
	:: atomic { !fl && nq > dead -> form(); goto loop }
	:: atomic { fl -> group_ends(); goto loop }
	:: atomic { !fl && nq == dead && DUR == D && BELIEVED(1-k) && slot[1-k].trail -> settle(); goto loop }
#ifdef F_PERIODIC
	:: atomic { !fl && DUR != D -> flush_visible(); goto loop }
	:: atomic { !fl && DUR != D -> power_fails(); goto between }
#endif
#ifdef F_READER
	:: atomic { reader == 0 -> reader = D; goto loop }
	:: atomic { reader != 0 -> reader = 0; goto loop }
#endif
	/* Close */
#ifdef F_LIST
	:: atomic { nq == 0 && !edit && reader == 0 && DUR == D && !slot[1-k].flist -> leave_freelist() }
#endif
	:: atomic { nq == 0 && !edit && reader == 0 && DUR == D && slot[1-k].ext && !slot[1-k].trail && slot[k].trail && BELIEVED(1-k) -> even_out(); goto between }
	:: goto between			/* closed, or killed */
	fi
}
