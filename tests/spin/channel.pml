/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The command channel: one word, a ring whose slots carry sequence numbers, a control lane.
 *
 * Each `atomic` is one read-modify-write of the word, one operation on the lane, or one store to a
 * slot. Interleaving them is adequate although the machine is weaker, because every decision is a
 * read-modify-write of the one word, and those are totally ordered.
 *
 * P producers submit K commands each, F posters put a node on the control lane each, one closer
 * closes where CLOSE is defined, the consumer serves, parks, and leaves when closed.
 *   CREDIT    a submission may have no credit and be late though its slot is free
 *   TRY       the last producer attempts, and gives up on a full ring
 *   TIMED     a park may end by itself
 *   DRAIN     the consumer parks though closed until it has seen every poster's node
 *   LIVE      check that everything comes to an end, under weak fairness
 * Planted bugs, each of which must be found:
 *   PLANT_NO_CONTROL     a late submission is linked but not announced
 *   PLANT_CLOSE_NO_WAKE  close clears `parked` and owes nothing
 *   PLANT_PARK_BLIND     parking does not look at `control`
 *   PLANT_SKIP_WAKE      a producer forgets the token it owes
 *   PLANT_LATE_NO_TOKEN  a late poster ignores that its announcement cleared `parked`
 *   PLANT_UNPARK_LEAVES  a consumer whose park timed out leaves the owed token lying
 */
#ifndef P
#define P 2
#endif
#ifndef K
#define K 2
#endif
#ifndef F
#define F 1
#endif
#define CAPACITY 2
#ifdef DRAIN
#define MAY_LEAVE (handled == F)
#else
#define MAY_LEAVE true
#endif
#define TICKETS (P * K)

/* The word. */
byte ticket = 0;
bool parked = false;
bool closed = false;
bool stopped = false;
bool control = false;

/* A slot's sequence: t when free for ticket t, t + 1 when its command is there. */
byte sequence[CAPACITY];

/* The control lane: late tickets on the stack, other nodes in the queue. */
bool linked[TICKETS + 1];
byte queued = 0;

byte tokens = 0;

/* Accounts. */
byte taken = 0;
byte refused = 0;
byte served = 0;
byte posted = 0;
byte handled = 0; /* by the consumer */
byte answered = 0; /* closed, by their posters */
byte ended = 0;
bool closer_ended = false;
bool consumer_ended = false;
bool over = false;

inline give_token(owed) {
  if
  :: owed -> atomic { assert(tokens == 0); tokens++ }
  :: else
  fi
}

/* One compare-exchange: fails when closed, else takes ticket `mine`. */
inline take() {
  if
  :: closed -> refused++; got = false
  :: else -> mine = ticket; ticket++; owed = parked; parked = false; taken++; got = true
  fi
}

inline publish() {
  atomic { assert(sequence[mine % CAPACITY] == mine); sequence[mine % CAPACITY] = mine + 1 };
#ifndef PLANT_SKIP_WAKE
  give_token(owed)
#endif
}

inline leave_late() {
  linked[mine] = true;
#ifndef PLANT_NO_CONTROL
  /* Somebody else's announcement may have led the consumer to it before this one. */
  atomic { again = parked; parked = false; control = true };
  assert(!(owed && again));
#ifdef PLANT_LATE_NO_TOKEN
  again = false;
#endif
#endif
  give_token(owed || again)
}

proctype producer(bool tries) {
  byte i = 0, mine = 0;
  bool got = false, owed = false, again = false, credit = true;
  do
  :: i < K ->
    d_step { mine = 0; owed = false; again = false; got = false; credit = true };
#ifdef CREDIT
    if
    :: credit = true
    :: credit = false
    fi;
#endif
    if
    :: !tries ->
      atomic { take() };
      if
      :: got && credit && sequence[mine % CAPACITY] == mine -> publish()
      :: got && !(credit && sequence[mine % CAPACITY] == mine) -> leave_late()
      :: !got
      fi
    :: else ->
attempt:
      mine = ticket; /* a look, perhaps old by the time it is used */
      if
      :: sequence[mine % CAPACITY] == mine ->
        atomic {
          if
          :: ticket != mine && !closed -> goto attempt
          :: else -> take()
          fi
        };
        if
        :: got -> publish()
        :: else
        fi
      :: else ->
        if
        :: atomic { ticket == mine || closed -> refused++ }
        :: atomic { ticket != mine && !closed -> goto attempt }
        fi
      fi
    fi;
    i++
  :: else -> break
  od;
  ended++
}

proctype poster() {
  bool owed = false, late = false;
  atomic { queued++; posted++ };
  atomic { owed = parked; parked = false; late = stopped; control = true };
  give_token(owed && !late);
  if
  :: late -> atomic { answered = answered + queued; queued = 0 } /* under the lock */
  :: else
  fi;
  ended++
}

proctype closer() {
  bool owed = false;
  atomic { closed = true; owed = parked; parked = false };
#ifndef PLANT_CLOSE_NO_WAKE
  give_token(owed);
#endif
  closer_ended = true
}

/* What the consumer has found of late submissions. */
bool late[TICKETS + 1];

inline drain() {
  atomic { control -> control = false };
  atomic {
    j = 0;
    do
    :: j < TICKETS -> late[j] = late[j] || linked[j]; linked[j] = false; j++
    :: else -> break
    od;
    j = 0
  };
  atomic { handled = handled + queued; queued = 0 }
}

proctype consumer() {
  byte head = 0, j = 0;
  bool leaves = false, sleeps = false;
  do
  ::
    if
    :: control -> drain()
    :: !control
    fi;
    if
    :: sequence[head % CAPACITY] == head + 1 ->
      served++; /* runs in its slot */
      d_step { sequence[head % CAPACITY] = head + CAPACITY; head++ }
    :: sequence[head % CAPACITY] != head + 1 && late[head] ->
      d_step {
        assert(sequence[head % CAPACITY] == head);
        late[head] = false;
        sequence[head % CAPACITY] = head + CAPACITY;
        head++
      };
      served++ /* only now, since it may end the life of its node */
    :: sequence[head % CAPACITY] != head + 1 && !late[head] ->
      atomic {
        leaves = false;
        sleeps = false;
        if
#ifdef PLANT_PARK_BLIND
        :: ticket == head && !closed -> parked = true; sleeps = true
        :: ticket == head && closed -> stopped = true; leaves = true
#else
        :: ticket == head && !control && !(closed && MAY_LEAVE) -> parked = true; sleeps = true
        :: ticket == head && !control && closed && MAY_LEAVE -> stopped = true; leaves = true
#endif
        :: else /* busy: something posted, or a producer between ticket and command */
        fi
      };
      if
      :: leaves -> break
      :: sleeps ->
end_asleep:
        if
        :: atomic { tokens > 0 -> tokens-- }
#ifdef TIMED
        :: atomic { parked -> parked = false } /* unpark answered true */
        :: atomic { !parked -> skip };         /* false: a token has come or is owed */
#ifndef PLANT_UNPARK_LEAVES
           atomic { tokens > 0 -> tokens-- }
#endif
#endif
        fi
      :: else
      fi
    fi
  od;
  consumer_ended = true
}

init {
  atomic {
    byte i = 0;
    do
    :: i < CAPACITY -> sequence[i] = i; i++
    :: else -> break
    od;
    i = 0;
    do
#ifdef TRY
    :: i < P -> run producer(i == P - 1); i++
#else
    :: i < P -> run producer(false); i++
#endif
    :: else -> break
    od;
    i = 0;
    do
    :: i < F -> run poster(); i++
    :: else -> break
    od;
    run consumer();
#ifdef CLOSE
    run closer();
#else
    closer_ended = true;
#endif
    i = 0
  };
#ifdef CLOSE
  (ended == P + F && closer_ended && consumer_ended);
#else
  (ended == P + F && parked && tokens == 0);
#endif
  d_step {
    assert(taken + refused == P * K);
    assert(served == taken);
    assert(handled + answered == posted);
    assert(tokens == 0);
    over = true
  }
}

#ifdef LIVE
ltl everything_ends { <> over }
#endif
