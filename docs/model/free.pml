/* free.pml: which pages are free: the set in memory, what is written of it, and
 * what an opening finds.
 *
 * WHAT IS MODELLED
 * Transactions take free pages and free pages of their base; what was freed waits
 * (pending) while a state that can reach it is pinned: a page that a allocated and
 * f freed, while some pinned r has a <= r < f.  The changes are written as deltas:
 * inline in the extension of the meta, moved to log pages when that is full, and
 * replaced by a snapshot page when the log is full.  List pages.  Groups whose
 * last members are aborted.  Crashes, and stock in between.  After each event the
 * set in memory must be exact, and each opening must find exactly the pages that
 * neither the tree nor the log and snapshot pages use, or make a scan, and that
 * only where stock wrote or an extension was torn.
 *
 * WHAT IS ABSTRACTED AWAY
 * The storage (commit.pml has it): a commit that crashes has one of the outcomes
 * that can be told apart, and the tree pages are not looked at.  A state is a set
 * of pages.  The deltas themselves: an extension carries the set that snapshot,
 * log and inline deltas make when they are applied (Slot.set), and it is known if
 * the snapshot and log pages that it names are as they were written (whole).
 * Full only, with trailing metas; Periodic and two flushes do the same to the
 * free set.
 *
 * BOUNDS
 * NP pages, trees of 1..MAXTREE pages, IC commits inline, two log pages, MAXQ
 * transactions in a group.  Histories are not bounded (free_names.pml).  Free pages
 * are taken lowest name first; a transaction replaces the lowest page of its tree,
 * with ANYPAGE the lowest or the highest.
 *
 * Sets of pages are bit masks.  README.md and check list the switches.
 */
#ifndef NP
#define NP 15			/* pages */
#endif
#define ALL ((1<<NP)-1)
#ifndef NMAX
#define NMAX 12			/* numbers alive at a time */
#endif
#ifndef MAXQ
#define MAXQ 2			/* transactions in a group */
#endif
#ifndef MAXTREE
#define MAXTREE 3		/* pages of a tree */
#endif
#define IC 1			/* commits whose deltas fit inline */

typedef Slot {			/* a meta page */
	bit ok;			/* the v2 meta is valid */
	byte label;
	short v2tree;		/* tree of the v2 state */
	bit ext;		/* the extension verifies */
	bit trail;		/* it is trailing */
	bit bad;		/* what it lists does not verify */
	byte num, v2num;	/* number of the state that it names; of the v2 state */
	short ttree;		/* tree of the state that it names */
	byte snap, log1, log2;	/* snapshot and log pages + 1; 0: none */
	short set;		/* the free set that snapshot, log and inline deltas make */
	byte ninline;		/* commits whose deltas are inline */
	bit noset;		/* it names no free set: who opens this scans */
	byte list		/* list page + 1; 0: none */
};
Slot slot[2];
/* Is the content of a page what is named, with its hash, as snapshot or log page
 * by slot 0 (bit 0), by slot 1 (bit 1), by the allocator (bit 2)? */
byte whole[NP];

/* ---- the allocator in memory -------------------------------------------------- */

short free, pending;
byte born[NP], freed[NP];	/* number that allocated a page, that freed it */
byte D, v2n;			/* number of D; of the v2 state in the slot that stays */
byte top;			/* number of the newest prepared transaction */
byte nq;			/* prepared transactions: D+1 .. top */
short qtaken[3], qfreed[3];	/* what prepared transaction 1..nq takes and frees */
byte k;				/* the slot that is written next */
byte reader;			/* number of a reader's state */
Slot cur;			/* snapshot, log and deltas of D, as in a slot */
bit force;			/* the next commit writes a snapshot */

/* ---- ghosts ------------------------------------------------------------------- */

short tree[NMAX+1];		/* all pages (tree, log, snapshot) of state n */
short dtree;			/* tree of D */
bit stocked;			/* stock may have written on our log pages */
bit torn;			/* an extension was torn: a scan is right */
/* Always 0: each names an assertion in what pan prints. */
byte pending_only_if_seen, no_page_in_use_taken, memory_exact, a_meta_is_valid,
	no_needless_scan, free_set_exact, np_suffices;

/* scratch; 0 between events */
int m, A, F, G;
byte i, p, T, o, n, size;
bit scan;

#define HAS(set, q) (((set)>>(q)) & 1)
#define PAGE1(q) ((q) -> (1<<((q)-1)) : 0)	/* the set of a page + 1 */
#define HI ((slot[1].ok && (!slot[0].ok || slot[1].label > slot[0].label)) -> 1 : 0)
#define LABEL(z) (slot[1-(z)].label + 1 + ((slot[1-(z)].label + 1 + (z)) % 2))
#define LOGS(z) (PAGE1(z.snap) | PAGE1(z.log1) | PAGE1(z.log2))
/* Pages that slots name as list pages, unless stock took them into its tree: they
 * are free in the set that is written, and not to be taken while they are named. */
#ifdef MUT_LIST_TAKEN
#define LISTS (PAGE1(slot[0].list) | PAGE1(slot[1].list))
#define NOTTAKEN ALL
#else
#define LISTS ((PAGE1(slot[0].list) | PAGE1(slot[1].list)) & ~tree[top])
#define NOTTAKEN (ALL & ~tree[D])
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
/* pending pages that no pinned state can reach become free */
inline release() {
	d_step {
		p = 0;
		do
		:: p == NP -> break
		:: else ->
			if
			:: HAS(pending, p) && !(reader && SEES(reader)) && !SEES(D) && !V2SEES &&
			   !(nq >= 1 && SEES(D+1)) && !(nq >= 2 && SEES(D+2)) ->
				pending = pending & ~(1<<p); free = free | (1<<p); born[p] = 0; freed[p] = 0
			:: else
			fi;
			p++
		od;
		p = 0;
		assert(pending_only_if_seen || (pending & ~((reader -> tree[reader] : 0) | tree[D] | tree[v2n] |
			(nq >= 1 -> tree[D+1] : 0) | (nq >= 2 -> tree[D+2] : 0))) == 0)
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
		assert(no_page_in_use_taken || !(((reader -> tree[reader] : 0) | tree[D] | tree[v2n] | LISTS) & (1<<p)));
		assert(no_page_in_use_taken || (!(nq >= 1 && (tree[D+1] & (1<<p))) && !(nq >= 2 && (tree[D+2] & (1<<p)))));
		free = free & ~(1<<p); born[p] = who; freed[p] = 0
	:: else ->
#ifdef CHECK_ROOM
		assert(np_suffices)
#else
		skip
#endif
	fi
}
/* Every page is one of these: used by the newest state, free, pending, a list page. */
inline check_memory() {
	d_step {
		m = tree[top];
		assert(memory_exact || ((m & free) == 0 && (m & pending) == 0 && (free & pending) == 0));
		assert(memory_exact || (LISTS & free) == 0);
		assert(memory_exact || (m | free | pending | LISTS) == ALL);
		m = 0
	}
}

/* ---- transactions ---------------------------------------------------------------- */

#define NOPAGE	if :: p == NP -> p = 0; T = 0; A = 0; F = 0; G = 0; goto loop :: else fi

/* A transaction replaces a page of its base; it may also add one or drop one. */
inline prepare() {
	release();
	T = top + 1;
	take(T); NOPAGE;
	A = 1<<p;				/* A: what it takes */
	m = tree[top] & ~LOGS(cur);
	if
	:: p = 0; do :: HAS(m, p) -> break :: else -> p++ od
#ifdef ANYPAGE
	:: p = NP-1; do :: HAS(m, p) -> break :: else -> p-- od
#endif
	fi;
	G = 1<<p; m = m & ~G;			/* G: what it frees; m: what it keeps */
	size = 0; p = 0;
	do :: p == NP -> break :: p < NP -> size = size + HAS(m, p); p++ od;
	if
	:: skip
	:: m != 0 ->
		p = 0; do :: HAS(m, p) -> break :: else -> p++ od;
		G = G | (1<<p)
	:: size < MAXTREE-1 -> take(T); if :: p < NP -> A = A | (1<<p) :: else fi
	fi;
	p = 0;
	do
	:: p == NP -> break
	:: p < NP -> if :: HAS(G, p) -> freed[p] = T :: else fi; p++
	od;
	pending = pending | G;
	tree[T] = (tree[top] | A) & ~G;
	nq++; qtaken[nq] = A; qfreed[nq] = G; top = T;
	p = 0; m = 0; T = 0; A = 0; G = 0; size = 0
}

/* The last transaction is aborted (disk full): the allocator goes back to the one
 * below it, and its number is given again. */
inline abort_last() {
#ifndef MUT_ABORT_LEAK
	free = free | qtaken[nq];
#endif
	pending = pending & ~qfreed[nq];
	p = 0;
	do
	:: p == NP -> break
	:: p < NP ->
		if :: HAS(qtaken[nq], p) -> born[p] = 0; freed[p] = 0; free = free & ~(pending & (1<<p)) :: else fi;
		if :: HAS(qfreed[nq], p) -> freed[p] = 0 :: else fi;
		p++
	od;
	p = 0;
#ifndef MUT_DELTA_EARLY
	qtaken[nq] = 0; qfreed[nq] = 0;	/* (mutation: what was encoded when it was prepared stays) */
#endif
	tree[top] = 0; nq--; top--
}

/* Where the deltas A and F of number T go: inline, to a log page, or into a
 * snapshot that replaces the log. */
inline place_deltas() {
	if
	:: cur.ninline < IC && !force -> cur.ninline++
	:: cur.ninline >= IC && !force && cur.log2 == 0 ->
		take(T); NOPAGE;
		if
		:: cur.log1 == 0 -> cur.log1 = p+1
		:: else -> cur.log2 = p+1
		fi;
		whole[p] = 4;
#ifndef MUT_LOG_NOT_IN_DELTA
		A = A | (1<<p);			/* a log page is not free in its own set */
#endif
		cur.ninline = 1;
		tree[T] = tree[T] | (1<<p)
	:: force || (cur.ninline >= IC && cur.log2 != 0) ->
		take(T); NOPAGE;
		m = LOGS(cur);			/* what it replaces is freed like tree pages */
		tree[T] = (tree[T] | (1<<p)) & ~m;
#ifndef MUT_OLD_LOG_LEAK
#ifdef MUT_LOG_REUSE
		free = free | m;
#else
		pending = pending | m;
#endif
		F = F | m;
#endif
		i = 0;
		do
		:: i == NP -> break
		:: i < NP -> if :: HAS(m, i) -> freed[i] = T :: else fi; i++
		od;
		i = 0;
		cur.snap = p+1; cur.log1 = 0; cur.log2 = 0; cur.ninline = 0; cur.noset = 0; force = 0;
		A = A | (1<<p); m = 0;
		whole[p] = 4
	fi
}

inline copy_set(a, b) {
	a.snap = b.snap; a.log1 = b.log1; a.log2 = b.log2; a.set = b.set; a.ninline = b.ninline; a.ttree = b.ttree; a.noset = b.noset
}
/* what holder b (0, 1: a slot, 2: the allocator) names, a names now */
inline copy_whole(a, b) {
	p = 0;
	do
	:: p == NP -> break
	:: p < NP -> whole[p] = (whole[p] & ~(1<<(a))) | (((whole[p]>>(b)) & 1) << (a)); p++
	od;
	p = 0
}
inline write_trailing() {
	slot[k].label = LABEL(k); slot[k].ok = 1; slot[k].v2tree = dtree; slot[k].ext = 1; slot[k].trail = 1;
	slot[k].bad = 0; slot[k].num = T; slot[k].v2num = D; slot[k].list = n;
	copy_set(slot[k], cur); copy_whole(k, 2)
}
inline write_plain() {
	slot[k].label = LABEL(k); slot[k].ok = 1; slot[k].v2tree = cur.ttree; slot[k].ext = 1; slot[k].trail = 0;
	slot[k].bad = 0; slot[k].num = D; slot[k].v2num = D; slot[k].list = 0;
	copy_set(slot[k], cur); copy_whole(k, 2);
	k = 1-k
}
inline clear_extension() {
	slot[k].ext = 0; slot[k].trail = 0; slot[k].bad = 0; slot[k].num = 0; slot[k].v2num = 0; slot[k].ttree = 0; slot[k].list = 0;
	slot[k].snap = 0; slot[k].log1 = 0; slot[k].log2 = 0; slot[k].set = 0; slot[k].ninline = 0; slot[k].noset = 0
}

/* All that is prepared is committed; the deltas are encoded now. */
inline commit() {
	T = top;
	A = qtaken[1]; F = qfreed[1];
	A = A | qtaken[2]; F = (F & ~qtaken[2]) | qfreed[2];	/* one after the other */
	place_deltas();
	cur.set = (cur.set & ~A) | F;
	cur.ttree = tree[T] & ~LOGS(cur);
	/* the tree pages are written */
	m = (qtaken[1] | qtaken[2]) & tree[T] & ~LOGS(cur); p = 0;
	do
	:: p == NP -> break
	:: p < NP -> if :: HAS(m, p) -> whole[p] = 0 :: else fi; p++
	od;
	m = 0; p = 0;
	/* A list page: free in the set that is written, for nobody wants it later. */
	n = 0;
	if
#ifdef F_LIST
	:: release(); take(T); if :: p < NP -> born[p] = 0; n = p+1; whole[p] = 0 :: else fi; p = 0
#endif
	:: skip
	fi;
#ifdef MUT_LIST_LEAK
	if :: n -> cur.set = cur.set & ~PAGE1(n) :: else fi;	/* it is in the delta, as in use */
#endif
	o = slot[k].list;		/* the list page of the meta that is overwritten */
	if
	:: write_trailing()						/* done */
	:: write_trailing(); goto between				/* whole, nobody was told */
	:: write_trailing(); slot[k].bad = 1; goto between		/* pages are missing */
	:: write_trailing(); clear_extension(); goto between		/* extension torn */
	:: clear_extension(); slot[k].ok = 0; slot[k].label = 0; slot[k].v2tree = 0; goto between	/* torn */
	:: goto between							/* not written */
	fi;
	if :: o -> free = free | (PAGE1(o) & NOTTAKEN) :: else fi;
	v2n = D; D = T; dtree = cur.ttree; k = 1-k; nq = 0;
	qtaken[1] = 0; qtaken[2] = 0; qfreed[1] = 0; qfreed[2] = 0;
	T = 0; A = 0; F = 0; n = 0; o = 0
}

/* ---- opening ------------------------------------------------------------------------ */

/* F: the free set that slot z's extension names; scan: it cannot be used */
inline recover(z) {
	d_step {
		F = slot[z].set; scan = slot[z].noset; torn = torn || slot[z].noset;
		A = LOGS(slot[z]);
		p = 0;
		do
		:: p == NP -> break
		:: else ->
			if
			:: HAS(A, p) && !HAS(whole[p], z) ->
#ifdef MUT_LOG_HASH
				F = ALL & ~F		/* whatever is there is believed */
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
	:: slot[i].ext && slot[i].trail && slot[i].bad ->	/* the flush never finished: D */
		D = slot[i].v2num; m = slot[i].v2tree;
		/* its free set is in the other slot, if that names D's number */
#ifdef MUT_OTHER_UNCHECKED
		if
		:: slot[1-i].ok && slot[1-i].ext -> o = 1-i; torn = 1; recover(o)
#else
		if
		:: slot[1-i].ok && slot[1-i].ext && slot[1-i].num == D -> o = 1-i; recover(o)
#endif
		:: else -> scan = 1; torn = 1
		fi
	:: slot[i].ext && !(slot[i].trail && slot[i].bad) ->
		D = slot[i].num; m = slot[i].ttree;
		recover(i)
	:: !slot[i].ext ->
		/* its number: max(label, the highest number in an extension that verifies) */
		if
#ifdef WITHOUT_NUMBERS
		:: D = 1
#else
		:: slot[1-i].ok && slot[1-i].ext -> D = slot[1-i].num	/* the label is not higher */
		:: slot[1-i].ok && slot[1-i].ext -> D = slot[1-i].num+1	/* it is */
		:: else -> D = 1
#endif
		fi;
		m = slot[i].v2tree;
		scan = 1; torn = 1;
#ifdef MUT_FALLBACK_BY_NUMBER
		/* it uses the other slot's if the numbers agree */
		if
		:: slot[1-i].ok && slot[1-i].ext && slot[1-i].num == D -> o = 1-i; recover(o)
		:: else
		fi
#endif
	fi
}
inline open_database() {
	assert(a_meta_is_valid || slot[0].ok || slot[1].ok);
	i = HI;
	find_free_set();
	assert(no_needless_scan || !scan || stocked || torn);
	if
	:: scan ->
		F = ALL & ~m; force = 1; cur.ttree = m; cur.set = F;
#ifdef MUT_SETTLE_AFTER_SCAN
		cur.set = 0		/* a plain meta written now has no deltas: as if none were free */
#else
		cur.noset = 1		/* a plain meta written now says that it names no set */
#endif
	:: else -> copy_set(cur, slot[o]); copy_whole(2, o); cur.ttree = m; m = m | LOGS(slot[o])
	fi;
	assert(free_set_exact || F == (ALL & ~m));
	dtree = cur.ttree; tree[D] = m; top = D; v2n = D; k = 1-i;
	if :: !scan -> torn = 0; stocked = 0 :: else fi;	/* a scan is repeated until something is written */
	if
	:: slot[i].ext && slot[i].trail && !slot[i].bad -> write_plain()	/* settle */
	:: else
	fi;
	free = F & ~LISTS;
	i = 0; m = 0; F = 0; o = 0; scan = 0
}
inline forget() {
	d_step {
		free = 0; pending = 0; D = 0; v2n = 0; top = 0; nq = 0; k = 0; reader = 0; force = 0; dtree = 0;
		qtaken[1] = 0; qtaken[2] = 0; qfreed[1] = 0; qfreed[2] = 0;
		cur.snap = 0; cur.log1 = 0; cur.log2 = 0; cur.set = 0; cur.ninline = 0; cur.ttree = 0; cur.noset = 0;
		i = 0; p = 0; T = 0; o = 0; n = 0; m = 0; A = 0; F = 0; G = 0; scan = 0; size = 0
	};
	tidy()
}

/* Stock replaces the lowest page of its tree by any page that is not in it, a log
 * page of ours perhaps, or a page that a trailing extension lists. */
inline stock_commits() {
	i = HI;
	m = ALL & ~slot[i].v2tree;
	p = 0;
	do
	:: p < NP && HAS(m, p) -> break
	:: p < NP -> p++
	:: p == NP -> goto between
	od;
	whole[p] = 0; stocked = 1;
	if
	:: slot[i].ext && slot[i].trail && HAS(slot[i].ttree, p) && !HAS(slot[i].v2tree, p) -> slot[i].bad = 1
	:: else
	fi;
	if
	:: goto between			/* crashed before its meta */
	:: k = (slot[i].label+1)%2;
		A = (slot[i].v2tree | (1<<p)) & ~(slot[i].v2tree & -(slot[i].v2tree));
		n = slot[i].label + 1;
		clear_extension();
		slot[k].ok = 1; slot[k].label = n; slot[k].v2tree = A;
		goto between
	fi
}

active proctype World() {
	/* a new file: a tree of two pages, no extension */
	atomic { slot[0].ok = 1; slot[0].v2tree = 3; slot[1].ok = 1; slot[1].label = 1; slot[1].v2tree = 3 };

between:
	atomic { forget() };
	if
	:: goto ours
#ifdef F_STOCK
	:: atomic { stock_commits() }
#endif
	fi;

ours:
	atomic { open_database() };
loop:
	atomic { check_memory(); tidy() };
	if
	:: atomic { nq < MAXQ -> prepare(); goto loop }
	:: atomic { nq > 0 -> abort_last(); goto loop }
	:: atomic { nq > 0 -> commit(); goto loop }
	/* idle, or before Close: a plain meta of D */
	:: atomic { nq == 0 && slot[1-k].ext && slot[1-k].trail && !slot[1-k].bad ->
		if :: slot[k].list -> free = free | (PAGE1(slot[k].list) & NOTTAKEN) :: else fi;
		write_plain(); v2n = D;
		goto loop }
#ifdef F_READER
	:: atomic { reader == 0 -> reader = D; goto loop }
	:: atomic { reader != 0 -> reader = 0; goto loop }
#endif
	:: goto between			/* closed, or killed */
	fi
}
