/* Durable shared subscriptions: one leader, two borrowers, one stream, a network that loses, copies and reorders.
 *
 * Written by hand from the text of the source and of the settled protocol, as a second opinion on the rules.  README.md
 * beside this file says what is modelled, what is not, and how it is run.
 *
 * Switches, each of which takes one settled rule away (none: the settled rules):
 *   AS_WRITTEN    a borrower deletes all that it knows of a stream with the stream: the number of its grant, too
 *   ANY_GRANT     the leader takes progress and the end of a revoke from the owner without a look at the grant
 *   NO_WAIT       the stream of a borrower that is given up is handed over without waiting for its lease to end
 *   LATE_LEASE    a lease begins when the answer to a ping arrives, not when the ping was sent
 * And one that looks for something which must be possible, so it must fail:
 *   SHOW          the stream is never delivered by both borrowers, one after the other
 */

#ifndef FLIGHT
#define FLIGHT 2   /* messages on their way, at most: what is sent beyond that is lost */
#endif
#ifndef GRANTS
#define GRANTS 2   /* grants that the leader gives: at most 3 */
#endif
#ifndef PINGS
#define PINGS 1    /* pings that a borrower sends: at most 2 */
#endif
#ifndef ENDS
#define ENDS 1     /* how often, all together, a borrower leaves or fails, or is given up */
#endif

#define AT(b, k) ((b) * 4 + (k))          /* a message of borrower b about grant (or ping) k */

/* -- the network: the set of messages on their way; a copy of what is there already is nothing new ----------------- */

byte flying = 0;
bool wanted[2], connect[2], invalidate[2], disconnect[2];              /* by borrower */
bool ping[8], pong[8];                                                /* by borrower and number */
bool grant[8], revoke[8], revoked[8];                                 /* by borrower and grant: from the leader */
bool progress[8], final[8], revoke_finished[8];                       /* the same, to the leader */

inline send(message) {
    if
    :: !message && flying < FLIGHT -> message = true; flying++
    :: else -> skip
    fi
}

/* A message is handed over: it is gone, or a copy stays on its way. */
inline take(message) {
    if
    :: message = false; flying--
    :: skip
    fi
}

#define LOSE(set, at) :: atomic { set[at] -> set[at] = false; flying-- }
#define LOSE_EACH(set) LOSE(set, 1) LOSE(set, 2) LOSE(set, 3) LOSE(set, 5) LOSE(set, 6) LOSE(set, 7)

/* -- a borrower ----------------------------------------------------------------------------------------------------- */

#define CONNECTING 0
#define CONNECTED  1
#define DESTROYED  2

#define ABSENT   0
#define GRANTED  1
#define REVOKING 2
#define FINISHED 3     /* revoking, and the session has said how far it came: it delivers nothing any more */

byte status[2];
bool leased[2];        /* its own lease has not ended, by its own clock */
byte pinged[2];        /* the number of its last ping */
bool unanswered[2];
byte stream[2];        /* what the stream is to it */
byte held[2];          /* the grant it holds the stream by */
byte seen[2];          /* the highest grant it has seen of the stream, held or not */
bool delivered[2];

#define delivers(b) (leased[b] && (stream[b] == GRANTED || stream[b] == REVOKING))

/* -- the leader ------------------------------------------------------------------------------------------------------ */

#define NONE      0
#define GRANTING  1
#define OWNED     2    /* "granted" */
#define TAKEBACK  3    /* "revoking" */
#define TAKEN     4    /* "revoked" */

bool member[2];
bool expected[2];      /* the leader has answered a ping whose lease, by the leader's clock, may not have ended */
bool given_up[2];      /* it was a member and went without a last word */
byte assigned[2];      /* the assignment of the stream to each of them */
byte by[2];            /* the grant of the assignment */
byte granted = 0;      /* grants so far */
byte ends = 0;
bool waits[2];         /* the stream is free when the lease of this one has surely ended */

#define is_free (assigned[0] == NONE && assigned[1] == NONE && !waits[0] && !waits[1])

/* -- what must hold -------------------------------------------------------------------------------------------------- */

inline judge() {
    assert(!(assigned[0] != NONE && assigned[1] != NONE));            /* S2 */
    assert(!(delivers(0) && delivers(1)));                            /* S5 */
    if :: delivers(0) -> delivered[0] = true :: else -> skip fi;
    if :: delivers(1) -> delivered[1] = true :: else -> skip fi;
#ifdef SHOW
    assert(!(delivered[0] && delivered[1]))
#endif
}

/* -- what a borrower does -------------------------------------------------------------------------------------------- */

inline next_ping(b) {
    pinged[b]++;
    unanswered[b] = true;
    send(ping[AT(b, pinged[b])])
}

inline drop_stream(b) {
    stream[b] = ABSENT;
    held[b] = 0;
#ifdef AS_WRITTEN
    seen[b] = 0
#endif
}

inline end(b) {
    status[b] = DESTROYED;
    leased[b] = false;
    unanswered[b] = false;
    pinged[b] = 0;
    stream[b] = ABSENT;
    held[b] = 0;
    seen[b] = 0
}

inline report(b, k) {
    if
    :: stream[b] == FINISHED -> send(final[AT(b, k)])
    :: else -> send(progress[AT(b, k)])
    fi
}

inline on_grant(b, k) {
    if
    :: status[b] == CONNECTED && k > seen[b] ->
        stream[b] = GRANTED; held[b] = k; seen[b] = k;
        report(b, k)
    :: status[b] == CONNECTED && k <= seen[b] && k == held[b] -> report(b, k)
    :: status[b] == DESTROYED -> send(disconnect[b])
    :: else -> skip
    fi
}

inline see(b, k) {
    if :: k > seen[b] -> seen[b] = k :: else -> skip fi
}

inline on_revoke(b, k) {
    if
    :: status[b] == CONNECTED && stream[b] != ABSENT && k == held[b] ->
        if :: stream[b] == GRANTED -> stream[b] = REVOKING :: else -> skip fi;
        report(b, k)
    :: status[b] == CONNECTED && stream[b] != ABSENT && k < held[b] -> send(revoke_finished[AT(b, k)])
    :: status[b] == CONNECTED && (stream[b] == ABSENT || k > held[b]) ->
        see(b, k);
        drop_stream(b);
        send(revoke_finished[AT(b, k)])
    :: status[b] == DESTROYED -> send(disconnect[b])
    :: else -> skip
    fi
}

inline on_revoked(b, k) {
    if
    :: status[b] == CONNECTED && stream[b] != ABSENT && k < held[b] -> send(revoke_finished[AT(b, k)])
    :: status[b] == CONNECTED && (stream[b] == ABSENT || k >= held[b]) ->
        see(b, k);
        drop_stream(b);
        send(revoke_finished[AT(b, k)])
    :: status[b] == DESTROYED -> send(disconnect[b])
    :: else -> skip
    fi
}

/* A lease ends its length after the ping was sent: an answer that comes when the leader knows it has ended brings
 * none. */
inline on_pong(b, k) {
    if
    :: status[b] == CONNECTED && unanswered[b] && k == pinged[b] ->
        unanswered[b] = false;
#ifdef LATE_LEASE
        leased[b] = true
#else
        if :: expected[b] -> leased[b] = true :: else -> skip fi
#endif
    :: status[b] == DESTROYED -> send(disconnect[b])
    :: else -> skip
    fi
}

/* -- what the leader does -------------------------------------------------------------------------------------------- */

inline go_free(b) {
    assigned[b] = NONE;
    by[b] = 0
}

#ifdef ANY_GRANT
#define is_current(b, k) (member[b] && assigned[b] != NONE)
#else
#define is_current(b, k) (member[b] && assigned[b] != NONE && by[b] == k)
#endif

inline accept(b, k) {
    assert(assigned[b] != NONE && by[b] == k)                         /* S4 */
}

inline on_wanted(b) {
    if
    :: member[b] -> send(connect[b])
    :: !member[b] && !given_up[b] -> member[b] = true; send(connect[b])
    :: else -> skip
    fi
}

inline on_ping(b, k) {
    if
    :: member[b] -> expected[b] = true; send(pong[AT(b, k)])
    :: else -> send(invalidate[b])
    fi
}

inline on_progress(b, k) {
    if
    :: is_current(b, k) ->
        accept(b, k);
        if :: assigned[b] == GRANTING -> assigned[b] = OWNED :: else -> skip fi
    :: !member[b] -> send(invalidate[b])
    :: else -> skip
    fi
}

inline on_final(b, k) {
    if
    :: is_current(b, k) ->
        accept(b, k);
        if
        :: assigned[b] == TAKEBACK -> assigned[b] = TAKEN; send(revoked[AT(b, by[b])])
        :: assigned[b] == GRANTING -> assigned[b] = OWNED
        :: else -> skip
        fi
    :: !member[b] -> send(invalidate[b])
    :: else -> skip
    fi
}

inline on_revoke_finished(b, k) {
    if
    :: is_current(b, k) -> go_free(b)
    :: else -> skip
    fi
}

inline on_disconnect(b) {
    if
    :: member[b] -> member[b] = false; given_up[b] = true; go_free(b)
    :: else -> skip
    fi
}

/* It has not been heard of for too long, or did not finish a revoke in time. */
inline give_up(b) {
    if
    :: assigned[b] != NONE ->
        go_free(b);
#ifndef NO_WAIT
        waits[b] = expected[b]
#endif
    :: else -> skip
    fi;
    member[b] = false;
    given_up[b] = true;
    send(invalidate[b])
}

/* -- everything that can happen -------------------------------------------------------------------------------------- */

#define EACH(b, k) \
    :: atomic { grant[AT(b, k)] -> take(grant[AT(b, k)]); on_grant(b, k); judge() } \
    :: atomic { revoke[AT(b, k)] -> take(revoke[AT(b, k)]); on_revoke(b, k); judge() } \
    :: atomic { revoked[AT(b, k)] -> take(revoked[AT(b, k)]); on_revoked(b, k); judge() } \
    :: atomic { progress[AT(b, k)] -> take(progress[AT(b, k)]); on_progress(b, k); judge() } \
    :: atomic { final[AT(b, k)] -> take(final[AT(b, k)]); on_final(b, k); judge() } \
    :: atomic { revoke_finished[AT(b, k)] -> take(revoke_finished[AT(b, k)]); on_revoke_finished(b, k); judge() }

#define EACH_PING(b, k) \
    :: atomic { ping[AT(b, k)] -> take(ping[AT(b, k)]); on_ping(b, k); judge() } \
    :: atomic { pong[AT(b, k)] -> take(pong[AT(b, k)]); on_pong(b, k); judge() }

#define BORROWER(b) \
    :: atomic { status[b] == CONNECTING -> send(wanted[b]) }                          /* find-leader timer */ \
    :: atomic { connect[b] -> take(connect[b]); \
        if :: status[b] == CONNECTING -> status[b] = CONNECTED; next_ping(b) \
           :: status[b] == DESTROYED -> send(disconnect[b]) \
           :: else -> skip fi } \
    :: atomic { status[b] == CONNECTED && !unanswered[b] && pinged[b] < PINGS -> next_ping(b) }   /* ping timer */ \
    :: atomic { status[b] == CONNECTED && unanswered[b] && ends < ENDS -> ends++; end(b) }        /* ping timeout */ \
    :: atomic { leased[b] -> leased[b] = false }                                      /* lease end */ \
    :: atomic { stream[b] == REVOKING -> stream[b] = FINISHED; report(b, held[b]) }   /* the session has finished */ \
    :: atomic { status[b] == CONNECTED && ends < ENDS -> ends++; end(b); send(disconnect[b]) }    /* it leaves */ \
    :: atomic { invalidate[b] -> take(invalidate[b]); \
        if :: status[b] == CONNECTED -> end(b) :: else -> skip fi }

#define LEADER(b) \
    :: atomic { wanted[b] -> take(wanted[b]); on_wanted(b) } \
    :: atomic { disconnect[b] -> take(disconnect[b]); on_disconnect(b); judge() } \
    :: atomic { member[b] && is_free && granted < GRANTS -> \
        granted++; assigned[b] = GRANTING; by[b] = granted; send(grant[AT(b, granted)]); judge() } \
    :: atomic { assigned[b] == OWNED -> assigned[b] = TAKEBACK; send(revoke[AT(b, by[b])]) }      /* rebalance */ \
    :: atomic { assigned[b] == GRANTING -> send(grant[AT(b, by[b])]) }                            /* resend */ \
    :: atomic { assigned[b] == TAKEBACK -> send(revoke[AT(b, by[b])]) } \
    :: atomic { assigned[b] == TAKEN -> send(revoked[AT(b, by[b])]) } \
    :: atomic { member[b] && ends < ENDS -> ends++; give_up(b); judge() }             /* expiry, revoke timeout */ \
    :: atomic { expected[b] && !leased[b] -> expected[b] = false; waits[b] = false }  /* it has surely ended */

active proctype group() {
end_quiet:
    do
    EACH(0, 1) EACH(0, 2) EACH(0, 3) EACH(1, 1) EACH(1, 2) EACH(1, 3)
    EACH_PING(0, 1) EACH_PING(0, 2) EACH_PING(1, 1) EACH_PING(1, 2)
    BORROWER(0) BORROWER(1)
    LEADER(0) LEADER(1)
    LOSE(wanted, 0) LOSE(connect, 0) LOSE(invalidate, 0) LOSE(disconnect, 0)
    LOSE(wanted, 1) LOSE(connect, 1) LOSE(invalidate, 1) LOSE(disconnect, 1)
    LOSE_EACH(ping) LOSE_EACH(pong) LOSE_EACH(grant) LOSE_EACH(revoke) LOSE_EACH(revoked)
    LOSE_EACH(progress) LOSE_EACH(final) LOSE_EACH(revoke_finished)
    od
}
