package drivertest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/redlatch/redlatch/lease"
)

var modelSubjects = []subject{
	{file: "model", says: "exclusive claims stand as in the model", play: game(exclusiveOnly, Faults{}), needs: has(lease.Exclusive)},
	{file: "model", says: "readers and writers stand as in the model", play: game(readersAndWriters, Faults{}), needs: has(lease.Exclusive, lease.Shared)},
	{file: "model", says: "permits stand as in the model", play: game(permitsOf3, Faults{}), needs: has(lease.Permit)},
	{file: "model", says: "exclusive claims stand as in the model on a bad network", play: game(exclusiveOnly, badNetwork), needs: has(lease.Exclusive)},
	{file: "model", says: "readers and writers stand as in the model on a bad network", play: game(readersAndWriters, badNetwork), needs: has(lease.Exclusive, lease.Shared)},
	{file: "model", says: "short leases never overlap", play: shortLeases, needs: has(lease.Exclusive)},
}

var badNetwork = Faults{LoseRequest: .1, LoseReply: .1, Late: .1, Twice: .1, Lag: 2 * time.Millisecond}

const (
	gameSteps  = 600 // of one game: a few thousand calls
	nameSteps  = 80  // then the game goes on with another name
	sealedFor  = 8   // so many steps a game stays on a name that is sealed for good
	gameClaims = 6   // it leaves more often than it joins when so many are there
)

// player is a claim in the game, and the process that it belongs to.
type player struct {
	claim lease.Claim
	p     *process
	st    lease.Standing // as its process last heard
}

// table is one name, in the store and in the model beside it.
//
// Time stands still in the model, and the leases in the store are long. The model's
// tickets are the store's, proposed: it accepts them only if they grow as they should.
type gameTable struct {
	w       *world
	name    string
	mode    func(w *world, c *lease.Claim)
	ps      []*process
	settle  func()
	sure    *process
	model   lease.Queue
	players []*player
	victim  *player // broken, and has not answered yet
	log     []string
}

// modelNow is later than any ticket, so that the model never has to give less room.
var modelNow = time.UnixMicro(1 << 53)

func exclusiveOnly(*world, *lease.Claim) {}

func readersAndWriters(w *world, c *lease.Claim) {
	if w.rand.IntN(3) > 0 {
		c.Mode = lease.Shared
	}
}

func permitsOf3(w *world, c *lease.Claim) { c.Mode, c.Slots, c.Need = lease.Permit, 3, w.rand.IntN(4) }

func game(mode func(*world, *lease.Claim), faults Faults) func(w *world) {
	return func(w *world) {
		sure := w.process()
		var ps []*process
		var bads []*Faulty
		for range 3 {
			p, bad := w.faulty(faults)
			ps, bads = append(ps, p), append(bads, bad)
		}
		settle := func() {
			for _, bad := range bads {
				bad.Settle()
			}
		}
		for round, steps := 0, 0; steps < gameSteps; round++ {
			g := &gameTable{w: w, name: fmt.Sprintf("%s/%d", w.name(), round), mode: mode, ps: ps, settle: settle, sure: sure}
			for left := nameSteps; left > 0; left-- {
				g.step()
				steps++
				if g.model.Seal().Closed() && g.victim == nil {
					left = min(left, sealedFor)
				}
			}
		}
	}
}

func (g *gameTable) note(format string, args ...any) {
	g.log = append(g.log, fmt.Sprintf(format, args...))
}

func (g *gameTable) failf(format string, args ...any) {
	g.w.Helper()
	g.w.Fatalf("%s\nafter %q\n%s", fmt.Sprintf(format, args...), g.log[max(0, len(g.log)-12):], g.sure.picture(g.name))
}

func (g *gameTable) step() {
	dice := g.w.rand.IntN(100)
	switch {
	case len(g.players) == 0 || dice < 40 && len(g.players) < gameClaims || dice < 15:
		g.joinNew()
	case dice < 55:
		g.joinAgain(g.any())
	case dice < 65:
		g.renew(g.any())
	case dice < 70:
		g.leaveEarly()
	case dice < 73 && g.victim != nil:
		g.answer()
	case dice < 75 && g.w.features.Seal && g.victim == nil:
		g.breakOne(g.any())
	case dice < 76 && g.w.features.Seal && g.victim == nil:
		g.leave(g.any(), lease.Seal{For: long, Value: fmt.Sprint("v", dice)})
	default:
		g.leave(g.any(), lease.Seal{})
	}
	g.settle()
	g.confirm()
	g.compare()
}

func (g *gameTable) any() *player { return g.players[g.w.rand.IntN(len(g.players))] }

func (g *gameTable) joinNew() {
	w := g.w
	c := w.claim()
	g.mode(w, &c)
	if w.rand.IntN(4) == 0 {
		c.Room = w.rand.IntN(lease.MaxRoom + 1)
	}
	if w.rand.IntN(8) == 0 {
		c.MaxWaiters = 1 + w.rand.IntN(2)
	}
	if w.rand.IntN(8) == 0 && g.model.Last != 0 {
		c.Fence = g.model.Last + uint64(w.rand.IntN(200))
	}
	c.NoWait = w.rand.IntN(4) == 0 || !w.features.FIFO // without a queue nobody can say whose turn it is
	c.OnSeal = lease.OnSeal(w.rand.IntN(2))
	if w.rand.IntN(20) == 0 && len(w.features.Modes) == 3 {
		permits(1, 7)(&c)
	}
	pl := &player{claim: c, p: g.ps[w.rand.IntN(len(g.ps))]}
	g.note("join %s %v need %d noWait %v onSeal %d max %d fence %d", c.ID[:6], c.Mode, c.Need, c.NoWait, c.OnSeal, c.MaxWaiters, c.Fence)
	if g.join(pl) {
		g.players = append(g.players, pl)
	}
}

func (g *gameTable) joinAgain(pl *player) {
	g.note("join %s again", pl.claim.ID[:6])
	if !g.join(pl) {
		g.failf("a claim that was here is not when it asks again")
	}
}

// join asks both and reports whether the claim is there now.
func (g *gameTable) join(pl *player) bool {
	g.w.Helper()
	st, err := g.joinStore(pl)
	asked := pl.claim
	if st.Ticket != 0 {
		if asked.Fence > st.Ticket && pl.st.Ticket == 0 {
			g.failf("ticket %d, proposed was %d", st.Ticket, asked.Fence)
		}
		if st.Room > asked.Room {
			g.failf("room for %d, asked for %d", st.Room, asked.Room)
		}
		asked.Fence, asked.Room = st.Ticket, st.Room
	}
	want, wantErr := g.model.Join(asked, modelNow)
	if !sameError(err, wantErr) {
		g.failf("join: error %v, the model says %v", err, wantErr)
	}
	if err != nil {
		return false
	}
	if st.State != want.State || st.Ticket != want.Ticket {
		g.failf("join: %v with ticket %d, the model says %v with %d", st.State, st.Ticket, want.State, want.Ticket)
	}
	if st.State == lease.Waiting && st.Ahead != want.Ahead {
		g.failf("join: %d are ahead, the model says %d", st.Ahead, want.Ahead)
	}
	if h := want.Holder; h != nil && (st.Holder == nil || st.Holder.ID != h.ID) {
		g.failf("join: the holder is %v, the model says %s", st.Holder, h.ID)
	}
	if waits := st.State == lease.Waiting || st.State == lease.Busy; waits && sealSketch(st.Seal) != sealSketch(want.Seal) {
		g.failf("join: the seal is %s, the model says %s", sealSketch(st.Seal), sealSketch(want.Seal))
	}
	pl.st = st
	return st.State == lease.Held || st.State == lease.Waiting
}

// joinStore asks until it is answered.
func (g *gameTable) joinStore(pl *player) (st lease.Standing, err error) {
	g.w.Helper()
	for range 1000 {
		ctx, cancel := pl.p.call()
		st, err = pl.p.Join(ctx, g.name, pl.claim)
		cancel()
		if !errors.Is(err, ErrLost) {
			return st, err
		}
	}
	return st, err
}

func sameError(a, b error) bool {
	var am, bm *lease.ModeError
	switch {
	case errors.Is(b, lease.ErrQueueFull):
		return errors.Is(a, lease.ErrQueueFull)
	case errors.As(b, &bm):
		return errors.As(a, &am) && *am == *bm
	}
	return a == nil && b == nil
}

func sealSketch(s lease.Seal) string {
	if !s.Closed() {
		return "none"
	}
	return fmt.Sprintf("%q victim %q by %q", s.Value, s.Victim, s.By)
}

func (g *gameTable) renew(pl *player) {
	ticket, fence := pl.st.Ticket, uint64(0)
	switch g.w.rand.IntN(4) {
	case 0:
		ticket--
	case 1:
		fence = g.model.Last + uint64(g.w.rand.IntN(100))
	}
	if pl.st.State != lease.Held && !g.w.features.WaitersExpire {
		return
	}
	g.note("renew %s with ticket %d, raise to %d", pl.claim.ID[:6], ticket, fence)
	var st lease.Standing
	for range 1000 {
		out := pl.p.renewAll(ref(g.name, pl.claim, ticket, long, fence))[0]
		if st = out.Standing; out.Err == nil {
			break
		}
		if !errors.Is(out.Err, ErrLost) {
			g.failf("renew: %v", out.Err)
		}
	}
	want := g.model.Renew(pl.claim.ID, ticket, long, fence, modelNow)
	if st.State != want.State {
		g.failf("renew: %v, the model says %v", st.State, want.State)
	}
}

func (g *gameTable) leaveEarly() {
	c := g.w.claim()
	g.mode(g.w, &c)
	pl := &player{claim: c, p: g.ps[g.w.rand.IntN(len(g.ps))]}
	g.note("leave %s before it joins, and join", c.ID[:6])
	pl.p.leavesAtLast(g.name, c, lease.Seal{})
	g.model.Leave(c.ID, 0, lease.Seal{}, modelNow)
	g.settle()
	if g.join(pl) {
		g.failf("a claim that has left is let in")
	}
}

func (g *gameTable) leave(pl *player, s lease.Seal) {
	p := pl.p
	if !s.Closed() && g.w.rand.IntN(6) == 0 && pl.st.State == lease.Held {
		p = g.sure // an operator
	}
	g.note("leave %s, seal %v", pl.claim.ID[:6], s.Closed())
	st := p.leavesAtLast(g.name, pl.claim, s)
	want := g.model.Leave(pl.claim.ID, 0, s, modelNow)
	// Gone: an earlier leave took effect, and its reply was lost.
	if st.State != want.State && (st.State != lease.Gone || p == g.sure) {
		g.failf("leave: it was %v, the model says %v", st.State, want.State)
	}
	g.drop(pl)
}

func (g *gameTable) drop(pl *player) {
	g.players = slices.DeleteFunc(g.players, func(o *player) bool { return o == pl })
}

// breakOne makes a holder leave; its seal lasts until it answers.
func (g *gameTable) breakOne(pl *player) {
	if pl.st.State != lease.Held || g.model.Seal().Closed() {
		return
	}
	g.note("break %s", pl.claim.ID[:6])
	s := lease.Seal{For: long, Victim: pl.claim.ID, By: "ops", Reason: "why not"}
	g.sure.leavesAtLast(g.name, pl.claim, s)
	g.model.Leave(pl.claim.ID, 0, s, modelNow)
	g.drop(pl)
	g.victim = pl
}

func (g *gameTable) answer() {
	g.note("%s answers that it is broken", g.victim.claim.ID[:6])
	g.victim.p.leavesAtLast(g.name, g.victim.claim, lease.Seal{})
	g.model.Leave(g.victim.claim.ID, 0, lease.Seal{}, modelNow)
	g.victim = nil
}

// confirm lets whoever has got its turn find that out, and make the grant a whole lease.
func (g *gameTable) confirm() {
	for _, pl := range g.players {
		if pl.st.State != lease.Waiting || g.model.Standing(pl.claim.ID, modelNow).State != lease.Held {
			continue
		}
		ticket := pl.st.Ticket
		g.settle()
		pl.st = g.waitHeld(pl)
		if pl.st.Ticket != ticket {
			g.failf("granted with ticket %d, queued with %d", pl.st.Ticket, ticket)
		}
		if st := g.sureRenew(pl); st.State != lease.Held {
			g.failf("a new grant is %v when it is renewed", st.State)
		}
	}
}

func (g *gameTable) waitHeld(pl *player) lease.Standing {
	ctx, cancel := pl.p.call()
	defer cancel()
	st := pl.st
	for st.State != lease.Held {
		next, err := pl.p.Wait(ctx, g.name, pl.claim.ID, st.Rev)
		switch {
		case errors.Is(err, ErrLost):
			continue
		case err != nil:
			g.failf("wait for %s, which the model says is held: %v", pl.claim.ID[:6], err)
		case next.State != lease.Held && next.State != lease.Waiting:
			g.failf("wait for %s, which the model says is held: %v", pl.claim.ID[:6], next.State)
		}
		st = next
	}
	return st
}

func (g *gameTable) sureRenew(pl *player) lease.Standing {
	for range 1000 {
		out := pl.p.renewAll(ref(g.name, pl.claim, pl.st.Ticket, long, 0))[0]
		if out.Err == nil {
			return out.Standing
		}
		if !errors.Is(out.Err, ErrLost) {
			g.failf("renew: %v", out.Err)
		}
	}
	return lease.Standing{}
}

func (g *gameTable) compare() {
	q := g.sure.inspect(g.name)
	picture := func(q *lease.Queue) string {
		text := ""
		for _, e := range q.Claims {
			state := "waits"
			if e.Held() {
				state = "holds"
			}
			text += fmt.Sprintf("%s %s with %d; ", e.ID[:6], state, e.Ticket)
		}
		return text + "seal " + sealSketch(q.Seal())
	}
	if got, want := picture(&q), picture(&g.model); got != want {
		g.failf("the store has\n %s\nthe model\n %s", got, want)
	}
	// What the store forgets of a name that nobody uses is its own matter.
	if q.Last != g.model.Last && len(q.Claims) > 0 {
		g.failf("the last ticket is %d, the model says %d", q.Last, g.model.Last)
	}
}

// shortLeases lets holders die, and looks for anybody who gets the lock before a lease
// is over. It is true on a machine of any speed: a hold counts from when its last
// acknowledged call was sent, and ends by its TTL less what clocks may differ.
func shortLeases(w *world) {
	const rounds = 8
	lasting := max(60*time.Millisecond, 3*w.features.MinTTL)
	var mu sync.Mutex
	var closedUntil time.Time // by the last hold; zero: it has left
	var last uint64
	var fs []func()
	for range 3 {
		p := w.process()
		for range 2 {
			seed := w.rand.Uint64()
			fs = append(fs, func() {
				for i := range rounds {
					c := w.claim(ttl(lasting))
					hold, ok := p.getsShort(w.name(), c)
					now := time.Now()
					if !ok {
						continue
					}
					mu.Lock()
					if now.Before(closedUntil) {
						w.Errorf("got the lock %v before the lease of %v before it was over", closedUntil.Sub(now), lasting)
					}
					if hold.ticket > last {
						last = hold.ticket
						closedUntil = hold.sent.Add(lasting - tolerance(lasting))
					}
					mu.Unlock()
					if (seed>>i)&1 == 0 {
						continue // it dies
					}
					mu.Lock()
					if last == hold.ticket {
						closedUntil = time.Time{}
					}
					mu.Unlock()
					p.seals(w.name(), c, lease.Seal{})
				}
			})
		}
	}
	all(fs...)
}

type shortHold struct {
	ticket uint64
	sent   time.Time
}

// getsShort waits for the lock with a short lease, keeping its place alive, and confirms
// it. It reports false if the lease was over before it knew: that happens.
func (p *process) getsShort(name string, c lease.Claim) (shortHold, bool) {
	deadline := time.Now().Add(2 * patience)
	for {
		if time.Now().After(deadline) {
			p.w.Fatalf("no turn within %v; %s", 2*patience, p.picture(name))
		}
		sent := time.Now()
		st := p.join(name, c)
		if st.State == lease.Held {
			return shortHold{st.Ticket, sent}, true
		}
		if st.State != lease.Waiting {
			p.w.Fatalf("a claim that waits is %v", st.State)
		}
		for st.State == lease.Waiting {
			ctx, cancel := p.call()
			if p.w.features.WaitersExpire {
				cancel()
				// Looking again by a join keeps the place.
				ctx, cancel = context.WithTimeout(p.w.Context(), c.TTL/4)
			}
			next, err := p.Wait(ctx, name, c.ID, st.Rev)
			cancel()
			if err != nil {
				break
			}
			st = next
		}
	}
}
