/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Why the channel decides by one word: the usual handshake with two, an item and a sleeper's flag,
 * each stored by one side and looked at by the other, on a machine whose stores wait in a buffer.
 *
 *   (nothing)  no buffers: plain interleaving, as most models and explorers assume. Nothing found.
 *   TSO        each side has a store buffer that drains when it likes. Must fail: the sleeper
 *              sleeps beside its item.
 *   TSO FENCE  with a full barrier between store and load. Nothing found.
 *   TSO RMW    one word that both sides change by read-modify-write, which drains the buffer and
 *              acts on memory. Nothing found, no barrier needed.
 */
bool item = false;   /* in memory */
bool asleep = false; /* in memory */
bool token = false;
bool taken = false;

/* The one word of RMW: bit 0 item, bit 1 asleep. */
byte word = 0;

#ifdef TSO
/* A buffer of one store each, which is all that either side makes. */
bool item_waits = false;
bool asleep_waits = false;
bool producer_over = false;
bool consumer_over = false;

proctype drain_producer() {
  do
  :: atomic { item_waits -> item = true; item_waits = false }
  :: producer_over && !item_waits -> break
  od
}

proctype drain_consumer() {
  do
  :: atomic { asleep_waits -> asleep = true; asleep_waits = false }
  :: consumer_over && !asleep_waits -> break
  od
}
#define STORE_ITEM item_waits = true
#define STORE_ASLEEP asleep_waits = true
#ifdef FENCE
#define BARRIER_PRODUCER (!item_waits)
#define BARRIER_CONSUMER (!asleep_waits)
#else
#define BARRIER_PRODUCER skip
#define BARRIER_CONSUMER skip
#endif
#else
#define STORE_ITEM item = true
#define STORE_ASLEEP asleep = true
#define BARRIER_PRODUCER skip
#define BARRIER_CONSUMER skip
#endif

proctype producer() {
#ifdef RMW
  bool slept;
  atomic { slept = (word & 2) != 0; word = 1 };
  if
  :: slept -> token = true
  :: else
  fi;
#else
  STORE_ITEM;
  BARRIER_PRODUCER;
  if
  :: asleep -> token = true
  :: else
  fi;
#endif
#ifdef TSO
  producer_over = true
#endif
}

proctype consumer() {
#ifdef RMW
  bool sleeps;
  atomic { sleeps = (word & 1) == 0; if :: sleeps -> word = word | 2 :: else fi };
  if
  :: sleeps -> token
  :: else
  fi;
#else
  STORE_ASLEEP;
  BARRIER_CONSUMER;
  if
  :: !item -> token /* sleeps until it comes: for ever is a deadlock */
  :: else
  fi;
#endif
  taken = true;
#ifdef TSO
  consumer_over = true
#endif
}

init {
  atomic {
    run producer();
    run consumer();
#ifdef TSO
    run drain_producer();
    run drain_consumer();
#endif
  }
}
