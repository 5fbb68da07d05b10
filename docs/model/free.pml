/* free.pml: the free set: pending release and reuse by intervals of transaction
 * numbers, deltas in the meta extension, log pages, snapshots, groups and
 * aborted members, and the free set that an opening recovers.
 *
 * A set of pages is a bit mask.  The storage is abstract here (commit.pml has
 * it in detail): a crash of a commit is one of the five outcomes that matter.
 * Histories are not bounded: numbers, labels and pages are renamed.
 */
#ifndef NP
#define NP 15			/* pages */
#endif
#define ALL ((1<<NP)-1)
#ifndef NMAX
#define NMAX 12		/* numbers alive at a time */
#endif
#ifndef MAXQ
#define MAXQ 2			/* transactions in a group */
#endif
#ifndef MAXTREE
#define MAXTREE 3		/* pages of a tree */
#endif
#define IC 1			/* deltas that fit inline */

typedef Slot {			/* a meta page */
	bit ok;			/* the v2 meta is valid */
	byte v;			/* its label */
	short dt;		/* tree of the v2 state */
	bit x;			/* the extension verifies */
	bit trail;		/* it is trailing */
	bit bad;		/* what it lists does not verify */
	byte n, dn;		/* number of the state that it names; of the v2 state */
	short tt;		/* tree of the state that it names */
	byte sp, l1, l2;	/* snapshot, log pages: page + 1, 0: none */
	short sf;		/* the free set that snapshot, log and inline deltas make */
	byte ic;		/* inline commits */
	bit none;		/* it names no free set: a scan */
	byte lp			/* list page + 1 */
};
Slot s[2];
/* Pages: is the content what is named, with its hash, as snapshot or log page by
 * slot 0 (bit 0), slot 1 (bit 1), the free-space state in memory (bit 2)? */
byte pk[NP];

/* the allocator in memory */
short fm, pm;			/* free, pending */
byte al[NP], fr[NP];		/* number that allocated a page, that freed it */
byte D, vn;			/* number of D; of the v2 state in the slot that stays */
byte top;			/* number of the newest prepared one */
short tree[NMAX+1];		/* ghost: pages (tree, log, snapshot) of state n */
short ct;			/* tree of D */
short qa[3], qf[3];		/* what prepared transaction i allocates and frees */
byte nq, k, rd;
bit force;			/* the next commit writes a snapshot */
bit stocked;			/* stock may have written on our log pages */
bit torn;			/* an extension was torn: a scan is right */
Slot c;				/* free-space state of D (fields sp .. ic, tt) */

int m, A, F, G;
byte i, p, T, o, n, size;
bit scan;
/* Always 0: they name an assertion in what pan prints. */
byte pending_only_if_seen, no_page_in_use_taken, memory_exact, a_meta_is_valid,
	no_needless_scan, free_set_exact, np_suffices;

#define HI ((s[1].ok && (!s[0].ok || s[1].v > s[0].v)) -> 1 : 0)
#define LABEL(z) (s[1-(z)].v + 1 + ((s[1-(z)].v + 1 + (z)) % 2))
#define BIT(q) ((q) -> (1<<((q)-1)) : 0)
#define LOGS(z) (BIT(z.sp) | BIT(z.l1) | BIT(z.l2))
/* list pages that a slot names, if stock has not taken them since */
#ifdef MUT_LIST_TAKEN
#define LISTS (BIT(s[0].lp) | BIT(s[1].lp))
#else
#define LISTS ((BIT(s[0].lp) | BIT(s[1].lp)) & ~tree[top])
#endif

#ifdef MUT_LIST_TAKEN
#define LMASK ALL
#else
#define LMASK (ALL & ~tree[D])
#endif

inline cpfree(a, b) {
	a.sp = b.sp; a.l1 = b.l1; a.l2 = b.l2; a.sf = b.sf; a.ic = b.ic; a.tt = b.tt; a.none = b.none
}
/* what holder b (0, 1: a slot, 2: memory) names, a names now */
inline cpkind(a, b) {
	p = 0;
	do
	:: p == NP -> break
	:: p < NP -> pk[p] = (pk[p] & ~(1<<(a))) | (((pk[p]>>(b)) & 1) << (a)); p++
	od;
	p = 0
}

/* Release what is pending and pinned by no state: a <= r < f for none of them. */
#ifdef MUT_RANGE_LOW
#define IN(r) (al[p] < (r) && (r) < fr[p])
#else
#ifdef MUT_RANGE_HIGH
#define IN(r) (al[p] <= (r) && (r)+1 < fr[p])
#else
#ifdef MUT_OLDEST_READER
#define IN(r) ((r) < fr[p])		/* as stock: the oldest reader pins all that came after */
#else
#define IN(r) (al[p] <= (r) && (r) < fr[p])
#endif
#endif
#endif
#ifdef MUT_V2_PIN
#define IN_V2 0
#else
#define IN_V2 IN(vn)
#endif
inline release() {
	d_step {
		p = 0;
		do
		:: p == NP -> break
		:: else ->
			if
			:: ((pm>>p) & 1) && !(rd && IN(rd)) && !IN(D) && !IN_V2 && !(nq >= 1 && IN(D+1)) && !(nq >= 2 && IN(D+2)) ->
				pm = pm & ~(1<<p); fm = fm | (1<<p); al[p] = 0; fr[p] = 0
			:: else
			fi;
			p++
		od;
		p = 0;
		/* nothing stays pending without need */
		assert(pending_only_if_seen || (pm & ~((rd -> tree[rd] : 0) | tree[D] | tree[vn] |
			(nq >= 1 -> tree[D+1] : 0) | (nq >= 2 -> tree[D+2] : 0))) == 0)
	}
}
/* p: a free page for number T; NP: none left */
inline take(who) {
	p = 0;
	do
	:: p == NP -> break
	:: p < NP && ((fm>>p) & 1) -> break
	:: p < NP && !((fm>>p) & 1) -> p++
	od;
	if
	:: p < NP ->
		/* it belongs to no state that someone may still read */
		assert(no_page_in_use_taken || !(((rd -> tree[rd] : 0) | tree[D] | tree[vn] | LISTS) & (1<<p)));
		assert(no_page_in_use_taken || (!(nq >= 1 && (tree[D+1] & (1<<p))) && !(nq >= 2 && (tree[D+2] & (1<<p)))));
		fm = fm & ~(1<<p); al[p] = who; fr[p] = 0
	:: else ->
#ifdef CHECK_ROOM
		assert(np_suffices)	/* no page is left */
#else
		skip
#endif
	fi
}
/* every page is live, free, pending or a list page, and one of these only */
inline exact() {
	d_step {
		m = tree[top];
		assert(memory_exact || ((m & fm) == 0 && (m & pm) == 0 && (fm & pm) == 0));
		assert(memory_exact || (LISTS & fm) == 0);
		assert(memory_exact || (m | fm | pm | LISTS) == ALL);
		m = 0
	}
}

/* F: the free set that slot i's extension describes; scan if a hash is wrong */
inline recover(i) {
	d_step {
		F = s[i].sf; scan = s[i].none; torn = torn || s[i].none;
		A = LOGS(s[i]);
		p = 0;
		do
		:: p == NP -> break
		:: else ->
			if
			:: ((A>>p) & 1) && !((pk[p]>>i) & 1) ->
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

inline forget() {
	d_step {
		fm = 0; pm = 0; D = 0; vn = 0; top = 0; nq = 0; k = 0; rd = 0; force = 0; ct = 0;
		qa[1] = 0; qa[2] = 0; qf[1] = 0; qf[2] = 0;
		c.sp = 0; c.l1 = 0; c.l2 = 0; c.sf = 0; c.ic = 0; c.tt = 0; c.none = 0;
		i = 0; p = 0; T = 0; o = 0; n = 0; m = 0; A = 0; F = 0; G = 0; scan = 0; size = 0
	};
	gc()
}

/* Between events: forget what nothing refers to, rename numbers (in order),
 * labels, and pages (by what refers to them).  (pan redefines "continue".) */
#define LIVE(x) do { if (x) { ln[(int)(x)] = 1; } } while (0)
#define NEW(x) do { if (x) (x) = nm[(int)(x)]; } while (0)
/* the smallest living number that is not below x */
#define UP(x) do { int u_ = (x); while (u_ < 31 && u_ && !ln[u_]) u_++; (x) = u_ == 31 ? 0 : u_; } while (0)
#define PERM(x) do { int v_ = (x), r_ = 0, b_; \
	for (b_ = 0; b_ < NP; b_++) if (v_ & 1<<b_) r_ |= 1<<np[b_]; (x) = r_; } while (0)
#define PAGE(x) do { if (x) (x) = np[(int)(x)-1]+1; } while (0)
#define SIG(y) do { sg = sg*3 ^ (sg>>29) ^ (unsigned)(y)*2654435761u; } while (0)
inline gc() {
	c_code {
		int ln[40], nm[40], np[32], od[32], j, q, w, t_, low;
		unsigned sg, sig[32];
		unsigned char b0[32], b3[32], b4[32];

		if (readtrail) {	/* ./pan -r: what there is after each event */
			for (w = 0; w < 2; w++)
				printf("\tslot%d ok%d v%d d%x x%d trail%d bad%d n%d dn%d t%x names-free %x snap%d log%d,%d inline%d list%d\n", w,
					now.s[w].ok, now.s[w].v, now.s[w].dt, now.s[w].x, now.s[w].trail, now.s[w].bad, now.s[w].n,
					now.s[w].dn, now.s[w].tt, now.s[w].sf, now.s[w].sp, now.s[w].l1, now.s[w].l2, now.s[w].ic, now.s[w].lp);
			printf("\tfree %x pending %x D%d vn%d top%d nq%d k%d rd%d force%d; pages a/f:", now.fm, now.pm, now.D, now.vn, now.top,
				now.nq, now.k, now.rd, now.force);
			for (q = 0; q < NP; q++) printf(" %d/%d", now.al[q], now.fr[q]);
			printf("\n\ttrees");
			for (j = 1; j <= NMAX; j++) if (now.tree[j]) printf(" %d=%x", j, now.tree[j]);
			printf("\n");
		}
		/* while the higher slot is good, nobody reads the lower one again */
		w = now.s[1].ok && (!now.s[0].ok || now.s[1].v > now.s[0].v);
		if (now.s[w].x && !now.s[w].bad) {
			w = 1-w;
			now.s[w].dt = now.s[w].tt = now.s[w].sf = 0;
			now.s[w].sp = now.s[w].l1 = now.s[w].l2 = now.s[w].ic = 0;
			now.s[w].x = now.s[w].trail = now.s[w].bad = now.s[w].n = now.s[w].dn = now.s[w].none = 0;
		}
#ifndef NOSYM
		/* numbers */
		for (j = 0; j < 40; j++) ln[j] = nm[j] = 0;
		for (w = 0; w < 2; w++) { LIVE(now.s[w].n); LIVE(now.s[w].dn); }
		LIVE(now.D); LIVE(now.vn); LIVE(now.rd);
		if (now.D) { ln[now.D+1] = 1; ln[now.D+2] = 1; }
		for (q = 0; q < NP; q++) {
			if (now.fm & 1<<q || !now.D) now.al[q] = now.fr[q] = 0;
			UP(now.al[q]); UP(now.fr[q]);
		}
		for (j = 1, t_ = 0; j < 32; j++) if (ln[j]) nm[j] = ++t_;
		for (j = 1; j <= NMAX; j++) {
			if (!(j == now.rd || j == now.vn || (now.D && j >= now.D && j <= now.top))) now.tree[j] = 0;
			if (ln[j] && nm[j] != j) { now.tree[nm[j]] = now.tree[j]; now.tree[j] = 0; }
		}
		for (w = 0; w < 2; w++) { NEW(now.s[w].n); NEW(now.s[w].dn); }
		if (now.D) now.top = nm[now.D] + now.nq;
		NEW(now.D); NEW(now.vn); NEW(now.rd);
		for (q = 0; q < NP; q++) {
			NEW(now.al[q]); NEW(now.fr[q]);
			/* before any state that is pinned: it does not matter when */
			if (now.al[q] <= now.vn && (!now.rd || now.al[q] <= now.rd) && now.al[q] <= now.D) now.al[q] = 0;
		}
		/* labels */
		low = 999;
		for (w = 0; w < 2; w++) if (now.s[w].ok && now.s[w].v < low) low = now.s[w].v;
		low &= ~1;
		for (w = 0; w < 2; w++) if (now.s[w].ok) now.s[w].v -= low;
		/* what log pages hold, if nobody names them as such */
		for (q = 0; q < NP; q++) {
			j = 0;
			for (w = 0; w < 2; w++)
				if (now.s[w].sp == q+1 || now.s[w].l1 == q+1 || now.s[w].l2 == q+1) j |= 1<<w;
			if (now.c.sp == q+1 || now.c.l1 == q+1 || now.c.l2 == q+1) j |= 4;
			now.pk[q] &= j;
		}
		/* pages: first those that much refers to */
		for (q = 0; q < NP; q++) {
			sg = 0;
			SIG(now.fm>>q&1); SIG(now.pm>>q&1); SIG(now.ct>>q&1);
			for (j = 1; j <= NMAX; j++) SIG(now.tree[j]>>q&1);
			for (j = 1; j < 3; j++) { SIG(now.qa[j]>>q&1); SIG(now.qf[j]>>q&1); }
			for (w = 0; w < 2; w++) {
				SIG(now.s[w].dt>>q&1); SIG(now.s[w].tt>>q&1); SIG(now.s[w].sp==q+1); SIG(now.s[w].l1==q+1);
				SIG(now.s[w].l2==q+1); SIG(now.s[w].lp==q+1); SIG(now.s[w].sf>>q&1);
			}
			SIG(now.c.tt>>q&1); SIG(now.c.sp==q+1); SIG(now.c.l1==q+1); SIG(now.c.l2==q+1);
			SIG(now.c.sf>>q&1); SIG(now.pk[q]); SIG(now.al[q]); SIG(now.fr[q]);
			sig[q] = sg; od[q] = q;
		}
		for (q = 1; q < NP; q++)
			for (j = q; j > 0 && sig[od[j-1]] < sig[od[j]]; j--) { t_ = od[j]; od[j] = od[j-1]; od[j-1] = t_; }
		for (q = 0; q < NP; q++) np[od[q]] = q;
		PERM(now.fm); PERM(now.pm); PERM(now.ct);
		for (j = 1; j <= NMAX; j++) PERM(now.tree[j]);
		for (j = 1; j < 3; j++) { PERM(now.qa[j]); PERM(now.qf[j]); }
		for (w = 0; w < 2; w++) {
			PERM(now.s[w].dt); PERM(now.s[w].tt); PERM(now.s[w].sf);
			PAGE(now.s[w].sp); PAGE(now.s[w].l1); PAGE(now.s[w].l2); PAGE(now.s[w].lp);
		}
		PERM(now.c.tt); PERM(now.c.sf); PAGE(now.c.sp); PAGE(now.c.l1); PAGE(now.c.l2);
		for (q = 0; q < NP; q++) {
			b0[q] = now.pk[q]; b3[q] = now.al[q]; b4[q] = now.fr[q];
		}
		for (q = 0; q < NP; q++) {
			now.pk[np[q]] = b0[q]; now.al[np[q]] = b3[q]; now.fr[np[q]] = b4[q];
		}
#endif
	}
}

inline write_meta() {
	s[k].v = LABEL(k); s[k].ok = 1; s[k].dt = ct; s[k].x = 1; s[k].trail = 1;
	s[k].n = T; s[k].dn = D; s[k].lp = n; cpfree(s[k], c);
	cpkind(k, 2)
}
inline clear_ext() {
	s[k].x = 0; s[k].trail = 0; s[k].bad = 0; s[k].n = 0; s[k].dn = 0; s[k].tt = 0; s[k].lp = 0;
	s[k].sp = 0; s[k].l1 = 0; s[k].l2 = 0; s[k].sf = 0; s[k].ic = 0; s[k].none = 0
}

active proctype World() {
	atomic {
		/* a new file: tree of two pages, no extension */
		s[0].ok = 1; s[0].dt = 3; s[1].ok = 1; s[1].v = 1; s[1].dt = 3
	};

between:
	atomic { forget() };
	if
	:: goto ours
#ifdef F_STOCK
	:: goto stock
#endif
	fi;

ours:
	atomic {
		assert(a_meta_is_valid || s[0].ok || s[1].ok);
		i = HI; o = i;
		if
		:: s[i].x && s[i].trail && s[i].bad ->	/* the flush never finished: D */
			D = s[i].dn; m = s[i].dt;
			/* its free space is in the other slot, if that names D's number */
#ifdef MUT_OTHER_UNCHECKED
			if
			:: s[1-i].ok && s[1-i].x -> o = 1-i; torn = 1; recover(o)
#else
			if
			:: s[1-i].ok && s[1-i].x && s[1-i].n == D -> o = 1-i; recover(o)
#endif
			:: else -> scan = 1; torn = 1
			fi
		:: s[i].x && !(s[i].trail && s[i].bad) ->
			D = s[i].n; m = s[i].tt;
			recover(i)
		:: !s[i].x ->
			/* max(label, highest number in an extension that verifies) */
			if
			:: s[1-i].ok && s[1-i].x -> D = s[1-i].n	/* the label is not higher */
			:: s[1-i].ok && s[1-i].x -> D = s[1-i].n+1	/* it is */
			:: else -> D = 1
			fi;
			m = s[i].dt;
			scan = 1; torn = 1;
#ifdef MUT_FALLBACK_BY_NUMBER
			/* a slot without extension may use the other's if the numbers agree */
			if
			:: s[1-i].ok && s[1-i].x && s[1-i].n == D -> o = 1-i; recover(o)
			:: else
			fi
#endif
		fi;
		assert(no_needless_scan || !scan || stocked || torn);	/* no scan but for stock and torn extensions */
		if
		:: scan ->
			F = ALL & ~m; force = 1; c.tt = m; c.sf = F;
#ifdef MUT_SETTLE_AFTER_SCAN
			c.sf = 0		/* a plain meta written now names no pages, as if all were in use */
#else
			c.none = 1		/* a plain meta written now says that it names no free set */
#endif
		:: else -> cpfree(c, s[o]); cpkind(2, o); c.tt = m; m = m | LOGS(s[o])
		fi;
		/* exactly what the tree, the logs and the snapshot do not use is free */
		assert(free_set_exact || F == (ALL & ~m));
		ct = c.tt; tree[D] = m; top = D; vn = D; k = 1-i;
		/* (a scan that nothing has written since is repeated) */
		if :: !scan -> torn = 0; stocked = 0 :: else fi;
		/* Settle a trailing extension.  (Torn or killed: nothing changes.) */
		if
		:: s[i].x && s[i].trail && !s[i].bad ->
			s[k].v = LABEL(k); s[k].ok = 1; s[k].dt = c.tt; s[k].x = 1; s[k].trail = 0; s[k].bad = 0;
			s[k].n = D; s[k].dn = D; s[k].lp = 0; cpfree(s[k], c); cpkind(k, 2);
			k = 1-k
		:: else
		fi;
		fm = F & ~LISTS;
		i = 0; m = 0; F = 0; o = 0; scan = 0
	};

loop:
	atomic { exact(); gc() };
	if
	/* A transaction is prepared: it replaces a page, or also adds or drops one. */
	:: atomic { nq < MAXQ ->
		release();
		T = top + 1; A = 0; G = 0;
		take(T);
		if :: p == NP -> p = 0; T = 0; goto loop :: else fi;
		A = 1<<p;
		/* the page that it replaces */
		m = tree[top] & ~LOGS(c);
		if
		:: p = 0; do :: (m>>p) & 1 -> break :: else -> p++ od
#ifdef ANYPAGE
		:: p = NP-1; do :: (m>>p) & 1 -> break :: else -> p-- od
#endif
		fi;
		G = 1<<p; m = m & ~G;
		size = 0; p = 0;
		do :: p == NP -> break :: p < NP -> size = size + ((m>>p) & 1); p++ od;
		if
		:: skip
		:: m != 0 ->			/* drops another */
			p = 0; do :: (m>>p) & 1 -> break :: else -> p++ od;
			G = G | (1<<p)
		:: size < MAXTREE-1 -> take(T); if :: p < NP -> A = A | (1<<p) :: else fi	/* adds one */
		fi;
		p = 0;
		do
		:: p == NP -> break
		:: p < NP -> if :: (G>>p) & 1 -> fr[p] = T :: else fi; p++
		od;
		pm = pm | G;
		tree[T] = (tree[top] | A) & ~G;
		nq++; qa[nq] = A; qf[nq] = G; top = T;
		p = 0; m = 0; T = 0; A = 0; G = 0; size = 0;
		goto loop }

	/* the last one is aborted (disk full): the allocator goes back to the survivor */
	:: atomic { nq > 0 ->
#ifndef MUT_ABORT_LEAK
		fm = fm | qa[nq];
#endif
		pm = pm & ~qf[nq];
		p = 0;
		do
		:: p == NP -> break
		:: p < NP ->
			if :: (qa[nq]>>p) & 1 -> al[p] = 0; fr[p] = 0; fm = fm & ~(pm & (1<<p)) :: else fi;
			if :: (qf[nq]>>p) & 1 -> fr[p] = 0 :: else fi;
			p++
		od;
		p = 0;
#ifdef MUT_DELTA_EARLY
		/* the deltas were encoded when it was prepared, and stay */
#else
		qa[nq] = 0; qf[nq] = 0;
#endif
		tree[top] = 0; nq--; top--;
		goto loop }

	/* all that is prepared is committed; the deltas are encoded now */
	:: atomic { nq > 0 ->
		T = top;
		A = qa[1]; F = qf[1];
		A = A | qa[2]; F = (F & ~qa[2]) | qf[2];	/* one delta after the other */
		m = 0;
		if
		:: c.ic < IC && !force -> c.ic++
		:: (c.ic >= IC && !force) && c.l2 == 0 ->
			/* the inline deltas move to a log page */
			take(T);
			if :: p == NP -> p = 0; T = 0; A = 0; F = 0; goto loop :: else fi;
			if
			:: c.l1 == 0 -> c.l1 = p+1
			:: else -> c.l2 = p+1
			fi;
			pk[p] = 4;
#ifndef MUT_LOG_NOT_IN_DELTA
			A = A | (1<<p);
#endif
			c.ic = 1;
			tree[T] = tree[T] | (1<<p)
		:: force || (c.ic >= IC && c.l2 != 0) ->
			/* a new snapshot replaces snapshot and log */
			take(T);
			if :: p == NP -> p = 0; T = 0; A = 0; F = 0; goto loop :: else fi;
			m = LOGS(c);
			tree[T] = (tree[T] | (1<<p)) & ~m;
#ifndef MUT_OLD_LOG_LEAK
#ifdef MUT_LOG_REUSE
			fm = fm | m;		/* the old ones are free at once */
#else
			pm = pm | m;
#endif
			F = F | m;
#endif
			i = 0;
			do
			:: i == NP -> break
			:: i < NP -> if :: (m>>i) & 1 -> fr[i] = T :: else fi; i++
			od;
			i = 0;
			c.sp = p+1; c.l1 = 0; c.l2 = 0; c.ic = 0; m = 0;
			A = A | (1<<p);
			c.none = 0; force = 0;
			pk[p] = 4
		fi;
		c.sf = (c.sf & ~A) | F;		/* one delta after the other */
		c.tt = tree[T] & ~LOGS(c);
		/* the tree pages are written */
		m = (qa[1] | qa[2]) & tree[T] & ~LOGS(c); p = 0;
		do
		:: p == NP -> break
		:: p < NP ->
			if
			:: (m>>p) & 1 -> pk[p] = 0
			:: else
			fi;
			p++
		od;
		m = 0; p = 0;
		/* a list page: free in the set that T names, pinned while the slot names it */
		n = 0;
		if
#ifdef F_LIST
		:: release(); take(T); if :: p < NP -> al[p] = 0; n = p+1; pk[p] = 0 :: else fi; p = 0
#endif
		:: skip
		fi;
#ifdef MUT_LIST_LEAK
		if :: n -> c.sf = c.sf & ~BIT(n) :: else fi;	/* in the delta as in use */
#endif
		/* outcomes: done; or a crash, and the slot is whole with its pages, whole
		 * without, without extension, torn, or not written */
		o = s[k].lp;			/* the list page of the meta overwritten */
		if
		:: write_meta(); s[k].bad = 0; goto done
		:: write_meta(); s[k].bad = 0; goto between
		:: write_meta(); s[k].bad = 1; goto between
		:: write_meta(); clear_ext(); goto between
		:: clear_ext(); s[k].ok = 0; s[k].v = 0; s[k].dt = 0; goto between
		:: goto between
		fi;
done:
		if :: o -> fm = fm | (BIT(o) & LMASK) :: else fi;
		vn = D; D = T; ct = c.tt; k = 1-k; nq = 0;
		qa[1] = 0; qa[2] = 0; qf[1] = 0; qf[2] = 0;
		T = 0; A = 0; F = 0; n = 0; o = 0;
		goto loop }

	/* idle, or before Close: a plain meta of D */
	:: atomic { nq == 0 && s[1-k].x && s[1-k].trail && !s[1-k].bad ->
		if :: s[k].lp -> fm = fm | (BIT(s[k].lp) & LMASK) :: else fi;
		s[k].v = LABEL(k); s[k].ok = 1; s[k].dt = c.tt; s[k].x = 1; s[k].trail = 0; s[k].bad = 0;
		s[k].n = D; s[k].dn = D; s[k].lp = 0; cpfree(s[k], c); cpkind(k, 2);
		k = 1-k; vn = D;
		goto loop }

#ifdef F_READER
	:: atomic { rd == 0 -> rd = D; goto loop }
	:: atomic { rd != 0 -> rd = 0; goto loop }
#endif
	:: goto between			/* closed, or killed */
	fi;

#ifdef F_STOCK
stock:
	atomic {
		i = HI;
		m = ALL & ~s[i].dt;
		/* it takes any page that is not in its tree, a log page of ours perhaps */
		p = 0;
		do
		:: p < NP && ((m>>p) & 1) -> break
		:: p < NP -> p++
		:: p == NP -> goto between
		od;
		pk[p] = 0; stocked = 1;
		/* what a trailing extension lists is free to stock */
		if
		:: s[i].x && s[i].trail && (s[i].tt & (1<<p)) && !(s[i].dt & (1<<p)) -> s[i].bad = 1
		:: else
		fi;
		if
		:: goto between			/* crashed before its meta */
		:: o = (s[i].v+1)%2;
			A = (s[i].dt | (1<<p)) & ~(s[i].dt & -(s[i].dt));	/* replaces its lowest page */
			n = s[i].v + 1; k = o;
			clear_ext();
			s[o].ok = 1; s[o].v = n; s[o].dt = A;
			goto between
		fi
	};
#endif
end:	false
}

