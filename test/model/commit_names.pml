/* commit_names.pml: part of commit.pml: names of states, and what makes the set
 * of all situations finite.
 *
 * Histories are not bounded in length.  After each event, tidy() forgets what
 * nothing refers to any more and renames what is left in the order in which it is
 * found: states, pages, labels.  Nothing that can be observed depends on a name,
 * so two situations that differ in names only are one.  (-DNOSYM leaves the
 * renaming out, for traces that can be read: then a search does not end.)
 */

/* all names in use, into m */
inline names_in_use() {
	m = 1 | maybe | alt | BIT(cslot[0].v2) | BIT(cslot[0].trail) | BIT(cslot[1].v2) | BIT(cslot[1].trail) |
	  BIT(dslot[0].v2) | BIT(dslot[0].trail) | BIT(dslot[1].v2) | BIT(dslot[1].trail) |
	  BIT(D) | BIT(V) | BIT(held) | BIT(q0) | BIT(q1) | BIT(flying) | BIT(reader) |
	  BIT(acked) | BIT(vis) | BIT(prev) | BIT(T) | BIT(S) | BIT(copied) | BIT(also)
}

/* id: a name that nothing uses, as a state or as a stamp */
inline fresh() {
	d_step {
		savem = m;
		names_in_use();
		i = 1;
		do
		:: i > MAXID -> break
		:: else ->
			if
			:: HAS(m, i) -> z = z | BIT(leafby[i]) | BIT(logby[i])
			:: else
			fi;
			i++
		od;
		m = m | z;
		id = 1;
		do
		:: HAS(m, id) -> id++
		:: else -> break
		od;
		assert(maxid_suffices || id <= MAXID);
		i = 0; m = savem; z = 0; savem = 0
	}
}

/* ok: somebody may yet read content c of page pg and find what is expected */
#define NEEDED(pg, c, ok) do { \
	int s_, w_; \
	ok = now.phase == FREELIST && now.T == (pg)+1 && (c) == FLS+now.D; \
	if ((c) >= FLS) { \
		for (w_ = 0; w_ < 2; w_++) { \
			if (now.cslot[w_].flist == (pg)+1 && now.cslot[w_].v2 == (c)-FLS) ok = 1; \
			if (now.dslot[w_].flist == (pg)+1 && now.dslot[w_].v2 == (c)-FLS) ok = 1; \
		} \
		break; \
	} \
	for (s_ = 1; s_ <= MAXID; s_++) { \
		int in_ = alive & 1<<s_; /* (pan redefines "continue") */ \
		if (in_ && now.rootpg[s_] == (pg) && (c) == s_) ok = 1; \
		if (in_ && now.leafpg[s_] == (pg) && (c) == now.leafby[s_]) ok = 1; \
		if (in_ && now.logby[s_] && now.logpg[s_] == (pg) && (c) == now.logby[s_]) ok = 1; \
	} \
} while (0)
#define FORGET(page) do { \
	if ((page) && (page) != 254) { NEEDED(j, (page), ok); if (!ok) (page) = 0; } } while (0)
#define STATENAME(x) do { int y_ = (x); if (y_ && !newname[y_]) { newname[y_] = ++n; oldname[n] = y_; } } while (0)
#define RENAME(x) (x) = newname[(int)(x)]
#define RENAMESET(x) do { int o_ = (x), b_; \
	for ((x) = 0, b_ = 1; b_ <= MAXID; b_++) if (o_ & 1<<b_) (x) |= 1<<newname[b_]; } while (0)
#define RESTAMP(x) do { if ((x) && (x) != 254) \
	(x) = (x) >= FLS ? FLS+newname[(x)-FLS] : newname[(int)(x)]; } while (0)
#define PAGENAME(x) do { int y_ = (x); if (!newpage[y_]) { oldpage[np] = y_; newpage[y_] = ++np; } } while (0)
#define REPAGE(x) do { if (x) (x) = newpage[(x)-1]; } while (0)	/* of page + 1 */
#define LOWER(s) do { if ((s).kind && (s).label < low) low = (s).label; } while (0)

/* In C, because it runs after each event. */
inline tidy() {
	c_code {
		int alive, named, n, np, j, w, low, ok, nstates, olddirty, oldflush;
		int newname[32], oldname[32], newpage[32], oldpage[32];
		unsigned char a1[32], a2[32], a3[32], a4[32], a5[32];

		/* A state that no slot names can never be recovered. */
		for (named = w = 0; w < 2; w++)
			named |= 1<<now.cslot[w].v2 | 1<<now.cslot[w].trail | 1<<now.dslot[w].v2 | 1<<now.dslot[w].trail;
		now.alt &= named & ~1;
		now.maybe &= (named | 1<<now.flying) & ~1;
		if (!now.D && !now.killed) now.vis = now.acked;
		if (!(named & 1<<now.prev)) now.prev = now.acked;

		/* Dead states, contents that nothing expects, pages that only seem dirty. */
		alive = named | 1<<now.D | 1<<now.V | 1<<now.held | 1<<now.q0 | 1<<now.q1 | 1<<now.flying | 1<<now.reader
			| 1<<now.acked | 1<<now.vis | 1<<now.prev | 1<<now.copied | 1<<now.also;
		alive &= ~1;
		for (j = 1; j <= MAXID; j++)
			if (!(alive & 1<<j))
				now.rootpg[j] = now.leafpg[j] = now.leafby[j] = now.logpg[j] = now.logby[j] = 0;
		for (j = 0; j < NP; j++) {
			FORGET(now.cache[j]); FORGET(now.disk[j]);
			if (now.cache[j] == now.disk[j]) {
				now.dirty &= ~(1<<j);
				now.inflush &= ~(1<<j);
			}
		}

		/* Labels: the smallest is 0 or 1; their parity counts. */
		for (;;) {
			low = 999;
			for (w = 0; w < 2; w++) { LOWER(now.cslot[w]); LOWER(now.dslot[w]); }
			if (low < 2 || low == 999) break;
			for (w = 0; w < 2; w++) {
				if (now.cslot[w].kind) now.cslot[w].label -= 2;
				if (now.dslot[w].kind) now.dslot[w].label -= 2;
			}
		}

		if (readtrail) {	/* ./pan -r: the situation after each event */
			printf("\t");
			for (w = 0; w < 2; w++) printf("slot%d %d:v%d d%d t%d n%d | disk %d:v%d d%d t%d n%d; ", w,
				now.cslot[w].kind, now.cslot[w].label, now.cslot[w].v2, now.cslot[w].trail, now.cslot[w].flist,
				now.dslot[w].kind, now.dslot[w].label, now.dslot[w].v2, now.dslot[w].trail, now.dslot[w].flist);
			printf("\n\t\tD%d V%d held%d flying%d q%d,%d reader%d phase%d k%d acked%d vis%d prev%d maybe%x alt%x killed%d\n\t\tpages ",
				now.D, now.V, now.held, now.flying, now.q0, now.q1, now.reader, now.phase, now.k,
				now.acked, now.vis, now.prev, now.maybe, now.alt, now.killed);
			for (j = 0; j < NP; j++)
				printf("%d/%d%s ", now.cache[j], now.disk[j], now.dirty>>j&1 ? "*" : "");
			printf("\n\t\tstates ");
			for (j = 1; j <= MAXID; j++)
				if (alive>>j&1)
					printf("%d={%d,%d:%d,%d:%d} ", j, now.rootpg[j], now.leafpg[j], now.leafby[j], now.logpg[j], now.logby[j]);
			printf("\n");
		}
#ifndef NOSYM
		/* States; then dead ones whose stamp is still expected somewhere. */
		for (j = 0; j < 32; j++) newname[j] = oldname[j] = newpage[j] = oldpage[j] = 0;
		n = np = 0;
		STATENAME(now.acked); STATENAME(now.vis); STATENAME(now.prev);
		for (w = 0; w < 2; w++) {
			STATENAME(now.cslot[w].v2); STATENAME(now.cslot[w].trail);
			STATENAME(now.dslot[w].v2); STATENAME(now.dslot[w].trail);
		}
		STATENAME(now.D); STATENAME(now.V); STATENAME(now.held); STATENAME(now.flying); STATENAME(now.q0); STATENAME(now.q1);
		STATENAME(now.reader); STATENAME(now.copied); STATENAME(now.also);
		nstates = n;
		for (j = 1; j <= nstates; j++) { STATENAME(now.leafby[oldname[j]]); STATENAME(now.logby[oldname[j]]); }
		for (j = 1; j <= MAXID; j++) {
			a1[j] = now.rootpg[j]; a2[j] = now.leafpg[j]; a3[j] = now.leafby[j];
			a4[j] = now.logpg[j]; a5[j] = now.logby[j];
		}
		for (j = 1; j <= MAXID; j++) {
			ok = j <= nstates ? oldname[j] : 0;	/* nothing is kept of 0 */
			now.rootpg[j] = ok ? a1[ok] : 0;
			now.leafpg[j] = ok ? a2[ok] : 0;
			now.leafby[j] = ok ? newname[a3[ok]] : 0;
			now.logpg[j] = ok ? a4[ok] : 0;
			now.logby[j] = ok ? newname[a5[ok]] : 0;
		}
		for (j = 0; j < NP; j++) { RESTAMP(now.cache[j]); RESTAMP(now.disk[j]); }
		for (w = 0; w < 2; w++) {
			RENAME(now.cslot[w].v2); RENAME(now.cslot[w].trail);
			RENAME(now.dslot[w].v2); RENAME(now.dslot[w].trail);
		}
		RENAME(now.acked); RENAME(now.vis); RENAME(now.prev); RENAME(now.D); RENAME(now.V); RENAME(now.held); RENAME(now.flying);
		RENAME(now.q0); RENAME(now.q1); RENAME(now.reader); RENAME(now.copied); RENAME(now.also);
		RENAMESET(now.maybe); RENAMESET(now.alt);

		/* Pages, in the order in which states and slots name them; then the others. */
		for (j = 1; j <= nstates; j++) {
			PAGENAME(now.rootpg[j]); PAGENAME(now.leafpg[j]);
			if (now.logby[j]) PAGENAME(now.logpg[j]);
		}
		for (w = 0; w < 2; w++) {
			if (now.cslot[w].flist) PAGENAME(now.cslot[w].flist-1);
			if (now.dslot[w].flist) PAGENAME(now.dslot[w].flist-1);
		}
		if (now.goes) PAGENAME(now.goes-1);
		now.nnamed = np;
		for (j = 0; j < NP; j++) PAGENAME(j);
		for (j = 0; j < NP; j++) { a1[j] = now.cache[j]; a2[j] = now.disk[j]; }
		olddirty = now.dirty; now.dirty = 0;
		oldflush = now.inflush; now.inflush = 0;
		for (j = 0; j < NP; j++) {
			now.cache[j] = a1[oldpage[j]]; now.disk[j] = a2[oldpage[j]];
			if (olddirty & 1<<oldpage[j]) now.dirty |= 1<<j;
			if (oldflush & 1<<oldpage[j]) now.inflush |= 1<<j;
		}
		for (j = 1; j <= nstates; j++) {
			now.rootpg[j] = newpage[now.rootpg[j]]-1; now.leafpg[j] = newpage[now.leafpg[j]]-1;
			now.logpg[j] = now.logby[j] ? newpage[now.logpg[j]]-1 : 0;
		}
		for (w = 0; w < 2; w++) {
			REPAGE(now.cslot[w].flist);
			REPAGE(now.dslot[w].flist);
		}
		if (now.phase == FREELIST) now.T = newpage[now.T-1];
		REPAGE(now.goes);
#endif
	}
}
