package vote

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/redlatch/redlatch/lease"
)

// The fences of a quorum, played through: every order in which three servers can do what
// three clients ask of them, with the lock's lease at any server over at any moment. The
// clients are what ships. It is what the proof at Acquire says, asked of the code.

const servers = 3

// play is a state of it all.
type play struct {
	held    [servers]int8 // who has the lock there: a client's number from 1 on
	last    [servers]int8 // F
	clients []client
	done    []int8 // the fences that were settled, in order of that
}

type client struct {
	phase    phase
	proposed int8
	floor    int8 // the highest fence that was settled before it began
	asked    [servers]bool
	raises   [servers]int8 // to be raised to that
	vote     *Acquire
}

type phase uint8

const (
	idle phase = iota
	asking
	over
)

// rules are what servers and clients do; those of the mutants leave something out.
type rules struct {
	unchecked bool // a server raises F without looking whether the lock is the client's
	oneRound  bool // a client takes its proposal for settled by any majority
	forgets   bool // a server loses F with the lease
}

func (p play) clone() play {
	p.clients = slices.Clone(p.clients)
	for i := range p.clients {
		if v := p.clients[i].vote; v != nil {
			p.clients[i].vote = &Acquire{proposed: v.proposed, fence: v.fence, seats: slices.Clone(v.seats)}
		}
	}
	p.done = slices.Clone(p.done)
	return p
}

func (p play) key() string {
	var b []byte
	put := func(numbers ...int8) {
		for _, n := range numbers {
			b = append(b, byte(n))
		}
	}
	put(p.held[:]...)
	put(p.last[:]...)
	// Of what was settled only the fences matter, and no client begins any more below a floor
	// that is not the highest of them.
	done := slices.Sorted(slices.Values(p.done))
	put(int8(len(done)))
	put(done...)
	for _, c := range p.clients {
		put(int8(c.phase))
		if c.phase != asking {
			continue
		}
		put(c.proposed, c.floor, int8(c.vote.fence))
		put(c.raises[:]...)
		for i, s := range c.vote.seats {
			asked := int8(0)
			if c.asked[i] {
				asked = 1
			}
			put(asked, int8(s.state), int8(s.ticket), int8(s.prev), int8(s.written))
		}
	}
	return string(b)
}

// steps are all states that may come next.
func (p play) steps(r rules, proposals []int8) []play {
	var next []play
	add := func(move func(q *play)) {
		q := p.clone()
		move(&q)
		next = append(next, q)
	}
	for i := range servers {
		if p.held[i] != 0 {
			add(func(q *play) { // the lease is over, or the server thinks so
				q.held[i] = 0
				if r.forgets {
					q.last[i] = 0
				}
			})
		}
	}
	for n, c := range p.clients {
		if c.phase == idle {
			for _, proposal := range proposals {
				add(func(q *play) {
					k := &q.clients[n]
					k.phase, k.proposed, k.vote = asking, proposal, NewAcquire(servers, uint64(proposal))
					k.floor = slices.Max(append([]int8{0}, q.done...))
				})
			}
			// Clients are alike: the first idle one stands for all.
			break
		}
	}
	for n, c := range p.clients {
		if c.phase != asking {
			continue
		}
		for i := range servers {
			if !c.asked[i] {
				add(func(q *play) { q.join(n, i, r) })
				add(func(q *play) { // the call is lost on its way, or its answer is
					q.clients[n].asked[i] = true
					q.clients[n].vote.Failed(i)
					q.think(n, r)
				})
			}
			if c.raises[i] != 0 {
				add(func(q *play) { q.raise(n, i, r) })
			}
		}
	}
	return next
}

func (p *play) join(n, i int, r rules) {
	c := &p.clients[n]
	c.asked[i] = true
	if other := p.held[i]; other != 0 {
		c.vote.Answered(i, lease.Standing{State: lease.Busy}, true)
		p.think(n, r)
		return
	}
	prev := p.last[i]
	p.held[i], p.last[i] = int8(n+1), max(prev+1, c.proposed)
	c.vote.Answered(i, lease.Standing{State: lease.Held, Ticket: uint64(p.last[i]), Prev: uint64(prev)}, true)
	p.think(n, r)
}

func (p *play) raise(n, i int, r rules) {
	c := &p.clients[n]
	fence := c.raises[i]
	c.raises[i] = 0
	held := p.held[i] == int8(n+1)
	if held || r.unchecked {
		p.last[i] = max(p.last[i], fence)
	}
	c.vote.Raised(i, uint64(fence), held || r.unchecked)
	p.think(n, r)
}

// think is what a client does after each answer.
func (p *play) think(n int, r rules) {
	c := &p.clients[n]
	servers, fence := c.vote.Raise()
	for _, i := range servers {
		c.raises[i] = int8(fence)
	}
	yes, _ := c.vote.Answers()
	switch state := c.vote.State(); {
	case r.oneRound && yes >= Majority(len(c.asked)):
		p.settle(n, c.proposed)
	case state == Won:
		p.settle(n, int8(c.vote.Fence()))
	case state == Lost:
		c.phase = over // what it has got stays until the lease is over: the worst it may do
	}
}

func (p *play) settle(n int, fence int8) {
	p.clients[n].phase = over
	p.done = append(p.done, fence)
}

// wrong says what must not be.
func (p play) wrong(before play) string {
	if len(p.done) == len(before.done) {
		return ""
	}
	fence := p.done[len(p.done)-1]
	if slices.Contains(before.done, fence) {
		return fmt.Sprintf("fence %d for the second time", fence)
	}
	for n, c := range before.clients {
		if c.phase == asking && p.clients[n].phase == over && fence <= c.floor {
			return fmt.Sprintf("fence %d, and %d was settled before it began", fence, c.floor)
		}
	}
	return ""
}

// explore plays everything through, and returns the first thing that is wrong, and how many
// states there are.
func explore(r rules, clients int, proposals []int8) (wrong string, states int) {
	seen := make(map[string]bool)
	open := []play{{clients: make([]client, clients)}}
	for len(open) > 0 {
		p := open[len(open)-1]
		open = open[:len(open)-1]
		for _, q := range p.steps(r, proposals) {
			if w := q.wrong(p); w != "" {
				return w, len(seen)
			}
			if key := q.key(); !seen[key] {
				seen[key] = true
				open = append(open, q)
			}
		}
	}
	return "", len(seen)
}

// deep plays three clients through too: two million states, a minute.
var deep = flag.Bool("deep", false, "every order of three clients too")

func TestFencesOfAQuorumInEveryOrder(t *testing.T) {
	plays := map[int][]int8{2: {1, 2, 3, 4}}
	if *deep {
		plays[3] = []int8{1}
	}
	for clients, proposals := range plays {
		wrong, states := explore(rules{}, clients, proposals)
		if wrong != "" {
			t.Errorf("%d clients: %s", clients, wrong)
		}
		if states < 10_000 {
			t.Errorf("%d clients: only %d states were seen", clients, states)
		}
		t.Logf("%d clients: %d states", clients, states)
	}
}

// wander plays one game of six clients by chance.
func wander(r rules, seed uint64) (wrong string, settled int) {
	dice := rand.New(rand.NewPCG(seed, 0))
	p := play{clients: make([]client, 6)}
	for {
		next := p.steps(r, []int8{1, 2, 3, 4, 5})
		if len(next) == 0 {
			return "", len(p.done)
		}
		q := next[dice.IntN(len(next))]
		if w := q.wrong(p); w != "" {
			return w, len(q.done)
		}
		p = q
	}
}

func TestFencesOfAQuorumByChance(t *testing.T) {
	settled := 0
	for seed := range uint64(4000) {
		wrong, n := wander(rules{}, seed)
		if settled += n; wrong != "" {
			t.Errorf("seed %d: %s", seed, wrong)
		}
	}
	if settled < 3000 {
		t.Errorf("only %d fences were settled", settled)
	}
	t.Logf("%d fences", settled)
}

// The ways that seem as good, and are not.
func TestFencesWithoutTheirRulesRepeat(t *testing.T) {
	for what, r := range map[string]rules{
		"raised without a look at the lock": {unchecked: true},
		"the proposal taken as it is":       {oneRound: true},
		"counters that are lost":            {forgets: true},
	} {
		caught := 0
		var games uint64
		for ; games < 4000 && caught < 3; games++ {
			if wrong, _ := wander(r, games); wrong != "" {
				caught++
			}
		}
		if caught == 0 {
			t.Errorf("%s: nothing is wrong with that in %d games", what, games)
		}
		t.Logf("%s: wrong in %d of %d games", what, caught, games)
	}
}
