/*
 * Model of a batch: settlements append sums, a merge adds them up, one decision calls back.
 *
 * The batch has two members, and a publisher adds a third unless the batch is complete. Another
 * process closes the batch. Each member is settled by a process of its own, which then looks at the
 * batch. An operator redrives the second member after the callback. A process may crash between any
 * two statements, and a sweep looks at each batch that has a sum.
 *
 * A statement is an `atomic` block. `lock` is the exclusive lock of the batch row, `sharing` counts
 * publishers that hold the shared lock. What a transaction has merged or deleted is in its own
 * variables until its commit. As rows of sums are only added up, a counter stands for them.
 *
 * Each macro below breaks the design at one place. test_model.py checks the design and all of them.
 *
 *   DECIDE_ON_OLD_COUNTS    the decision counts before it has the lock
 *   DECIDE_WITHOUT_LOCK     the decision does not lock the batch row
 *   NO_ZEROS                the merge leaves no sum behind for the decision
 *   SUM_AFTER_COMMIT        the sum is appended after the settlement is committed
 *   ADD_WITHOUT_LOCK        a publisher does not lock the batch row
 */

#define FREE 0
#define SWEEP 5

/* The batch row, as committed. */
byte members = 0;
byte ended = 0;
byte redriven = 0;
byte rounds = 0;
bool closed = false;
bool completed = false;
byte lock = FREE;
byte sharing = 0;

/* Committed rows of pulljobs_batch_sum: their number, and what they add up to. */
byte rows = 1;
byte new_members = 2;
byte new_ended = 0;
byte new_redriven = 0;
byte lost_ended = 0;

/* What no statement reads. */
byte jobs = 2;
byte settled = 0;
byte redrives = 0;
byte callbacks = 0;
bool third_exists = false;
bool second_again = false;

#define live (members + new_members + lost_ended - ended - new_ended)

inline append(added, gone, back, again) {
    rows++;
    new_members = new_members + added;
    new_ended = new_ended + gone;
    lost_ended = lost_ended + back;
    new_redriven = new_redriven + again
}

/* Add the sums to the row and delete them. */
inline merge_sums() {
    members = members + new_members;
    ended = ended + new_ended - lost_ended;
    redriven = redriven + new_redriven;
    rows = 0;
    new_members = 0;
    new_ended = 0;
    lost_ended = 0;
    new_redriven = 0
}

/* The merge, which skips a row that is locked, then the decision. A crash ends it anywhere. */
inline look(me) {
    if
    :: atomic { rows > 0 && lock == FREE ->
        may_decide = (closed && live == 0 && (!completed || redriven + new_redriven > rounds));
        merge_sums();
#ifndef NO_ZEROS
        if :: may_decide -> rows++ :: else fi
#endif
        }
    :: atomic { !(rows > 0 && lock == FREE) -> may_decide = false }
    :: may_decide = false                      /* crashed before the merge */
    fi;
    if
    :: may_decide -> decide(me)
    :: may_decide -> may_decide = false        /* crashed after the merge */
    :: else
    fi
}

/* The decision: the lock, a merge in a newer statement, then the callback and the commit. */
inline decide(me) {
#ifdef DECIDE_ON_OLD_COUNTS
    atomic { is_over = (closed && live == 0) };
#endif
#ifdef DECIDE_WITHOUT_LOCK
    is_locked = true;
#else
    atomic {
        is_locked = (lock == FREE && sharing == 0);
        if :: is_locked -> lock = me :: else fi
    };
#endif
    if
    :: is_locked ->
        if
        :: atomic {
#ifndef DECIDE_ON_OLD_COUNTS
            is_over = (closed && live == 0);
#endif
            is_due = (!completed || redriven + new_redriven > rounds);
            merge_sums();
            if
            :: is_over && is_due ->
                assert(jobs == settled);
                callbacks++;
                completed = true;
                rounds = redriven;
                assert(callbacks <= 1 + redrives)
            :: else
            fi;
            lock = FREE
            }
        :: atomic { lock = FREE }              /* crashed: rolled back */
        fi
    :: else
    fi;
    atomic { may_decide = false; is_locked = false; is_over = false; is_due = false }
}

inline settle() {
#ifdef SUM_AFTER_COMMIT
    atomic { settled++ };
    if
    :: atomic { append(0, 1, 0, 0) }
    :: skip                                    /* crashed */
    fi
#else
    atomic { settled++; append(0, 1, 0, 0) }
#endif
}

proctype Member(byte me) {
    bool may_decide, is_locked, is_over, is_due;
    bool again = false;

end_waiting:
    me != 3 || third_exists;
settling:
    settle();
    look(me);
    if
    :: me == 2 && !again -> second_again -> again = true; goto settling
    :: else
    fi
}

/* The transaction of a publisher shares the lock until its commit. */
proctype Publisher() {
#ifdef ADD_WITHOUT_LOCK
    atomic { if :: completed -> goto refused :: else fi };
#else
    atomic { lock == FREE -> if :: completed -> goto refused :: else -> sharing++ fi };
#endif
    atomic {
        assert(!completed);
        jobs++;
        append(1, 0, 0, 0);
        third_exists = true;
#ifndef ADD_WITHOUT_LOCK
        sharing--
#endif
    };
refused:
    skip
}

proctype Closer() {
    bool may_decide, is_locked, is_over, is_due;

    atomic { closed = true; append(0, 0, 0, 0) };
    look(4)
}

proctype Operator() {
    completed;
    atomic { settled--; redrives++; append(0, 0, 1, 1); second_again = true }
}

proctype Sweep() {
    bool may_decide, is_locked, is_over, is_due;

end_sweeping:
    do
    :: rows > 0 && lock == FREE -> look(SWEEP)
    od
}

/* Nothing can happen any more: all members have ended, and each round called back once. */
proctype Judge() {
end_judging:
    timeout ->
    assert(completed && rows == 0);
    assert(members == jobs && ended == jobs);
    assert(callbacks == 1 + redrives)
}

init {
    atomic {
        run Member(1);
        run Member(2);
        run Member(3);
        run Publisher();
        run Closer();
        run Operator();
        run Sweep();
        run Judge()
    }
}
