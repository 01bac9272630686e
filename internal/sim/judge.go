package sim

import (
	"time"

	"github.com/redlatch/redlatch/internal/lines"
	"github.com/redlatch/redlatch/internal/redismodel"
	"github.com/redlatch/redlatch/lease"
)

// judge sees everything, in true time, and knows what must never be.
type judge struct {
	w     *world
	names map[string]*docket

	drawn    map[uint64]int // by ticket: in which epoch it was drawn first
	restored int            // the epoch that began last with a queue of before

	told    map[string]promise // by claim ID: what its process was last told that it has
	leaves  map[string]int     // by claim ID: in which epoch it left
	undo    map[string]bool    // claims whose leave was acknowledged: they must not come back
	pending map[*attempt]bool

	hazy      int64         // the last time that the server was out of order
	stretched time.Duration // by how much its clock was put back
	restFrom  int64
	resting   bool
}

type promise struct {
	ticket uint64
	epoch  int
}

// docket is what is known of one name.
type docket struct {
	holds []*hold // that are trusted
	fence uint64  // the highest that anybody trusted
	epoch int     // of that hold

	holder  string // as the server has it
	ticket  uint64 // the highest that it has granted in this epoch
	waiting map[string]*place
	drawn   uint64 // the highest ticket of a claim that was told to wait

	freed   string // why the lock was last free
	lastHad string // who had it before
	idle    time.Duration
	bound   time.Duration
}

// place is a claim that the server has told to wait.
type place struct {
	p      *process
	id     string
	ticket uint64
	since  int64  // it was told so first
	pushed bool   // it can be told when it is its turn
	saw    string // the holder when it last looked
}

const (
	lookEvery = 100 * time.Millisecond
	grain     = int64(20 * time.Microsecond) // of the sums with clock rates
)

func (j *judge) init(w *world) {
	j.w = w
	j.names, j.told, j.undo = make(map[string]*docket), make(map[string]promise), make(map[string]bool)
	j.leaves, j.drawn = make(map[string]int), make(map[uint64]int)
	j.pending = make(map[*attempt]bool)
}

func (j *judge) docket(name string) *docket {
	d := j.names[name]
	if d == nil {
		d = &docket{waiting: make(map[string]*place)}
		j.names[name] = d
	}
	return d
}

// well reports whether nothing has happened to the place's process, or the server, since
// it was told to wait: then it is owed its turn.
func (j *judge) well(y *place) bool {
	p := y.p
	return !p.dead && p.w.now >= p.asleep && !p.isCut() && p.hazy < y.since && j.hazy < y.since && !j.w.server.down
}

// The server's moves.

func (j *judge) before(lock string) {
	d := j.docket(lock)
	if holder, _ := j.w.server.model.Name(lock).Holder(); holder == "" && d.holder != "" {
		d.freed, d.lastHad, d.holder = "expiry", d.holder, ""
	}
}

func (j *judge) after(lock string) {
	d, n := j.docket(lock), j.w.server.model.Name(lock)
	if key := n.Endless(); key != "" {
		j.w.fail("%s has a key without an end: %s", lock, key)
	}
	holder, ticket := n.Holder()
	if holder == d.holder {
		return
	}
	had := d.holder
	d.holder = holder
	j.w.note("server: %s is now %q with ticket %d, %d wait", lock, holder, ticket, len(n.Queue))
	if holder == "" {
		d.freed, d.lastHad = "release", had
		if len(had) < 22 {
			d.freed = "another library's release" // which tells nobody
		}
		return
	}
	if ticket == 0 {
		return // another library's
	}
	if j.undo[holder] {
		j.w.fail("%s is given to %s, which has left for good", lock, holder)
	}
	if ticket <= d.ticket {
		j.w.fail("%s is granted with ticket %d, after one with %d", lock, ticket, d.ticket)
	}
	d.ticket = ticket
	for id, y := range d.waiting {
		if id != holder && y.ticket < ticket && y.pushed && j.w.plan.ttls[0] >= 2*time.Second && j.well(y) {
			j.w.fail("%s is granted to %s before %s of %v, which came first and is there", lock, holder, id, y.p)
		}
	}
	delete(d.waiting, holder)
}

// joined: the server has carried out a join.
func (j *judge) joined(p *process, lock string, c lease.Claim, r redismodel.Reply) {
	d := j.docket(lock)
	_, known := j.drawn[r.Ticket]
	if !known && r.Ticket != 0 {
		j.drawn[r.Ticket] = j.w.server.epoch
	}
	if j.undo[c.ID] && (r.State == "held" || r.State == "waiting") {
		j.w.fail("%s is %s on %s, and has left for good", c.ID, r.State, lock)
	}
	if r.State != "waiting" {
		if r.State != "again" && r.State != "held" { // after() sees to the held
			delete(d.waiting, c.ID)
		}
		return
	}
	j.w.note("server: %s waits for %s with ticket %d", c.ID, lock, r.Ticket)
	y := d.waiting[c.ID]
	if y != nil && y.ticket != r.Ticket && y.pushed && j.well(y) && j.w.plan.ttls[0] >= 2*time.Second {
		j.w.fail("%s of %v had ticket %d on %s and lost it, though nothing has happened to it", c.ID, p, y.ticket, lock)
	}
	if y == nil || y.ticket != r.Ticket {
		if r.Ticket <= d.drawn && !known {
			j.w.fail("%s waits for %s with ticket %d, after one with %d", c.ID, lock, r.Ticket, d.drawn)
		}
		d.drawn = max(d.drawn, r.Ticket)
		y = &place{p: p, id: c.ID, ticket: r.Ticket, since: j.w.now}
		d.waiting[c.ID] = y
	}
	y.pushed = r.Here > 0
	y.saw = r.Value
	if len(y.saw) > 22 {
		y.saw = y.saw[:22]
	}
}

// left: the server has carried out a leave.
func (j *judge) left(lock, id, only string) {
	if only == "" {
		delete(j.docket(lock).waiting, id)
		j.leaves[id] = j.w.server.epoch
	}
}

// newEpoch: what leases promised before is void. Where a queue of before is back, so are
// places in it that were lost or used up since, with the tickets that they had.
func (j *judge) newEpoch(restored bool) {
	if j.disturbed(); restored {
		j.restored = j.w.server.epoch
		// A grant that was used and released is back too, and costs its process its places.
		j.hazy = j.w.now + int64(lines.Grant+time.Second)
	}
	clear(j.undo)
	for lock, d := range j.names {
		j.w.server.model.Now = j.w.server.clock()
		clear(d.waiting)
		d.ticket, d.drawn = 0, 0
		d.holder, _ = j.w.server.model.Name(lock).Holder()
		d.freed, d.lastHad = "loss", ""
	}
}

func (j *judge) disturbed() { j.hazy = max(j.hazy, j.w.now) }

// What processes believe.

// toldEpoch notes in which epoch the server has given the claim what it is now told of.
func (j *judge) toldEpoch(id string, ticket uint64, epoch int) { j.told[id] = promise{ticket, epoch} }

func (j *judge) asks(a *attempt)   { j.pending[a] = true }
func (j *judge) gaveUp(a *attempt) { delete(j.pending, a) }

func (j *judge) begins(a *attempt, h *hold) {
	delete(j.pending, a)
	h.epoch = j.told[h.id].epoch
	h.until = h.wk.p.when(h.keeper.Until())
	d := j.docket(h.name)
	switch {
	case h.weight < lease.Whole: // the fence is for those who hold alone
	case h.ticket > d.fence || h.epoch < d.epoch:
	case j.restored > j.drawn[h.ticket]:
		j.w.result.Revived++
	default:
		j.w.fail("%v holds %s with fence %d, after somebody had %d", h.wk, h.name, h.ticket, d.fence)
	}
	if h.ticket > d.fence {
		d.fence, d.epoch = h.ticket, h.epoch
	}
	j.add(h)
}

// add takes a hold in that begins now.
func (j *judge) add(h *hold) {
	d := j.docket(h.name)
	j.apart(h)
	d.holds = append(d.holds, h)
}

// trusts: the hold is believed for longer.
func (j *judge) trusts(h *hold) {
	h.until = h.wk.p.when(h.keeper.Until())
	j.apart(h)
}

// apart: nobody else who was promised it in the same epoch believes to have it now.
func (j *judge) apart(h *hold) {
	d := j.docket(h.name)
	rest := d.holds[:0]
	for _, o := range d.holds {
		if o.until > j.w.now || o == h {
			rest = append(rest, o)
		}
	}
	clear(d.holds[len(rest):])
	d.holds = rest
	used := h.weight
	for _, o := range rest {
		if o == h || o.until <= j.w.now+grain {
			continue
		}
		if o.epoch == h.epoch {
			used += o.weight
		}
		switch {
		case h.capacity < lease.Whole && used > h.capacity:
			j.w.fail("%d hold %s, with room for %d: %s until %.6f s, and %s until %.6f s", used, h.name, h.capacity, o.id, float64(o.until)/1e9, h.id, float64(h.until)/1e9)
		case o.epoch == h.epoch && used > h.capacity:
			j.w.fail("two hold %s: %s until %.6f s, and %s until %.6f s", h.name, o.id, float64(o.until)/1e9, h.id, float64(h.until)/1e9)
		default:
			j.w.result.Overlaps++
		}
	}
}

func (j *judge) ends(h *hold) {
	d := j.docket(h.name)
	for i, o := range d.holds {
		if o == h {
			d.holds = append(d.holds[:i], d.holds[i+1:]...)
			return
		}
	}
}

// lost: a holder was told, in time and for a reason.
func (j *judge) lost(h *hold, loss *lease.Loss) {
	p := h.wk.p
	if late := j.w.now - h.until; late > int64(time.Millisecond) && p.hazy < h.until-int64(2*time.Second) {
		j.w.fail("%v was told %v late that it has lost %s", h.wk, time.Duration(late), h.name)
	}
	if loss.Why == lease.Vanished && h.epoch == j.w.server.epoch && j.w.now < h.until {
		j.w.fail("%v was told that %s is gone, %v before its lease was over", h.wk, h.name, time.Duration(h.until-j.w.now))
	}
}

// undone: the claim's leave was acknowledged.
func (j *judge) undone(lock, id string) {
	s := j.w.server
	if j.leaves[id] != s.epoch {
		return // who knows what is left of that
	}
	s.model.Now = s.clock()
	n := s.model.Name(lock)
	holder, _ := n.Holder()
	there := holder == id
	for _, p := range n.Queue {
		there = there || p.ID == id
	}
	if there && j.hazy < j.w.now-int64(time.Minute) {
		j.w.fail("%s has left %s, and is still there", id, lock)
	}
	j.undo[id] = true
}

func (j *judge) abandoned(id string) {
	for a := range j.pending {
		if a.claim.ID == id {
			delete(j.pending, a)
		}
	}
}

// look runs ten times a second: nobody may wait for a lock that is free.
func (j *judge) look() {
	w, s := j.w, j.w.server
	if w.over {
		return
	}
	j.places()
	for _, lock := range w.names {
		if w.plan.shares {
			break // whoever waits asks all the time; whether it gets its turn, next sees
		}
		s.model.Now = s.clock()
		j.before(lock)
		d, n := j.docket(lock), s.model.Name(lock)
		y := j.owed(d)
		if n.Lock.There || y == nil || s.down {
			d.idle, d.bound = 0, 0
			continue
		}
		d.idle += lookEvery
		if d.bound = max(d.bound, j.bound(d, n, y)); d.idle > d.bound {
			w.fail("%s is free for %v (%s), and %s of %v sleeps; at most %v", lock, d.idle, d.freed, y.id, y.p, d.bound)
		}
	}
	j.next()
}

// places: a process that was out of order notices, and its waiters have places again.
func (j *judge) places() {
	w, settled := j.w, int64(6*time.Second)
	if w.plan.ttls[0] < 10*time.Second || w.server.down {
		return // a shorter grant can be lost before anybody notices
	}
	for _, p := range w.procs {
		if p.dead || p.sub == nil || p.hazy+settled > w.now {
			continue
		}
		for k, wt := range p.waiters {
			n := w.server.model.Name(k.Name)
			if holder, _ := n.Holder(); wt.poke == nil && !k.Held && holder != k.ID && n.Rank(k.ID) < 0 && j.hazy < wt.began && wt.began+settled < w.now {
				w.fail("%s of %v sleeps since %.3f s and has no place on %s", k.ID, p, float64(wt.began)/1e9, k.Name)
			}
		}
	}
}

// owed is the first waiter that is well and sleeps.
func (j *judge) owed(d *docket) *place {
	var first *place
	for _, y := range d.waiting {
		if j.well(y) && (first == nil || y.ticket < first.ticket) {
			for k := range y.p.waiters {
				if k.ID == y.id {
					first = y
				}
			}
		}
	}
	return first
}

// bound is how long the lock may stand free, by why it does.
func (j *judge) bound(d *docket, n *redismodel.Name, y *place) time.Duration {
	bound := lookEvery + 4*(j.w.plan.delay+j.w.plan.jitter)
	polling := make(map[string]bool) // processes: it is kept for each of them for a turn
	for _, e := range n.Entries {
		if e.Mode == 'p' && !polling[e.Channel] {
			polling[e.Channel] = true
			bound += 3500 * time.Millisecond
		}
	}
	if j.w.plan.gaps || j.w.plan.foreign > 0 {
		bound += 400 * time.Millisecond
	}
	switch {
	case d.freed == "release" && y.pushed && j.unwell(d, y) < 3: // three are told
		return bound
	case d.lastHad != "" && d.lastHad == y.saw:
		return bound + 200*time.Millisecond
	}
	// Whoever waits knows of a lease that is over later: of one who had the lock before.
	return bound + j.w.plan.maxTTL + 3*time.Second
}

// unwell counts the processes that stand before the place and may be told in vain.
func (j *judge) unwell(d *docket, y *place) int {
	some := make(map[*process]bool)
	for _, o := range d.waiting {
		if o.ticket < y.ticket && !j.well(o) {
			some[o.p] = true
		}
	}
	return len(some)
}

// next plans the next look, and the end of the game.
func (j *judge) next() {
	w := j.w
	end := int64(w.plan.end)
	if w.now < end || len(j.pending) > 0 {
		const lastNet = 150 * time.Second
		if w.now > end+int64(lastNet+w.plan.maxTTL+j.stretched+20*time.Second) {
			for a := range j.pending {
				w.fail("%v asks for %s since %.3f s, and nothing goes wrong any more since %v", a.wk, a.name, float64(a.began)/1e9, w.plan.faultsEnd)
				return
			}
		}
		w.after(lookEvery, j.look)
		return
	}
	if j.restFrom == 0 {
		j.restFrom = w.now
	}
	if w.now < j.restFrom+int64(w.plan.maxTTL+10*time.Second) {
		w.after(lookEvery, j.look)
		return
	}
	j.resting = true
}

// rest looks at what is left when nobody does anything any more.
func (j *judge) rest() {
	s := j.w.server
	for lock, q := range s.queues {
		if q.Advance(time.UnixMicro(s.clock())); len(q.Claims) > 0 && j.stretched == 0 {
			j.w.fail("at rest %s is on %s", q.Claims[0].ID, lock)
		}
	}
	for _, lock := range j.w.names {
		s.model.Now = s.clock()
		n := s.model.Name(lock)
		if holder, _ := n.Holder(); holder != "" && j.stretched == 0 {
			j.w.fail("at rest %s is held by %s", lock, holder)
		}
		if len(n.Queue) > 0 {
			for _, q := range n.Queue {
				if p := j.alive(n, q.ID); p != nil {
					j.w.fail("at rest %s of %v, which lives, stands in the queue of %s", q.ID, p, lock)
				}
			}
		}
	}
	for _, p := range j.w.procs {
		if n := p.book.Waiters(); n > 0 {
			j.w.fail("at rest %d claims wait in the book of %v", n, p)
		}
	}
}

// alive is the process whose channel that claim's entry names, if it is still there.
func (j *judge) alive(n *redismodel.Name, id string) *process {
	for _, p := range j.w.procs {
		if !p.dead && n.Entries[id].Channel == p.channel {
			return p
		}
	}
	return nil
}
