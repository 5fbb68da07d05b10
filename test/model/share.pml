/* share.pml: how other processes read a database that one has open for writing
 * (internal/share).
 *
 * WHAT IS MODELLED
 * The owner publishes states, looks at the slots of the readers, and reuses what
 * the states before reach, if no slot holds them. A reader takes a slot by
 * its lock, sets the bit of the slot, writes the state to the slot, reads the state
 * again, reads pages, and confirms; then it delivers what it has read. The owner clears
 * slots of dead readers under their lock. Somebody marks a slot as ended.
 * The owner closes, or dies at any step; readers die at any step. The kernel gives
 * back what a dead owner has locked: the open file of the database first the byte of the
 * tenure and then its lock; the share's own byte at any time. Who takes the
 * lock next, a stock bbolt or a Holdfast with a tenure of its own, reuses everything.
 * F_DIE: the owner closes or dies, and another one follows. F_KILL: a reader is
 * killed, and slots are cleared. F_END: a reader is ended. F_STOP: a state may be
 * visible only, and writing stops at an older one, which is durable. F_FAULT: the owner
 * cannot read the share any more. F_TORN: a state is written and read in two parts,
 * with a sequence.
 *
 * WHAT IS ABSTRACTED AWAY
 * Pages: a state is lost when a page that it alone reaches is reused, which is
 * the worst that the protocol allows. Every access to a shared word is one
 * step, in one order for all. The readers of the next owner are those of another share,
 * and none of them is one of this. What a hostile process writes.
 *
 * BOUNDS
 * NREAD readers with TRANS transactions each, two slots, states 1 to NTX.
 * `waits for ever' (an invalid end state) is a reader that waits for a dead owner.
 */
#ifndef NREAD
#define NREAD 2
#endif
#ifndef TRANS
#define TRANS 1
#endif
#ifndef NTX
#define NTX 3
#endif
#define NSLOT 2
#define NONE 0
#define ENDED 99
#define FREE 0
#define OWNER 9		/* who has a lock; a reader has its number, from 1 on */
#define NEXT 8

byte seq, first_part = 1, second_part = 1;	/* the state */
byte slot[NSLOT], slot_lock[NSLOT];
bit in_use[NSLOT];
bit writing_stopped; byte stopped_at;
bit share_lock = 1;		/* byte 0 of the share */
bit tenure = 1, next_tenure;	/* bytes of the database */
byte db = OWNER;		/* the lock of the database */
bit dead, reader_dead[NREAD+1];
bit lost[NTX+1];		/* ghost: pages of the state are reused */
bit ready[NSLOT];		/* ghost: its reader has opened the share */
bit was_ended[NREAD+1];		/* ghost */
bit given_up; byte durable = 1;	/* ghost: what is newer than durable is given up */
/* Always 0: they name an assertion in what pan prints. */
byte delivered_what_was_reused, delivered_two_states, delivered_what_was_given_up, delivered_though_ended, cleared_a_living_slot, stopped_a_durable_state;

inline write_state(x) {
#ifdef F_TORN
	seq++;
	first_part = x;
	second_part = x;
	seq++
#else
	atomic { first_part = x; second_part = x }
#endif
}

/* It waits for the owner to be done, or dead. */
inline read_state(x, y) {
#ifdef F_TORN
	do
	::
#ifdef MUT_TORN_ODD
		q = seq;
#elif defined(MUT_WAITS_FOR_DEAD)
		atomic { seq % 2 == 0 -> q = seq };
#else
		if
		:: atomic { seq % 2 == 0 -> q = seq }
		:: atomic { seq % 2 == 1 && !share_lock -> goto leave }
		fi;
#endif
		x = first_part;
		y = second_part;
#ifdef MUT_TORN
		break
#else
		if
		:: atomic { seq == q -> q = 0; break }
		:: else
		fi
#endif
	od
#else
	atomic { x = first_part; y = second_part }
#endif
}

/* pins gets the states that slots hold. */
inline look() {
	atomic { i = 0; pins = 0 };
	do
	:: i < NSLOT ->
#ifndef MUT_NO_LOOK
		if
		:: in_use[i] ->
			v = slot[i];
			atomic {
				if
				:: v != NONE && v != ENDED -> pins = pins | (1 << v)
				:: else
				fi;
				v = 0
			}
		:: else
		fi;
#endif
		i++
	:: else -> break
	od
}

/* What transactions up to t freed is reused, unless a slot holds it. */
inline reuse() {
	d_step {
		i = 1;
		do
		:: i < t ->
			if
			:: !(pins & (1 << i)) && i != durable -> lost[i] = 1
			:: else
			fi;
			i++
		:: else -> break
		od;
		i = 0; pins = 0
	}
}

inline lose_all() {
	d_step {
		i = 1;
		do
		:: i <= NTX -> lost[i] = 1; i++
		:: else -> break
		od;
		i = 0
	}
}

inline reap(n) {
#ifdef MUT_REAP_UNTESTED
	slot[n] = NONE;
	in_use[n] = 0
#elif defined(MUT_REAP_CAS)
	v = slot[n];
	if
	:: slot_lock[n] == FREE ->
		atomic {
			if
			:: slot[n] == v -> slot[n] = NONE
			:: else
			fi;
			v = 0
		}
	:: else -> v = 0
	fi
#else
	if
	:: atomic { slot_lock[n] == FREE -> slot_lock[n] = OWNER };
		slot[n] = NONE;
		in_use[n] = 0;
		slot_lock[n] = FREE
	:: slot_lock[n] != FREE
	fi
#endif
}

proctype Owner() {
	byte t = 1, i, v, pins;
	{
		do
#ifdef MUT_LOOK_FIRST
		:: t < NTX -> look(); write_state(t+1); t++;
#ifndef F_STOP
			durable = t;
#endif
			reuse()
#else
		:: t < NTX ->
			write_state(t+1);
			atomic {
				t++;
#ifndef F_STOP
				durable = t
#endif
			}
		:: t > 1 -> look(); reuse()
#endif
#ifdef F_KILL
		:: reap(0)
		:: reap(1)
#endif
#ifdef F_STOP
		:: durable < t -> durable = t		/* it was flushed */
		:: durable < t ->			/* the flush failed */
#ifdef MUT_STOP_MARK_FIRST
			writing_stopped = 1;
			stopped_at = durable;
#else
			stopped_at = durable;
			writing_stopped = 1;
#endif
			given_up = 1;
			write_state(durable);
			break
#endif
#ifdef F_FAULT
		::
#ifdef MUT_UNCOUNTED_EARLY
			lose_all();
			tenure = 0;
#else
			tenure = 0;
			lose_all();
#endif
			break
#endif
		:: break
		od;
#ifdef F_DIE
		/* Close */
#ifdef MUT_CLOSE_LATE
		db = FREE;
		tenure = 0;
#else
		tenure = 0;
		db = FREE;
#endif
		share_lock = 0;
#endif
		skip
	} unless { dead };
	d_step { t = 0; i = 0; v = 0; pins = 0 }
}

proctype Kernel() {
	byte i;
	if
	:: dead = 1
	:: share_lock == 0		/* the owner has closed */
	fi;
	do
	:: share_lock -> share_lock = 0
#ifdef ASSUME_ANY_ORDER
	:: db == OWNER -> db = FREE
#else
	:: tenure == 0 && db == OWNER -> db = FREE
#endif
	:: tenure -> tenure = 0
	:: share_lock == 0 && tenure == 0 && db != OWNER -> break
	od
}

proctype Successor() {
	byte i;
	atomic { db == FREE -> db = NEXT };
	if
	:: next_tenure = 1	/* ours */
	:: skip			/* bbolt */
	fi;
	lose_all()
}

#ifdef F_END
proctype Ender() {
	byte i;
	if
	:: i = 0
	:: i = 1
	fi;
	if
	:: in_use[i] ->
		atomic {
			slot[i] = ENDED;
			if
			:: ready[i] -> was_ended[slot_lock[i]] = 1
			:: else
			fi
		}
	:: else
	fi;
	i = 0
}
#endif

#ifdef MUT_SHARE_LOCK
#define LASTS share_lock
#elif defined(MUT_NO_NONCE)
#define LASTS (tenure || next_tenure)
#elif defined(MUT_NO_CONFIRM)
#define LASTS 1
#else
#define LASTS tenure
#endif

/* How a slot is taken and given back matters only to those who clear slots, and to the next reader. */
#ifdef F_KILL
#define OPEN_STEPS
#else
#define OPEN_STEPS atomic
#endif

/* Only over what this reader has written itself. */
inline hold(x) {
	atomic {
		if
#ifdef MUT_OVER_ENDED
		:: slot[i] = x; mine = x
#else
		:: slot[i] == mine -> slot[i] = x; mine = x
		:: else -> assert(cleared_a_living_slot || slot[i] == ENDED); goto leave
#endif
		fi
	}
}

proctype Reader(byte me) {
	byte i, s, s2, n, n2, q, mine, k;
	bit bad, late;
	{
		do				/* Open */
		:: i == NSLOT -> goto gone
		:: i < NSLOT ->
			atomic {
				if
				:: slot_lock[i] == FREE -> slot_lock[i] = me; break
				:: else -> i++
				fi
			}
		od;
		OPEN_STEPS {
			slot[i] = NONE;
#ifndef MUT_BIT_LATE
			in_use[i] = 1;
#endif
			ready[i] = 1
		};
		do
		:: k == TRANS -> break
		:: k < TRANS ->
			read_state(s, s2);	/* Begin */
again:
			hold(s);
#ifndef MUT_NO_REREAD
			read_state(n, n2);
			atomic {
				if
				:: n != s -> s = n; s2 = n2; n = 0; n2 = 0; goto again
				:: else -> s2 = n2; n = 0; n2 = 0
				fi
			};
#endif
#ifdef MUT_BIT_LATE
			in_use[i] = 1;
#endif
			bad = lost[s];		/* pages are read */
			atomic {		/* Confirm */
				late = given_up && s > durable;
				if
#ifdef MUT_NO_SLOT_CHECK
				:: skip
#else
				:: slot[i] == mine ->
					assert(delivered_though_ended || !was_ended[me])
				:: else ->
					assert(cleared_a_living_slot || slot[i] == ENDED);
					goto leave
#endif
				fi
			};
#if defined(F_STOP) && !defined(MUT_NO_STOP_CHECK)
			if
			:: writing_stopped ->
				atomic {
					if
					:: s > stopped_at ->
						assert(stopped_a_durable_state || s > durable);
						goto leave
					:: else
					fi
				}
			:: else
			fi;
#endif
			if
#ifdef MUT_CONFIRM_EARLY
			:: LASTS ->
				bad = lost[s];
				assert(delivered_what_was_reused || !bad)
#endif
			:: atomic { LASTS ->
				assert(delivered_what_was_reused || !bad);
				assert(delivered_two_states || s == s2);
				assert(delivered_what_was_given_up || !late) }
			:: else -> goto leave
			fi;
			hold(NONE);		/* End */
			atomic { k++; s = 0; s2 = 0; bad = 0; late = 0 }
		od;
leave:		/* Close */
		atomic { ready[i] = 0; s = 0; s2 = 0; n = 0; n2 = 0; q = 0; bad = 0; late = 0; mine = 0; k = 0 };
#ifdef MUT_CLOSE_UNLOCKS_FIRST
		slot_lock[i] = FREE;
		slot[i] = NONE;
		in_use[i] = 0;
#else
		OPEN_STEPS {
			slot[i] = NONE;
			in_use[i] = 0;
			slot_lock[i] = FREE
		};
#endif
gone:		skip
	} unless { reader_dead[me] };
	/* The kernel. */
	d_step {
		if
		:: i < NSLOT && slot_lock[i] == me -> slot_lock[i] = FREE; ready[i] = 0
		:: else
		fi;
		i = 0; s = 0; s2 = 0; n = 0; n2 = 0; q = 0; bad = 0; late = 0; mine = 0; k = 0
	}
}

#ifdef F_KILL
proctype Killer() {
	if
	:: reader_dead[1] = 1
	:: skip
	fi
}
#endif

init {
	byte r;
	atomic {
		r = 1;
		do
		:: r <= NREAD -> run Reader(r); r++
		:: else -> break
		od;
		run Owner();
#ifdef F_DIE
		run Kernel(); run Successor();
#endif
#ifdef F_KILL
		run Killer();
#endif
#ifdef F_END
		run Ender()
#endif
	}
}
