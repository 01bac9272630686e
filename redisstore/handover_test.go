//go:build unix

package redisstore

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redlatch/redlatch/driver"
	"github.com/redlatch/redlatch/internal/elapsed"
	"github.com/redlatch/redlatch/internal/relay"
	"github.com/redlatch/redlatch/internal/servertest"
	"github.com/redlatch/redlatch/lease"
)

// within fails the test if the claim does not get the lock in that time.
func within(t *testing.T, d time.Duration, s *Store, name string, c lease.Claim, st lease.Standing) lease.Standing {
	t.Helper()
	began := time.Now()
	got := await(t, s, name, c, st, lease.Held)
	if took := time.Since(began); took > d {
		t.Errorf("got the lock after %v, want within %v", took, d)
	}
	return got
}

// stays fails the test if the claim is not waiting any more within that time.
func stays(t *testing.T, d time.Duration, s *Store, name string, c lease.Claim, rev uint64) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	for {
		st, err := s.Wait(ctx, name, c.ID, rev)
		if err != nil {
			return
		}
		if st.State != lease.Waiting {
			t.Fatalf("the claim is %v: %+v", st.State, st)
		}
		rev = st.Rev
	}
}

func TestAGrantThatWasStuckDoesNotReviveAClaimThatQueuedAgain(t *testing.T) {
	server := serve(t)
	a, b := newStore(t, server.Addr(), Options{}), newStore(t, server.Addr(), Options{})
	holder, c := claim(30*time.Second), claim(30*time.Second)
	join(t, a, "n", holder, lease.Held)
	first := join(t, b, "n", c, lease.Waiting)
	// Its place goes, as that of a claim whose grant ran out, and it takes a new one.
	mustDo(t, server, "DEL", b.keys.keys("n", "")[1], b.keys.keys("n", "")[2])
	second := join(t, b, "n", c, lease.Waiting)
	if second.Ticket <= first.Ticket {
		t.Fatalf("ticket %d after %d", second.Ticket, first.Ticket)
	}
	b.deliver(fmt.Sprintf("g\n%s\n%d\n5000\nlock:n", c.ID, first.Ticket), b.inbox.subscription().id)
	stays(t, 300*time.Millisecond, b, "n", c, second.Rev)
}

func TestAGrantByAnotherServerThanTheOneThatDatedItIsConfirmed(t *testing.T) {
	server := serve(t)
	a, b := newStore(t, server.Addr(), Options{}), newStore(t, server.Addr(), Options{})
	holder, c := claim(30*time.Second), claim(30*time.Second)
	join(t, a, "n", holder, lease.Held)
	st := join(t, b, "n", c, lease.Waiting)
	b.mu.Lock()
	b.book.Claim("n", c.ID).W.Dated++ // as if the connection had come from elsewhere
	b.mu.Unlock()
	released := elapsed.Now()
	leave(t, a, "n", holder.ID)
	got := within(t, time.Second, b, "n", c, st)
	if got.Asked < released || got.Lease != c.TTL {
		t.Errorf("not confirmed: a lease of %v that dates from %v before the release", got.Lease, released.Sub(got.Asked))
	}
}

// watch returns a function that returns when the server has begun a command from then
// on that has all the words in it. It serves one command at a time: what the next one
// sees is after it.
func watch(t *testing.T, server *servertest.RedisServer, words ...string) func() {
	t.Helper()
	c, err := servertest.Dial(server.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	if _, err := c.Do("MONITOR"); err != nil {
		t.Fatal(err)
	}
	return func() {
		t.Helper()
		for {
			line, err := c.Receive(5 * time.Second)
			if err != nil {
				t.Fatalf("no command with %q: %v", words, err)
			}
			text, _ := line.(string)
			if !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(text, w) }) {
				return
			}
		}
	}
}

func TestAJoinThatComesAfterItsOwnLeaveTakesNothing(t *testing.T) {
	server := serve(t)
	r := relay.Start(t, server.Addr())
	s := newStore(t, r.Addr(), Options{})
	warm := claim(time.Second)
	join(t, s, "warm", warm, lease.Held)

	c := claim(30 * time.Second)
	trap := r.Hold(isScript(joinScript))
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if st, err := s.Join(ctx, "n", c); err == nil {
		t.Fatalf("joined: %+v", st)
	}
	leave(t, s, "n", c.ID)
	carriedOut := watch(t, server, joinScript.sha, c.ID)
	trap.Release()
	carriedOut()
	if v := mustDo(t, server, "GET", "lock:n"); v != nil {
		t.Errorf("a join that had left holds the lock: %v", v)
	}
	join(t, s, "n", c, lease.Left)
}

// The client library sends the join twice, and the first copy arrives last.
func TestACopyOfAJoinThatTheClientSentTwiceTakesNothingLater(t *testing.T) {
	server := serve(t)
	r := relay.Start(t, server.Addr())
	s := storeWith(t, &redis.Options{Addr: r.Addr(), ReadTimeout: 100 * time.Millisecond}, Options{})
	join(t, s, "warm", claim(time.Second), lease.Held)

	c := claim(30 * time.Second)
	trap := r.Hold(isScript(joinScript))
	join(t, s, "n", c, lease.Held)
	if st := leave(t, s, "n", c.ID); st.State != lease.Held {
		t.Fatalf("left: %+v", st)
	}
	carriedOut := watch(t, server, joinScript.sha, c.ID)
	trap.Release()
	carriedOut()
	if v := mustDo(t, server, "GET", "lock:n"); v != nil {
		t.Errorf("the copy of a join that had left holds the lock: %v", v)
	}
}

func TestALeaveOfAClaimThatWasAnsweredAtOnceLeavesNoStone(t *testing.T) {
	server := serve(t)
	s := newStore(t, server.Addr(), Options{})
	s.once = time.Minute // however slow the machine is
	c := claim(30 * time.Second)
	join(t, s, "n", c, lease.Held)
	leave(t, s, "n", c.ID)
	if n := mustDo(t, server, "EXISTS", s.keys.keys("n", c.ID)[5]); n != int64(0) {
		t.Errorf("a stone for a join that nobody can repeat")
	}
}

func isScript(s script) relay.Match {
	return func(args []string) bool { return strings.EqualFold(args[0], "evalsha") && args[1] == s.sha }
}

func TestALockIsHandedOverUnderFullMemory(t *testing.T) {
	server := serve(t)
	a, b := newStore(t, server.Addr(), Options{}), newStore(t, server.Addr(), Options{})
	holder, c := claim(30*time.Second), claim(30*time.Second)
	join(t, a, "n", holder, lease.Held)
	st := join(t, b, "n", c, lease.Waiting)
	mustDo(t, server, "CONFIG", "SET", "maxmemory", "1")
	leave(t, a, "n", holder.ID)
	within(t, time.Second, b, "n", c, st)
	if _, err := a.Join(t.Context(), "other", claim(time.Second)); serverCode(err) != "OOM" {
		t.Errorf("a join under full memory: %v", err)
	}
	// A leave before its join needs to write, and may.
	leave(t, a, "other", lease.NewID())
	leave(t, b, "n", c.ID)
	if v := mustDo(t, server, "GET", "lock:n"); v != nil {
		t.Errorf("the key has %v", v)
	}
}

func TestAWaiterOfADeadProcessIsSkippedThoughAMonitorHearsEverything(t *testing.T) {
	server := serve(t)
	monitor := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer monitor.Close()
	everything := monitor.PSubscribe(t.Context(), "*")
	defer everything.Close()
	if _, err := everything.Receive(t.Context()); err != nil {
		t.Fatal(err)
	}
	a, dead, b := newStore(t, server.Addr(), Options{}), newStore(t, server.Addr(), Options{}), newStore(t, server.Addr(), Options{})
	holder, c := claim(30*time.Second), claim(30*time.Second)
	join(t, a, "n", holder, lease.Held)
	for range 200 { // more than one call skips
		join(t, dead, "n", claim(30*time.Second), lease.Waiting)
	}
	st := join(t, b, "n", c, lease.Waiting)
	dead.Close()
	servertest.Eventually(t, 5*time.Second, "the end of its subscription", func() bool {
		return mustDo(t, server, "PUBSUB", "NUMSUB", dead.inbox.channel).([]any)[1] == int64(0)
	})
	leave(t, a, "n", holder.ID)
	within(t, time.Second, b, "n", c, st)
}

// A frozen process keeps its subscription. What it has in the queue costs one grant.
func TestAFrozenProcessCostsOneGrant(t *testing.T) {
	server := serve(t)
	r := relay.Start(t, server.Addr())
	a, frozen, b := newStore(t, server.Addr(), Options{}), newStore(t, r.Addr(), Options{}), newStore(t, server.Addr(), Options{})
	holder, c := claim(time.Second), claim(30*time.Second)
	join(t, a, "n", holder, lease.Held)
	for range 250 {
		join(t, frozen, "n", claim(time.Second), lease.Waiting) // a grant is not longer than the TTL
	}
	st := join(t, b, "n", c, lease.Waiting)
	r.Freeze(relay.Requests | relay.Replies)
	leave(t, a, "n", holder.ID)
	within(t, 2500*time.Millisecond, b, "n", c, st)
	r.Thaw()
}

func TestTheGrantsOfALivingProcessDoNotCostItItsPlaces(t *testing.T) {
	server := serve(t)
	a, b := newStore(t, server.Addr(), Options{}), newStore(t, server.Addr(), Options{})
	holder := claim(30 * time.Second)
	join(t, a, "n", holder, lease.Held)
	var claims []lease.Claim
	var standings []lease.Standing
	for range 20 {
		c := claim(30 * time.Second)
		claims, standings = append(claims, c), append(standings, join(t, b, "n", c, lease.Waiting))
	}
	leave(t, a, "n", holder.ID)
	for i, c := range claims {
		if got := within(t, time.Second, b, "n", c, standings[i]); got.Ticket != standings[i].Ticket {
			t.Errorf("claim %d: ticket %d, was %d", i, got.Ticket, standings[i].Ticket)
		}
		leave(t, b, "n", c.ID)
	}
}

// A grant that was released, renewed or confirmed has shown that its process lives,
// however it ends then.
func TestAProcessThatAnsweredKeepsItsOtherPlaces(t *testing.T) {
	for name, end := range map[string]func(t *testing.T, s *Store, c lease.Claim, st lease.Standing){
		"released with a seal": func(t *testing.T, s *Store, c lease.Claim, st lease.Standing) {
			if _, err := s.Leave(t.Context(), "n", c.ID, 0, lease.Seal{For: 300 * time.Millisecond}); err != nil {
				t.Fatal(err)
			}
		},
		"renewed, then expired": func(t *testing.T, s *Store, c lease.Claim, st lease.Standing) {
			token := lease.Token{ID: c.ID, Ticket: st.Ticket, Owner: c.Owner}
			if out := s.Renew(t.Context(), []driver.Ref{{Name: "n", Token: token, TTL: c.TTL}}); out[0].State != lease.Held {
				t.Fatalf("renew: %+v", out[0])
			}
		},
		"joined again, then expired": func(t *testing.T, s *Store, c lease.Claim, st lease.Standing) {
			join(t, s, "n", c, lease.Held)
		},
	} {
		t.Run(name, func(t *testing.T) {
			server := serve(t)
			a, b := newStore(t, server.Addr(), Options{}), newStore(t, server.Addr(), Options{})
			holder, first, second := claim(30*time.Second), claim(300*time.Millisecond), claim(30*time.Second)
			join(t, a, "n", holder, lease.Held)
			st1, st2 := join(t, b, "n", first, lease.Waiting), join(t, b, "n", second, lease.Waiting)
			leave(t, a, "n", holder.ID)
			end(t, b, first, within(t, time.Second, b, "n", first, st1))
			// Somebody else's join settles what became of the grant.
			time.Sleep(100 * time.Millisecond)
			other := claim(time.Second)
			join(t, a, "n", other, lease.Waiting)
			if got := within(t, time.Second, b, "n", second, st2); got.Ticket != st2.Ticket {
				t.Errorf("a new place: ticket %d, was %d", got.Ticket, st2.Ticket)
			}
		})
	}
}

func TestAGrantThatNobodyWaitsForIsGivenBackAtOnce(t *testing.T) {
	server := serve(t)
	a, b, c := newStore(t, server.Addr(), Options{}), newStore(t, server.Addr(), Options{}), newStore(t, server.Addr(), Options{})
	holder, lost, last := claim(30*time.Second), claim(30*time.Second), claim(30*time.Second)
	join(t, a, "n", holder, lease.Held)
	join(t, b, "n", lost, lease.Waiting)
	st := join(t, c, "n", last, lease.Waiting)
	b.forget("n", lost.ID) // its leave was lost
	leave(t, a, "n", holder.ID)
	within(t, time.Second, c, "n", last, st)
}

// A message that was stuck says of a claim that is not known here any more that it holds.
// It does, under another ticket, and somewhere else: that hold is not to be given back.
func TestOnlyTheGrantThatIsMeantIsGivenBack(t *testing.T) {
	server := serve(t)
	a, b := newStore(t, server.Addr(), Options{}), newStore(t, server.Addr(), Options{})
	c := claim(30 * time.Second)
	first := join(t, a, "n", c, lease.Held)
	mustDo(t, server, "DEL", "lock:n")
	join(t, b, "n", c, lease.Held)
	a.giveBack(t.Context(), "n", c.ID, fmt.Sprint(first.Ticket))
	if v := mustDo(t, server, "GET", "lock:n"); !strings.HasPrefix(fmt.Sprint(v), c.ID) {
		t.Errorf("the key has %v", v)
	}
}

// A lease that runs out is nobody's release: the join that finds it skips all the dead
// behind it, more than one call of the script may.
func TestAJoinSkipsAnyNumberOfTheDead(t *testing.T) {
	server := serve(t)
	a, b := newStore(t, server.Addr(), Options{}), newStore(t, server.Addr(), Options{})
	join(t, a, "n", claim(time.Second), lease.Held)
	for range 150 {
		join(t, b, "n", claim(30*time.Second), lease.Waiting)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	servertest.Eventually(t, 10*time.Second, "the lease runs out", func() bool {
		return mustDo(t, server, "EXISTS", "lock:n") == int64(0)
	})
	c := claim(30 * time.Second)
	c.NoWait = true
	join(t, a, "n", c, lease.Held)
}

// Room below a ticket is for hand-overs inside the process. With room for each of many
// joins a second, tickets would run hours ahead of the clock that protects them when the
// counter is lost.
func TestNoRoomFarAheadOfTheClock(t *testing.T) {
	server := serve(t)
	a := newStore(t, server.Addr(), Options{})
	for _, test := range []struct {
		ahead time.Duration
		room  int
	}{{0, 7}, {50 * time.Millisecond, 7}, {time.Second, 0}} {
		name := fmt.Sprint("n", test.ahead)
		clock, ok := mustDo(t, server, "TIME").([]any)
		if !ok {
			t.Fatal("no time")
		}
		seconds, err := strconv.ParseInt(fmt.Sprint(clock[0]), 10, 64)
		micros, err2 := strconv.ParseInt(fmt.Sprint(clock[1]), 10, 64)
		if err != nil || err2 != nil {
			t.Fatal(err, err2)
		}
		last := seconds*1e6 + micros + test.ahead.Microseconds()
		mustDo(t, server, "SET", a.keys.keys(name, "")[3], fmt.Sprint(last), "PX", "60000")
		c := claim(30 * time.Second)
		c.Room = 7
		if st := join(t, a, name, c, lease.Held); st.Room != test.room || st.Ticket < uint64(last)+1 {
			t.Errorf("with the last ticket %v ahead: ticket %d after %d, room %d", test.ahead, st.Ticket, last, st.Room)
		}
	}
}

func TestAReleaseThatTheClientRepeatsReleasesOnce(t *testing.T) {
	server := serve(t)
	r := relay.Start(t, server.Addr())
	a, b := newStore(t, r.Addr(), Options{}), newStore(t, server.Addr(), Options{})
	join(t, a, "warm", claim(time.Second), lease.Held)
	leave(t, a, "warm", lease.NewID())
	holder, c := claim(30*time.Second), claim(30*time.Second)
	join(t, a, "n", holder, lease.Held)
	st := join(t, b, "n", c, lease.Waiting)
	r.CutReply(isScript(leaveScript))
	if st := leave(t, a, "n", holder.ID); st.State != lease.Gone || st.Once {
		t.Errorf("the repeated release found %v, and says that there was no other: %v", st.State, st.Once)
	}
	servertest.Eventually(t, 10*time.Second, "a release is answered at once", func() bool {
		return leave(t, a, "n", lease.NewID()).Once
	})
	within(t, time.Second, b, "n", c, st)
	if v := mustDo(t, server, "GET", "lock:n"); !strings.HasPrefix(fmt.Sprint(v), c.ID) {
		t.Errorf("the key has %v", v)
	}
}

func TestForeignClientsGetAGap(t *testing.T) {
	server := serve(t)
	o := Options{Foreign: true}
	a, b := newStore(t, server.Addr(), o), newStore(t, server.Addr(), o)
	claims := make([]lease.Claim, 40)
	standings := make([]lease.Standing, 40)
	for i := range claims {
		claims[i] = claim(30 * time.Second)
		s, want := a, lease.Waiting
		if i%2 == 1 {
			s = b
		}
		if i == 0 {
			want = lease.Held
		}
		standings[i] = join(t, s, "n", claims[i], want)
	}
	got := make(chan string)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() {
		for ctx.Err() == nil {
			if v, _ := server.Do("SET", "lock:n", "theirs", "NX", "PX", "50"); v == "OK" {
				got <- "theirs"
				return
			}
			time.Sleep(20 * time.Millisecond)
		}
	}()
	turns := 0
	for i := range claims {
		s := a
		if i%2 == 1 {
			s = b
		}
		within(t, 2*time.Second, s, "n", claims[i], standings[i])
		leave(t, s, "n", claims[i].ID)
		turns++
		select {
		case <-got:
			if turns < 10 {
				t.Errorf("a gap after %d turns", turns)
			}
			return
		default:
		}
	}
	t.Error("a foreign client never got the lock")
}

func TestHandOversCostTwoCommandsEach(t *testing.T) {
	server := serve(t)
	const stores, each = 5, 40
	var all []*Store
	for range stores {
		s := newStore(t, server.Addr(), Options{})
		leave(t, s, "warm", lease.NewID())
		s.inbox.open(t.Context())
		all = append(all, s)
	}
	mustDo(t, server, "CONFIG", "RESETSTAT")
	done := make(chan time.Duration, stores*each)
	for i := range stores * each {
		s := all[i%stores]
		go func() {
			began := time.Now()
			c := claim(30 * time.Second)
			st, err := s.Join(t.Context(), "n", c)
			for err == nil && st.State != lease.Held {
				st, err = s.Wait(t.Context(), "n", c.ID, st.Rev)
			}
			if err == nil {
				_, err = s.Leave(t.Context(), "n", c.ID, 0, lease.Seal{})
			}
			if err != nil {
				t.Error(err)
			}
			done <- time.Since(began)
		}()
	}
	for range stores * each {
		<-done
	}
	calls := server.CommandStats()["evalsha"]
	t.Logf("%d commands for %d acquisitions", calls, stores*each)
	if calls > stores*each*2+stores*each/10+20 {
		t.Errorf("%d commands for %d acquisitions", calls, stores*each)
	}
}

func TestAServerClockThatWasPutBackClosesNoName(t *testing.T) {
	server := serve(t)
	a, b := newStore(t, server.Addr(), Options{}), newStore(t, server.Addr(), Options{})
	holder, polled, c := claim(30*time.Second), claim(30*time.Second), claim(30*time.Second)
	poller := newStore(t, server.Addr(), Options{Poll: true})
	join(t, a, "n", holder, lease.Held)
	join(t, poller, "n", polled, lease.Waiting) // and never looks again
	st := join(t, b, "n", c, lease.Waiting)
	later := fmt.Sprint(time.Now().Add(time.Hour).UnixMilli())
	mustDo(t, server, "HSET", a.keys.keys("n", "")[2], "!gap", later, "!poll "+poller.inbox.channel, later)
	leave(t, a, "n", holder.ID)
	within(t, time.Second, b, "n", c, st)
}

// The message that gives the lock overtakes the answer that says "wait".
func TestAGrantThatComesBeforeTheAnswerOfItsJoinCounts(t *testing.T) {
	server := serve(t)
	a, b := newStore(t, server.Addr(), Options{}), newStore(t, server.Addr(), Options{})
	holder, c := claim(30*time.Second), claim(30*time.Second)
	join(t, a, "n", holder, lease.Held)
	sub := b.inbox.open(t.Context())
	k := b.enroll("n", c)
	asked, r, err := b.sendJoin(t.Context(), k, c, sub)
	if err != nil || r.state != "waiting" {
		t.Fatalf("%+v, %v", r, err)
	}
	leave(t, a, "n", holder.ID)
	servertest.Eventually(t, 2*time.Second, "the message", func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		return k.W.Grant.Ticket == r.ticket
	})
	time.Sleep(50 * time.Millisecond) // it must not be given back meanwhile
	st, err := b.heard(t.Context(), k, c, asked, r, sub)
	if err != nil || st.State != lease.Held || st.Asked != asked || st.Ticket != r.ticket {
		t.Errorf("%+v, %v", st, err)
	}
	if v := mustDo(t, server, "GET", "lock:n"); !strings.HasPrefix(fmt.Sprint(v), c.ID) {
		t.Errorf("the key has %v", v)
	}
}

func TestAnAnswerThatComesAfterALaterOneChangesNothing(t *testing.T) {
	server := serve(t)
	a, b := newStore(t, server.Addr(), Options{}), newStore(t, server.Addr(), Options{})
	holder, c := claim(30*time.Second), claim(30*time.Second)
	join(t, a, "n", holder, lease.Held)
	sub := b.inbox.open(t.Context())
	k := b.enroll("n", c)
	early, r, err := b.sendJoin(t.Context(), k, c, sub)
	if err != nil {
		t.Fatal(err)
	}
	leave(t, a, "n", holder.ID)
	held := join(t, b, "n", c, lease.Held)
	if _, err := b.heard(t.Context(), k, c, early, r, sub); err != nil {
		t.Fatal(err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()

	if !k.Held || k.W.Last.State != lease.Held || k.W.Last.Asked != held.Asked {
		t.Errorf("after the late answer: %+v", k.W.Last)
	}
}

func TestWhoLostItsPlaceMakesTheOthersOfItsProcessLook(t *testing.T) {
	server := serve(t)
	a, b := newStore(t, server.Addr(), Options{}), newStore(t, server.Addr(), Options{})
	c, d := claim(30*time.Second), claim(30*time.Second)
	join(t, a, "n", claim(30*time.Second), lease.Held)
	join(t, b, "n", c, lease.Waiting)
	st := join(t, b, "n", d, lease.Waiting)
	mustDo(t, server, "DEL", b.keys.keys("n", "")[1], b.keys.keys("n", "")[2])
	join(t, b, "n", c, lease.Waiting)
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if again, err := b.Wait(ctx, "n", d.ID, st.Rev); err != nil || again.Ticket <= st.Ticket {
		t.Errorf("%+v, was %+v, %v", again, st, err)
	}
}

// Every move repairs a lock whose holder died: here nobody looks but those who leave.
func TestALeaveHandsOnALockWhoseLeaseRanOut(t *testing.T) {
	for _, who := range []string{"the first waiter", "somebody who is not there"} {
		t.Run(who, func(t *testing.T) {
			server := serve(t)
			a, b, c := newStore(t, server.Addr(), Options{}), newStore(t, server.Addr(), Options{}), newStore(t, server.Addr(), Options{})
			first, next := claim(30*time.Second), claim(30*time.Second)
			id := first.ID
			join(t, a, "n", claim(100*time.Millisecond), lease.Held)
			if who == "the first waiter" {
				join(t, b, "n", first, lease.Waiting)
			} else {
				id = lease.NewID()
			}
			join(t, c, "n", next, lease.Waiting)
			time.Sleep(150 * time.Millisecond)
			leave(t, b, "n", id)
			if v := mustDo(t, server, "GET", "lock:n"); v == nil || !strings.HasPrefix(v.(string), next.ID) {
				t.Errorf("the key has %v", v)
			}
		})
	}
}

// The first in line hangs: it looks subscribed, and hears nothing. Whoever looks after a gap
// instead makes its turn pass.
func TestAGapEndsThoughTheFirstProcessHangs(t *testing.T) {
	server := serve(t)
	o := Options{Foreign: true}
	a, b, c := newStore(t, server.Addr(), o), newStore(t, server.Addr(), o), newStore(t, server.Addr(), o)
	holder, hangs, waits := claim(30*time.Second), claim(500*time.Millisecond), claim(30*time.Second)
	join(t, a, "n", holder, lease.Held)
	join(t, b, "n", hangs, lease.Waiting) // and nobody waits for it
	st := join(t, c, "n", waits, lease.Waiting)
	mustDo(t, server, "HSET", a.keys.keys("n", "")[aboutKey], "!turns", fmt.Sprintf("15 %d", time.Now().UnixMilli()))
	leave(t, a, "n", holder.ID)
	if v := mustDo(t, server, "GET", "lock:n"); v != nil {
		t.Fatalf("no gap: the key has %v", v)
	}
	within(t, 3*time.Second, c, "n", waits, st)
}

// B hangs and loses its grant, and there is nobody else in the queue. Then it comes back and
// queues again: what it gets now is a place like any other.
func TestWhoComesBackAfterALostGrantKeepsItsNewPlace(t *testing.T) {
	server := serve(t)
	a, b, c := newStore(t, server.Addr(), Options{}), newStore(t, server.Addr(), Options{}), newStore(t, server.Addr(), Options{})
	holder, hangs := claim(30*time.Second), claim(100*time.Millisecond)
	join(t, a, "n", holder, lease.Held)
	join(t, b, "n", hangs, lease.Waiting)
	leave(t, a, "n", holder.ID)
	servertest.Eventually(t, 2*time.Second, "the end of the grant", func() bool { return mustDo(t, server, "EXISTS", "lock:n") == int64(0) })
	join(t, a, "n", claim(30*time.Second), lease.Held)
	st := join(t, b, "n", hangs, lease.Waiting)
	join(t, c, "n", claim(30*time.Second), lease.Waiting)
	if again := join(t, b, "n", hangs, lease.Waiting); again.Ticket != st.Ticket {
		t.Errorf("it had ticket %d, and has %d", st.Ticket, again.Ticket)
	}
}
