/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One asynchronous operation: a handler block and a device cell with one pointer between them,
 * which exactly one of completion, cancel and the end of the execution context takes.
 *
 * Each `atomic` is one read-modify-write of one of three words: the cell's phase, the pointer, the
 * queue's count of threads inside, whose closed state lets nobody in.
 *
 *   CANCEL    a cancel of kind total; CANCEL WAIT: one that also ends the wait of a started one
 *   SHUT      the execution context ends
 * Planted bugs, each of which must be found:
 *   PLANT_TAKE_IN_TWO    cancel looks at the pointer and then clears it
 *   PLANT_BLIND_CANCEL   cancel takes the pointer without having won the phase
 *   PLANT_NO_GATE        the device pushes to the queue without having entered it
 */
mtype = { queued, started, cancelled };

mtype phase = queued;
bool pointer = true; /* to the handler block */
byte inside = 0;     /* threads inside the queue */
bool shut = false;
bool in_queue = false;
bool queue_gone = false;

bool cell_goes_along = false; /* with the handler block that lies in the queue */
byte handed = 0;              /* to its executor */
byte destroyed = 0;           /* uninvoked */
byte disposed = 0;            /* the cell */
bool had_effect = false;
bool aborted = false; /* the handler's code is operation_aborted */
bool total_won = false;

bool device_ended = false;
bool cancel_ended = false;
bool shut_ended = false;

inline push(along) {
  atomic {
    assert(!queue_gone && !in_queue);
    in_queue = true;
    cell_goes_along = along
  }
}

proctype device() {
  bool runs = false, entered = false, got = false;
  atomic {
    if
    :: phase == queued -> phase = started; runs = true
    :: else
    fi
  };
  if
  :: runs -> assert(disposed == 0); had_effect = true
  :: else
  fi;
  atomic {
    if
    :: !shut -> inside++; entered = true
    :: else
    fi
  };
  atomic { got = pointer; pointer = false };
  if
  :: !got -> disposed++ /* left behind: the device's to dispose of */
#ifdef PLANT_NO_GATE
  :: got -> push(true)
#else
  :: got && entered -> push(true)
  :: got && !entered /* the end of the context destroys both */
#endif
  fi;
  if
  :: entered -> atomic { inside-- }
  :: else
  fi;
  device_ended = true
}

proctype canceller() {
  bool was_queued = false, entered = false, got = false;
  atomic {
    if
    :: phase == queued -> phase = cancelled; was_queued = true
    :: else
    fi
  };
  total_won = was_queued;
  if
#if defined(WAIT) || defined(PLANT_BLIND_CANCEL)
  :: true ->
#else
  :: was_queued ->
#endif
    atomic {
      if
      :: !shut -> inside++; entered = true
      :: else
      fi
    };
    if
    :: entered ->
#ifdef PLANT_TAKE_IN_TWO
      got = pointer;
      pointer = false;
#else
      atomic { got = pointer; pointer = false };
#endif
      if
      :: got -> aborted = true; push(false)
      :: else
      fi;
      atomic { inside-- }
    :: else
    fi
#if !defined(WAIT) && !defined(PLANT_BLIND_CANCEL)
  :: else
#endif
  fi;
  cancel_ended = true
}

/* The context's own thread: hands over what lies in the queue, until the context ends. */
proctype pump() {
  bool along;
  do
  :: atomic {
       in_queue && !shut -> in_queue = false; along = cell_goes_along; handed++;
       if
       :: along -> disposed++
       :: else
       fi
     }
#ifdef SHUT
  :: shut -> break
#else
  :: device_ended && cancel_ended && !in_queue -> break
#endif
  od
}

proctype shut_down() {
  bool got = false;
  atomic { shut = true };
  (inside == 0);
  queue_gone = true;
  if
  :: in_queue -> /* finished, and nobody will hand it over */
    in_queue = false;
    destroyed++;
    if
    :: cell_goes_along -> disposed++
    :: else
    fi
  :: !in_queue && handed == 0 -> /* pending */
    atomic { got = pointer; pointer = false };
    destroyed++;
    if
    :: got      /* the device will find it taken and dispose of the cell */
    :: !got -> disposed++ /* answered while nobody was let in: the cell is ours */
    fi
  :: !in_queue && handed != 0
  fi;
  shut_ended = true
}

init {
  atomic {
    run device();
#ifdef CANCEL
    run canceller();
#else
    cancel_ended = true;
#endif
    run pump();
#ifdef SHUT
    run shut_down()
#else
    shut_ended = true
#endif
  };
  (device_ended && cancel_ended && shut_ended && !in_queue);
  assert(handed + destroyed == 1);
  assert(disposed == 1);
  assert(!(total_won && had_effect));
#ifndef WAIT
  assert(!(aborted && had_effect))
#endif
}
