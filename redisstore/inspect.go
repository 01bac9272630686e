package redisstore

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redlatch/redlatch/lease"
)

// Inspect implements [driver.Store]. A waiter's entry has no Expires: a place in this
// queue lasts for as long as its process can be told. A holder's Joined is its ticket
// read as a time, which a ticket nearly is; its Granted is that too, unless the lock
// was handed to it later. Its TTL is 0: the server knows what is left of a lease, and not
// how long it was.
func (s *Store) Inspect(ctx context.Context, name string) (lease.Queue, error) {
	q, err := bound(ctx, func() (lease.Queue, error) { return s.moves.inspect(ctx, s.keys.keys(name, "")) })
	if err != nil {
		return lease.Queue{}, fault(s.explain(name, err))
	}
	return q, nil
}

func parseQueue(fields []any) (lease.Queue, error) {
	p := parser{fields: fields}
	head, ok := p.next().([]any)
	if !ok {
		return lease.Queue{}, fmt.Errorf("an answer without its head")
	}
	r, err := parseReply(head)
	if err != nil {
		return lease.Queue{}, err
	}
	places, entries, last := p.pairs(), p.pairs(), p.number()
	if p.err != nil {
		return lease.Queue{}, p.err
	}
	about := make(map[string]string)
	for _, pair := range entries {
		about[pair[0]] = pair[1]
	}
	var waiting []redis.Z
	for _, pair := range places {
		score, err := strconv.ParseFloat(pair[1], 64)
		if err != nil {
			return lease.Queue{}, fmt.Errorf("a place %q in the queue", pair[1])
		}
		waiting = append(waiting, redis.Z{Member: pair[0], Score: score})
	}
	return queue(r, last, waiting, about)
}

// queue puts together what is kept of a name. about is the hash that goes with the places.
func queue(r reply, last uint64, waiting []redis.Z, about map[string]string) (lease.Queue, error) {
	q := lease.Queue{Now: r.now, Last: last}
	if r.taken {
		e, err := holderEntry(r, about)
		if err != nil {
			return lease.Queue{}, err
		}
		q.Claims = append(q.Claims, e)
	}
	for _, z := range waiting {
		id, _ := z.Member.(string)
		if e, ok := waiterEntry(id, z.Score, about[id]); ok {
			q.Claims = append(q.Claims, e)
		}
	}
	q.SetSeal(parseSeal(r.sealText, r.sealLeft))
	return q, nil
}

func holderEntry(r reply, about map[string]string) (lease.Entry, error) {
	h, err := parseHolder(r.value)
	if err != nil {
		return lease.Entry{}, err
	}
	e := lease.Entry{Claim: lease.Claim{ID: h.ID, Owner: h.Owner}, Ticket: h.Ticket, Foreign: h.Foreign}
	if r.left >= 0 {
		e.Expires = r.now.Add(r.left)
	}
	if h.ID == "" {
		e.Joined, e.Granted = r.now, r.now // since when is not known
		return e, nil
	}
	e.Joined = time.UnixMicro(int64(h.Ticket))
	e.Granted = e.Joined
	var ticket uint64
	var ms int64
	if n, _ := fmt.Sscanf(about["!since"], "%d %d", &ticket, &ms); n == 2 && ticket == h.Ticket {
		e.Granted = time.UnixMilli(ms)
	}
	return e, nil
}

// waiterEntry reads what function pack in scripts/prelude.lua writes.
func waiterEntry(id string, ticket float64, text string) (lease.Entry, bool) {
	parts, ok := cutAll(text, 7)
	if !ok {
		return lease.Entry{}, false
	}
	ttl, err := strconv.ParseUint(parts[1], 10, 53)
	room, err2 := strconv.ParseUint(parts[2], 10, 31)
	joined, err3 := strconv.ParseUint(parts[3], 10, 53)
	token, err4 := lease.ParseToken(parts[4] + "0" + parts[6])
	if err != nil || err2 != nil || err3 != nil || err4 != nil || !(ticket > 0 && ticket < 1<<53) {
		return lease.Entry{}, false
	}
	return lease.Entry{
		Claim:  lease.Claim{ID: id, Owner: token.Owner, TTL: millis(int64(ttl)), Room: int(room)},
		Ticket: uint64(ticket), Room: int(room), Joined: time.UnixMilli(int64(joined)),
	}, true
}
