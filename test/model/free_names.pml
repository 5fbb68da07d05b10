/* free_names.pml: part of free.pml: what makes the set of all situations finite.
 *
 * After each event, tidy() forgets what nothing refers to any more and renames
 * what is left: numbers keep their order, labels their parity, pages are sorted by
 * what refers to them.  Nothing that can be observed depends on a name.
 */

#define LIVE(x) do { if (x) { ln[(int)(x)] = 1; } } while (0)
#define NEW(x) do { if (x) (x) = nm[(int)(x)]; } while (0)
/* the smallest living number that is not below x */
#define UP(x) do { int u_ = (x); while (u_ < 31 && u_ && !ln[u_]) u_++; (x) = u_ == 31 ? 0 : u_; } while (0)
/* a set of pages, a page + 1, under their new names */
#define PERM(x) do { int v_ = (x), r_ = 0, b_; \
	for (b_ = 0; b_ < NP; b_++) if (v_ & 1<<b_) r_ |= 1<<np[b_]; (x) = r_; } while (0)
#define PAGE(x) do { if (x) (x) = np[(int)(x)-1]+1; } while (0)
#define PERMREC(x) do { PERM((x).set); PERM((x).ttree); PAGE((x).snap); PAGE((x).log1); PAGE((x).log2); PAGE((x).root); } while (0)
#define NAMES(x, y) ((x).snap == (y) || ((x).nlog > 0 && (x).log1 == (y)) || ((x).nlog > 1 && (x).log2 == (y)))
/* what refers to a page, as one number */
#define SIG(y) do { sg = sg*3 ^ (sg>>29) ^ (unsigned)(y)*2654435761u; } while (0)
#define SIGREC(x) do { SIG((x).set>>q&1); SIG((x).ttree>>q&1); SIG((x).snap==q+1); SIG((x).log1==q+1); SIG((x).log2==q+1); SIG((x).root==q+1); } while (0)
/* In C, because it runs after each event.  (pan redefines "continue".) */
inline tidy() {
	c_code {
		int ln[40], nm[40], np[32], od[32], j, q, w, t_, low;
		unsigned sg, sig[32];
		unsigned char b0[32], b3[32], b4[32];

		if (readtrail) {	/* ./pan -r: what there is after each event */
			for (w = 0; w < 2; w++)
				printf("\tslot%d ok%d v%d d%x list%d x%d trail%d bad%d n%d dn%d t%x lists %x names-free %x snap%d log%d,%d/%d inline%d\n", w,
					now.slot[w].ok, now.slot[w].label, now.slot[w].v2tree, now.slot[w].flist, now.slot[w].ext, now.slot[w].trail, now.slot[w].bad,
					now.slot[w].num, now.slot[w].v2num, now.slot[w].r.ttree, now.slot[w].lists, now.slot[w].r.set, now.slot[w].r.snap,
					now.slot[w].r.log1, now.slot[w].r.log2, now.slot[w].r.nlog, now.slot[w].r.ninline);
			printf("\tfree %x pending %x D%d v2n%d top%d nq%d fl%d dead%d k%d reader%d edit%d %x; lists %d,%d orphans %x; pages a/f:", now.free, now.pending,
				now.D, now.v2n, now.top, now.nq, now.fl, now.dead, now.k, now.reader, now.edit, now.etaken, now.lst[0], now.lst[1], now.orph);
			for (q = 0; q < NP; q++) printf(" %d/%d", now.born[q], now.freed[q]);
			printf("\n\ttrees");
			for (j = 1; j <= NMAX; j++) if (now.tree[j]) printf(" %d=%x", j, now.tree[j]);
			printf("\n");
		}
		/* While the higher slot is good, nobody reads of the lower one more than its
		 * freelist, but whoever reverts to it. */
		w = now.slot[1].ok && (!now.slot[0].ok || now.slot[1].label > now.slot[0].label);
		if (
#ifdef F_PERIODIC
		    now.dur == now.D &&
#endif
		    now.slot[w].ext && !now.slot[w].bad && now.slot[w].label%2 == w && !(now.slot[0].ok && now.slot[0].label == now.slot[1].label)) {
#ifdef F_REVERT
			if (now.slot[1-w].gone || now.slot[1-w].flist)
#endif
			{
			w = 1-w;
			now.slot[w].v2tree = now.slot[w].v2root = now.slot[w].lists = 0;
			now.slot[w].r.ttree = now.slot[w].r.root = now.slot[w].r.set = 0;
			now.slot[w].r.snap = now.slot[w].r.log1 = now.slot[w].r.log2 = now.slot[w].r.nlog = now.slot[w].r.ninline = now.slot[w].r.noset = 0;
			if (!now.D) now.slot[w].trail = 0;	/* (Close looks at it) */
			now.slot[w].ext = now.slot[w].bad = now.slot[w].num = now.slot[w].v2num = 0;
#ifdef F_REVERT
			now.slot[w].gone = 1;
#endif
			w = 1-w;
			}
		}
		/* while the higher one has no extension, only a number of the other one's */
		if (!now.slot[w].ext
#ifdef F_REVERT
		 && (now.slot[1-w].gone || now.slot[1-w].flist)
#endif
		) {
			w = 1-w;
			now.slot[w].v2tree = now.slot[w].v2root = now.slot[w].lists = 0;
			now.slot[w].r.ttree = now.slot[w].r.root = now.slot[w].r.set = 0;
			now.slot[w].r.snap = now.slot[w].r.log1 = now.slot[w].r.log2 = now.slot[w].r.nlog = now.slot[w].r.ninline = now.slot[w].r.noset = 0;
			if (!now.D) now.slot[w].trail = 0;
			now.slot[w].bad = now.slot[w].v2num = 0;
		}
#ifndef F_REVERT
		now.slot[0].gone = now.slot[1].gone = 0;
#endif
#ifndef NOSYM
		/* numbers */
		for (j = 0; j < 40; j++) ln[j] = nm[j] = 0;
		for (w = 0; w < 2; w++) { LIVE(now.slot[w].num); LIVE(now.slot[w].v2num); }
		LIVE(now.D); LIVE(now.v2n); LIVE(now.reader);
#ifdef F_PERIODIC
		LIVE(now.dur);
#endif
		if (now.D) ln[now.D+1] = ln[now.D+2] = ln[now.D+3] = 1;
		for (q = 0; q < NP; q++) {
			if (now.free & 1<<q || !now.D) now.born[q] = now.freed[q] = 0;
			UP(now.born[q]); UP(now.freed[q]);
		}
		for (j = 1, t_ = 0; j < 32; j++) if (ln[j]) nm[j] = ++t_;
		for (j = 1; j <= NMAX; j++) {
#ifdef F_PERIODIC
			if (now.D && j == now.dur) ; else
#endif
			if (!(j == now.reader || j == now.v2n || (now.D && j >= now.D && j <= now.top))) now.tree[j] = 0;
			if (ln[j] && nm[j] != j) { now.tree[nm[j]] = now.tree[j]; now.tree[j] = 0; }
		}
		for (w = 0; w < 2; w++) { NEW(now.slot[w].num); NEW(now.slot[w].v2num); }
		if (now.D) now.top = nm[now.D] + now.nq;
		NEW(now.D); NEW(now.v2n); NEW(now.reader);
#ifdef F_PERIODIC
		NEW(now.dur);
#endif
		for (q = 0; q < NP; q++) {
			NEW(now.born[q]); NEW(now.freed[q]);
			/* before any state that is pinned: it does not matter when */
			if (now.born[q] <= now.v2n && (!now.reader || now.born[q] <= now.reader) && now.born[q] <= now.D) now.born[q] = 0;
		}
		/* labels */
		low = 999;
		for (w = 0; w < 2; w++) if (now.slot[w].ok && now.slot[w].label < low) low = now.slot[w].label;
		low &= ~1;
		for (w = 0; w < 2; w++) if (now.slot[w].ok) now.slot[w].label -= low;
		/* what log pages hold, if nobody names them as such */
		for (q = 0; q < NP; q++) {
			j = 0;
			for (w = 0; w < 2; w++) if (NAMES(now.slot[w].r, q+1)) j |= 1<<w;
			for (w = 0; w < 3; w++) if (NAMES(now.rec[w], q+1)) j |= 4;
			now.whole[q] &= j;
		}
		/* pages: first those that much refers to */
		for (q = 0; q < NP; q++) {
			sg = 0;
			SIG(now.free>>q&1); SIG(now.pending>>q&1);
			for (j = 1; j <= NMAX; j++) SIG(now.tree[j]>>q&1);
			for (j = 1; j < 3; j++) { SIG(now.qtaken[j]>>q&1); SIG(now.qfreed[j]>>q&1); SIG(now.qorph[j]>>q&1); SIG(now.qwrote[j]>>q&1); }
			for (w = 0; w < 2; w++) {
				SIG(now.slot[w].v2tree>>q&1); SIG(now.slot[w].flist==q+1); SIG(now.slot[w].v2root==q+1); SIG(now.slot[w].lists>>q&1); SIG(now.lst[w]==q+1);
				SIGREC(now.slot[w].r);
			}
#ifdef F_PERIODIC
			SIGREC(now.drec);
#endif
			SIGREC(now.cur); SIGREC(now.rec[0]); SIGREC(now.rec[1]); SIGREC(now.rec[2]);
			SIG(now.etaken>>q&1); SIG(now.efreed>>q&1); SIG(now.ekeeps>>q&1); SIG(now.orph>>q&1); SIG(now.flists>>q&1);
			SIG(now.whole[q]); SIG(now.born[q]); SIG(now.freed[q]);
			sig[q] = sg; od[q] = q;
		}
		for (q = 1; q < NP; q++)
			for (j = q; j > 0 && sig[od[j-1]] < sig[od[j]]; j--) { t_ = od[j]; od[j] = od[j-1]; od[j-1] = t_; }
		for (q = 0; q < NP; q++) np[od[q]] = q;
		PERM(now.free); PERM(now.pending); PERM(now.etaken); PERM(now.efreed); PERM(now.ekeeps); PERM(now.orph); PERM(now.flists);
		for (j = 1; j <= NMAX; j++) PERM(now.tree[j]);
		for (j = 1; j < 3; j++) { PERM(now.qtaken[j]); PERM(now.qfreed[j]); PERM(now.qorph[j]); PERM(now.qwrote[j]); }
		for (w = 0; w < 2; w++) {
			PERM(now.slot[w].v2tree); PERM(now.slot[w].lists); PAGE(now.slot[w].flist); PAGE(now.slot[w].v2root); PAGE(now.lst[w]);
			PERMREC(now.slot[w].r);
		}
#ifdef F_PERIODIC
		PERMREC(now.drec);
#endif
		PERMREC(now.cur); PAGE(now.enew);
		for (w = 0; w < 3; w++) PERMREC(now.rec[w]);
		for (q = 0; q < NP; q++) {
			b0[q] = now.whole[q]; b3[q] = now.born[q]; b4[q] = now.freed[q];
		}
		for (q = 0; q < NP; q++) {
			now.whole[np[q]] = b0[q]; now.born[np[q]] = b3[q]; now.freed[np[q]] = b4[q];
		}
#endif
	}
}
