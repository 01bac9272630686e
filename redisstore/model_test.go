package redisstore

import (
	"encoding/binary"
	flags "flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redlatch/redlatch/internal/redismodel"
	"github.com/redlatch/redlatch/internal/servertest"
	"github.com/redlatch/redlatch/lease"
)

var (
	sequences    = flags.Int("sequences", 1000, "sequences of calls that are played against the model; 100000 is the long form")
	sequenceSeed = flags.Uint64("sequence-seed", 0, "play only the sequence of that seed")
)

// The rules of the scripts exist twice, in Lua and in Go for the simulator. Here both are
// played side by side, on a clock that jumps, and must answer, keep and publish the same.
func TestTheScriptsAreTheModel(t *testing.T) {
	d := newDuel(t)
	from, to := uint64(1), uint64(*sequences)
	if *sequenceSeed != 0 {
		from, to = *sequenceSeed, *sequenceSeed
	}
	for seed := from; seed <= to; seed++ {
		if seed%200 == 0 {
			mustDo(t, d.server, "FLUSHDB")
		}
		d.play(seed)
	}
	mustDo(t, d.server, "FLUSHDB") // other libraries' locks without an end are among what was played
	var counts []string
	for _, verb := range slices.Sorted(maps.Keys(d.calls)) {
		counts = append(counts, fmt.Sprintf("%s %d", verb, d.calls[verb]))
	}
	t.Logf("%d sequences: %s", to-from+1, strings.Join(counts, ", "))
	for _, state := range []string{"held", "waiting", "busy", "left", "gone", "full", "again", "given"} {
		if d.states[state] == 0 && to > from {
			t.Errorf("no call was answered %q: the game is too tame to prove anything", state)
		}
	}
}

// duel is the scripts on a real server on one side, and the model on the other.
type duel struct {
	t       *testing.T
	server  *servertest.RedisServer
	client  *redis.Client
	scripts scripts
	ears    *servertest.Conn // the subscriptions of all processes
	monitor *servertest.Conn // listens to everything by a pattern
	clock   *os.File
	keys    keyspace

	calls, states map[string]int

	// Of one sequence:
	seed      uint64
	rand      *rand.Rand
	model     redismodel.Server
	name      string
	claims    []*duelist
	channels  map[string]bool // that have a subscriber
	monitored bool
	said      []string // by the model, in one call
	log       []string
}

// duelist is a claim that takes part.
type duelist struct {
	claim  lease.Claim
	number int // of its process
	ticket uint64
}

func newDuel(t *testing.T) *duel {
	dir := t.TempDir()
	shim, clock := filepath.Join(dir, "clock.so"), filepath.Join(dir, "clock")
	cc := os.Getenv("CC")
	if cc == "" {
		cc = "gcc"
	}
	if out, err := exec.CommandContext(t.Context(), cc, "-O1", "-shared", "-fPIC", "-o", shim, "testdata/clock.c").CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", cc, err, out)
	}
	d := &duel{t: t, keys: keyspace{prefix: "lock:"}, calls: make(map[string]int), states: make(map[string]int), channels: make(map[string]bool)}
	var err error
	if d.clock, err = os.Create(clock); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.clock.Close() })
	d.setClock(time.Now().UnixMicro())
	t.Setenv("LD_PRELOAD", shim)
	t.Setenv("REDLATCH_TEST_CLOCK", clock)
	d.server = serve(t)
	// A key must go when it is looked at, in both, and not sooner.
	mustDo(t, d.server, "DEBUG", "SET-ACTIVE-EXPIRE", "0")
	d.client = redis.NewClient(&redis.Options{Network: "unix", Addr: d.server.Socket(), Protocol: 2, DisableIdentity: true})
	t.Cleanup(func() { d.client.Close() })
	d.scripts = scripts{d.client}
	for _, conn := range []**servertest.Conn{&d.ears, &d.monitor} {
		if *conn, err = servertest.Dial(d.server.Socket()); err != nil {
			t.Fatal(err)
		}
		t.Cleanup((*conn).Close)
	}
	d.model.Subscribers = func(channel string) int {
		if d.channels[channel] {
			return 1
		}
		return 0
	}
	d.model.Publish = func(channel, message string) int {
		n := d.model.Subscribers(channel)
		if n > 0 {
			d.said = append(d.said, channel+": "+message)
		}
		if d.monitored {
			n++
		}
		return n
	}
	return d
}

func (d *duel) setClock(us int64) {
	if _, err := d.clock.WriteAt(binary.NativeEndian.AppendUint64(nil, uint64(us)), 0); err != nil {
		d.t.Fatal(err)
	}
	d.model.Now = us
}

func (d *duel) failf(format string, args ...any) {
	d.t.Helper()
	d.t.Fatalf("sequence %d (again: -run TestTheScriptsAreTheModel -sequence-seed %d): %s\nafter\n%s",
		d.seed, d.seed, fmt.Sprintf(format, args...), strings.Join(d.log, "\n"))
}

func (d *duel) note(format string, args ...any) { d.log = append(d.log, fmt.Sprintf(format, args...)) }

func (d *duel) channel(process int) string { return fmt.Sprintf("c%d", process) }
func (d *duel) marker(process int) string  { return fmt.Sprintf("m%d", process) }

// play plays one sequence, on a name of its own.
func (d *duel) play(seed uint64) {
	d.seed, d.rand, d.log = seed, rand.New(rand.NewPCG(seed, 17)), nil
	d.name = "n" + strconv.FormatUint(seed, 10)
	d.setClock(time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC).UnixMicro() + d.rand.Int64N(1e12))
	d.model.Restore(nil)
	d.claims = nil
	for i := range 5 {
		d.claims = append(d.claims, &duelist{number: i % 3, claim: lease.Claim{
			ID:    fmt.Sprintf("%022d", d.rand.Uint64()),
			Owner: lease.Owner{Name: fmt.Sprint("p", i%3)},
			TTL:   d.pick(50, 1000, 4000, 30000),
		}})
	}
	for p := range 3 {
		d.listen(d.channel(p), d.rand.IntN(4) > 0)
		d.listen(d.marker(p), d.rand.IntN(4) > 0)
	}
	d.listen("news", d.rand.IntN(2) > 0)
	d.watched(d.rand.IntN(4) == 0)
	if d.rand.IntN(40) == 0 {
		d.crowd()
	}
	for range 14 {
		if d.rand.IntN(2) == 0 {
			d.pass()
		}
		d.step()
	}
}

func (d *duel) pick(ms ...int) time.Duration {
	return time.Duration(ms[d.rand.IntN(len(ms))]) * time.Millisecond
}

func (d *duel) one(text ...string) string { return text[d.rand.IntN(len(text))] }

// pass lets time pass, or sets the clock back.
func (d *duel) pass() {
	by := d.pick(1, 10, 49, 50, 51, 100, 999, 1001, 2999, 3001, 5000, 5001, 30001, 3600000, 3700000, -1, -1000, -100000)
	by += time.Duration(d.rand.IntN(1000)) * time.Microsecond
	d.note("%v pass", by)
	d.setClock(d.model.Now + by.Microseconds())
	d.compare()
}

// listen begins or ends the subscription of a channel.
func (d *duel) listen(channel string, on bool) {
	if d.channels[channel] == on {
		return
	}
	verb := map[bool]string{true: "SUBSCRIBE", false: "UNSUBSCRIBE"}[on]
	if _, err := d.ears.Do(verb, channel); err != nil {
		d.failf("%v", err)
	}
	d.channels[channel] = on
	d.note("%s %s", verb, channel)
}

// watched lets somebody listen to all channels by a pattern, or nobody.
func (d *duel) watched(on bool) {
	if d.monitored == on {
		return
	}
	d.hear(d.monitor)
	verb := map[bool]string{true: "PSUBSCRIBE", false: "PUNSUBSCRIBE"}[on]
	if _, err := d.monitor.Do(verb, "*"); err != nil {
		d.failf("%v", err)
	}
	d.monitored = on
}

// hear returns what the connection has been sent.
func (d *duel) hear(conn *servertest.Conn) []string {
	if err := conn.Send("PING", "over"); err != nil {
		d.failf("%v", err)
	}
	var heard []string
	for {
		reply, err := conn.Receive(10 * time.Second)
		if err != nil {
			d.failf("%v", err)
		}
		parts, ok := reply.([]any)
		if !ok || parts[0] == "pong" {
			return heard
		}
		if parts[0] == "message" {
			heard = append(heard, fmt.Sprintf("%s: %s", parts[1], parts[2]))
		}
	}
}

// crowd queues more dead waiters than one call may skip.
func (d *duel) crowd() {
	d.join(d.claims[0], joining{Claim: d.claims[0].claim})
	ttl := d.pick(30000, 1000)
	for i := range 60 + d.rand.IntN(80) {
		c := &duelist{number: 2, claim: lease.Claim{ID: fmt.Sprintf("crowd%017d", i), TTL: ttl}}
		d.join(c, joining{Claim: c.claim, channel: d.channel(2), marker: d.marker(2)})
	}
	d.listen(d.channel(2), false)
	d.pass()
}

func (d *duel) step() {
	c := d.claims[d.rand.IntN(len(d.claims))]
	d.said = nil
	switch dice := d.rand.IntN(100); {
	case dice < 42:
		d.join(c, d.joining(c))
	case dice < 62:
		d.leave(c)
	case dice < 74:
		d.renew(c)
	case dice < 80:
		d.inspect()
	case dice < 85:
		p := d.rand.IntN(3)
		d.listen(d.one(d.channel(p), d.marker(p), "news"), d.rand.IntN(2) == 0)
	case dice < 93:
		d.lists()
	case dice < 96:
		d.foreign()
	default:
		d.lose()
	}
}

func (d *duel) joining(c *duelist) joining {
	j := joining{Claim: c.claim, channel: d.channel(c.number), marker: d.marker(c.number)}
	if d.rand.IntN(6) == 0 {
		j.marker = ""
	}
	j.NoWait = d.rand.IntN(5) == 0
	j.OnSeal = lease.OnSeal(d.rand.IntN(2))
	if d.rand.IntN(6) == 0 {
		j.MaxWaiters = 1 + d.rand.IntN(2)
	}
	if d.rand.IntN(6) == 0 {
		j.Room = d.rand.IntN(lease.MaxRoom + 1)
	}
	if d.rand.IntN(10) == 0 {
		j.Fence = uint64(d.model.Now + d.rand.Int64N(400000) - 100000)
	}
	return j
}

func (d *duel) join(c *duelist, j joining) {
	d.note("join %s of process %d: ttl %v noWait %v onSeal %d most %d fence %d room %d marker %q",
		c.claim.ID, c.number, j.TTL, j.NoWait, j.OnSeal, j.MaxWaiters, j.Fence, j.Room, j.marker)
	want := d.model.Join(d.keys.lock(d.name), redismodel.Joining{
		ID: j.ID, Head: lease.TokenHead(j.ID), Tail: lease.TokenTail(j.Owner), TTL: j.TTL.Milliseconds(), Wait: !j.NoWait,
		SealFail: j.OnSeal == lease.SealFail, Most: j.MaxWaiters, Proposed: j.Fence, Room: j.Room, Channel: j.channel, Marker: j.marker,
	})
	got, err := d.scripts.join(d.t.Context(), d.keys.keys(d.name, j.ID), j)
	d.same("join", got, err, want)
	if want.Ticket != 0 {
		c.ticket = want.Ticket
	}
}

func (d *duel) leave(c *duelist) {
	l := leaving{id: c.claim.ID, remember: d.one("no", "absent", "absent", "always"), foreign: d.rand.IntN(3) == 0, news: "news"}
	switch d.rand.IntN(8) {
	case 0:
		l.seal = lease.Seal{For: d.pick(50, 5000, 30000), Value: "v"}
	case 1:
		l.seal = lease.Seal{For: time.Minute, Victim: c.claim.ID, By: "ops", Reason: "why not"}
	case 2:
		l.seal = lease.Seal{Victim: c.claim.ID, By: "ops"}
	case 3:
		l.only, l.remember = strconv.FormatUint(c.ticket+uint64(d.rand.IntN(2)), 10), "no"
	}
	d.note("leave %s of process %d: %+v", c.claim.ID, c.number, l)
	want := d.model.Leave(d.keys.lock(d.name), redismodel.Leaving{
		ID: l.id, Only: l.only, Remember: l.remember, StoneMS: lease.Tombstone.Milliseconds(), SealMS: l.seal.For.Milliseconds(),
		SealText: l.sealText(), Victim: l.seal.Victim, Foreign: l.foreign, News: l.news, Broken: l.broken(),
	})
	got, err := d.scripts.leave(d.t.Context(), d.keys.keys(d.name, l.id), l)
	d.same("leave", got, err, want)
}

func (d *duel) renew(c *duelist) {
	token := lease.Token{ID: c.claim.ID, Ticket: c.ticket - uint64(d.rand.IntN(5)/4), Owner: c.claim.Owner}
	if c.ticket == 0 {
		token.Ticket = 1
	}
	r := renewal{keys: d.keys.keys(d.name, c.claim.ID), token: token, ttl: d.pick(20, 1000, 30000)}
	if d.rand.IntN(3) == 0 {
		r.fence = min(c.ticket+uint64(d.rand.IntN(1000)), lease.MaxTicket)
	}
	d.note("renew %s with ticket %d for %v, fence %d", c.claim.ID, token.Ticket, r.ttl, r.fence)
	want := d.model.Renew(d.keys.lock(d.name), redismodel.Renewal{
		ID: token.ID, Token: token.String(), Ticket: token.Ticket, TTL: r.ttl.Milliseconds(), Fence: r.fence,
	})
	got, errs := d.scripts.renew(d.t.Context(), []renewal{r})
	d.same("renew", got[0], errs[0], want)
}

func (d *duel) inspect() {
	d.note("inspect")
	want := d.model.Inspect(d.keys.lock(d.name))
	fields, err := inspectScript.run(d.t.Context(), d.client, d.keys.keys(d.name, ""))
	if err != nil {
		d.failf("inspect: %v", err)
	}
	got, err := answered(fields[0].([]any), nil)
	d.same("inspect", got, err, want)
}

// lists are the scripts about what a process has and which names are closed.
func (d *duel) lists() {
	ctx, name := d.t.Context(), d.one("a", "b", "c")
	if d.rand.IntN(2) == 0 {
		key, life := "seals"+d.name, d.pick(50, 1000, 30000)
		d.note("seal %s for %v", name, life)
		d.model.NoteSeal(key, name, life.Milliseconds())
		if err := d.scripts.noteSeal(ctx, key, name, life); err != nil {
			d.failf("%v", err)
		}
		d.sameList(key, true)
		d.calls["seals"]++
		return
	}
	index, record := "index"+d.name, "record"+d.name
	e := entries{process: d.one("p", "q"), life: d.pick(50, 1000, 30000)}
	if d.rand.IntN(3) > 0 {
		e.add = []string{name, d.one("a", "d")}
	}
	if d.rand.IntN(2) == 0 {
		e.remove = []string{d.one("a", "b", "c", "d")}
	}
	d.note("record %+v", e)
	want := d.model.Record(index, record, e.process, e.life.Milliseconds(), e.add, e.remove)
	got, err := d.scripts.record(ctx, index, record, e)
	if err != nil || got != want {
		d.failf("the record was there: %v, %v; the model says %v", got, err, want)
	}
	d.sameList(index, true)
	d.sameList(record, false)
	d.calls["record"]++
}

func (d *duel) sameList(key string, scored bool) {
	ctx := d.t.Context()
	members, left := d.model.List(key)
	got := make(map[string]int64)
	if scored {
		for _, z := range d.client.ZRangeWithScores(ctx, key, 0, -1).Val() {
			got[z.Member.(string)] = int64(z.Score)
		}
	} else {
		for _, member := range d.client.SMembers(ctx, key).Val() {
			got[member] = 0
		}
	}
	if ms := mustDo(d.t, d.server, "PTTL", key); !maps.Equal(got, members) || ms != left {
		d.failf("%s has %v and lives for %v ms; the model says %v and %v", key, got, ms, members, left)
	}
}

// foreign is a client that knows no queue.
func (d *duel) foreign() {
	lock, ttl := d.keys.lock(d.name), d.pick(50, 3000, 30000).Milliseconds()
	switch d.rand.IntN(4) {
	case 0:
		d.note("SET NX by another library for %d ms", ttl)
		want := d.model.SetNX(lock, "theirs", ttl)
		if got := mustDo(d.t, d.server, "SET", lock, "theirs", "NX", "PX", strconv.FormatInt(ttl, 10)) != nil; got != want {
			d.failf("another library got the lock: %v; the model says %v", got, want)
		}
	case 1:
		d.note("SET without an end")
		d.model.Name(lock).Lock = redismodel.Text{There: true, Value: d.one("", "theirs", "a.1.7.x")}
		mustDo(d.t, d.server, "SET", lock, d.model.Name(lock).Lock.Value)
	default:
		d.note("DEL by another library")
		d.model.Name(lock).Lock = redismodel.Text{}
		mustDo(d.t, d.server, "DEL", lock)
	}
	d.compare()
}

// lose takes something away, or writes over it.
func (d *duel) lose() {
	n, keys := d.model.Name(d.keys.lock(d.name)), d.keys.keys(d.name, "")
	switch d.rand.IntN(3) {
	case 0:
		d.note("the queue is lost")
		n.Queue, n.About = nil, redismodel.About{}
		mustDo(d.t, d.server, "DEL", keys[queueKey], keys[aboutKey])
	case 1:
		d.note("the counter is lost")
		n.Last = redismodel.Text{}
		mustDo(d.t, d.server, "DEL", keys[lastKey])
	default:
		n.Last = redismodel.Text{There: true, Value: d.one("abc", "", "9007199254740925", "9007199254740926", "1e3", "12"), End: d.model.Now/1000 + 60000}
		d.note("the counter is %q", n.Last.Value)
		mustDo(d.t, d.server, "SET", keys[lastKey], n.Last.Value, "PX", "60000")
	}
	d.compare()
}

func (d *duel) same(verb string, got reply, err error, want redismodel.Reply) {
	d.t.Helper()
	d.calls[verb]++
	d.states[want.State]++
	if err != nil {
		d.failf("%s: %v", verb, err)
	}
	r := reply{
		state: want.State, ticket: want.Ticket, room: want.Room, prev: want.Prev, ahead: want.Ahead, lease: millis(want.Lease),
		taken: want.Taken, value: want.Value, left: millis(want.Left), sealText: want.Seal, sealLeft: millis(want.SealLeft),
		subscribed: want.Here > 0, more: want.More, push: want.Push, now: time.UnixMicro(want.Now),
	}
	if got != r {
		d.failf("%s: the script says\n %+v\nthe model\n %+v", verb, got, r)
	}
	heard := d.hear(d.ears)
	for _, message := range d.said {
		if strings.Contains(message, ": g\n") {
			d.states["given"]++
		}
	}
	slices.Sort(heard)
	slices.Sort(d.said)
	if !slices.Equal(heard, d.said) {
		d.failf("%s: published was\n %q\nthe model says\n %q", verb, heard, d.said)
	}
	d.said = nil
	d.compare()
}

// kept shows what is kept of a name; the hash is a list of fields and values.
var kept = newScript(`
local seen = {}
for i, key in ipairs(KEYS) do
  local kind = redis.call('TYPE', key).ok
  local value = ''
  if kind == 'string' then value = redis.call('GET', key) end
  if kind == 'zset' then value = redis.call('ZRANGE', key, 0, -1, 'WITHSCORES') end
  if kind == 'hash' then value = redis.call('HGETALL', key) end
  seen[i] = { redis.call('PTTL', key), value }
end
return seen`)

// compare looks at everything that both keep of the name.
func (d *duel) compare() {
	d.t.Helper()
	keys := d.keys.keys(d.name, "")[:stoneKey]
	for _, c := range d.claims {
		keys = append(keys, d.keys.keys(d.name, c.claim.ID)[stoneKey])
	}
	seen, err := kept.run(d.t.Context(), d.client, keys)
	if err != nil {
		d.failf("%v", err)
	}
	var got, want []string
	for i, key := range seen {
		parts := key.([]any)
		if parts[0] == int64(-2) {
			got = append(got, "-")
			continue
		}
		value := fmt.Sprint(parts[1])
		if fields, ok := parts[1].([]any); ok && i == aboutKey {
			value = fmt.Sprint(hashText(fields))
		}
		got = append(got, fmt.Sprintf("%v ms: %s", parts[0], value))
	}
	n := d.model.Name(d.keys.lock(d.name))
	for i := range keys {
		switch i {
		case lockKey:
			want = append(want, d.text(n.Lock))
		case queueKey:
			want = append(want, d.until(n.QueueEnd(), len(n.Queue) > 0, fmt.Sprint(n.QueueText())))
		case aboutKey:
			fields := n.Fields()
			want = append(want, d.until(n.AboutEnd(), len(fields) > 0, fmt.Sprint(fields)))
		case lastKey:
			want = append(want, d.text(n.Last))
		case sealedKey:
			want = append(want, d.text(n.Sealed))
		default:
			end, there := n.Stones[d.claims[i-stoneKey].claim.ID]
			want = append(want, d.until(end, there, "1"))
		}
	}
	if !slices.Equal(got, want) {
		d.failf("the server has\n %s\nthe model\n %s", strings.Join(got, "\n "), strings.Join(want, "\n "))
	}
}

func hashText(fields []any) map[string]string {
	m := make(map[string]string)
	for pair := range slices.Chunk(fields, 2) {
		m[pair[0].(string)] = pair[1].(string)
	}
	return m
}

func (d *duel) text(t redismodel.Text) string { return d.until(t.End, t.There, t.Value) }

func (d *duel) until(end int64, there bool, value string) string {
	left := int64(-1)
	if end != 0 {
		left = end - d.model.Now/1000
	}
	if !there {
		return "-"
	}
	return fmt.Sprintf("%d ms: %s", left, value)
}
