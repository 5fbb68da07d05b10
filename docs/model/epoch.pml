/* epoch.pml: readers hold a state of the database without a lock.
 *
 * A state has one counter per shard.  Acquire: load the current state, add one
 * to a shard, check that the state is still current; else undo on the same
 * shard and retry.  Release: subtract on the shard that the reader remembers.
 * The writer publishes a new state, and retires an old one when a single pass
 * over its shards, made after the switch, sums to zero.  Close makes the
 * database refuse new readers and sleeps until the last reader wakes it.
 *
 * Every shared access is one atomic step (Go's sync/atomic is sequentially
 * consistent), everything else interleaves.
 */
#ifndef NREAD
#define NREAD 3		/* readers */
#endif
#ifndef NSTATE
#define NSTATE 3	/* states published, the first included */
#endif
#ifndef ROUNDS
#define ROUNDS 2	/* transactions per reader */
#endif
#define NSH 2		/* shards; reader i starts on shard i%NSH */
#define NONE 99

#ifdef MUT_RECYCLE
#define NOBJ 2		/* the objects are pooled: state s lives in object s%2 */
#else
#define NOBJ NSTATE
#endif
#define OBJ(s) ((s) % NOBJ)

byte cur;			/* the current state; NONE once Close has begun */
short cnt[NOBJ*NSH];		/* object o, shard h: cnt[o*NSH+h] */
byte held[NSTATE];		/* ghost: readers that hold state s */
bit retired[NSTATE];
bit closing, closed, asleep, wake;
/* Always 0: they name an assertion in what pan prints. */
byte no_held_state_retired, retired_once;

#define C(s,h) cnt[OBJ(s)*NSH+(h)]

/* The writer, or with MUT_RELEASER_RETIRES whoever releases, retires s. */
inline retire(s) {
	d_step {
		assert(no_held_state_retired || held[s] == 0);		/* nobody reads its pages */
		assert(retired_once || !retired[s]);		/* its pages are released once */
		retired[s] = 1
	}
}

/* One pass over the shards; sum is left in x. */
inline scan(s) {
	x = 0; h = 0;
	do
	:: h < NSH -> atomic { x = x + C(s,h); h++ }
	:: else -> break
	od;
	h = 0
}

proctype Reader(byte me) {
	byte s, sh, n;
	short x; byte h;
	sh = me % NSH;
	do
	:: n == ROUNDS -> break
	:: else ->
again:
		s = cur;
		if
		:: s == NONE -> break		/* the database is closed */
		:: else
		fi;
		C(s,sh)++;
#ifdef MUT_NO_RECHECK
		held[s]++;
#else
		if
		:: atomic { cur == s -> held[s]++ }
		:: atomic { cur != s ->
			skip }
#ifdef MUT_UNDO_OTHER
			C(s,(sh+1)%NSH)--;
#else
			C(s,sh)--;
#endif
#ifndef MUT_UNDO_NO_WAKE
			if
			:: closing -> wake = 1
			:: else
			fi;
#endif
			goto again
		fi;
#endif
		/* the transaction reads */
		skip;
#ifdef MUT_WAKE_FIRST
		/* looks whether Close waits before it lets go */
		if
		:: closing -> wake = 1
		:: else
		fi;
#endif
#ifdef MUT_RELEASE_OTHER
		atomic { held[s]--; C(s,(sh+1)%NSH)-- };
#else
		atomic { held[s]--; C(s,sh)-- };
#endif
#ifndef MUT_WAKE_FIRST
		if
		:: closing -> wake = 1
		:: else
		fi;
#endif
#ifdef MUT_RELEASER_RETIRES
		if
		:: cur != s && cur != NONE ->
			scan(s);
			if
			:: x == 0 && !retired[s] -> retire(s)
			:: else
			fi;
			x = 0
		:: else
		fi;
#endif
		atomic { s = 0; n++ }
	od
}

proctype Writer() {
	byte i, s, h;
	short x, pre;
	i = 1;
	do
	:: i < NSTATE ->
#ifdef MUT_RECYCLE
		/* the object of state i-2 is taken again: it must be retired */
		if
		:: i >= NOBJ ->
			do
			:: retired[i-NOBJ] -> break
			:: else ->
				scan(i-NOBJ);
				if
				:: x == 0 -> retire(i-NOBJ)
				:: else
				fi;
				x = 0
			od;
			atomic { C(i,0) = 0; C(i,1) = 0 }
		:: else
		fi;
#endif
#ifdef MUT_SCAN_BEFORE_SWITCH
		pre = C(i-1,0);
#endif
		cur = i;
		i++;
		/* try to retire what is no longer current, oldest first */
		s = 0;
		do
		:: s < i-1 && !retired[s] ->
#ifdef MUT_SCAN_BEFORE_SWITCH
			if
			:: s == i-2 -> x = pre + C(s,1)
			:: else -> scan(s)
			fi;
#else
			scan(s);
#endif
			if
			:: x == 0 -> retire(s)
			:: else
			fi;
			x = 0; s++
		:: s < i-1 && retired[s] -> s++
		:: else -> break
		od;
		s = 0
	:: else -> break
	od;
	/* Close: refuse new readers, wait for the last one, retire the rest */
	closing = 1;
	cur = NONE;
	s = 0;
	do
	:: s < NSTATE ->
		if
		:: retired[s] -> s++
		:: else ->
			wake = 0;
			scan(s);
			if
			:: x == 0 -> retire(s); s++
			:: else -> x = 0; asleep = 1; wake -> asleep = 0	/* sleeps here */
			fi
		fi
	:: else -> break
	od;
	closed = 1
}

init {
	byte r;
	atomic {
		r = 0;
		do
		:: r < NREAD -> run Reader(r); r++
		:: else -> break
		od;
		run Writer()
	}
	/* an end state in which Close still sleeps is reported as a deadlock */
}
