package quorum_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/driver"
	"github.com/redlatch/redlatch/internal/quorum"
	"github.com/redlatch/redlatch/lease"
	"github.com/redlatch/redlatch/memstore"
)

func TestWhatIsNoQuorum(t *testing.T) {
	m := func(name string) quorum.Member { return quorum.Member{Name: name, Store: memstore.New()} }
	for what, c := range map[string]struct {
		members []quorum.Member
		o       quorum.Options
		says    string
	}{
		"two":           {[]quorum.Member{m("a"), m("b")}, quorum.Options{}, "a quorum of 2"},
		"none":          {nil, quorum.Options{}, "a quorum of 0"},
		"a name twice":  {[]quorum.Member{m("a"), m("b"), m("a")}, quorum.Options{}, "a is given twice"},
		"negative time": {[]quorum.Member{m("a"), m("b"), m("c")}, quorum.Options{NodeTimeout: -1}, "negative"},
	} {
		if _, err := quorum.New(c.members, c.o); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want an error that says %q", what, err, c.says)
		}
	}
}

func TestOneServerHasOneVote(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := cluster(3)
		nodes[2].now = nodes[0].now
		s := over(t, nodes)
		// The first two that answer may be two servers, and are a majority then.
		first := lease.Claim{ID: lease.NewID(), TTL: time.Second, NoWait: true}
		_, _ = s.Join(t.Context(), "x", first)
		_, _ = s.Leave(t.Context(), "x", first.ID, 0, lease.Seal{})
		synctest.Wait()
		_, err := s.Join(t.Context(), "x", lease.Claim{ID: lease.NewID(), TTL: time.Second, NoWait: true})
		var f *driver.Fault
		if !errors.As(err, &f) || f.Kind != driver.Refused || !strings.Contains(err.Error(), "are the same server") {
			t.Errorf("joined over the same server twice: %v", err)
		}
		time.Sleep(time.Second / 2)
		for i, n := range nodes {
			if n.holds(t, "x") != 0 {
				t.Errorf("server %d keeps what was refused", i)
			}
		}
	})
}

func TestALeaseLongerThanTheLongest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := locker(t, cluster(3))
		_, err := l.TryLock(t.Context(), "x", redlatch.Options{TTL: quorum.DefaultLongestTTL + 1})
		if !errors.Is(err, redlatch.ErrUnsupported) || !strings.Contains(err.Error(), "the longest of this quorum, 1m0s") {
			t.Errorf("%v", err)
		}
	})
}

// A server that may have forgotten a lock does not vote: with two of three it takes no part
// in a majority.
func TestAServerThatJustStartedDoesNotVote(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := cluster(3)
		l := locker(t, nodes)
		nodes[0].young = true
		held, err := l.TryLock(t.Context(), "x", redlatch.Options{})
		if err != nil {
			t.Fatalf("one of three just started: %v", err)
		}
		if err := held.Unlock(); err != nil {
			t.Fatal(err)
		}
		nodes[1].set(func(n *node) { n.young = true })
		_, err = l.TryLock(t.Context(), "x", redlatch.Options{})
		if !errors.Is(err, redlatch.ErrUnavailable) || !strings.Contains(err.Error(), "it votes when it has been up for 1m0s") {
			t.Errorf("two of three just started: %v", err)
		}
		time.Sleep(time.Second)
		for i, n := range nodes {
			if n.holds(t, "x") != 0 {
				t.Errorf("server %d keeps a lock that was not got", i)
			}
		}
	})
}

// Two of five fail, each in its way: that costs no time at all.
func TestServersThatFailCostTheOthersNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := cluster(5)
		nodes[0].state, nodes[3].state = hangs, refuses
		l := locker(t, nodes)
		began := time.Now()
		for range 20 {
			held, err := l.Lock(t.Context(), "x", redlatch.Options{})
			if err != nil {
				t.Fatal(err)
			}
			if err := held.Unlock(); err != nil {
				t.Fatal(err)
			}
		}
		if took := time.Since(began); took != 0 {
			t.Errorf("20 locks took %v of waiting", took)
		}
	})
}

// One that hangs is asked seldom.
func TestAServerThatHangsIsLeftAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := cluster(3)
		nodes[0].state = hangs
		l := locker(t, nodes)
		for range 100 {
			held, err := l.Lock(t.Context(), "x", redlatch.Options{})
			if err != nil {
				t.Fatal(err)
			}
			_ = held.Unlock()
			time.Sleep(20 * time.Millisecond)
		}
		nodes[0].mu.Lock()
		calls := nodes[0].calls
		nodes[0].mu.Unlock()
		if calls > 60 {
			t.Errorf("a server that hangs was called %d times for 100 locks in 2 s", calls)
		}
	})
}

// What was got on a few servers is given back, also by those who answer late.
func TestALostRoundLeavesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := cluster(5)
		for _, n := range nodes[:3] { // a majority is another's
			mustJoin(t, n.now, "x")
		}
		nodes[4].late = 100 * time.Millisecond
		s := over(t, nodes)
		st, err := s.Join(t.Context(), "x", lease.Claim{ID: lease.NewID(), TTL: 10 * time.Second, NoWait: true})
		if err != nil || st.State != lease.Busy || st.Holder == nil {
			t.Fatalf("%v, held by %v, error %v; want busy", st.State, st.Holder, err)
		}
		time.Sleep(time.Second)
		for i, n := range nodes[3:] {
			if n.holds(t, "x") != 0 {
				t.Errorf("server %d keeps what the lost round got", 3+i)
			}
		}
	})
}

// A join that is carried out after its claim has left finds that out.
func TestAJoinThatComesAfterTheLeave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := cluster(3)
		nodes[2].late = 2 * time.Second
		l := locker(t, nodes)
		held, err := l.Lock(t.Context(), "x", redlatch.Options{TTL: 30 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		nodes[2].set(func(n *node) { n.late = 0 }) // the leave overtakes it
		if err := held.Unlock(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(3 * time.Second)
		if n := nodes[2].holds(t, "x"); n != 0 {
			t.Error("the late join has taken the lock for nobody")
		}
	})
}

// A server that hangs when the lock is released gives it back when it goes on.
func TestAReleaseIsFinishedInTheBackground(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := cluster(3)
		l := locker(t, nodes)
		held, err := l.Lock(t.Context(), "x", redlatch.Options{})
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		nodes[1].set(func(n *node) { n.state = hangs })
		if err := held.Unlock(); err != nil {
			t.Fatalf("a release that a majority has acknowledged: %v", err)
		}
		time.Sleep(3 * time.Second)
		if nodes[1].holds(t, "x") != 1 {
			t.Fatal("the server that hangs does not keep the lock; there is nothing to test")
		}
		nodes[1].set(func(n *node) { n.state = up })
		time.Sleep(1500 * time.Millisecond)
		if nodes[1].holds(t, "x") != 0 {
			t.Error("a second after it went on the server still keeps the lock")
		}
	})
}

func TestAReleaseWithoutAMajority(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := cluster(3)
		l := locker(t, nodes)
		held, err := l.Lock(t.Context(), "x", redlatch.Options{})
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		for _, n := range nodes[:2] {
			n.set(func(n *node) { n.state = refuses })
		}
		err = held.Unlock()
		if !errors.Is(err, redlatch.ErrUnavailable) || !strings.Contains(err.Error(), "no quorum, 2 of 3 servers") {
			t.Errorf("released at one of three servers: %v", err)
		}
	})
}

// A minority may lose its memory: the hold goes on. When a majority has, it is lost.
func TestServersThatForget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := cluster(3)
		l := locker(t, nodes)
		held, err := l.Lock(t.Context(), "x", redlatch.Options{TTL: 6 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		nodes[0].wipe()
		time.Sleep(20 * time.Second)
		if !held.Valid() {
			t.Fatalf("one of three forgot it, and it is lost: %v", context.Cause(held.Context()))
		}
		nodes[1].wipe()
		time.Sleep(3 * time.Second) // the next renewal
		var lost *redlatch.LostError
		if !errors.As(context.Cause(held.Context()), &lost) || lost.Loss.Why != lease.Vanished {
			t.Errorf("two of three forgot it: %v, want it lost", context.Cause(held.Context()))
		}
		time.Sleep(time.Second)
		if nodes[2].holds(t, "x") != 0 {
			t.Error("the last server keeps a lock that is lost")
		}
	})
}

// A claim whose hold was lost joins again: as a new one, with a ticket of its own, and for good.
func TestALostClaimJoinsAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := cluster(3)
		s := over(t, nodes)
		c := lease.Claim{ID: lease.NewID(), TTL: 30 * time.Second, NoWait: true}
		first, err := s.Join(t.Context(), "x", c)
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		nodes[0].wipe()
		nodes[1].wipe()
		second, err := s.Join(t.Context(), "x", c)
		if err != nil || second.State != lease.Held || second.Ticket <= first.Ticket {
			t.Fatalf("%v with ticket %d after %d, error %v", second.State, second.Ticket, first.Ticket, err)
		}
		time.Sleep(5 * time.Second)
		q, err := s.Inspect(t.Context(), "x")
		if err != nil || len(q.Holders()) != 1 || q.Holders()[0].ID != c.ID || q.Holders()[0].Ticket != second.Ticket {
			t.Errorf("held by %v, error %v", q.Holders(), err)
		}
	})
}

// A renewal that misses the majority takes nothing away: trust runs to its end.
func TestARenewalThatMissesTheMajority(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := cluster(5)
		l := locker(t, nodes)
		held, err := l.Lock(t.Context(), "x", redlatch.Options{TTL: 10 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		synctest.Wait()
		for _, n := range nodes[:3] {
			n.set(func(n *node) { n.state = hangs })
		}
		time.Sleep(8 * time.Second)
		if !held.Valid() {
			t.Fatalf("lost before its trust was over: %v", context.Cause(held.Context()))
		}
		nodes[0].set(func(n *node) { n.state = up })
		time.Sleep(8 * time.Second)
		if !held.Valid() {
			t.Fatalf("a majority is back, and it is lost: %v", context.Cause(held.Context()))
		}
		nodes[0].set(func(n *node) { n.state = hangs })
		<-held.Context().Done()
		var lost *redlatch.LostError
		if !errors.As(context.Cause(held.Context()), &lost) || lost.Loss.Why != lease.Unreachable {
			t.Errorf("%v, want it lost for want of answers", context.Cause(held.Context()))
		}
		if took := time.Since(began); took > 27*time.Second {
			t.Errorf("trusted for %v", took)
		}
	})
}

// Where a server's counter is ahead the proposed fence does not do: the second round finds
// one above all that were given, and another process can go on with it.
func TestASecondRound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := cluster(3)
		far := uint64(time.Now().Add(time.Hour).UnixMicro())
		for i, n := range nodes[:2] {
			c := lease.Claim{ID: lease.NewID(), TTL: time.Second, Fence: far + uint64(i)}
			if _, err := n.now.Join(t.Context(), "x", c); err != nil {
				t.Fatal(err)
			}
			if _, err := n.now.Leave(t.Context(), "x", c.ID, 0, lease.Seal{}); err != nil {
				t.Fatal(err)
			}
		}
		nodes[2].state = refuses // so that no two have the same ticket
		s := over(t, nodes)
		l, err := redlatch.New(s, redlatch.Config{KeepOnClose: true})
		if err != nil {
			t.Fatal(err)
		}
		held, err := l.Lock(t.Context(), "x", redlatch.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if held.Fence() <= far+1 {
			t.Errorf("fence %d, and %d was given before", held.Fence(), far+1)
		}
		if s.Stats().SecondRounds != 1 {
			t.Errorf("%+v, want one second round", s.Stats())
		}
		q, err := l.Inspect(t.Context(), "x")
		if err != nil || len(q.Holders()) != 1 || q.Holders()[0].Ticket != held.Fence() {
			t.Errorf("seen as %+v, error %v; want it held with fence %d", q.Holders(), err, held.Fence())
		}
		if err := l.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		other := locker(t, nodes)
		again, err := other.Resume(t.Context(), "x", held.Token(), redlatch.Options{})
		if err != nil {
			t.Fatalf("resumed elsewhere: %v", err)
		}
		if again.Fence() != held.Fence() {
			t.Errorf("resumed with fence %d, it was %d", again.Fence(), held.Fence())
		}
		time.Sleep(time.Minute)
		if !again.Valid() {
			t.Errorf("not renewed: %v", context.Cause(again.Context()))
		}
		if err := again.Unlock(); err != nil {
			t.Error(err)
		}
		next, err := other.Lock(t.Context(), "x", redlatch.Options{})
		if err != nil || next.Fence() <= held.Fence() {
			t.Errorf("the next fence after %d is %v, error %v", held.Fence(), next, err)
		}
	})
}

// Several processes at once, some servers failing now and then: one holder at a time, fences
// in order, and everybody gets a turn.
func TestManyOverServersThatComeAndGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := cluster(5)
		stop := make(chan struct{})
		go func() {
			for i := 0; ; i++ {
				nodes[i%5].set(func(n *node) { n.state = nodeState(i % 3) })
				nodes[(i+2)%5].set(func(n *node) { n.state = up })
				select {
				case <-stop:
					return
				case <-time.After(300 * time.Millisecond):
				}
			}
		}()
		var holders, turns atomic.Int64
		var last atomic.Uint64
		done := make(chan int, 4)
		for range 4 {
			l := locker(t, nodes)
			go func() {
				n := 0
				for end := time.Now().Add(10 * time.Second); time.Now().Before(end); {
					held, err := l.Lock(t.Context(), "x", redlatch.Options{TTL: 5 * time.Second, MaxWait: 10 * time.Second})
					if err != nil {
						time.Sleep(10 * time.Millisecond)
						continue
					}
					if now := holders.Add(1); now != 1 {
						t.Errorf("%d holders", now)
					}
					if before := last.Swap(held.Fence()); held.Fence() <= before {
						t.Errorf("fence %d after %d", held.Fence(), before)
					}
					time.Sleep(5 * time.Millisecond)
					n++
					turns.Add(1)
					holders.Add(-1)
					_ = held.Unlock()
				}
				done <- n
			}()
		}
		for range 4 {
			<-done // who is next is chance: somebody may have had none
		}
		close(stop)
		if turns.Load() < 100 {
			t.Errorf("only %d turns in 10 s", turns.Load())
		}
		t.Logf("%d turns", turns.Load())
	})
}

// A server that refuses, and another one that answers first, are no reason to say that too
// few have answered: the lock is held.
func TestHeldIsNotNoQuorum(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := cluster(3)
		other := locker(t, nodes)
		if _, err := other.Lock(t.Context(), "x", redlatch.Options{}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		l := locker(t, nodes)
		nodes[0].set(func(n *node) { n.state = refuses })
		nodes[2].set(func(n *node) { n.late = 50 * time.Millisecond })
		if _, err := l.TryLock(t.Context(), "x", redlatch.Options{}); !errors.Is(err, redlatch.ErrHeld) {
			t.Errorf("%v, want that it is held", err)
		}
	})
}

// Two processes with two of four servers each: nobody has the lock.
func TestFourServersNeedThree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := cluster(4)
		l := locker(t, nodes)
		for _, n := range nodes[:2] {
			mustJoin(t, n.now, "x")
		}
		if held, err := l.TryLock(t.Context(), "x", redlatch.Options{}); !errors.Is(err, redlatch.ErrHeld) {
			t.Errorf("%v, %v: two of four servers are no majority", held, err)
		}
	})
}

func mustJoin(t *testing.T, s driver.Store, name string) {
	t.Helper()
	st, err := s.Join(t.Context(), name, lease.Claim{ID: lease.NewID(), TTL: time.Hour})
	if err != nil || st.State != lease.Held {
		t.Fatalf("%v, error %v", st.State, err)
	}
}
