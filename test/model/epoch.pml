/* epoch.pml: how readers hold a state of the database without a lock
 * (internal/epoch).
 *
 * WHAT IS MODELLED
 * A state has one counter per shard.  Acquire loads the current state, adds one on
 * a shard, and looks whether the state is still current; if not, it takes the one
 * back on the same shard and tries again.  Release subtracts on the shard that the
 * guard remembers.  The writer publishes states and retires those that are not
 * current and whose counters were all zero in one pass.  Close clears the current
 * state and then waits for the states one after the other; whoever brings a
 * counter to zero after that leaves a token that wakes it.
 *
 * WHAT IS ABSTRACTED AWAY
 * Every access to a shared variable is one atomic step, in one order for all (Go's
 * sync/atomic is sequentially consistent); between the steps everything
 * interleaves.  The statistics in the high half of the counters, the list of
 * states, and the bound on one Sweep are left out.
 *
 * BOUNDS
 * NREAD readers, ROUNDS transactions each, NSTATE states, two shards.
 * `waits for ever' (an invalid end state) is a Close that is never woken.
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
#define NONE 99

#ifdef MUT_RECYCLE
#define OBJECTS 2	/* states are pooled: state s lives in object s%2 */
#else
#define OBJECTS NSTATE
#endif
#define COUNT(s, shard) count[((s) % OBJECTS)*2 + (shard)]

byte current;			/* NONE once Close has begun */
short count[OBJECTS*2];
bit token;			/* the channel that wakes Close; it has room for one */
byte held[NSTATE];		/* ghost: guards of each state */
bit retired[NSTATE];		/* ghost */
/* Always 0: they name an assertion in what pan prints. */
byte no_held_state_retired, retired_once;

/* The writer retires s. */
inline retire(s) {
	d_step {
		assert(no_held_state_retired || held[s] == 0);	/* nobody reads its pages */
		assert(retired_once || !retired[s]);		/* they are released once */
		retired[s] = 1
	}
}

/* idle: one pass found every counter of s at zero.  With SUM the counters are
 * added up instead, as the design has it; it makes no difference while each is
 * subtracted from where it was added to. */
inline look(s) {
#ifdef SUM
	atomic { idle = 0; sum = COUNT(s, 0) };
	atomic { sum = sum + COUNT(s, 1); idle = (sum == 0); sum = 0 }
#else
	atomic { idle = (COUNT(s, 0) == 0) };
	if
	:: idle -> atomic { idle = (COUNT(s, 1) == 0) }
	:: else
	fi
#endif
}

/* after a counter was changed: was it the last one of a closed database? */
inline wake_closer() {
	if
	:: left == 0 && current == NONE -> token = 1
	:: else
	fi;
	left = 0
}

#ifdef MUT_RELEASE_OTHER
#define RELEASE_ON (1-shard)
#else
#define RELEASE_ON shard
#endif
#ifdef MUT_UNDO_OTHER
#define UNDO_ON (1-shard)
#else
#define UNDO_ON shard
#endif

proctype Reader(byte me) {
	byte s, n, shard;
	short left, sum;
	bit idle;
	shard = me % 2;
	do
	:: n == ROUNDS -> break
	:: else ->
again:
		s = current;
		if
		:: s == NONE -> break		/* the database is closed */
		:: else
		fi;
		COUNT(s, shard)++;
#ifdef MUT_NO_RECHECK
		held[s]++;
#else
		if
		:: atomic { current == s -> held[s]++ }
		:: atomic { current != s -> skip }
			atomic { COUNT(s, UNDO_ON)--; left = COUNT(s, UNDO_ON) };
#ifndef MUT_UNDO_NO_WAKE
			wake_closer();
#endif
			goto again
		fi;
#endif
		skip;				/* the transaction reads */
#ifdef MUT_WAKE_FIRST
		/* looks whether Close waits before it lets go */
		left = COUNT(s, shard) - 1;
		wake_closer();
#endif
		atomic { held[s]--; COUNT(s, RELEASE_ON)--; left = COUNT(s, RELEASE_ON) };
#ifndef MUT_WAKE_FIRST
		wake_closer();
#endif
#ifdef MUT_RELEASER_RETIRES
		if
		:: current != s && current != NONE ->
			look(s);
			if
			:: idle && !retired[s] -> retire(s)
			:: else
			fi;
			idle = 0
		:: else
		fi;
#endif
		atomic { s = 0; left = 0; n++ }
	od
}

proctype Writer() {
	byte i, s;
	short sum, before;
	bit idle;
	i = 1;
	do
	:: i < NSTATE ->
#ifdef MUT_RECYCLE
		/* the object of state i-2 is taken again, once that is retired */
		if
		:: i >= OBJECTS ->
			do
			:: retired[i-OBJECTS] -> break
			:: else ->
				look(i-OBJECTS);
				if
				:: idle -> retire(i-OBJECTS)
				:: else
				fi;
				idle = 0
			od;
			atomic { COUNT(i, 0) = 0; COUNT(i, 1) = 0 }
		:: else
		fi;
#endif
#ifdef MUT_SCAN_BEFORE_SWITCH
		before = COUNT(i-1, 0);
#endif
		current = i;			/* Publish */
		i++;
		s = 0;				/* Sweep */
		do
		:: s < i-1 && !retired[s] ->
#ifdef MUT_SCAN_BEFORE_SWITCH
			if
			:: s == i-2 -> idle = (before == 0 && COUNT(s, 1) == 0)
			:: else -> look(s)
			fi;
#else
			look(s);
#endif
			if
			:: idle -> retire(s)
			:: else
			fi;
			idle = 0; s++
		:: s < i-1 && retired[s] -> s++
		:: else -> break
		od;
		s = 0
	:: else -> break
	od;
	before = 0;
	current = NONE;				/* Close */
	do
	:: s < NSTATE && retired[s] -> s++
	:: s < NSTATE && !retired[s] ->
		look(s);
		if
		:: idle -> retire(s); idle = 0; s++
		:: else ->
#ifdef MUT_TOKEN_DROPPED
			token = 0;		/* forgets a token that came after the look */
#endif
			token -> token = 0	/* sleeps here */
		fi
	:: else -> break
	od
}

init {
	byte r;
	atomic {
		do
		:: r < NREAD -> run Reader(r); r++
		:: else -> break
		od;
		run Writer()
	}
}
