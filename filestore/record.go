package filestore

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redlatch/redlatch/lease"
)

// record is what the file of one name holds: its queue, and what the queue does not
// know, the processes behind the claims and the clock that its times are of.
//
// The file is text. A first line with the form, the time of the last change, so that the
// rest can be compared to see whether anything changed, and a checksum of both, for a
// digit that was damaged could make a held lock look free; a second one in JSON:
//
//	redlatch-queue 1 1764551336123456 9f3c01d2
//	{"name":"orders/42","boot":"5f0c…","anchor":…,"last":…,"claims":[{"token":"k3Jw…x9.1.…","bound":["Zb…"],…}]}
//
// Times are microseconds since 1970 by the name's own clock, see [record.clock].
type record struct {
	name   string
	boot   string    // the boot that anchor belongs to
	anchor time.Time // what the name's clock said when that boot began

	queue lease.Queue
	bound map[string][]string  // by claim ID: the Stores that it lives in; none: it lives by its lease alone
	left  map[string]time.Time // the queue's tombstones, which it does not show
}

const (
	magic = "redlatch-queue"
	form  = 1
)

type recordJSON struct {
	Name   string           `json:"name"`
	Boot   string           `json:"boot,omitempty"`
	Anchor int64            `json:"anchor"`
	Last   uint64           `json:"last"`
	Claims []claimJSON      `json:"claims,omitempty"`
	Seal   *sealJSON        `json:"seal,omitempty"`
	Left   map[string]int64 `json:"left,omitempty"`
}

// claimJSON has the owner inside the token, whose text is ASCII whatever is in it.
type claimJSON struct {
	Token   string        `json:"token"`
	Bound   []string      `json:"bound,omitempty"`
	Mode    lease.Mode    `json:"mode,omitempty"`
	Slots   int           `json:"slots,omitempty"`
	Need    int           `json:"need,omitempty"`
	TTL     time.Duration `json:"ttl"`
	OnSeal  lease.OnSeal  `json:"onseal,omitempty"`
	Room    int           `json:"room,omitempty"`
	Joined  int64         `json:"joined"`
	Granted int64         `json:"granted,omitempty"`
	Expires int64         `json:"expires"`
}

// sealJSON has bytes where the texts need not be UTF-8.
type sealJSON struct {
	Until  int64  `json:"until"`
	Value  []byte `json:"value,omitempty"`
	Victim string `json:"victim,omitempty"`
	By     []byte `json:"by,omitempty"`
	Reason []byte `json:"reason,omitempty"`
}

// newRecord is a name that has no file. last is the highest ticket that it can have had.
func newRecord(name string, last uint64) *record {
	return &record{
		name: name, queue: lease.Queue{Last: last},
		bound: make(map[string][]string), left: make(map[string]time.Time),
	}
}

// clock returns the time on the name's clock. Within a boot it is the host's boot clock,
// which nobody sets, shifted so that it reads like wall time: a wall clock that is set
// neither ends nor lengthens a lease. In another boot it begins at the wall time again,
// and never behind the last change, so that it cannot stand still until the wall clock
// catches up. It goes back by itself only where there is no boot clock.
//
// A boot ends all claims, also those that were bound to no process: whoever was to renew
// them has not survived it. Where either boot is not known, only their leases do.
func (r *record) clock(h host) time.Time {
	up := h.uptime()
	if r.boot != h.boot && r.boot != "" && h.boot != "" {
		r.queue.Claims = nil
		clear(r.bound)
	}
	if r.anchor.IsZero() || r.boot != h.boot || r.anchor.Add(up).Before(r.queue.Now) {
		start := h.wall()
		if start.Before(r.queue.Now) {
			start = r.queue.Now
		}
		r.boot, r.anchor = h.boot, start.Add(-up).Truncate(time.Microsecond)
	}
	return r.anchor.Add(up).Truncate(time.Microsecond)
}

// settle is what a look finds before it does anything: claims whose processes are all
// dead are gone, and so is what has expired.
func (r *record) settle(dead func(store string) bool, now time.Time) {
	r.queue.Claims = slices.DeleteFunc(r.queue.Claims, func(e lease.Entry) bool {
		stores := r.bound[e.ID]
		return len(stores) > 0 && !slices.ContainsFunc(stores, func(s string) bool { return !dead(s) })
	})
	r.queue.Advance(now)
	r.unbind()
}

// unbind forgets the Stores of claims that are gone: one that comes again under its ID
// is another one. With a thousand claims, looking for each would be most of a step.
func (r *record) unbind() {
	if len(r.bound) == len(r.queue.Claims) {
		return // every claim has its entry
	}
	here := make(map[string]bool, len(r.queue.Claims))
	for i := range r.queue.Claims {
		here[r.queue.Claims[i].ID] = true
	}
	maps.DeleteFunc(r.bound, func(id string, _ []string) bool { return !here[id] })
}

// leave is the queue's, noting the tombstone.
func (r *record) leave(id string, ticket uint64, s lease.Seal, now time.Time) lease.Standing {
	st := r.queue.Leave(id, ticket, s, now)
	if st.State == lease.Gone && ticket == 0 {
		r.left[id] = r.queue.Now.Add(lease.Tombstone)
	}
	return st
}

// bind makes the claim live in that Store too: whoever joins or renews it counts on it.
func (r *record) bind(id, store string, dead func(string) bool) {
	stores, ok := r.bound[id]
	if ok && len(stores) == 0 || slices.Contains(stores, store) {
		return
	}
	stores = slices.DeleteFunc(slices.Clone(stores), dead)
	r.bound[id] = append(stores, store)
}

// entry returns the claim, or nil.
func (r *record) entry(id string) *lease.Entry {
	i := slices.IndexFunc(r.queue.Claims, func(e lease.Entry) bool { return e.ID == id })
	if i < 0 {
		return nil
	}
	return &r.queue.Claims[i]
}

// used reports whether anybody holds the name, waits for it or has closed it.
func (r *record) used() bool { return len(r.queue.Claims) > 0 || r.queue.Seal().Closed() }

// lasting reports whether the record must survive a crash of the machine: claims do not.
func (r *record) lasting() bool { return r.queue.Seal().Closed() }

// due is when the next thing happens by itself; zero: nothing will.
func (r *record) due() time.Time {
	var due time.Time
	sooner := func(t time.Time) {
		if due.IsZero() || t.Before(due) {
			due = t
		}
	}
	for _, e := range r.queue.Claims {
		sooner(e.Expires)
	}
	if s := r.queue.Seal(); s.Closed() {
		sooner(r.queue.Now.Add(s.For))
	}
	return due
}

// text is the file's content: head and body.
func (r *record) text() (head, body []byte, err error) {
	j := recordJSON{Name: r.name, Boot: r.boot, Anchor: r.anchor.UnixMicro(), Last: r.queue.Last}
	for _, e := range r.queue.Claims {
		c := claimJSON{
			Token: e.Token().String(), Bound: r.bound[e.ID],
			Mode: e.Mode, Slots: e.Slots, Need: e.Need, TTL: e.TTL, OnSeal: e.OnSeal, Room: e.Room,
			Joined: e.Joined.UnixMicro(), Expires: e.Expires.UnixMicro(),
		}
		if e.Held() {
			c.Granted = e.Granted.UnixMicro()
		}
		j.Claims = append(j.Claims, c)
	}
	if s := r.queue.Seal(); s.Closed() {
		j.Seal = &sealJSON{
			Until: r.queue.Now.Add(s.For).UnixMicro(),
			Value: []byte(s.Value), Victim: s.Victim, By: []byte(s.By), Reason: []byte(s.Reason),
		}
	}
	maps.DeleteFunc(r.left, func(_ string, until time.Time) bool { return !until.After(r.queue.Now) })
	if len(r.left) > 0 {
		j.Left = make(map[string]int64, len(r.left))
		for id, until := range r.left {
			j.Left[id] = until.UnixMicro()
		}
	}
	body, err = json.Marshal(j)
	body = append(body, '\n')
	return headOf(r.queue.Now.UnixMicro(), body), body, err
}

func headOf(now int64, body []byte) []byte {
	sum := crc32.ChecksumIEEE(body)
	sum = crc32.Update(sum, crc32.IEEETable, strconv.AppendInt(nil, now, 10))
	return fmt.Appendf(nil, "%s %d %d %08x\n", magic, form, now, sum)
}

var (
	errNotOurs = errors.New("it is not a file of redlatch")
	errBroken  = errors.New("its content makes no sense")
)

// parse reads a record; body is what [record.text] gives for it. An error is
// lease.ErrNewer, or says what is wrong. A file is never half read: one that somebody
// has damaged must not look like a free lock.
func parse(name string, text []byte) (r *record, body []byte, err error) {
	head, body, ok := bytes.Cut(text, []byte("\n"))
	fields := strings.Split(string(head), " ")
	if !ok || len(fields) < 2 || fields[0] != magic {
		return nil, nil, errNotOurs
	}
	switch n, err := strconv.ParseUint(fields[1], 10, 31); {
	case err != nil || n == 0:
		return nil, nil, errNotOurs
	case n > form:
		return nil, nil, fmt.Errorf("%w (form %d, this release reads up to %d)", lease.ErrNewer, n, form)
	case len(fields) != 4:
		return nil, nil, errBroken
	}
	now, err := strconv.ParseInt(fields[2], 10, 64)
	if err != nil {
		return nil, nil, errBroken
	}
	if string(head)+"\n" != string(headOf(now, body)) {
		return nil, nil, fmt.Errorf("%w: its checksum is another one", errBroken)
	}
	var j recordJSON
	if err := json.Unmarshal(body, &j); err != nil {
		return nil, nil, fmt.Errorf("%w: %w", errBroken, err)
	}
	if j.Name != name && name != "" {
		return nil, nil, fmt.Errorf("it belongs to the name %q", j.Name)
	}
	r, err = j.record(time.UnixMicro(now))
	return r, body, err
}

func (j *recordJSON) record(now time.Time) (*record, error) {
	if err := lease.CheckName(j.Name); err != nil {
		return nil, fmt.Errorf("%w: %w", errBroken, err)
	}
	r := newRecord(j.Name, j.Last)
	r.boot, r.anchor = j.Boot, time.UnixMicro(j.Anchor)
	r.bury(j.Left)
	r.queue.Now = now
	for _, c := range j.Claims {
		if err := r.add(c); err != nil {
			return nil, err
		}
	}
	if s := j.Seal; s != nil && s.Until > now.UnixMicro() {
		r.queue.SetSeal(lease.Seal{
			For:   time.UnixMicro(s.Until).Sub(now),
			Value: string(s.Value), Victim: s.Victim, By: string(s.By), Reason: string(s.Reason),
		})
	}
	return r, nil
}

// bury gives the queue its tombstones back: the leaves are made again, each at its time.
func (r *record) bury(left map[string]int64) {
	ids := slices.SortedFunc(maps.Keys(left), func(a, b string) int { return cmp.Compare(left[a], left[b]) })
	for _, id := range ids {
		r.left[id] = time.UnixMicro(left[id])
		r.queue.Leave(id, 0, lease.Seal{}, r.left[id].Add(-lease.Tombstone))
	}
}

func (r *record) add(c claimJSON) error {
	token, err := lease.ParseToken(c.Token)
	if err != nil {
		return fmt.Errorf("%w: claim %q: %w", errBroken, c.Token, err)
	}
	e := lease.Entry{
		Claim: lease.Claim{
			ID: token.ID, Mode: c.Mode, Slots: c.Slots, Need: c.Need, Owner: token.Owner, TTL: c.TTL, OnSeal: c.OnSeal,
		},
		Ticket: token.Ticket, Room: c.Room, Joined: time.UnixMicro(c.Joined), Expires: time.UnixMicro(c.Expires),
	}
	if c.Granted != 0 {
		e.Granted = time.UnixMicro(c.Granted)
	}
	_, twice := r.bound[e.ID]
	before := uint64(0)
	if n := len(r.queue.Claims); n > 0 {
		before = r.queue.Claims[n-1].Ticket
	}
	switch err := e.Check(); {
	case err != nil:
		return fmt.Errorf("%w: %w", errBroken, err)
	case e.Ticket <= before || e.Ticket > r.queue.Last:
		return fmt.Errorf("%w: ticket %d stands after %d, and the last one is %d", errBroken, e.Ticket, before, r.queue.Last)
	case twice:
		return fmt.Errorf("%w: claim %s stands twice", errBroken, e.ID)
	case len(r.queue.Claims) > 0 && r.queue.Claims[0].Capacity() != e.Capacity():
		return fmt.Errorf("%w: claims of different capacities", errBroken)
	case slices.ContainsFunc(c.Bound, func(s string) bool { return !validStore(s) }):
		return fmt.Errorf("%w: claim %s is bound to %q", errBroken, e.ID, c.Bound)
	}
	r.queue.Claims = append(r.queue.Claims, e)
	r.bound[e.ID] = c.Bound
	return nil
}
