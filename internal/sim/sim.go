// Package sim plays redlatch on a clock of its own: processes that pause, sleep and die,
// clocks that run at different rates and step, a network that delays, loses, repeats and
// cuts, a Redis server that crashes, forgets and fails over, and clients of other libraries
// that follow no queue. One seed is one game, always the same.
//
// What is played is what ships: how a claim gets to its hold (lease.Ask), how a hold is
// kept (lease.Keeper, lease.Terms), and what a process knows of its claims on Redis
// (internal/lines). The server is internal/redismodel, which a test of redisstore keeps
// the same as the scripts. The loops around them, which sleep and call in the root package
// and in redisstore, are played by this package: process.go and worker.go say which.
//
// It leaves out what is not time and messages: parsing, rights, full memory.
package sim

import (
	"fmt"
	"math/rand/v2"
	"time"
)

// Game says what is played.
type Game struct {
	Seed    uint64
	Without []int // of the seed's faults: those that do not happen
	Calm    bool  // no call is lost, late or repeated
	Trace   int   // how many of the last events are kept
}

// Result is how a game went.
type Result struct {
	Game     Game
	Steps    int
	Holds    int
	Lost     int // holds that were lost
	Gone     int // acquires that ended without a hold
	Faults   []string
	Failure  string // "": every invariant held
	Kind     string // of failure: the same of another game
	At       time.Duration
	Trace    []string
	Virtual  time.Duration
	Revived  int // holds by a ticket that a fail-over brought back, below one that was used meanwhile: nothing prevents that yet
	Overlaps int // that no lease can prevent: over a loss of data or a clock put forward
}

// Play plays a game.
func Play(g Game) Result {
	w := newWorld(g)
	w.run()
	r := w.result
	r.Game, r.Steps, r.Virtual, r.Trace = g, w.steps, time.Duration(w.now), w.trace.lines()
	for i, f := range w.faults {
		r.Faults = append(r.Faults, fmt.Sprintf("%d: %s", i, f))
	}
	return r
}

// world is one game. Times are nanoseconds of true time, which nobody in it knows.
type world struct {
	game   Game
	rand   *rand.Rand
	now    int64
	steps  int
	queue  events
	seq    uint64
	trace  trace
	result Result
	over   bool

	plan   plan
	faults []fault
	server *server
	procs  []*process
	names  []string
	judge  judge
	ids    uint64
	quiet  bool // the faults are over
}

// maxSteps ends a game that runs hot, which is a failure of its own.
const maxSteps = 2_000_000

func newWorld(g Game) *world {
	w := &world{game: g, rand: rand.New(rand.NewPCG(g.Seed, 0x5eed)), trace: trace{most: g.Trace}}
	w.plan = newPlan(w.rand)
	w.faults = newFaults(w.rand, w.plan)
	w.judge.init(w)
	w.server = newServer(w)
	for i := range w.plan.names {
		w.names = append(w.names, fmt.Sprintf("lock:n%d", i))
	}
	for i := range w.plan.processes {
		w.procs = append(w.procs, newProcess(w, i, 1))
	}
	for i := range w.plan.foreign {
		newForeigner(w, i)
	}
	for i, f := range w.faults {
		if !without(g.Without, i) {
			w.at(int64(f.at), func() { f.happen(w) })
		}
	}
	w.at(int64(w.plan.faultsEnd), w.calm)
	w.at(int64(lookEvery), w.judge.look)
	return w
}

func without(out []int, i int) bool {
	for _, o := range out {
		if o == i {
			return true
		}
	}
	return false
}

func (w *world) run() {
	for !w.over && len(w.queue) > 0 {
		e := w.queue.pop()
		w.now = e.at
		w.steps++
		if w.steps > maxSteps {
			w.fail("it runs hot: %d steps", w.steps)
			return
		}
		e.do()
	}
	if !w.over {
		w.judge.rest()
	}
}

// at lets something happen at that time.
func (w *world) at(t int64, do func()) {
	w.seq++
	w.queue.push(event{at: max(t, w.now), seq: w.seq, do: do})
}

func (w *world) after(d time.Duration, do func()) { w.at(w.now+int64(d), do) }

func (w *world) fail(format string, args ...any) {
	if w.over {
		return
	}
	w.over = true
	w.result.Kind = format
	w.result.Failure, w.result.At = fmt.Sprintf(format, args...), time.Duration(w.now)
	w.note("FAILED: %s", w.result.Failure)
}

func (w *world) note(format string, args ...any) {
	if w.trace.most > 0 {
		w.trace.add(fmt.Sprintf("%12.6f  ", time.Duration(w.now).Seconds()) + fmt.Sprintf(format, args...))
	}
}

func (w *world) chance(p float64) bool { return p > 0 && w.rand.Float64() < p }

func (w *world) between(least, most time.Duration) time.Duration {
	if most <= least {
		return least
	}
	return least + time.Duration(w.rand.Int64N(int64(most-least)))
}

// calm ends all faults: from here on everything has to get well.
func (w *world) calm() {
	w.quiet = true
	w.note("the faults are over")
	for _, p := range w.procs {
		p.snare, p.snareRenewal = 0, 0
		p.cutUntil, p.hazy = min(p.cutUntil, w.now), max(p.asleep, min(p.hazy, w.now+int64(2*readTimeout)))
	}
	w.server.heal()
}

// event is something that happens. Of two at one time the first planned is the first.
type event struct {
	at  int64
	seq uint64
	do  func()
}

type events []event

func (h events) less(i, j int) bool {
	return h[i].at < h[j].at || h[i].at == h[j].at && h[i].seq < h[j].seq
}

func (h *events) push(e event) {
	*h = append(*h, e)
	q := *h
	for i := len(q) - 1; i > 0; {
		up := (i - 1) / 2
		if !q.less(i, up) {
			return
		}
		q[i], q[up] = q[up], q[i]
		i = up
	}
}

func (h *events) pop() event {
	q := *h
	first, last := q[0], len(q)-1
	q[0] = q[last]
	q[last] = event{}
	q = q[:last]
	*h = q
	for i := 0; ; {
		least := i
		for _, down := range [2]int{2*i + 1, 2*i + 2} {
			if down < last && q.less(down, least) {
				least = down
			}
		}
		if least == i {
			return first
		}
		q[i], q[least] = q[least], q[i]
		i = least
	}
}

// trace keeps the last events.
type trace struct {
	most int
	all  []string
	next int
}

func (t *trace) add(line string) {
	if len(t.all) < t.most {
		t.all = append(t.all, line)
		return
	}
	t.all[t.next] = line
	t.next = (t.next + 1) % t.most
}

func (t *trace) lines() []string {
	return append(append([]string{}, t.all[t.next:]...), t.all[:t.next]...)
}
