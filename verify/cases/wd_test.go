//go:build unix

package cases

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/relay"
	"github.com/redlatch/redlatch/internal/servertest"
	"github.com/redlatch/redlatch/lease"
)

// asks remembers under which IDs a process has asked for a name.
type asks struct {
	*tally

	mu  sync.Mutex
	ids map[string]string // name -> ID
}

func (s *asks) Join(ctx context.Context, name string, c lease.Claim) (lease.Standing, error) {
	s.mu.Lock()
	s.ids[name] = c.ID
	s.mu.Unlock()
	return s.tally.Join(ctx, name, c)
}

func TestWD01AnAcquireThatFailedIsNotRenewed(t *testing.T) {
	everywhere(t, func(t *testing.T, p place) {
		s := &asks{tally: tallied(p.store(t)), ids: make(map[string]string)}
		l := locker(t, s, patient("a"))
		const ttl = 150 * time.Millisecond
		var failed []string
		for step := range 100 {
			name := fmt.Sprint("wd01-", step)
			ctx, cancel := context.WithCancel(t.Context())
			go func() {
				time.Sleep(time.Duration(step) * 50 * time.Microsecond) // where in the call it hits is what is tried out
				cancel()
			}()
			held, err := l.Lock(ctx, name, redlatch.Options{TTL: ttl})
			if err == nil {
				giveBack(t, held)
			} else {
				failed = append(failed, name)
			}
			cancel()
		}
		before := make(map[string]int)
		for _, name := range failed {
			free(t, l, name)
			before[name] = s.renewals(s.ids[name])
		}
		clock := take(t, l, "clock", redlatch.Options{TTL: ttl * 10})
		s.renewed(t, clock, 2) // more than 3 of their leases
		giveBack(t, clock)
		for _, name := range failed {
			if n := s.renewals(s.ids[name]) - before[name]; n > 0 {
				t.Errorf("%s: %d renewals after the acquire failed", name, n)
			}
		}
	})
}

func TestWD02NoRenewalAfterTheLastRelease(t *testing.T) {
	t.Parallel()
	p := onRedis(t)
	r := relay.Start(t, p.server.Addr())
	s := tallied(redisAt(t, &redis.Options{Addr: r.Addr()}))
	l := locker(t, s, patient("a"))
	m := watch(t, p.server)
	const ttl = 700 * time.Millisecond
	var work sync.WaitGroup
	for range 8 {
		work.Go(func() {
			for i := range 12 {
				held := take(t, l, "wd02", redlatch.Options{TTL: ttl})
				r.Delay(relay.Replies, rand.N(15*time.Millisecond))
				if i%4 == 0 {
					_ = held.Renew(t.Context(), 0)
				}
				// On a machine that is busy enough a lease may be over by now.
				if err := held.Unlock(); err != nil && !errors.Is(err, redlatch.ErrLost) {
					t.Errorf("unlock: %v", err)
				}
			}
		})
	}
	work.Wait()
	r.Delay(relay.Both, 0)
	pushes := len(m.seen(`"PEXPIRE" "lock:wd02"`))
	clock := take(t, l, "clock", redlatch.Options{TTL: 4 * ttl})
	s.renewed(t, clock, 3)
	if n := len(m.seen(`"PEXPIRE" "lock:wd02"`)); n != pushes {
		t.Errorf("%d renewals after the last release", n-pushes)
	}
	if len(m.seen(`"PEXPIRE" "lock:clock"`)) == 0 {
		t.Error("the monitor does not see renewals: this proves nothing")
	}
	if late := s.afterLeave(); len(late) > 0 {
		t.Errorf("renewed after their release: %q", late)
	}
	giveBack(t, clock)
}

// keeps sees that the hold is kept for longer than its lease.
func keeps(t *testing.T, p place, s *tally, held *redlatch.Held) {
	t.Helper()
	for range 5 {
		s.renewed(t, held, 1)
		if v := p.value(t, held.Name()); v != held.Token() {
			t.Fatalf("the key has %q, the holder %q", v, held.Token())
		}
	}
}

func TestWD03TheNextHoldOfANameIsRenewedAfterALossByABrokenNetwork(t *testing.T) {
	t.Parallel()
	p := onRedis(t)
	r := relay.Start(t, p.server.Addr())
	s := tallied(redisAt(t, &redis.Options{Addr: r.Addr()}))
	l := locker(t, s, patient("a"))
	o := redlatch.Options{TTL: 3 * time.Second}
	first := take(t, l, "wd03", o)
	r.Freeze(relay.Both)
	if loss := lostWhy(t, first); loss.Why != lease.Unreachable && loss.Why != lease.Expired {
		t.Errorf("lost: %v", &loss)
	}
	r.Thaw()
	second := take(t, l, "wd03", o)
	keeps(t, p, s, second)
	mustBe(t, first.Unlock(), redlatch.ErrLost)
	s.renewed(t, second, 2)
	giveBack(t, second)
}

func TestWD04TheNextHoldOfANameIsRenewedAfterItsKeyWasDeleted(t *testing.T) {
	t.Parallel()
	p := onRedis(t)
	s := tallied(p.store(t))
	l := locker(t, s, patient("a"))
	o := redlatch.Options{TTL: 3 * time.Second}
	first := take(t, l, "wd04", o)
	p.do(t, "DEL", "lock:wd04")
	second := take(t, l, "wd04", o)
	// By the next renewal at the latest.
	if loss := lostWhy(t, first); loss.Why != lease.Taken && loss.Why != lease.Vanished {
		t.Errorf("lost: %v", &loss)
	}
	keeps(t, p, s, second)
	mustBe(t, first.Unlock(), redlatch.ErrLost)
	s.renewed(t, second, 2)
	giveBack(t, second)
}

func TestWD06AHolderIsToldOfItsLoss(t *testing.T) {
	t.Parallel()
	p := onRedis(t)
	l := p.process(t, "a")
	// A renewal finds it, long before the lease would be over.
	o := redlatch.Options{TTL: 6 * time.Second}
	deleted, taken := take(t, l, "wd06-deleted", o), take(t, l, "wd06-taken", o)
	p.do(t, "DEL", "lock:wd06-deleted")
	p.do(t, "SET", "lock:wd06-taken", "somebody else's", "PX", "60000")
	if loss := lostWhy(t, deleted); loss.Why != lease.Vanished {
		t.Errorf("the key was deleted, and the holder is told: %v", &loss)
	}
	if loss := lostWhy(t, taken); loss.Why != lease.Taken {
		t.Errorf("the key was overwritten, and the holder is told: %v", &loss)
	}
	mustBe(t, deleted.Unlock(), redlatch.ErrLost)
	mustBe(t, taken.Unlock(), redlatch.ErrLost)
	if v := p.value(t, "wd06-taken"); v != "somebody else's" {
		t.Errorf("the key of somebody else has %q", v)
	}
}

func TestWD07AHolderThatSleptDoesNotTakeTheLockBack(t *testing.T) {
	t.Parallel()
	p := onRedis(t)
	c := start(t, part{Do: "hold", Redis: p.server.Addr(), Name: "wd07", TTL: 700 * time.Millisecond})
	token := c.says("held")
	c.signal(syscall.SIGSTOP)
	l := p.process(t, "b")
	giveBack(t, take(t, l, "wd07", redlatch.Options{}))
	m := watch(t, p.server)
	c.signal(syscall.SIGCONT)
	c.says("ended lock ")
	if said := c.says("unlocked"); said == "<nil>" {
		t.Error("the holder that slept was not told that it lost the lock")
	}
	if v := p.value(t, "wd07"); v != "" {
		t.Errorf("the free lock's key has %q after its old holder %q came back", v, token)
	}
	if sets := m.seen(`"SET" "lock:wd07"`); len(sets) > 0 {
		t.Errorf("set again: %q", sets)
	}
}

func TestWD09ALateRenewalLeavesTheNextHolderAlone(t *testing.T) {
	t.Parallel()
	p := onRedis(t)
	r := relay.Start(t, p.server.Addr())
	a, b := processAt(t, r.Addr(), "a"), p.process(t, "b")
	first := take(t, a, "wd09", redlatch.Options{TTL: 1500 * time.Millisecond})
	renewal := r.Hold(calls("wd09"))
	caught(t, renewal)
	r.Freeze(relay.Requests) // those that follow it, too
	if loss := lostWhy(t, first); loss.Why != lease.Unreachable && loss.Why != lease.Expired {
		t.Errorf("lost: %v", &loss)
	}
	second := take(t, b, "wd09", redlatch.Options{TTL: long, NoRenew: true})
	m := watch(t, p.server)
	expires := p.expires(t, "wd09")
	renewal.Release()
	r.Thaw()
	servertest.Eventually(t, patience, "the late renewal to arrive", func() bool {
		return len(m.seen(`"EVAL`, claimID(first))) > 0
	})
	if now := p.expires(t, "wd09"); now != expires || !second.Valid() {
		t.Errorf("the next holder's lease ended at %d and ends at %d", expires, now)
	}
	mustBe(t, first.Unlock(), redlatch.ErrLost)
	if pushed := m.seen(`"PEXPIRE" "lock:wd09"`); len(pushed) > 0 || p.value(t, "wd09") != second.Token() {
		t.Errorf("the key has %q; pushed: %q", p.value(t, "wd09"), pushed)
	}
	giveBack(t, second)
}

// The library chooses when it renews, and leaves room for answers that take their time.
func TestWD10NothingIsLostToAnswersThatTakeTheirTime(t *testing.T) {
	t.Parallel()
	p := onRedis(t)
	r := relay.Start(t, p.server.Addr())
	s := tallied(redisAt(t, &redis.Options{Addr: r.Addr()}))
	l := locker(t, s, patient("a"))
	held := take(t, l, "wd10", redlatch.Options{TTL: 4500 * time.Millisecond})
	began := time.Now()
	for range 4 {
		r.Delay(relay.Replies, rand.N(300*time.Millisecond)) // 40 % of a renewal's time: some of them connect first
		s.renewed(t, held, 1)
	}
	// Four renewals in the time of two leases and less: at most every second half of one.
	if took := time.Since(began); took > patience {
		t.Errorf("four renewals took %v", took)
	}
	r.Delay(relay.Replies, 0)
	giveBack(t, held)
}

// spin keeps the one processor that the process has busy, and looks now and then whether
// somebody else has the key that it thinks it holds.
func spin(held *redlatch.Held, p part) error {
	conn, err := servertest.Dial(p.Redis)
	if err != nil {
		return err
	}
	defer conn.Close()
	for began := time.Now(); time.Since(began) < 4*p.TTL; {
		for busy := time.Now(); time.Since(busy) < 30*time.Millisecond; {
		}
		v, err := conn.Do("GET", "lock:"+p.Name)
		if err != nil {
			return err
		}
		if text, _ := v.(string); text != "" && text != held.Token() && held.Valid() {
			return fmt.Errorf("valid while the key has %q", text)
		}
	}
	fmt.Println("spun", held.Valid())
	return nil
}

func TestWD12ABusyProcessorDoesNotMakeTwoHolders(t *testing.T) {
	t.Parallel()
	p := onRedis(t)
	c := start(t, part{Do: "spin", Redis: p.server.Addr(), Name: "wd12", TTL: time.Second}, "GOMAXPROCS=1")
	c.says("held")
	l := p.process(t, "b")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	waited := make(chan struct{})
	go func() {
		defer close(waited)
		if held, err := l.Lock(ctx, "wd12", redlatch.Options{TTL: long}); err == nil {
			<-ctx.Done() // the other one has lost it, and shall see that
			giveBack(t, held)
		}
	}()
	kept := c.says("spun")
	t.Logf("kept: %s", kept)
	cancel()
	<-waited
}

func TestWD13AForgottenHoldLivesAsLongAsItsLocker(t *testing.T) {
	everywhere(t, func(t *testing.T, p place) {
		s := tallied(p.store(t))
		var lost bool
		l := locker(t, s, redlatch.Config{Observer: redlatch.Observer{Lost: func(redlatch.Event) { lost = true }}})
		func() {
			defer func() { _ = recover() }()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			held, err := l.Lock(ctx, "wd13", redlatch.Options{TTL: 3 * time.Second})
			if err != nil {
				t.Error(err)
			}
			cancel() // the ctx of the acquire is not the hold's
			s.renewed(t, held, 4)
			panic("in between somebody forgets the hold")
		}()
		var leaked []string
		for name, err := range l.Names(t.Context(), "") {
			if err != nil {
				t.Fatal(err)
			}
			leaked = append(leaked, name)
		}
		if !slices.Contains(leaked, "wd13") {
			t.Errorf("the forgotten hold is not among the names in use, %q", leaked)
		}
		if err := l.Close(t.Context()); err != nil || lost {
			t.Errorf("close: %v, lost: %v", err, lost)
		}
		free(t, p.process(t, "b"), "wd13")
	})
}

func TestWD15ARenewalThatComesAfterTheReleaseSaysSo(t *testing.T) {
	everywhere(t, func(t *testing.T, p place) {
		s := tallied(p.store(t))
		l := locker(t, s, patient("a"))
		for range 300 {
			held := take(t, l, "wd15", redlatch.Options{TTL: long})
			stop := make(chan struct{})
			var renewing sync.WaitGroup
			for range 4 {
				renewing.Go(func() {
					for {
						select {
						case <-stop:
							return
						default:
						}
						if err := held.Renew(t.Context(), 0); err != nil {
							mustBe(t, err, redlatch.ErrNotHeld)
							return
						}
					}
				})
			}
			giveBack(t, held)
			mustBe(t, held.Renew(t.Context(), 0), redlatch.ErrNotHeld)
			if p.server != nil && p.value(t, "wd15") != "" {
				t.Fatal("the key is there after the release")
			}
			close(stop)
			renewing.Wait()
		}
		free(t, l, "wd15")
		if late := s.afterLeave(); len(late) > 0 {
			t.Errorf("%d renewals after a release that was answered", len(late))
		}
	})
}

func TestWD16TheBodyIsToldOfTheLossAndTheHelperReturnsIt(t *testing.T) {
	t.Parallel()
	p := onRedis(t)
	l := p.process(t, "a")
	for _, returned := range []error{nil, errors.New("the body's own")} {
		err := l.Do(t.Context(), "wd16", redlatch.Options{TTL: 3 * time.Second}, func(ctx context.Context, held *redlatch.Held) error {
			p.do(t, "DEL", "lock:wd16")
			select {
			case <-ctx.Done():
			case <-time.After(patience):
				t.Error("the body was not told")
			}
			if cause := context.Cause(ctx); !errors.Is(cause, redlatch.ErrLost) {
				t.Errorf("the body's ctx ended with %v", cause)
			}
			return returned
		})
		if !errors.Is(err, redlatch.ErrLost) || returned != nil && !errors.Is(err, returned) {
			t.Errorf("the body returned %v, Do returned %v", returned, err)
		}
	}
}
