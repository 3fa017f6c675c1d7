/*
 * Model of a run of a workflow: claim, step, atomic, suspend, signal, expire.
 *
 * The run calls a function as the step CALL, waits for a signal as the step WAIT, writes an effect as
 * the step ATOMIC and ends. Two workers take turns, because either may crash between any two
 * statements and any lease may expire while its holder goes on, FAULTS times in all. A sender
 * publishes the signal at any time, and may crash between its commit and the wake-up.
 *
 * A statement is an `atomic` block: the server runs it on one snapshot. `lock` is the lock of the job
 * row, which a transaction keeps until it ends. A change that is not committed is in `next_due`
 * while the lock is held, so other statements see the row as it was.
 *
 * Each macro below breaks the design at one place. test_model.py checks the design and all of them.
 *
 *   CHECK_WITHOUT_LOCK     write_step compares the token without a lock on the job row
 *   CLAIM_WITHOUT_LOCK     the claim reads the row and changes it in another statement
 *   STEPS_BEFORE_CLAIM     the steps are read before the claim
 *   EFFECT_BEFORE_STEP     the block of `atomic` commits before its step is written
 *   LOOK_BEFORE_SUSPEND    the suspension looks for signals before it writes the job row
 *   WAKE_WITHOUT_WAITING   the wake-up takes only rows that are QUEUED on its snapshot
 *   CONSUME_BEFORE_STEP    a signal is consumed before the step that keeps it is written
 *   NO_SWEEP               no sweep looks for signals of a sender that crashed
 */

#ifndef FAULTS
#define FAULTS 3
#endif
#define FREE 0
#define CALL 0
#define WAIT 1
#define ATOMIC 2

mtype = { QUEUED, INFLIGHT, ENDED };

/* The job row. */
mtype state = QUEUED;
bool due = true;
byte token = 0;
byte lock = FREE;
bool next_due = false;

/* Rows of steps, of the signal and of the run, as committed. */
bool stored[3];
bool signalled = false;
bool consumed = false;
bool waits = false;

/* What no statement reads: the invariants and the faults need it. */
byte faults = FAULTS;
byte claims = 0;
byte live_leases = 0;
byte stored_by[3];
byte effects = 0;
bool holder_crashed = false;
bool sender_crashed = false;

#define holds (state == INFLIGHT && token == mine)

/* A crash may happen here. The server rolls back the transaction of the session that is gone. */
inline maybe_crash() {
    if
    :: skip
    :: atomic {
        faults > 0 ->
        faults--;
        if :: lock == me -> lock = FREE :: else fi;
        if :: holds -> holder_crashed = true :: else fi;
        goto start
    }
    fi
}

/* First statement of a transaction that writes a step: lock the job row with its token. */
inline lock_job() {
#ifdef CHECK_WITHOUT_LOCK
    atomic { if :: holds :: else -> goto start fi };
#else
    atomic { lock == FREE -> if :: holds -> lock = me :: else -> goto start fi };
#endif
    maybe_crash()
}

/* Last statement: insert the row and commit. Its key refuses a second row: the attempt fails. */
inline store(step) {
    if
    :: stored[step] ->
        unlock();
        if :: holds -> holder_crashed = true :: else fi;
        goto start
    :: else
    fi;
    assert(holds);
    stored[step] = true;
    stored_by[step] = mine;
    have[step] = true;
    unlock()
}

inline unlock() {
    if :: lock == me -> lock = FREE :: else fi
}

inline load_steps() {
    atomic {
        have[CALL] = stored[CALL];
        have[WAIT] = stored[WAIT];
        have[ATOMIC] = stored[ATOMIC]
    }
}

inline claim() {
#ifdef CLAIM_WITHOUT_LOCK
    state == QUEUED && due && lock == FREE;
#endif
    atomic {
#ifndef CLAIM_WITHOUT_LOCK
        state == QUEUED && due && lock == FREE ->
#endif
        claims++;
        token = claims;
        mine = claims;
        state = INFLIGHT;
        due = false;
        holder_crashed = false;
        live_leases++;
        assert(live_leases == 1)
    }
}

/* `suspend` writes the row, `find_signal` makes it due if the signal is there, then the commit. */
inline suspend_until_signal() {
#ifdef LOOK_BEFORE_SUSPEND
    atomic { lock == FREE -> if :: holds -> next_due = (signalled && !consumed) :: else -> goto start fi };
    maybe_crash();
    atomic { lock == FREE -> if :: holds -> lock = me :: else -> goto start fi };
#else
    atomic { lock == FREE -> if :: holds -> lock = me :: else -> goto start fi };
    maybe_crash();
    atomic { next_due = (signalled && !consumed) };
#endif
    maybe_crash();
    atomic {
        assert(holds);
        state = QUEUED;
        due = next_due;
        waits = true;
        next_due = false;
        live_leases--;
        lock = FREE
    }
}

proctype Worker(byte me) {
    byte mine = 0;
    bool have[3];

start:
    atomic { mine = 0; have[CALL] = false; have[WAIT] = false; have[ATOMIC] = false };
#ifdef STEPS_BEFORE_CLAIM
    load_steps();
#endif
end_idle:
    claim();
    maybe_crash();
#ifndef STEPS_BEFORE_CLAIM
    load_steps();
#endif
    maybe_crash();

    /* begin_run: the wait in which the run was suspended ends with its signal. */
    if
    :: waits && signalled && !consumed && !have[WAIT] ->
        lock_job();
        atomic { store(WAIT); consumed = true; waits = false }
    :: else
    fi;
    maybe_crash();

    /* run.step: the function runs outside of a transaction. */
    if
    :: have[CALL]
    :: else ->
        atomic { assert(!stored[CALL] || mine < stored_by[CALL]) };
        maybe_crash();
        lock_job();
        atomic { store(CALL) }
    fi;
    maybe_crash();

    /* run.wait */
    if
    :: have[WAIT]
    :: else ->
        if
        :: atomic { signalled && !consumed } ->
#ifdef CONSUME_BEFORE_STEP
            atomic { lock == FREE -> if :: holds -> consumed = true :: else -> goto start fi };
            maybe_crash();
#endif
            lock_job();
            atomic { store(WAIT); consumed = true }
        :: else ->
            suspend_until_signal();
            goto start
        fi
    fi;
    maybe_crash();

    /* run.atomic: no lock is held while the block runs. */
    if
    :: have[ATOMIC]
    :: else ->
#ifdef EFFECT_BEFORE_STEP
        atomic { effects++ };
        maybe_crash();
#endif
        lock_job();
        atomic {
            store(ATOMIC);
#ifndef EFFECT_BEFORE_STEP
            effects++;
#endif
            assert(effects == 1)
        }
    fi;
    maybe_crash();

    /* The settlement. */
    atomic {
        lock == FREE ->
        if
        :: holds -> state = ENDED; live_leases--
        :: else
        fi
    };
    goto start
}

/* A lease expires: its holder crashed, or it is stopped and goes on later. */
proctype Reaper() {
end_reaping:
    do
    :: atomic {
        state == INFLIGHT && lock == FREE && (holder_crashed || faults > 0) ->
        if :: holder_crashed :: else -> faults-- fi;
        state = QUEUED;
        due = true;
        token = 0;
        live_leases--
    }
    od
}

proctype Sender() {
    /* In a transaction of its own the statement wakes a run that waits on its snapshot. */
    if
    :: atomic {
        signalled = true;
        if :: lock == FREE && state == QUEUED && waits -> due = true; goto end_sent :: else fi
    }
    :: atomic { signalled = true }
    fi;
    if
    :: atomic { faults > 0 -> faults--; sender_crashed = true; goto end_sent }
    :: skip
    fi;
    /* The wake-up, in a transaction of its own. */
#ifdef WAKE_WITHOUT_WAITING
    atomic { if :: state == QUEUED :: else -> goto end_sent fi };
#endif
    atomic { lock == FREE -> if :: state == QUEUED -> due = true :: else fi };
end_sent:
    skip
}

/* The sweep is only needed after a crash of the sender, and would hide what else goes wrong. */
proctype Sweep() {
end_sweeping:
#ifndef NO_SWEEP
    do
    :: atomic {
        sender_crashed && signalled && !consumed && state == QUEUED && !due && lock == FREE ->
        due = true
    }
    od
#else
    skip
#endif
}

/* Nothing can happen any more: the run has ended, and each of its promises was kept. */
proctype Judge() {
end_judging:
    timeout ->
    assert(state == ENDED);
    assert(stored[CALL] && stored[WAIT] && stored[ATOMIC]);
    assert(consumed);
    assert(effects == 1)
}

init {
    atomic {
        run Worker(1);
        run Worker(2);
        run Reaper();
        run Sender();
        run Sweep();
        run Judge()
    }
}
