/* commit.pml: the commit protocol on a page cache and a disk.
 *
 * One process walks through every history of openings, transactions, groups,
 * flushes, failures, crashes and other engines.  The histories are not bounded
 * in length: what nothing refers to any more is forgotten and its name used
 * again, labels are kept small by taking two off all of them, so that the set
 * of states is finite and is searched to the end.
 *
 * See README.md for the abstraction, the features (F_...) and the rules that
 * the mutations (MUT_...) leave out.
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
#define FLS 100			/* stamp of a freelist page written for state d: FLS+d */
#ifdef MUT_NO_BOUNDS
#define EOFV 254		/* the page lies behind the end of the file */
#else
#define EOFV 0			/* unreadable, torn, zero, behind the end: all the same */
#endif

/* ---- storage: what the page cache shows, what the disk holds ------------ */

typedef Slot {			/* a meta page */
	byte f;			/* 0 invalid; 1 v2 meta valid; 2 extension verifies too */
	byte v;			/* v2 txid: the label */
	byte d;			/* state that the v2 meta names: what stock opens */
	byte t;			/* state that a trailing extension names; 0: plain */
	byte l;			/* its list page + 1, or 0 */
	byte n			/* freelist page + 1, or 0: freelist is 2^64-1 */
};
Slot sm[2];			/* page cache */
Slot sd[2];			/* disk */
byte mem[NP];			/* page cache: stamp of the content; 0 unreadable */
byte dsk[NP];			/* disk */
short dp; byte ds;		/* dirty pages, dirty slots: what a flush writes */

/* ---- states: id -> root page (stamp id), leaf, log page (0 stamp: none) -- */

byte rt[MAXID+1], lf[MAXID+1], lv[MAXID+1], lg[MAXID+1], gv[MAXID+1];

#define TREE(s)  ((s) -> ((1<<rt[s]) | (1<<lf[s])) : 0)
#define LOGS(s)  (((s) && gv[s]) -> (1<<lg[s]) : 0)
#ifdef MUT_LOG_PIN
#define PAGES(s) TREE(s)
#else
#define PAGES(s) (TREE(s) | LOGS(s))
#endif
#define INTACT(s) (mem[rt[s]] == (s) && mem[lf[s]] == lv[s])
#define LOGOK(s)  (gv[s] == 0 || mem[lg[s]] == gv[s])

/* ---- a session of ours ------------------------------------------------- */

byte D, V;			/* newest durable, newest visible state */
byte q0, q1, nq;		/* prepared transactions, on top of one another */
byte fl;			/* target of the group in flight */
byte ph;			/* 0 idle; what is being flushed: 1 pages and trailing meta;
				 * 2, 3 first and second half of two flushes; 4 Periodic's;
				 * 5 a plain meta of D; 6 a freelist page */
byte k;				/* the slot that the next meta goes to; the other stays */
byte rd;			/* a reader's state */
bit stopped;			/* a flush has failed */
bit strict;			/* opened with StrictCompat */
bit weak;			/* NoSync commits not flushed yet */
bit nopin;			/* (mutation) reopened without pins */
bit early;			/* (mutation) a writer returned on an undurable base */
short fs; byte fss;		/* what the flush that runs must write */

/* ---- ghosts: what the outside may rely on ------------------------------- */

byte acked;			/* newest state that must survive power loss */
byte vis;			/* newest state that must survive kill -9 */
byte prev;			/* oldest state that stock may see */
short maybe;			/* states that may or may not have survived any crash */
short alt;			/* Periodic: states that power loss may leave */
bit killed;			/* only kill -9 since then, no power loss */
bit stocked;			/* stock has written: its pages may lie on our logs */
bit clean;			/* after a clean Close, nothing written since */
bit stale;			/* a flush has failed in this boot: the cache may show
				 * what the disk has not */
byte cpd;			/* (mutation) the state that a copy being made names */

/* Always 0: they name an assertion in what pan prints. */
byte state_is_whole, nothing_acknowledged_lost, nobody_acted_on_what_vanished,
	reader_undisturbed, a_meta_is_valid, no_needless_scan, stock_state_is_whole,
	stock_one_flush_behind_at_most, stock_freelist_page_is_one, no_read_behind_the_end,
	copy_is_whole, maxid_suffices, np_suffices;

byte i, x, y, p, id, T, S, kf, nn;	/* scratch; 0 between events */
int m, z, savem;
byte nref;			/* pages from here on are named by nothing */

/* ======================================================================== */

#define VALID(s) (sm[s].f > 0)
#define HI ((VALID(1) && (!VALID(0) || sm[1].v > sm[0].v)) -> 1 : 0)
/* The slot that stays when we write.  On a tie (surgery revert-meta-page) it is
 * the one whose number has not its parity, for its extension never counts. */
#define TIE (sm[0].f && sm[1].f && sm[0].v == sm[1].v)
#if defined(MUT_TIE_SLOT0) || defined(MUT_TIE_EXT)
#define OURHI HI
#else
#define OURHI (TIE -> 1 - sm[0].v%2 : HI)
#endif
#ifdef MUT_TIE_EXT
#define STRICT_HIGHER(h) 1
#else
#define STRICT_HIGHER(h) (!VALID(1-(h)) || sm[h].v > sm[1-(h)].v)
#endif
/* the extension of slot h is honoured */
#define HONOURED(h) (sm[h].f == 2 && STRICT_HIGHER(h) && sm[h].v%2 == (h))
/* label for slot s: the smallest number above the other's that has s's parity */
#ifdef MUT_PARITY
#define LABEL(s) (sm[1-(s)].v + 1)
#else
#define LABEL(s) (sm[1-(s)].v + 1 + ((sm[1-(s)].v + 1 + (s)) % 2))
#endif

inline cpslot(a, b) { a.f = b.f; a.v = b.v; a.d = b.d; a.t = b.t; a.l = b.l; a.n = b.n }
inline clrslot(a) { a.f = 0; a.v = 0; a.d = 0; a.t = 0; a.l = 0; a.n = 0 }

/* names in use */
inline live() {
	m = 1 | maybe | alt | (1<<sm[0].d) | (1<<sm[0].t) | (1<<sm[1].d) | (1<<sm[1].t) |
	  (1<<sd[0].d) | (1<<sd[0].t) | (1<<sd[1].d) | (1<<sd[1].t) |
	  (1<<D) | (1<<V) | (1<<q0) | (1<<q1) | (1<<fl) | (1<<rd) |
	  (1<<acked) | (1<<vis) | (1<<prev) | (1<<T) | (1<<S) | (1<<cpd)
}

/* Between events: forget what nothing refers to any more, and rename what is
 * left in the order in which it is found (states, pages, labels).  It changes
 * nothing that can be observed; it makes the set of states finite and small.
 * In C, because it runs after each event. */
#define NEEDED(pg, c, ok) do { \
	int q_, w_; \
	ok = now.ph == 6 && now.T == (pg)+1 && (c) == FLS+now.D; \
	if ((c) >= FLS) { \
		for (w_ = 0; w_ < 2; w_++) { \
			if (now.sm[w_].n == (pg)+1 && now.sm[w_].d == (c)-FLS) ok = 1; \
			if (now.sd[w_].n == (pg)+1 && now.sd[w_].d == (c)-FLS) ok = 1; \
		} \
		break; \
	} \
	for (q_ = 1; q_ <= MAXID; q_++) { \
		int in_ = lv_ & 1<<q_;	/* (pan redefines "continue") */ \
		if (in_ && now.rt[q_] == (pg) && (c) == q_) ok = 1; \
		if (in_ && now.lf[q_] == (pg) && (c) == now.lv[q_]) ok = 1; \
		if (in_ && now.gv[q_] && now.lg[q_] == (pg) && (c) == now.gv[q_]) ok = 1; \
	} \
	for (w_ = 0; w_ < 2; w_++) { \
		if (now.sm[w_].l == (pg)+1 && now.sm[w_].t == (c)) ok = 1; \
		if (now.sd[w_].l == (pg)+1 && now.sd[w_].t == (c)) ok = 1; \
	} \
} while (0)
#define NAME(x) do { int y_ = (x); if (y_ && !mp[y_]) { mp[y_] = ++n; od[n] = y_; } } while (0)
#define SUB(x) (x) = mp[(int)(x)]
#define PG(x) do { int y_ = (x); if (!pm[y_]) { po[np] = y_; pm[y_] = ++np; } } while (0)

inline gc() {
	c_code {
		int lv_, sl, n, np, i_, w, lo, ok, t_;
		int mp[32], od[32], pm[32], po[32];
		unsigned char a1[32], a2[32], a3[32], a4[32], a5[32];

		/* 1. a state that no slot names can never be recovered */
		sl = 0;
		for (w = 0; w < 2; w++)
			sl |= 1<<now.sm[w].d | 1<<now.sm[w].t | 1<<now.sd[w].d | 1<<now.sd[w].t;
		now.alt &= sl & ~1;
		now.maybe &= (sl | 1<<now.fl) & ~1;
		if (!now.D && !now.killed) now.vis = now.acked;
		if (!(sl & 1<<now.prev)) now.prev = now.acked;
		lv_ = sl | 1<<now.D | 1<<now.V | 1<<now.q0 | 1<<now.q1 | 1<<now.fl | 1<<now.rd
			| 1<<now.acked | 1<<now.vis | 1<<now.prev | 1<<now.cpd;
		lv_ &= ~1;
		/* 2. dead states, contents that nothing expects, clean pages */
		for (i_ = 1; i_ <= MAXID; i_++)
			if (!(lv_ & 1<<i_))
				now.rt[i_] = now.lf[i_] = now.lv[i_] = now.lg[i_] = now.gv[i_] = 0;
		for (i_ = 0; i_ < NP; i_++) {
			if (now.mem[i_] && now.mem[i_] != 254) {
				NEEDED(i_, now.mem[i_], ok);
				if (!ok) now.mem[i_] = 0;
			}
			if (now.dsk[i_] && now.dsk[i_] != 254) {
				NEEDED(i_, now.dsk[i_], ok);
				if (!ok) now.dsk[i_] = 0;
			}
			if (now.mem[i_] == now.dsk[i_]) {
				now.dp &= ~(1<<i_);
				now.fs &= ~(1<<i_);
			}
		}
		/* 3. labels: the smallest is 0 or 1 */
		for (;;) {
			lo = 999;
			for (w = 0; w < 2; w++) {
				if (now.sm[w].f && now.sm[w].v < lo) lo = now.sm[w].v;
				if (now.sd[w].f && now.sd[w].v < lo) lo = now.sd[w].v;
			}
			if (lo < 2 || lo == 999) break;
			for (w = 0; w < 2; w++) {
				if (now.sm[w].f) now.sm[w].v -= 2;
				if (now.sd[w].f) now.sd[w].v -= 2;
			}
		}
		if (readtrail) {	/* ./pan -r: what there is after each event */
			printf("\t");
			for (w = 0; w < 2; w++) printf("slot%d %d:v%d d%d t%d l%d n%d | disk %d:v%d d%d t%d l%d n%d; ", w,
				now.sm[w].f, now.sm[w].v, now.sm[w].d, now.sm[w].t, now.sm[w].l, now.sm[w].n,
				now.sd[w].f, now.sd[w].v, now.sd[w].d, now.sd[w].t, now.sd[w].l, now.sd[w].n);
			printf("\n\t\tD%d V%d fl%d q%d,%d rd%d ph%d k%d acked%d vis%d prev%d maybe%x alt%x killed%d\n\t\tpages ", now.D, now.V,
				now.fl, now.q0, now.q1, now.rd, now.ph, now.k, now.acked, now.vis, now.prev, now.maybe, now.alt, now.killed);
			for (i_ = 0; i_ < NP; i_++) printf("%d/%d%s ", now.mem[i_], now.dsk[i_], now.dp>>i_&1 ? "*" : "");
			printf("\n\t\tstates ");
			for (i_ = 1; i_ <= MAXID; i_++) if (lv_>>i_&1) printf("%d={%d,%d:%d,%d:%d} ", i_, now.rt[i_], now.lf[i_], now.lv[i_], now.lg[i_], now.gv[i_]);
			printf("\n");
		}
#ifndef NOSYM
		/* 4. names of states */
		for (i_ = 0; i_ < 32; i_++) mp[i_] = od[i_] = pm[i_] = po[i_] = 0;
		n = 0;
		NAME(now.acked); NAME(now.vis); NAME(now.prev);
		for (w = 0; w < 2; w++) {
			NAME(now.sm[w].d); NAME(now.sm[w].t);
			NAME(now.sd[w].d); NAME(now.sd[w].t);
		}
		NAME(now.D); NAME(now.V); NAME(now.fl); NAME(now.q0); NAME(now.q1);
		NAME(now.rd); NAME(now.cpd);
		t_ = n;			/* the states; dead ones whose stamp is in use follow */
		for (i_ = 1; i_ <= t_; i_++) { NAME(now.lv[od[i_]]); NAME(now.gv[od[i_]]); }
		for (i_ = 1; i_ <= MAXID; i_++) {
			a1[i_] = now.rt[i_]; a2[i_] = now.lf[i_]; a3[i_] = now.lv[i_];
			a4[i_] = now.lg[i_]; a5[i_] = now.gv[i_];
		}
		for (i_ = 1; i_ <= MAXID; i_++) {
			if (i_ <= t_) {
				now.rt[i_] = a1[od[i_]]; now.lf[i_] = a2[od[i_]]; now.lg[i_] = a4[od[i_]];
				now.lv[i_] = mp[a3[od[i_]]]; now.gv[i_] = mp[a5[od[i_]]];
			} else
				now.rt[i_] = now.lf[i_] = now.lv[i_] = now.lg[i_] = now.gv[i_] = 0;
		}
		for (i_ = 0; i_ < NP; i_++) {
			if (now.mem[i_] && now.mem[i_] != 254)
				now.mem[i_] = now.mem[i_] >= FLS ? FLS+mp[now.mem[i_]-FLS] : mp[now.mem[i_]];
			if (now.dsk[i_] && now.dsk[i_] != 254)
				now.dsk[i_] = now.dsk[i_] >= FLS ? FLS+mp[now.dsk[i_]-FLS] : mp[now.dsk[i_]];
		}
		for (w = 0; w < 2; w++) {
			SUB(now.sm[w].d); SUB(now.sm[w].t); SUB(now.sd[w].d); SUB(now.sd[w].t);
		}
		SUB(now.acked); SUB(now.vis); SUB(now.prev); SUB(now.D); SUB(now.V); SUB(now.fl);
		SUB(now.q0); SUB(now.q1); SUB(now.rd); SUB(now.cpd);
		lo = now.maybe; now.maybe = 0;
		for (i_ = 1; i_ <= MAXID; i_++) if (lo & 1<<i_) now.maybe |= 1<<mp[i_];
		lo = now.alt; now.alt = 0;
		for (i_ = 1; i_ <= MAXID; i_++) if (lo & 1<<i_) now.alt |= 1<<mp[i_];
		/* 5. names of pages */
		np = 0;
		for (i_ = 1; i_ <= t_; i_++) {
			PG(now.rt[i_]); PG(now.lf[i_]);
			if (now.gv[i_]) PG(now.lg[i_]);
		}
		for (w = 0; w < 2; w++) {
			if (now.sm[w].l) PG(now.sm[w].l-1);
			if (now.sm[w].n) PG(now.sm[w].n-1);
			if (now.sd[w].l) PG(now.sd[w].l-1);
			if (now.sd[w].n) PG(now.sd[w].n-1);
		}
		now.nref = np;
		for (i_ = 0; i_ < NP; i_++) PG(i_);
		for (i_ = 0; i_ < NP; i_++) { a1[i_] = now.mem[i_]; a2[i_] = now.dsk[i_]; }
		lo = now.dp; now.dp = 0; ok = now.fs; now.fs = 0;
		for (i_ = 0; i_ < NP; i_++) {
			now.mem[i_] = a1[po[i_]]; now.dsk[i_] = a2[po[i_]];
			if (lo & 1<<po[i_]) now.dp |= 1<<i_;
			if (ok & 1<<po[i_]) now.fs |= 1<<i_;
		}
		for (i_ = 1; i_ <= t_; i_++) {
			now.rt[i_] = pm[now.rt[i_]]-1; now.lf[i_] = pm[now.lf[i_]]-1;
			now.lg[i_] = now.gv[i_] ? pm[now.lg[i_]]-1 : 0;
		}
		for (w = 0; w < 2; w++) {
			if (now.sm[w].l) now.sm[w].l = pm[now.sm[w].l-1];
			if (now.sm[w].n) now.sm[w].n = pm[now.sm[w].n-1];
			if (now.sd[w].l) now.sd[w].l = pm[now.sd[w].l-1];
			if (now.sd[w].n) now.sd[w].n = pm[now.sd[w].n-1];
		}
		if (now.ph == 6) now.T = pm[now.T-1];
#endif
	}
}

/* a name that nothing uses, as a state or as a stamp */
inline fresh() {
	d_step {
		savem = m;
		live();
		i = 1;
		do
		:: i > MAXID -> break
		:: else ->
			if
			:: (m>>i) & 1 -> z = z | (1<<lv[i]) | (1<<gv[i])
			:: else
			fi;
			i++
		od;
		m = m | z;
		id = 1;
		do
		:: (m>>id) & 1 -> id++
		:: else -> break
		od;
		assert(maxid_suffices || id <= MAXID);
		i = 0; m = savem; z = 0; savem = 0
	}
}

/* A write into the page cache.  The kernel may have written the content before
 * it back already; that matters only if it was dirty. */
inline wr(pg, val) {
	if
	:: ((dp>>(pg)) & 1) && mem[pg] != dsk[pg] -> dsk[pg] = mem[pg]; fs = fs & ~(1<<(pg))
	:: skip
	fi;
	mem[pg] = val;
	dp = dp | (1<<(pg))
}
inline wrslot(s, F, L, dd, tt, ll, fn) {
	if
	:: ((ds>>(s)) & 1) -> cpslot(sd[s], sm[s]); fss = fss & ~(1<<(s))
	:: skip
	fi;
	x = L; y = s;
	sm[y].f = F; sm[y].v = x; sm[y].d = dd; sm[y].t = tt; sm[y].l = ll; sm[y].n = fn;
	ds = ds | (1<<y);
	x = 0; y = 0
}

/* A write of a group.  kf bit 0: the process is killed while it writes, so
 * that any of the writes may be missing. */
inline wrk(pg, val) {
	if
	:: kf & 1 -> skip
	:: wr(pg, val)
	fi
}

/* a flush that succeeds: everything dirty reaches the disk */
inline flush() {
	d_step {
		i = 0;
		do
		:: i == NP -> break
		:: else -> if :: (dp>>i) & 1 -> dsk[i] = mem[i] :: else fi; i++
		od;
		if :: ds & 1 -> cpslot(sd[0], sm[0]) :: else fi;
		if :: ds & 2 -> cpslot(sd[1], sm[1]) :: else fi;
		dp = 0; ds = 0; fs = 0; fss = 0; i = 0
	}
}
/* a flush that fails: what was dirty is on the disk or not, and is clean now */
inline flush_fails() {
	i = 0;
	do
	:: i == NP -> break
	:: i < NP && ((dp>>i) & 1) -> dsk[i] = mem[i]; i++
	:: i < NP -> i++
	od;
	if :: ds & 1 -> cpslot(sd[0], sm[0]) :: skip fi;
	if :: ds & 2 -> cpslot(sd[1], sm[1]) :: skip fi;
	dp = 0; ds = 0; fs = 0; fss = 0; i = 0; stale = 1
}
/* what an open rereads: clean blocks come from the disk */
inline drop_pages() {
	d_step {
		i = 0;
		do
		:: i == NP -> break
		:: else -> if :: !((dp>>i) & 1) -> mem[i] = dsk[i] :: else fi; i++
		od;
		i = 0
	}
}
inline drop_slots() {
	d_step {
		if :: !(ds & 1) -> cpslot(sm[0], sd[0]) :: else fi;
		if :: !(ds & 2) -> cpslot(sm[1], sd[1]) :: else fi
	}
}
inline power_slot(s) {
	if
	:: (ds>>(s)) & 1 -> cpslot(sd[s], sm[s])
	:: (ds>>(s)) & 1 -> clrslot(sd[s])		/* torn in the v2 meta */
	:: ((ds>>(s)) & 1) && sm[s].f == 2 ->		/* torn in the extension */
		cpslot(sd[s], sm[s]); sd[s].f = 1; sd[s].t = 0; sd[s].l = 0
	:: skip						/* not written */
	fi;
	cpslot(sm[s], sd[s])
}
/* power loss: every dirty block is old, new or garbage; the cache is gone */
inline power() {
	i = 0;
	do
	:: i == NP -> break
	:: i < NP && ((dp>>i) & 1) -> dsk[i] = mem[i]; i++
	:: i < NP && ((dp>>i) & 1) && dsk[i] != 0 && dsk[i] != EOFV -> dsk[i] = 0; mem[i] = 0; i++
	:: i < NP -> mem[i] = dsk[i]; i++
	od;
	power_slot(0); power_slot(1);
	dp = 0; ds = 0; i = 0; killed = 0; stale = 0
}

inline endsession() {
	D = 0; V = 0; q0 = 0; q1 = 0; nq = 0; fl = 0; ph = 0; k = 0; rd = 0; fs = 0; fss = 0;
	stopped = 0; nopin = 0; strict = 0; T = 0; S = 0; kf = 0; cpd = 0; weak = 0; nn = 0
}

/* ---- allocation --------------------------------------------------------- */

/* The slot that stays while the transaction being prepared will be written:
 * the one in flight if there is one, else the one that is not next. */
#define STAY ((ph != 0) -> k : 1-k)

/* m: the pages that rule 1 pins */
inline pins() {
	d_step {
		p = STAY;
		m = 0;
#ifndef MUT_D_PIN
		m = m | PAGES(D);
#endif
#ifndef MUT_V2_PIN
		if :: !nopin -> m = m | TREE(sm[p].d) :: else fi;
#endif
#ifndef MUT_PREP_PIN
		m = m | PAGES(fl) | PAGES(q0) | PAGES(q1);
#endif
#ifdef PERIODIC
#ifndef MUT_VISIBLE_PIN
		m = m | PAGES(V);
#endif
#endif
#ifndef MUT_READER_PIN
		m = m | TREE(rd);
#endif
#ifndef MUT_LIST_PIN
		if :: sm[p].l -> m = m | (1<<(sm[p].l-1)) :: else fi;
#ifdef PERIODIC
		if :: sm[1-p].l -> m = m | (1<<(sm[1-p].l-1)) :: else fi;
#endif
#endif
#ifndef MUT_FREELIST_PIN
		if :: sm[p].n -> m = m | (1<<(sm[p].n-1)) :: else fi;
#endif
		p = 0
	}
}

/* p: the next free page, first fit (or any, with ANYFIT); NP if there is none */
inline pick() {
	p = 0;
	do
	:: p == NP -> break
	:: p < NP && ((m>>p) & 1) -> p++
	:: p < NP && !((m>>p) & 1) -> m = m | (1<<p); break
#ifdef ANYFIT
	:: p < nref && !((m>>p) & 1) -> p++
#endif
	od
}

#ifdef CHECK_ROOM
#define ROOM assert(np_suffices)	/* a transaction found no room */
#else
#define ROOM skip
#endif

/* id: a transaction on top of state b that takes none of the pages in m.
 * It always writes a root; a leaf and a log page as it likes.  0: no room. */
inline build(b, withlog) {
	fresh();
	lf[id] = lf[b]; lv[id] = lv[b]; lg[id] = lg[b]; gv[id] = gv[b];
#ifndef ROOTONLY
	if :: lv[id] = id :: skip fi;
#endif
	if :: withlog -> gv[id] = id :: skip fi;
	/* what it keeps of its base is in use, whatever the rules say */
	if :: lv[id] != id -> m = m | (1<<lf[id]) :: else fi;
	if :: gv[id] && gv[id] != id -> m = m | (1<<lg[id]) :: else fi;
	pick(); rt[id] = p;
	if :: lv[id] == id && p < NP -> pick(); lf[id] = p :: else fi;
	if :: gv[id] && gv[id] == id && p < NP -> pick(); lg[id] = p :: else fi;
	if
	:: p == NP ->
		ROOM;
		rt[id] = 0; lf[id] = 0; lv[id] = 0; lg[id] = 0; gv[id] = 0; id = 0
	:: else
	fi;
	p = 0; m = 0
}
#ifdef F_LOG
#define LOGOPT 1
#else
#define LOGOPT 0
#endif

/* The pages of T that D has not, and no others: a page of a group that a later
 * member supersedes is never written. */
inline write_pages() {
	if
	:: kf & 2 -> skip
	:: else -> wrk(rt[T], T)
	fi;
	if :: lv[T] != lv[D] -> wrk(lf[T], lv[T]) :: else fi;
	if :: gv[T] && gv[T] != gv[D] -> wrk(lg[T], gv[T]) :: else fi
}
/* nn: the list page of the meta for T + 1, or 0 if the list fits the meta */
inline write_list() {
	nn = 0;
#ifdef F_LIST
	if
	:: pins(); m = m | PAGES(T); pick();
		if :: p < NP -> nn = p+1; wrk(p, T) :: else fi;
		p = 0; m = 0
	:: skip
	fi
#endif
}

/* ---- opening ------------------------------------------------------------ */

/* nn: every page that the trailing meta in slot T lists verifies */
inline verify() {
	d_step {
		x = sm[T].t;
#ifdef MUT_NO_HASH
		nn = 1;
#else
#ifdef MUT_NO_BOUNDS
		/* reading behind the end of the file through a mapping is a fault */
		assert(no_read_behind_the_end || (mem[rt[x]] != EOFV && mem[lf[x]] != EOFV));
#endif
		nn = (sm[T].l == 0 || mem[sm[T].l-1] == x) &&
		  mem[rt[x]] == x &&
		  (lv[x] == lv[sm[T].d] || mem[lf[x]] == lv[x]) &&
		  (gv[x] == 0 || gv[x] == gv[sm[T].d] || mem[lg[x]] == gv[x]);
#endif
		x = 0
	}
}
/* S: the state that we open; T: the slot that stock would open */
inline choose() {
	assert(a_meta_is_valid || VALID(0) || VALID(1));
	T = OURHI;
	S = sm[T].d;
	if
	:: HONOURED(T) && sm[T].t ->
		verify();
		if :: nn -> S = sm[T].t :: else fi;
		nn = 0
	:: else
	fi
}
inline check_opened() {
	/* no mixture, no page overwritten */
	assert(state_is_whole || (S != 0 && INTACT(S)));
	/* nothing acknowledged is lost, nothing that was undone is back */
	assert(nothing_acknowledged_lost || (killed && S == vis) || (!killed && (S == acked || ((alt>>S) & 1))) ||
		((maybe>>S) & 1));
	assert(nobody_acted_on_what_vanished || !early || S != acked)
}

/* ======================================================================== */

active proctype World() {
	atomic {
		/* a new file: both slots name the same state */
		rt[1] = 0; lf[1] = 1; lv[1] = 1;
		do
		:: i == NP -> break
		:: else -> mem[i] = EOFV; dsk[i] = EOFV; i++
		od;
		i = 0;
		mem[0] = 1; mem[1] = 1; dsk[0] = 1; dsk[1] = 1;
		sm[0].f = 1; sm[0].d = 1; sm[1].f = 1; sm[1].v = 1; sm[1].d = 1;
		cpslot(sd[0], sm[0]); cpslot(sd[1], sm[1]);
		acked = 1; vis = 1; prev = 1
	};

/* ------------------------------------------------------ nobody has it open */
between:
	atomic { endsession(); gc() };
	if
	:: goto ours
#ifdef F_STOCK
	:: goto stock
#endif
	:: atomic { dp || ds || stale -> power(); clean = 0; goto between }
#ifdef F_READONLY
	/* read-only: flushes nothing, writes nothing, sees what the cache shows */
	:: atomic {
#ifdef MUT_READONLY_NO_HASH
		T = HI;
		S = ((sm[T].f == 2 && sm[T].t) -> sm[T].t : sm[T].d);
#else
		choose();
#endif
		check_opened();
#ifdef CLAIM_READONLY_DURABLE
		/* (it is not true that) what it has shown survives a power loss */
		acked = S; vis = S; maybe = 0; alt = 0;
#endif
		goto between }
#endif
#ifdef F_REVERT
	/* surgery revert-meta-page: the older meta page over the newer */
	:: atomic { clean && !dp && !ds && VALID(0) && VALID(1) ->
		clean = 0; T = HI; S = sm[1-T].d;
		if
		:: INTACT(S) && sm[1-T].v != sm[T].v && !sm[1-T].n ->
			cpslot(sm[T], sm[1-T]); cpslot(sd[T], sm[1-T]);
			acked = S; vis = S; prev = S; maybe = 0; alt = 0
		:: else
		fi;
		goto between }
#endif
	fi;

/* -------------------------------------------------------------- we open it */
ours:
	atomic {
		clean = 0;
#ifndef MUT_OPEN_NO_FLUSH
		flush();
#endif
#ifndef MUT_OPEN_NO_DROP
		drop_pages();
#ifndef MUT_OPEN_ORDER
		drop_slots();		/* the metas are read after flush and drop */
#endif
#endif
		choose();
		check_opened();
		if
		:: !HONOURED(T) ->		/* no extension that counts: free space by a scan */
			lg[S] = 0; gv[S] = 0
		:: else
		fi;
		if
		:: !LOGOK(S) ->
			assert(no_needless_scan || stocked);	/* only stock makes it necessary */
			lg[S] = 0; gv[S] = 0
		:: else
		fi;
		acked = S; vis = S; prev = sm[T].d; maybe = 0; alt = 0;
		killed = 0; stocked = 0; early = 0;
		D = S; V = S; S = 0; k = 1 - T; T = 0;
#ifndef MUT_NO_SETTLE
		if
		:: sm[1-k].t == D ->
			wrslot(k, 2, LABEL(k), D, 0, 0, 0);
			if
			:: flush(); k = 1 - k
			:: killed = 1; goto between
			fi
		:: else
		fi;
#endif
#ifdef MUT_REOPEN_PIN
		nopin = 1;
#endif
#ifdef F_STRICT
		if
		:: strict = 1
		:: skip
		fi;
#endif
		prev = D
	};

/* ------------------------------------------------------------ our session */
loop:
	gc();
	assert(reader_undisturbed || rd == 0 || INTACT(rd));
	if
	/* a transaction is prepared on top of the newest one */
	:: atomic { nq < MAXQ && !stopped && !weak && (ph < 4 || ph == 5) ->
#ifdef PERIODIC
		T = (nq == 2 -> q1 : (nq == 1 -> q0 : V));
#else
		T = (nq == 2 -> q1 : (nq == 1 -> q0 : (fl -> fl : D)));
#endif
		pins();
		build(T, LOGOPT);
		T = 0;
		if
		:: id && nq == 0 -> q0 = id; nq++
		:: id && nq == 1 -> q1 = id; nq++
		:: else
		fi;
		id = 0;
		goto loop }

#ifndef PERIODIC
	/* the leader writes a group of one or two */
	:: atomic { ph == 0 && nq > 0 && !stopped && !weak ->
		if
		:: T = q0
		:: nq == 2 -> T = q1
		fi;
		if
		:: kf = 0
		:: kf = 1
		fi;
#ifdef F_ABORT
		/* A page write of the second member fails (disk full): it is gone, and the
		 * first goes on.  Some of its pages may have been written. */
		if
		:: T == q1 && T ->
			wrk(rt[q1], q1);
#ifdef MUT_SUPERSEDED
			/* the first is written as if its root were superseded still */
			kf = kf | 2;
#endif
			T = q0; q1 = 0; nq = 1
		:: skip
		fi;
#endif
		if
		:: !strict -> ph = 1
#ifdef F_TWO
		:: ph = 2		/* the list is too long, or StrictCompat */
#endif
		fi;
		fl = T; maybe = maybe | (1<<T);
		x = ph; ph = 0;
		if
		:: x == 1 ->
			x = 0;
			write_list();
			write_pages();
			if
			:: kf & 1 -> skip
			:: ph = 1;
#ifdef MUT_WRONG_SLOT
				k = 1-k; wrslot(k, 2, sm[k].v+2, D, T, nn, 0)
#else
#ifdef MUT_V2_NAMES_T
				wrslot(k, 2, LABEL(k), T, 0, nn, 0)
#else
				wrslot(k, 2, LABEL(k), D, T, nn, 0)
#endif
#endif
			fi
		:: else ->
			x = 0;
			write_pages();
			ph = 2;
#ifdef MUT_TWO_IN_ONE
			/* pages and plain meta of T in one flush */
			wrslot(k, 2, LABEL(k), T, 0, 0, 0); ph = 3
#else
#ifndef WITHOUT_PLAIN_D
			/* unless the slot that stays is a plain D, flush 1 carries one */
			if
			:: sm[1-k].t || sm[1-k].d != D ->
				if
				:: kf & 1 -> skip
				:: wrslot(k, 2, LABEL(k), D, 0, 0, 0)
				fi
			:: else
			fi
#endif
#endif
		fi;
		nn = 0;
		if
		:: T == q1 -> q0 = 0; q1 = 0; nq = 0
		:: else -> q0 = q1; q1 = 0; nq--
		fi;
		T = 0;
		if
		:: kf & 1 -> killed = 1; goto between
		:: else
		fi;
		kf = 0;
#ifdef F_METAFAIL
		/* The write of the meta returns an error; the cache has it all the same. */
		if
		:: ph == 1 ->
#ifdef MUT_META_ERROR_ABORTS
			/* taken for a failed page write: the group is gone, the next may go on */
			maybe = 0; fl = 0; q0 = 0; q1 = 0; nq = 0; ph = 0
#else
			stopped = 1; fl = 0; q0 = 0; q1 = 0; nq = 0; ph = 0
#endif
		:: skip
		fi;
#endif
		goto loop }

	/* a flush of the leader, or of a settling meta, ends */
	:: atomic { ph != 0 && ph != 4 ->
		if
		:: flush()
#ifdef F_FAIL
		:: flush_fails();
#ifndef MUT_FAIL_GOES_ON
			stopped = 1; fl = 0; q0 = 0; q1 = 0; nq = 0; ph = 0;
			goto loop
#endif
#endif
		fi;
		if
		:: ph == 1 || ph == 3 ->
			if
			:: ph == 1 -> prev = D
			:: else -> prev = fl
			fi;
			D = fl; V = D; acked = D; vis = D; fl = 0; maybe = 0; k = 1-k; ph = 0;
			nopin = 0; early = 0;
#ifdef MUT_WRONG_SLOT
			k = 1-HI;
#endif
		:: ph == 2 ->
			if :: HI == k -> k = 1-k :: else fi;
			if
			:: killed = 1; goto between
			:: wrslot(k, 2, LABEL(k), fl, 0, 0, 0); ph = 3
			fi
		:: ph == 5 -> prev = D; k = 1-k; ph = 0
		:: ph == 6 ->
			if
			:: killed = 1; goto between
			:: wrslot(k, 2, LABEL(k), D, 0, 0, T); ph = 5; T = 0
			fi
		fi;
		goto loop }
#ifdef MUT_WRITE_EARLY
	/* The next group's pages are written while the flush of this one runs. */
	:: atomic { ph == 1 && nq > 0 && kf == 0 ->
		T = q0; write_pages(); T = 0;
		goto loop }
#endif
#ifdef MUT_EARLY_RETURN
	/* A writer that has read the state in flight changes nothing and returns. */
	:: atomic { fl && !early -> early = 1; goto loop }
#endif
#else
	/* ---- Periodic: a commit writes pages, then the same slot again */
#ifdef MUT_META_IN_FLUSH
	:: atomic { nq > 0 && !stopped && (ph == 0 || ph == 4) ->
#else
	:: atomic { nq > 0 && !stopped && ph == 0 ->
#endif
		if
		:: T = q0
		:: nq == 2 -> T = q1
		fi;
		if
		:: kf = 0
		:: kf = 1
		fi;
		write_list();
		write_pages();
		if
		:: kf & 1 ->
#ifdef MUT_META_FIRST
			/* the meta is among the writes that are issued in any order */
			if
			:: wrslot(k, 2, LABEL(k), D, T, nn, 0); maybe = maybe | (1<<T)
			:: skip
			fi;
#endif
#ifdef ASSUME_TORN_BY_KILL
			/* a kill may leave half of a write of one meta page in the cache */
			if
			:: (ds>>k) & 1 -> sm[k].f = 1; sm[k].t = 0; sm[k].l = 0
			:: skip
			fi;
#endif
			killed = 1; goto between
		:: else ->
			wrslot(k, 2, LABEL(k), D, T, nn, 0)
		fi;
		nn = 0; kf = 0;
		V = T; vis = T; alt = alt | (1<<T);
		if
		:: T == q1 -> q0 = 0; q1 = 0; nq = 0
		:: else -> q0 = q1; q1 = 0; nq--
		fi;
		T = 0;
		goto loop }
	/* the flush of everything visible begins ... */
	:: atomic { ph == 0 && V != D && !stopped -> ph = 4; fl = V; fs = dp; fss = ds; goto loop }
	/* ... and ends: D becomes the state that was visible when it began */
	:: atomic { ph == 4 ->
#ifdef F_FAIL
		if
		:: skip
		:: flush_fails();
#ifndef MUT_FAIL_GOES_ON
			/* what was visible and not flushed may be lost, kill -9 or not */
			maybe = maybe | alt; vis = acked;
			stopped = 1; fl = 0; q0 = 0; q1 = 0; nq = 0; ph = 0;
			goto loop
#endif
		fi;
#endif
		d_step {
			do
			:: i == NP -> break
			:: else -> if :: (fs>>i) & 1 -> dsk[i] = mem[i] :: else fi; i++
			od;
			if :: fss & 1 -> cpslot(sd[0], sm[0]) :: else fi;
			if :: fss & 2 -> cpslot(sd[1], sm[1]) :: else fi;
			dp = dp & ~fs; ds = ds & ~fss; fs = 0; fss = 0; i = 0;
			prev = D; D = fl; acked = D; fl = 0; k = 1-k; ph = 0; nopin = 0;
			alt = (V != D -> (1<<V) : 0)
		}
		goto loop }
	/* the flush of a settling meta ends */
	:: atomic { ph == 5 || ph == 6 ->
		flush();
		if
		:: ph == 5 -> prev = D; k = 1-k; ph = 0
		:: else ->
			if
			:: killed = 1; goto between
			:: wrslot(k, 2, LABEL(k), D, 0, 0, T); ph = 5; T = 0
			fi
		fi;
		goto loop }
#endif
	/* Idle, or before Close: a plain meta of D; with F_FREELIST one that names a
	 * freelist page, which is flushed before it. */
	:: atomic { ph == 0 && nq == 0 && !stopped && !weak && V == D && !dp && !ds &&
		    (sm[1-k].t || sm[1-k].d != D) ->
		wrslot(k, 2, LABEL(k), D, 0, 0, 0); ph = 5;
		goto loop }
#ifdef F_FREELIST
	:: atomic { ph == 0 && nq == 0 && !stopped && !weak && V == D && !dp && !ds && !sm[1-k].n ->
		pins(); pick(); m = 0;
		if
		:: p < NP ->
			wr(p, FLS+D); T = p+1; p = 0; ph = 6;
#ifdef MUT_FREELIST_ORDER
			wrslot(k, 2, LABEL(k), D, 0, 0, T); ph = 5; T = 0;
#endif
			goto loop
		:: else -> p = 0; goto loop
		fi }
#endif
	/* Close */
	:: atomic { ph == 0 && nq == 0 && !stopped && !weak && V == D && rd == 0 && !dp && !ds &&
		    sm[1-k].t == 0 && sm[1-k].d == D ->
		clean = 1; goto between }

#ifdef F_READER
	:: atomic { rd == 0 -> rd = V;
#ifdef MUT_COPY_META
		cpd = sm[HI].d;		/* WriteTo copies the meta page as it is */
#endif
		goto loop }
	:: atomic { rd != 0 ->
#ifdef MUT_COPY_META
		assert(copy_is_whole || INTACT(cpd));	/* the copy, complete now: what stock opens in it */
		cpd = 0;
#endif
		rd = 0; goto loop }
#endif

#ifdef F_TRUNC
	/* The file is cut behind the highest page that rule 5 protects. */
	:: atomic { ph == 0 && !stopped && !weak ->
		d_step {
			m = TREE(D) | LOGS(D) | TREE(V) | LOGS(V);
#ifndef MUT_TRUNC_SLOTS
			m = m | TREE(sm[0].d) | TREE(sm[1].d) | TREE(sm[0].t) | LOGS(sm[0].t) | TREE(sm[1].t) | LOGS(sm[1].t);
#endif
#ifndef MUT_TRUNC_LIST
			if :: sm[0].l -> m = m | (1<<(sm[0].l-1)) :: else fi;
			if :: sm[1].l -> m = m | (1<<(sm[1].l-1)) :: else fi;
#endif
#ifndef MUT_TRUNC_FREELIST
			if :: sm[0].n -> m = m | (1<<(sm[0].n-1)) :: else fi;
			if :: sm[1].n -> m = m | (1<<(sm[1].n-1)) :: else fi;
#endif
#ifndef MUT_TRUNC_READER
			m = m | TREE(rd);
#endif
			/* in some layout all the others lie behind the cut */
			p = 0;
			do
			:: p == NP -> break
			:: else ->
				if
				:: !((m>>p) & 1) && mem[p] != EOFV -> mem[p] = EOFV; dp = dp | (1<<p)
				:: else
				fi;
				p++
			od;
			p = 0; m = 0
		}
		goto loop }
#endif

#ifdef F_NOSYNC
	/* NoSync: a commit that flushes nothing.  A crash may do anything (end). */
	:: atomic { ph == 0 && nq == 1 && rd == 0 && !stopped && !weak ->
		T = q0; write_pages(); wrslot(k, 2, LABEL(k), T, 0, 0, 0);
		D = T; V = T; q0 = 0; nq = 0; T = 0; k = 1-k; weak = 1; goto loop }
	/* It is switched off. */
	:: atomic { weak ->
#ifndef MUT_NOSYNC_NO_FLUSH
		flush();
#endif
		weak = 0; acked = D; vis = D; prev = D; goto loop }
	:: weak -> goto end
#endif
	/* kill -9; power loss is kill -9 and then power loss (above) */
	:: atomic { !weak -> killed = 1; goto between }
	fi;

#ifdef F_STOCK
/* ------------------------------------------------------------ stock opens it */
stock:
	atomic {
		clean = 0;
#ifndef STOCK_HOLE
		/* Stock does not flush when it opens.  That is its own hole, masked here. */
		flush();
#endif
		drop_pages(); drop_slots();
		assert(a_meta_is_valid || VALID(0) || VALID(1));
		T = HI; S = sm[T].d;
		assert(stock_state_is_whole || INTACT(S));
#ifndef ANY_AGE
		assert(stock_one_flush_behind_at_most || S == acked || S == prev || ((maybe>>S) & 1));
#endif
		assert(stock_freelist_page_is_one || sm[T].n == 0 || mem[sm[T].n-1] == FLS+S);
	}
	if
	:: goto between						/* writes nothing */
	/* Commits once.  (Not into its only valid slot: after revert-meta-page and a
	 * torn write of ours the valid slot may have the wrong parity.  See README.) */
	:: atomic { VALID(1-T) || sm[T].v%2 == T ->
		maybe = maybe | (1<<acked) | (1<<vis) | alt;
		/* After revert-meta-page a torn write of stock's may bring the reverted
		 * commit back: the slot left over is ours, with its extension.  See README. */
		if
		:: TIE -> maybe = maybe | (1<<sm[0].t) | (1<<sm[1].t)
		:: else
		fi;
		acked = S; vis = S; prev = S; killed = 0; stocked = 1;
		D = S;
		m = TREE(S);
		if :: sm[T].n -> m = m | (1<<(sm[T].n-1)) :: else fi;
		lg[S] = 0; gv[S] = 0;
		build(S, 0);
		nn = 0;
#ifdef F_FREELIST
		if
		:: id ->			/* it synchronises its free list */
			m = TREE(S) | TREE(id);
			if :: sm[T].n -> m = m | (1<<(sm[T].n-1)) :: else fi;
			pick(); m = 0;
			if :: p < NP -> nn = p+1 :: else fi;
			p = 0
		:: skip
		fi;
#endif
		if
		:: id == 0 -> goto between
		:: else
		fi;
		if
		:: kf = 0
		:: kf = 1
		fi;
		wrk(rt[id], id);
		if :: lv[id] == id -> wrk(lf[id], id) :: else fi;
		if :: nn -> wrk(nn-1, FLS+id) :: else fi;
		if
		:: kf -> id = 0; nn = 0; killed = 1; goto between
		:: else -> flush()
		fi;
		maybe = maybe | (1<<id);
		wrslot((sm[T].v+1)%2, 1, sm[T].v+1, id, 0, 0, nn);
		if
		:: id = 0; nn = 0; killed = 1; goto between
		:: flush();
			acked = id; vis = id; prev = id; maybe = 0; id = 0; nn = 0; goto between
		fi }
	fi;
#endif
end:	false
}
