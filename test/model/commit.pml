/* commit.pml: commits with one flush, on a page cache and a disk.
 *
 * WHAT IS MODELLED
 * One process, World, walks through every history of: openings of ours; in them
 * transactions that are prepared on top of one another, groups written with one
 * flush (a trailing meta) or two (a plain one), commits in Periodic, plain metas by
 * Sync and when idle, the freelist page and the last writes of Close, truncation, a
 * reader, aborts, failed flushes and writes; kill -9 and power loss at any point;
 * and between openings stock bbolt as a second writer, read-only openings, and
 * surgery revert-meta-page.  What the outside may rely on is kept in ghost
 * variables; assertions compare each opening with them.
 *
 * WHAT IS ABSTRACTED AWAY
 * A database is a root and a leaf (a root only with ROOTONLY), and perhaps one log
 * page: enough for pages that are shared with older states, pages that are
 * replaced, and pages that are in no tree.  A page is a stamp (commit_store.pml),
 * so hashes and checksums are perfect.  Free pages are computed, not stored:
 * every page that is not of a pinned state, nor a freelist, is free (free.pml has
 * the free set).  Of a group in flight only the last state is pinned, so more can
 * happen than in the engine.  Sizes are not modelled: truncation cuts off
 * everything that it need not protect, as if it all lay behind the cut.  Openings exclude one another: the lock is given.  Prepared transactions
 * change memory only, so they need no steps of their own.
 *
 * BOUNDS
 * NP pages, MAXQ transactions prepared and waiting besides those in flight.
 * Histories are NOT bounded: names are used again (commit_names.pml), and the
 * search ends when there is nothing new.  MAXID and NP never cut a history off
 * (maxid_suffices; np_suffices with CHECK_ROOM).  A transaction takes the first
 * free pages in the order of names, which are those that older states and slots
 * refer to; with ANYFIT it takes any.
 *
 * SWITCHES
 * PERIODIC (else Full), F_... (what happens besides), MUT_... (a rule left out:
 * must be caught), WITHOUT_... (a rule left out that others imply), CLAIM_... and
 * ASSUME_... (what does not hold).  README.md and check list them.
 *
 * The state V is visible, D durable, T the target of a flush; slot k is written
 * next, the other one wins (h in docs/design.md); its v2 state is held.
 */
#ifndef NP
#define NP 12			/* pages, the two meta pages not counted */
#endif
#ifndef MAXID
#define MAXID 13		/* names of states, 1..MAXID */
#endif
#ifndef MAXQ
#define MAXQ 2			/* prepared transactions that wait for a flush */
#endif

#include "commit_store.pml"

/* ---- states: id -> its pages ---------------------------------------------- */

byte rootpg[MAXID+1];		/* its root page; the stamp there is id */
byte leafpg[MAXID+1], leafby[MAXID+1];	/* its leaf; the stamp there */
byte logpg[MAXID+1], logby[MAXID+1];	/* its log page; the stamp there, 0: has none */

#define TREE(s)  ((s) -> (BIT(rootpg[s]) | BIT(leafpg[s])) : 0)
#define LOGS(s)  (((s) && logby[s]) -> BIT(logpg[s]) : 0)
#define PAGES(s) (TREE(s) | LOGS(s))
#define INTACT(s) (cache[rootpg[s]] == (s) && cache[leafpg[s]] == leafby[s])
#define LOGOK(s)  (logby[s] == 0 || cache[logpg[s]] == logby[s])

/* ---- a session of ours ------------------------------------------------------ */

byte D, V;			/* newest durable, newest visible state */
byte held;			/* v2 state of the slot that wins, if its meta is trailing */
byte q0, q1, nq;		/* prepared transactions, on top of one another */
byte flying;			/* target of the flush that runs */
byte phase;			/* what is being flushed: */
#define IDLE 0
#define ONE 1			/* pages and a trailing meta */
#define TWO_PAGES 2		/* first of two flushes: pages only */
#define TWO_META 3		/* second of two: a plain meta of the target */
#define BACKGROUND 4		/* Periodic: everything visible */
#define PLAIN 5			/* a plain meta of D (Sync, idle, Close) */
#define FREELIST 6		/* a freelist page; its page + 1 is in T */
byte k;				/* the slot that the next meta goes to */
byte goes;			/* the freelist page + 1 that it named before it was written */
byte reader;			/* a reader's state */
bit stopped;			/* a flush has failed */
bit strict;			/* opened with StrictCompat */
bit weak;			/* there are NoSync commits that are not flushed */

/* ---- ghosts: what the outside may rely on ----------------------------------- */

byte acked;			/* newest state that must survive power loss */
byte vis;			/* newest state that must survive kill -9 */
byte prev;			/* oldest state that stock may see */
int maybe;			/* states that may or may not survive: nobody was told of them */
int alt;			/* Periodic: states that power loss may leave */
bit killed;			/* only kill -9 since, no power loss */
bit stocked;			/* stock has written: its pages may lie on our logs */
bit clean;			/* after a clean Close, nothing written since */
bit early;			/* (mutation) a writer returned on an undurable base */
byte copied;			/* (mutation) the state that a copy being made names */
byte also;			/* (mutation) a state whose root is listed too */

/* Always 0: each names an assertion in what pan prints. */
byte state_is_whole, nothing_acknowledged_lost, nobody_acted_on_what_vanished,
	reader_undisturbed, a_meta_is_valid, no_needless_scan, stock_state_is_whole,
	stock_one_flush_behind_at_most, stock_freelist_page_is_one, no_read_behind_the_end,
	copy_is_whole, maxid_suffices, np_suffices;

/* scratch; 0 between events */
byte i, x, y, p, id, T, S;
byte side;			/* a freelist page + 1 */
bit dies;			/* the process is killed among the writes of this event */
bit noroot;			/* (mutation) */
bit good;
int m, z, savem;
byte nnamed;			/* pages from here on are named by nothing */

#include "commit_names.pml"

inline endsession() {
	D = 0; V = 0; held = 0; goes = 0; q0 = 0; q1 = 0; nq = 0; flying = 0; phase = IDLE; k = 0; reader = 0; inflush = 0; sinflush = 0;
	stopped = 0; strict = 0; weak = 0; copied = 0;
	T = 0; S = 0; dies = 0; noroot = 0; side = 0; id = 0
}

/* ---- slots ------------------------------------------------------------------ */

/* the slot that stock opens: highest label, slot 0 on a tie */
#define HI ((VALID(1) && (!VALID(0) || cslot[1].label > cslot[0].label)) -> 1 : 0)
/* The slot that we open, and that stays when we write.  On a tie (surgery
 * revert-meta-page; both slots name the same v2 state) it is the one whose label
 * has not its parity: should the write of the other be torn, this one stands
 * alone, and its extension, which names a state that was undone, never counts. */
#define TIE (VALID(0) && VALID(1) && cslot[0].label == cslot[1].label && cslot[0].v2 == cslot[1].v2 && cslot[0].flist == cslot[1].flist)
#if defined(MUT_LOWER_WINS)
#define OURHI ((VALID(0) && VALID(1)) -> 1-HI : HI)
#elif defined(MUT_TIE_SLOT0) || defined(MUT_TIE_EXT)
#define OURHI HI
#else
#define OURHI (TIE -> 1 - cslot[0].label%2 : HI)
#endif
#ifdef MUT_TIE_EXT
#define STRICTLY_HIGHER(h) 1
#else
#define STRICTLY_HIGHER(h) (!VALID(1-(h)) || cslot[h].label > cslot[1-(h)].label)
#endif
#ifdef MUT_EXT_PARITY
#define OWN_PARITY(h) 1
#else
#define OWN_PARITY(h) (cslot[h].label%2 == (h))
#endif
#define HONOURED(h) (cslot[h].kind == EXT && STRICTLY_HIGHER(h) && OWN_PARITY(h))
/* The label that a write of slot s gets: the smallest number above the other's
 * that has s's parity. */
#ifdef MUT_PARITY
#define LABEL(s) (cslot[1-(s)].label + 1)
#else
#define LABEL(s) (cslot[1-(s)].label + 1 + ((cslot[1-(s)].label + 1 + (s)) % 2))
#endif
/* the freelist that a commit's meta names: none */
#ifdef MUT_FREELIST_KEPT
#define NOLIST cslot[1-k].flist
#else
#define NOLIST 0
#endif
#define write_plain(state, flist)	leave_list(); wrslot(k, EXT, LABEL(k), state, 0, flist)
/* The freelist page of slot k, which is about to be written, stays until that is flushed. */
inline leave_list() {
	goes = (cslot[k].flist -> cslot[k].flist : goes)
}

/* ---- allocation ------------------------------------------------------------- */

#ifdef MUT_LOG_PIN
#define KEPT(s) TREE(s)
#else
#define KEPT(s) PAGES(s)
#endif

/* m: the pages that are not free: those of pinned states, and freelist pages that
 * a slot names, or has named before a write that is not flushed yet */
inline pins() {
	d_step {
		m = 0;
#ifndef MUT_D_PIN
		m = m | KEPT(D);
#endif
#ifndef MUT_V2_PIN
#if defined(WITHOUT_HELD_TO_END) && defined(PERIODIC)
		if :: phase != BACKGROUND -> m = m | KEPT(held) :: else fi;
#else
		m = m | KEPT(held);
#endif
#endif
#ifndef MUT_PREP_PIN
		m = m | KEPT(flying) | KEPT(q0) | KEPT(q1);
#endif
#if defined(PERIODIC) && !defined(MUT_VISIBLE_PIN)
		m = m | KEPT(V);
#endif
#ifndef MUT_READER_PIN
		m = m | KEPT(reader);
#endif
#ifndef MUT_FREELIST_PIN
		if :: cslot[0].flist -> m = m | BIT(cslot[0].flist-1) :: else fi;
		if :: cslot[1].flist -> m = m | BIT(cslot[1].flist-1) :: else fi;
		if :: goes -> m = m | BIT(goes-1) :: else fi;
#endif
	}
}

/* p: a page that is not in m, the first or with ANYFIT any; NP: there is none */
inline pick() {
	p = 0;
	do
	:: p == NP -> break
	:: p < NP && HAS(m, p) -> p++
	:: p < NP && !HAS(m, p) -> m = m | BIT(p); break
#ifdef ANYFIT
	:: p < nnamed && !HAS(m, p) -> p++
#endif
	od
}
#ifdef CHECK_ROOM
#define NOROOM assert(np_suffices)
#else
#define NOROOM skip
#endif

#define OURS 0			/* keeps the log page of its base */
#define OURS_LOGS 1		/* that, or writes one */
#define STOCKS 2		/* knows nothing of log pages */
#ifdef F_LOG
#define WITHLOG OURS_LOGS
#else
#define WITHLOG OURS
#endif
/* id: a transaction on top of state b that takes none of the pages in m.  It
 * always writes a root, a leaf and a log page as it likes.  0: no room. */
inline build(b, logs) {
	fresh();
	leafpg[id] = leafpg[b]; leafby[id] = leafby[b];
	if :: logs != STOCKS -> logpg[id] = logpg[b]; logby[id] = logby[b] :: else fi;
#ifndef ROOTONLY
	if :: leafby[id] = id :: skip fi;
#endif
	if :: logs == OURS_LOGS -> logby[id] = id :: skip fi;
	/* what it keeps of its base is in use, whatever the rules say */
	if :: leafby[id] != id -> m = m | BIT(leafpg[id]) :: else fi;
	if :: logby[id] && logby[id] != id -> m = m | BIT(logpg[id]) :: else fi;
	pick(); rootpg[id] = p;
	if :: leafby[id] == id && p < NP -> pick(); leafpg[id] = p :: else fi;
	if :: logby[id] && logby[id] == id && p < NP -> pick(); logpg[id] = p :: else fi;
	if
	:: p == NP ->
		NOROOM;
		rootpg[id] = 0; leafpg[id] = 0; leafby[id] = 0; logpg[id] = 0; logby[id] = 0; id = 0
	:: else
	fi;
	p = 0; m = 0
}

/* ---- opening ---------------------------------------------------------------- */

/* good: every page that the trailing meta in slot T lists is as its hash says */
inline verify() {
	d_step {
		x = cslot[T].trail;
#ifdef MUT_NO_HASH
		good = 1;
#else
#ifdef MUT_NO_BOUNDS
		/* reading behind the end of the file through a mapping is a fault */
		assert(no_read_behind_the_end || (cache[rootpg[x]] != EOFV && cache[leafpg[x]] != EOFV));
#endif
#ifdef MUT_LIST_PARTIAL
		/* the list has the pages of the last transaction, not all that D has not */
		good = cache[rootpg[x]] == x && (leafby[x] != x || cache[leafpg[x]] == x);
#else
		good = cache[rootpg[x]] == x && (also == 0 || cache[rootpg[also]] == also) &&
		  (leafby[x] == leafby[cslot[T].v2] || cache[leafpg[x]] == leafby[x]) &&
		  (logby[x] == 0 || logby[x] == logby[cslot[T].v2] || cache[logpg[x]] == logby[x]);
#endif
#endif
		x = 0; also = 0
	}
}
/* T: the slot that wins; S: the state that we open */
inline choose() {
	assert(a_meta_is_valid || VALID(0) || VALID(1));
	T = OURHI;
	S = cslot[T].v2;
	if
	:: HONOURED(T) && cslot[T].trail ->
		verify();
		if :: good -> S = cslot[T].trail :: else fi;
		good = 0
	:: else
	fi
}
inline check_opened() {
	/* no mixture, no page overwritten */
	assert(state_is_whole || (S != 0 && INTACT(S)));
	/* nothing acknowledged is lost, nothing that was undone is back */
	assert(nothing_acknowledged_lost || HAS(maybe, S) ||
		(killed && S == vis) || (!killed && (S == acked || HAS(alt, S))));
	assert(nobody_acted_on_what_vanished || !early || S != acked)
}
/* A failed flush: power loss may come of kill -9, so only what was flushed before
 * is certain to be there. */
inline promise_only_durable() {
	maybe = maybe | alt | BIT(vis); vis = acked
}
/* The flush that an opening needs, at label next; if it fails, the opening fails. */
#ifdef F_FAIL
#define OPENING_FLUSH	if :: flush() :: flush_fails(); promise_only_durable(); goto between fi
#else
#define OPENING_FLUSH	flush()
#endif

/* Flush; drop the metas and read them; drop the pages and verify; settle. */
inline open_database() {
	clean = 0;
#ifndef MUT_OPEN_NO_FLUSH
	OPENING_FLUSH;
#endif
#ifndef MUT_OPEN_NO_DROP
#ifndef MUT_OPEN_ORDER
	drop_slots();			/* the metas are read after flush and drop */
#endif
	/* then the pages listed and those of the record; not others */
	T = OURHI;
	m = LOGS(cslot[0].v2) | LOGS(cslot[1].v2) | LOGS(cslot[0].trail) | LOGS(cslot[1].trail) | (PAGES(cslot[T].trail) & ~TREE(cslot[T].v2));
	drop_pages(m); m = 0;
#endif
	choose();
	check_opened();
	if
	:: !HONOURED(T) -> logpg[S] = 0; logby[S] = 0	/* its free space comes of a scan */
	:: else
	fi;
	if
	:: !LOGOK(S) ->
		assert(no_needless_scan || stocked);	/* only stock makes a scan necessary */
		logpg[S] = 0; logby[S] = 0
	:: else
	fi;
	acked = S; vis = S; prev = cslot[T].v2; maybe = 0; alt = 0;
	killed = 0; stocked = 0; early = 0;
	D = S; V = S; S = 0; k = 1 - T; T = 0;
#ifndef MUT_NO_SETTLE
	if
#ifdef WITHOUT_SETTLING_LOST
	:: HONOURED(1-k) && cslot[1-k].trail == D ->
#else
	:: HONOURED(1-k) && cslot[1-k].trail ->		/* also if it is D that was found */
#endif
#ifdef MUT_SETTLES_OLDER
		S = cslot[1-k].v2; write_plain(S, 0); S = 0;
#else
		write_plain(D, 0);
#endif
		if
		:: OPENING_FLUSH; k = 1-k; goes = 0
		:: killed = 1; goto between
		fi
	:: else
	fi;
#endif
#ifdef F_STRICT
	if
	:: strict = 1
	:: skip
	fi;
#endif
	prev = D
}

/* ---- commits ---------------------------------------------------------------- */

/* A transaction is prepared on top of the newest one. */
inline prepare() {
#ifdef PERIODIC
	T = (nq == 2 -> q1 : (nq == 1 -> q0 : ((flying && phase != BACKGROUND) -> flying : V)));
#else
	T = (nq == 2 -> q1 : (nq == 1 -> q0 : (flying -> flying : D)));
#endif
	pins();
	build(T, WITHLOG);
	T = 0;
	if
	:: id && nq == 0 -> q0 = id; nq++
	:: id && nq == 1 -> q1 = id; nq++
	:: else
	fi;
	id = 0
}
/* T: the last member of the group that is written now, one or two of those
 * prepared; whether the process is killed while it writes */
inline choose_group() {
	if
	:: T = q0
	:: nq == 2 -> T = q1
	fi;
	if
	:: dies = 0
	:: dies = 1
	fi
}
inline leave_queue() {
	if
	:: T == q1 -> q0 = 0; q1 = 0; nq = 0
	:: else -> q0 = q1; q1 = 0; nq--
	fi
}
/* The pages of T that D has not, and no others: a page of the group that a later
 * member supersedes is never written. */
inline write_pages() {
	if
	:: noroot -> skip
	:: else -> wr_or_die(rootpg[T], T)
	fi;
	if :: leafby[T] != leafby[D] -> wr_or_die(leafpg[T], leafby[T]) :: else fi;
	if :: logby[T] && logby[T] != logby[D] -> wr_or_die(logpg[T], logby[T]) :: else fi
}
/* A failed flush, or a failed write of a meta: nothing is written any more, and
 * readers get the last durable state. */
inline stop() {
#ifndef MUT_STOP_KEEPS_VISIBLE
	V = D;
#endif
	promise_only_durable();
	stopped = 1; flying = 0; q0 = 0; q1 = 0; nq = 0; phase = IDLE; T = 0; goes = 0;
#if defined(PERIODIC) && !defined(CLAIM_READER_AFTER_FAIL)
	/* Pages of a state that was visible and is not durable may be read from the
	 * disk again: such a reader gets an error. */
	if :: reader != D -> reader = 0 :: else fi
#endif
}
/* A page write fails, the disk is full: its transaction and those on top of it are
 * gone, those below go on.  Some of its pages may have been written. */
inline a_member_fails() {
#ifdef F_ABORT
	if
	:: T == q1 && q1 ->
		wr_or_die(rootpg[q1], q1);
#ifdef MUT_SUPERSEDED
		noroot = 1;	/* the first is written as if its root were superseded still */
#endif
		T = q0; q1 = 0; nq = 1
	:: dies == 0 ->
		wr(rootpg[q0], q0);
		T = 0; q0 = 0; q1 = 0; nq = 0;
		goto loop
	:: skip
	fi
#else
	skip
#endif
}
/* One flush: the pages and a trailing meta, in any order if all that is visible is
 * durable. */
inline write_one_flush() {
	write_pages();
	phase = IDLE;
	leave_list();
#ifdef WITHOUT_HELD_TO_END
	held = 0;
#endif
#ifdef MUT_WRONG_SLOT
	k = 1-k; wrslot_or_die(k, EXT, cslot[k].label+2, D, T, 0);
#else
#ifdef MUT_V2_NAMES_T
	wrslot_or_die(k, EXT, LABEL(k), T, 0, 0);
#else
#if defined(PERIODIC) && !defined(MUT_META_FIRST)
	/* behind the pages: kill -9 must leave the visible state, or this one whole */
	if
	:: dies -> skip
	:: else -> wrslot(k, EXT, LABEL(k), D, T, NOLIST)
	fi;
#else
	wrslot_or_die(k, EXT, LABEL(k), D, T, NOLIST);
#endif
#endif
#endif
	phase = ONE
}
/* The first of two flushes: the pages. */
inline write_first_of_two() {
	write_pages();
	phase = TWO_PAGES;
#ifdef MUT_TWO_IN_ONE
	write_plain(T, 0); phase = TWO_META		/* all in one flush */
#endif
}
/* The leader writes a group. */
inline lead() {
	choose_group();
	a_member_fails();
	x = ONE;
#ifdef PERIODIC
	/* for Sync, or because its list has no room; or it is to be durable at once */
	if
	:: x = TWO_PAGES
	:: skip
	fi;
#elif defined(F_TWO)
	/* Somebody waits in Sync, or the list of pages has no room in the extension;
	 * StrictCompat always does it this way. */
	if
	:: x = TWO_PAGES
#ifndef MUT_STRICT_TRAILING
	:: !strict
#else
	:: skip
#endif
	fi;
#endif
	flying = T; maybe = maybe | BIT(T);
	if
	:: x == ONE -> x = 0; write_one_flush()
	:: else -> x = 0; write_first_of_two()
	fi;
	leave_queue();
	T = 0;
	if
	:: dies -> killed = 1; goto between
	:: else
	fi;
	noroot = 0;
#ifdef F_METAFAIL
	/* The write of the meta returns an error; the cache has it all the same. */
	if
	:: phase == ONE ->
#ifdef MUT_META_ERROR_ABORTS
		/* taken for a failed page write: the group is gone, the next may go on */
		maybe = 0; flying = 0; q0 = 0; q1 = 0; nq = 0; phase = IDLE
#else
		stop()
#endif
	:: skip
	fi
#endif
}
/* The flush of a group, or of a plain meta, ends. */
inline flush_ends() {
	if
	:: flush()
#ifdef MUT_NO_FLUSH
	:: phase == ONE || phase == TWO_META		/* it returns before its flush has ended */
#endif
#ifdef F_FAIL
	:: flush_fails();
#ifndef MUT_FAIL_GOES_ON
		stop();
		goto loop
#endif
#endif
	fi;
	if
	:: phase == ONE || phase == TWO_META ->
		/* stock sees D, the flush before; in StrictCompat it sees all */
		prev = ((phase == ONE && !strict) -> D : flying);
#ifdef MUT_BARRIER_TRAILING
		if
		:: phase == ONE -> prev = flying	/* Sync waited for it, and promised that */
		:: skip
		fi;
#endif
		held = (phase == ONE -> D : 0);
		D = flying; V = D; acked = D; vis = D; flying = 0; maybe = 0; alt = 0; k = 1-k; phase = IDLE;
		goes = 0; early = 0;
#ifdef MUT_WRONG_SLOT
		k = 1-HI
#endif
	:: phase == TWO_PAGES ->
#ifdef PERIODIC
		/* It was a flush of what was visible, too: that is D now, in slot k. */
		if
		:: V != D -> flushed()
		:: else
		fi;
#endif
		if
		:: killed = 1; goto between
		:: write_plain(flying, NOLIST); phase = TWO_META
#ifdef MUT_PLAIN_UNFLUSHED
		:: write_plain(flying, NOLIST); V = flying; vis = V; alt = alt | BIT(V); flying = 0; phase = IDLE
#endif
		fi
	:: phase == PLAIN -> prev = D; held = 0; k = 1-k; goes = 0; phase = IDLE
	:: phase == FREELIST ->
		if
		:: killed = 1; goto between
		:: write_plain(D, T); phase = PLAIN; T = 0
		fi
	fi
}
/* Periodic: what is visible is flushed. */
inline flushed() {
	prev = D; held = D; D = V; acked = D; goes = 0; alt = 0;
#ifndef MUT_FLIP
	k = 1-k
#endif
}

/* ---- Periodic: a commit writes its pages, then the same slot again ------------ */

inline commit_periodic() {
	choose_group();
	a_member_fails();
	write_pages();
	leave_list();
	if
	:: dies ->
		/* The meta is written when the writes of the pages have returned, so kill -9
		 * leaves none that lacks its pages. */
#ifdef MUT_META_FIRST
		if
		:: wrslot(k, EXT, LABEL(k), D, T, 0); maybe = maybe | BIT(T)
		:: skip
		fi;
#endif
#ifdef ASSUME_TORN_BY_KILL
		/* kill -9 leaves half of the write of one meta page in the cache */
		if
		:: HAS(sdirty, k) -> cslot[k].kind = V2; cslot[k].trail = 0
		:: skip
		fi;
#endif
		killed = 1; goto between
	:: else ->
#ifdef MUT_SLOT_BY_LABEL
		k = 1-HI;
#endif
		wrslot(k, EXT, LABEL(k), D, T, NOLIST)
	fi;
	noroot = 0;
#ifdef F_METAFAIL
	/* The write of the meta returns an error; the cache has it all the same. */
	if
	:: maybe = maybe | BIT(T);
#ifdef MUT_META_ERROR_ABORTS
		q0 = 0; q1 = 0; nq = 0;
#else
		stop();
#endif
		T = 0; goto loop
	:: skip
	fi;
#endif
#ifdef MUT_LIST_MORE
	also = (V != D -> V : 0);
#endif
	V = T; vis = T; alt = alt | BIT(T);
	leave_queue();
	T = 0
}
/* The flush of everything visible ends: D becomes the state that was visible when
 * it began. */
inline background_flush_ends() {
#ifdef F_FAIL
	if
	:: skip
	:: flush_fails();
#ifndef MUT_FAIL_GOES_ON
		stop();
		goto loop
#endif
	fi;
#endif
	d_step {
		do
		:: i == NP -> break
		:: else -> if :: HAS(inflush, i) -> disk[i] = cache[i] :: else fi; i++
		od;
		if :: HAS(sinflush, 0) -> cpslot(dslot[0], cslot[0]) :: else fi;
		if :: HAS(sinflush, 1) -> cpslot(dslot[1], cslot[1]) :: else fi;
		dirty = dirty & ~inflush; sdirty = sdirty & ~sinflush; inflush = 0; sinflush = 0; i = 0;
		x = V; V = flying; flushed(); V = x; x = 0;
		flying = 0; phase = IDLE;
		alt = (V != D -> BIT(V) : 0)
	}
}

/* ---- what else happens in a session -------------------------------------------- */

/* No transaction is open or waiting, all that is visible is durable. */
#define QUIET (phase == IDLE && nq == 0 && !stopped && !weak && V == D && !dirty && !sdirty)
/* Stock would open D. */
#define SETTLED (cslot[1-k].trail == 0 && cslot[1-k].v2 == D)

/* A clean Close with a freelist page: flushed before the meta that names it. */
inline write_freelist_page() {
	pins(); pick(); m = 0;
	if
	:: p < NP ->
		wr(p, FLS+D); T = p+1; phase = FREELIST;
#ifdef MUT_FREELIST_ORDER
		phase = IDLE; write_plain(D, T); phase = PLAIN; T = 0
#endif
	:: else -> NOROOM
	fi;
	p = 0
}

/* The last write of Close: the slot that does not win says what the other says. */
inline even_out() {
	wrslot(k, V2, cslot[1-k].label-1, D, 0, cslot[1-k].flist)
}

/* The file is cut behind the highest page that must stay; in some layout
 * all that need not stay lies behind that. */
inline truncate() {
	d_step {
		m = TREE(D) | LOGS(D) | TREE(V) | LOGS(V);
#ifndef MUT_TRUNC_PREPARED
		m = m | PAGES(q0) | PAGES(q1) | PAGES(flying);
#endif
#ifndef MUT_TRUNC_SLOTS
		m = m | TREE(cslot[0].v2) | TREE(cslot[1].v2) | PAGES(cslot[0].trail) | PAGES(cslot[1].trail);
#endif
#ifndef MUT_TRUNC_FREELIST
		if :: cslot[0].flist -> m = m | BIT(cslot[0].flist-1) :: else fi;
		if :: cslot[1].flist -> m = m | BIT(cslot[1].flist-1) :: else fi;
		if :: goes -> m = m | BIT(goes-1) :: else fi;
		if :: phase == FREELIST -> m = m | BIT(T-1) :: else fi;
#endif
#ifndef MUT_TRUNC_READER
		m = m | TREE(reader);
#endif
		p = 0;
		do
		:: p == NP -> break
		:: else ->
			if
			:: !HAS(m, p) && cache[p] != EOFV -> cache[p] = EOFV; dirty = dirty | BIT(p)
			:: else
			fi;
			p++
		od;
		p = 0; m = 0
	}
}

/* ---- between our sessions ------------------------------------------------------ */

/* A read-only opening flushes nothing, writes nothing, and sees what the cache
 * shows. */
inline open_read_only() {
#ifdef MUT_READONLY_NO_HASH
	T = HI;
	S = ((cslot[T].kind == EXT && cslot[T].trail) -> cslot[T].trail : cslot[T].v2);
#else
	choose();
#endif
	check_opened();
#ifdef MUT_READONLY_SETTLES
	k = 1-T;
	if :: cslot[T].trail == S -> write_plain(S, 0) :: else fi;
#endif
#ifdef CLAIM_READONLY_DURABLE
	/* (it is not true that) what it has shown survives a power loss */
	acked = S; vis = S; maybe = 0; alt = 0
#endif
}

/* surgery revert-meta-page: the older meta page over the newer.  (What it names
 * must be whole, and so must its freelist page: that is whoever uses it to know.) */
inline revert() {
	clean = 0; T = HI; S = cslot[1-T].v2;
	if
	:: INTACT(S) && cslot[1-T].label != cslot[T].label && !cslot[1-T].flist ->
		cpslot(cslot[T], cslot[1-T]); cpslot(dslot[T], cslot[1-T]);
		acked = S; vis = S; prev = S; maybe = 0; alt = 0
	:: else
	fi
}

/* Stock opens the file: T is its slot, S its state. */
inline stock_opens() {
	clean = 0;
#ifndef CLAIM_STOCK_FLUSHES_NOT
	flush();	/* Stock does not flush when it opens: its own hole, masked here. */
#endif
	drop_pages(~0); drop_slots();
	assert(a_meta_is_valid || VALID(0) || VALID(1));
	T = HI; S = cslot[T].v2;
	assert(stock_state_is_whole || INTACT(S));
	assert(stock_one_flush_behind_at_most || S == acked || S == prev || HAS(maybe, S));
	assert(stock_freelist_page_is_one || cslot[T].flist == 0 || cache[cslot[T].flist-1] == FLS+S)
}
/* After revert-meta-page, a torn write may leave one slot whose label has not its
 * parity.  Stock's next commit goes to that slot, its only one: its own hole. */
#ifdef CLAIM_STOCK_ONLY_SLOT
#define STOCK_MAY_COMMIT 1
#else
#define STOCK_MAY_COMMIT (VALID(1-T) || cslot[T].label%2 == T)
#endif
/* It commits once: pages, flush, meta, flush.  Any page that is not in its tree
 * and is not its freelist page is free to it. */
inline stock_commits() {
	maybe = maybe | BIT(acked) | BIT(vis) | alt;
#ifndef CLAIM_REVERT_STOCK
	/* If the slots tie, and its write is torn, the slot that is left is ours with an
	 * extension that counts: the commit that was reverted may come back. */
	if
	:: TIE -> maybe = maybe | BIT(cslot[0].trail) | BIT(cslot[1].trail)
	:: else
	fi;
#endif
	acked = S; vis = S; prev = S; killed = 0; stocked = 1;
	D = S;
	m = TREE(S);
	if :: cslot[T].flist -> m = m | BIT(cslot[T].flist-1) :: else fi;
	build(S, STOCKS);
#ifdef F_FREELIST
	if
	:: id ->					/* it synchronises its free list */
		m = TREE(S) | TREE(id);
		if :: cslot[T].flist -> m = m | BIT(cslot[T].flist-1) :: else fi;
		pick(); m = 0;
		if :: p < NP -> side = p+1 :: else -> NOROOM fi;
		p = 0
	:: skip
	fi;
#endif
	if
	:: id == 0 -> goto between
	:: else
	fi;
	if
	:: dies = 0
	:: dies = 1
	fi;
	wr_or_die(rootpg[id], id);
	if :: leafby[id] == id -> wr_or_die(leafpg[id], id) :: else fi;
	if :: side -> wr_or_die(side-1, FLS+id) :: else fi;
	if
	:: dies -> killed = 1; goto between
	:: else -> flush()
	fi;
	maybe = maybe | BIT(id);
	wrslot((cslot[T].label+1)%2, V2, cslot[T].label+1, id, 0, side);
	if
	:: killed = 1
	:: flush(); acked = id; vis = id; prev = id; maybe = 0
	fi
}

/* ================================================================================ */

inline new_file() {
	rootpg[1] = 0; leafpg[1] = 1; leafby[1] = 1;
	do
	:: i == NP -> break
	:: else -> cache[i] = EOFV; disk[i] = EOFV; i++
	od;
	i = 0;
	cache[0] = 1; cache[1] = 1; disk[0] = 1; disk[1] = 1;
	cslot[0].kind = V2; cslot[0].v2 = 1; cslot[1].kind = V2; cslot[1].label = 1; cslot[1].v2 = 1;
	cpslot(dslot[0], cslot[0]); cpslot(dslot[1], cslot[1]);
	acked = 1; vis = 1; prev = 1
}

active proctype World() {
	atomic { new_file() };

between:	/* nobody has the file open */
	atomic { endsession(); tidy() };
	if
	:: goto ours
#ifdef F_STOCK
	:: goto stock
#endif
	/* Power loss.  (Within a session it is kill -9 and then this.) */
	:: atomic { dirty || sdirty || stale -> power(); clean = 0; goto between }
#ifdef F_FAIL
	:: atomic { stale -> evict(); goto between }
#endif
#ifdef F_READONLY
	:: atomic { open_read_only(); goto between }
#endif
#ifdef F_REVERT
	:: atomic { clean && !dirty && !sdirty && VALID(0) && VALID(1) -> revert(); goto between }
#endif
	fi;

ours:
	atomic { open_database() };
loop:
	tidy();
	assert(reader_undisturbed || reader == 0 || INTACT(reader));
	if
	:: atomic { nq < MAXQ && !stopped && !weak && phase != FREELIST ->
		prepare(); goto loop }
#ifndef PERIODIC
	:: atomic { phase == IDLE && nq > 0 && !stopped && !weak -> lead(); goto loop }
	:: atomic { phase != IDLE -> flush_ends(); goto loop }
#ifdef WITHOUT_WAITING
	/* The pages of the next group are written while the flush of this one runs. */
	:: atomic { phase != IDLE && nq > 0 -> T = q0; write_pages(); T = 0; goto loop }
#endif
#ifdef MUT_EARLY_RETURN
	/* A writer that has read the state in flight changes nothing and returns. */
	:: atomic { flying && !early -> early = 1; goto loop }
#endif
#else
#ifdef MUT_META_IN_FLUSH
	:: atomic { nq > 0 && !stopped && (phase == IDLE || phase == BACKGROUND) -> commit_periodic(); goto loop }
#else
	:: atomic { nq > 0 && !stopped && phase == IDLE -> commit_periodic(); goto loop }
#endif
	:: atomic { phase == IDLE && V != D && !stopped ->
		phase = BACKGROUND; flying = V; inflush = dirty; sinflush = sdirty; goto loop }
	:: atomic { phase == BACKGROUND -> background_flush_ends(); goto loop }
	:: atomic { phase != IDLE && phase != BACKGROUND -> flush_ends(); goto loop }
#ifdef F_TWO
	/* A commit that is to be durable, or that waits in Sync */
	:: atomic { phase == IDLE && nq > 0 && !stopped -> lead(); goto loop }
#endif
#ifdef WITHOUT_WAITING
	/* The pages are written while a flush runs, the meta behind it. */
	:: atomic { phase != IDLE && nq > 0 -> T = q0; write_pages(); T = 0; goto loop }
#endif
#endif
	/* idle, or before Close */
	:: atomic { QUIET && !SETTLED -> write_plain(D, 0); phase = PLAIN; goto loop }
#ifdef F_FREELIST
	:: atomic { QUIET && !cslot[1-k].flist -> write_freelist_page(); goto loop }
#endif
	/* Close.  If the other slot is trailing it is written over, without a flush. */
	:: atomic { QUIET && SETTLED && reader == 0 -> clean = 1; goto between }
	:: atomic { QUIET && SETTLED && reader == 0 && cslot[k].trail -> even_out(); clean = 1; goto between }
#ifdef MUT_EVEN_EARLY
	:: atomic { QUIET && !SETTLED && reader == 0 -> write_plain(D, 0); k = 1-k; even_out(); goto between }
#endif
#ifdef F_READER
	:: atomic { reader == 0 ->
		reader = V;
#ifdef MUT_COPY_META
		copied = cslot[HI].v2;		/* WriteTo copies the meta page as it is */
#endif
		goto loop }
	:: atomic { reader != 0 ->
#ifdef MUT_COPY_META
		assert(copy_is_whole || INTACT(copied));	/* what stock opens in the copy */
		copied = 0;
#endif
		reader = 0; goto loop }
#endif
#ifdef F_TRUNC
	:: atomic { !stopped && !weak -> truncate(); goto loop }
#endif
#ifdef F_FAIL
	:: atomic { stale -> evict(); goto loop }
#endif
#ifdef F_NOSYNC
	/* A commit with NoSync flushes nothing; a crash may then do anything (end). */
	:: atomic { phase == IDLE && nq == 1 && reader == 0 && !stopped && !weak ->
		T = q0; write_pages(); write_plain(T, 0);
		D = T; V = T; q0 = 0; nq = 0; T = 0; k = 1-k; weak = 1; goto loop }
	/* It is switched off. */
	:: atomic { weak ->
#ifndef MUT_NOSYNC_NO_FLUSH
		flush();
#endif
		weak = 0; acked = D; vis = D; prev = D; goto loop }
	:: weak -> goto end
#endif
	/* kill -9, or an end after a failed flush, which writes nothing either */
	:: atomic { !weak -> killed = 1; goto between }
	fi;

#ifdef F_STOCK
stock:
	atomic { stock_opens() };
	if
	:: goto between						/* writes nothing */
	:: atomic { STOCK_MAY_COMMIT -> stock_commits(); goto between }
	fi;
#endif
end:	false
}
