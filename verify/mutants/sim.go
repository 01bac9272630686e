package mutants

// simMutants are killed by the simulator: what ships is broken, or the model of the server,
// which the test of redisstore's scripts keeps the same as they are.
var simMutants = []Mutant{
	{
		Name: "games: trust counts from the reply", Rule: "6.1",
		File: "lease/keeper.go", Old: "	k.trust(sent, lease)\n", New: "	k.trust(now, lease)\n",
		Dir: "internal/sim", Run: "TestSeeds",
	},
	{
		Name: "games: no drift", Rule: "6.1",
		File: "lease/keeper.go", Old: "{ return ttl/100 + 2*time.Millisecond }", New: "{ return 0 }",
		Dir: "internal/sim", Run: "TestSeeds",
	},
	{
		Name: "games: the holder is not told when its trust ends", Rule: "6.1",
		File: "lease/keeper.go", Old: "	case now >= k.stop() && k.failing:", New: "	case now < k.stop()+Instant(time.Second):\n	case now >= k.stop() && k.failing:",
		Dir: "internal/sim", Run: "TestSeeds",
	},
	{
		Name: "games: an answer that comes too late is a lock", Rule: "6.1",
		File: "lease/ask.go", Old: "case a.joined && !enough:", New: "case false && !enough:",
		Dir: "internal/sim", Run: "TestSeeds",
	},
	{
		Name: "games: a cancelled acquire leaves its claim behind", Rule: "6.5",
		File: "lease/ask.go", Old: "a.Sent != 0 && !a.refused", New: "false && !a.refused",
		Dir: "internal/sim", Run: "TestSeeds",
	},
	{
		Name: "games: a claim in doubt leaves no stone", Rule: "6.5",
		File: "internal/lines/book.go", Old: "if k != nil && !k.Doubt {", New: "if k != nil {",
		Dir: "internal/sim", Run: "TestSeeds",
	},
	{
		Name: "games: a join that comes after its leave takes the lock", Rule: "6.5",
		File: "internal/redismodel/scripts.go", Old: "if _, left := n.Stones[j.ID]; left {", New: "if _, left := n.Stones[j.ID]; left && false {",
		Dir: "internal/sim", Run: "TestSeeds",
	},
	{
		Name: "games: a grant is dated from its receipt", Rule: "7 grant",
		File: "internal/lines/book.go", Old: "		st.State, st.Lease, st.Ahead,", New: "		st.Asked = w.Grant.At\n		st.State, st.Lease, st.Ahead,",
		Dir: "internal/sim", Run: "TestSeeds",
	},
	{
		Name: "games: a grant counts with any ticket", Rule: "7 grant",
		File: "internal/lines/book.go", Old: "case w.Grant.Ticket < k.Ticket || w.Grant.Ticket == 0:\n	case w.Grant.Ticket == k.Ticket &&", New: "case w.Grant.Ticket == 0:\n	case",
		Dir: "internal/sim", Run: "TestSeeds",
	},
	{
		Name: "games: a grant that nobody waits for is kept", Rule: "7 grant",
		File: "internal/lines/book.go", Old: "	if k == nil {\n		return true\n	}", New: "	if k == nil {\n		return false\n	}",
		Dir: "internal/sim", Run: "TestSeeds",
	},
	{
		Name: "games: nobody looks when the holder's lease is over", Rule: "7 nets",
		File: "internal/lines/line.go", Old: "		l.due = now.Add(d + b.jitter(2*time.Millisecond, 5*time.Millisecond))\n", New: "		l.due = lease.Never\n		_ = d\n",
		Dir: "internal/sim", Run: "TestSeeds",
	},
	{
		Name: "games: nobody looks after a foreign holder", Rule: "7 nets",
		File: "internal/lines/line.go", Old: "	case a.Foreign:", New: "	case false:",
		Dir: "internal/sim", Run: "TestSeeds",
	},
	{
		Name: "games: nobody looks after a new subscription", Rule: "7 subscription",
		File: "internal/lines/line.go", Old: "		b.lookAll(b.lines[name].waiting, spread, now)", New: "		_, _ = name, spread",
		Dir: "internal/sim", Run: "TestSeeds",
	},
	{
		Name: "games: whoever queues again keeps its ticket", Rule: "7 ticket",
		File: "internal/redismodel/scripts.go", Old: "		ticket, prev = draw(), highest\n",
		New: "		ticket, prev = draw(), highest\n		was := s.list(j.ID)\n		if was.end != 0 {\n			ticket = uint64(was.members[\"\"])\n		}\n" +
			"		was.members[\"\"], was.end = int64(ticket), 1<<62\n",
		Dir: "internal/sim", Run: "TestSeeds",
	},
	{
		Name: "games: tickets are the clock", Rule: "7 ticket",
		File: "internal/redismodel/scripts.go", Old: "		return max(highest+1+uint64(room), floor)", New: "		return floor",
		Dir: "internal/sim", Run: "TestSeeds",
	},
	{
		Name: "games: tickets are the clients' clocks", Rule: "7 ticket",
		File: "internal/redismodel/scripts.go", Old: "		return max(highest+1+uint64(room), floor)", New: "		return floor + 20000*uint64(j.Channel[1]-'0')",
		Dir: "internal/sim", Run: "TestSeeds",
	},
	{
		Name: "games: tickets are counted without the clock", Rule: "7 ticket",
		File: "internal/redismodel/scripts.go", Old: "			floor = uint64(s.Now)\n", New: "			floor = 1\n",
		Dir: "internal/sim", Run: "TestSeeds",
	},
	{
		Name: "games: a renewal brings back what is gone", Rule: "6.8",
		File: "internal/redismodel/scripts.go", Old: "	c.seal = n.Sealed\n	if i := n.rank(r.ID); i >= 0 && n.Queue",
		New: "	if !c.value.There {\n		n.Lock = s.text(r.Token, r.TTL)\n		c.value = n.Lock\n		return c.answer(\"held\", fields{ticket: r.Ticket, lease: r.TTL, left: unknown})\n	}\n" +
			"	c.seal = n.Sealed\n	if i := n.rank(r.ID); i >= 0 && n.Queue",
		Dir: "internal/sim", Run: "TestSeeds",
	},
	{
		Name: "games: a release does not compare", Rule: "7 release",
		File: "internal/redismodel/scripts.go", Old: "	if mine(c.value, l.ID) && (l.Only", New: "	if c.value.There && (l.Only",
		Dir: "internal/sim", Run: "TestSeeds",
	},
	{
		Name: "games: a release is DEL, and hands nothing over", Rule: "7 release",
		File: "internal/redismodel/scripts.go", Old: "			c.promote(\"\")\n			c.keep(hour)\n", New: "			c.keep(hour)\n",
		Dir: "internal/sim", Run: "TestSeeds",
	},
	{
		Name: "games: a join does not know its own claim", Rule: "7 join",
		File: "internal/redismodel/scripts.go", Old: "	if mine(c.value, j.ID) {\n		left := c.raise(j.TTL)", New: "	if false {\n		left := c.raise(j.TTL)",
		Dir: "internal/sim", Run: "TestSeeds",
	},
	{
		Name: "games: a join passes those who wait", Rule: "7 join",
		File: "internal/redismodel/scripts.go", Old: "	if !c.value.There && !c.seal.There && waiting == 0 {", New: "	if !c.value.There && !c.seal.There {",
		Dir: "internal/sim", Run: "TestSeeds",
	},
	{
		Name: "games: a look does not hand a free lock on", Rule: "7 nets",
		File: "internal/redismodel/scripts.go", Old: "			if ticket, e, itself := c.promote(j.ID); itself {", New: "			if ticket, e, itself := uint64(0), (Entry{}), false; itself {",
		Dir: "internal/sim", Run: "TestSeeds",
	},
	{
		Name: "games: the dead are not skipped", Rule: "7 order",
		File: "internal/redismodel/scripts.go", Old: "		case !ok || c.s.Subscribers(e.Channel) == 0:\n			c.n.remove(first.ID)", New: "		case !ok || c.s.Subscribers(e.Channel) == 0:\n			return 0, Entry{}, false",
		Dir: "internal/sim", Run: "TestSeeds",
	},
	{
		Name: "games: a process that answered loses its places all the same", Rule: "7 order",
		File: "internal/redismodel/scripts.go", Old: "		left := c.raise(r.TTL)\n		n.dropGrant()\n", New: "		left := c.raise(r.TTL)\n",
		Dir: "internal/sim", Run: "TestSeeds",
	},
	{
		Name: "games: a gap is told to one process", Rule: "7 nets",
		File: "internal/redismodel/server.go", Old: "	pointed = 3\n", New: "	pointed = 1\n",
		Dir: "internal/sim", Run: "TestGamesThatWereLost",
	},
	{
		Name: "games: a lost grant is looked at after its process has queued again", Rule: "7 order",
		File: "internal/redismodel/scripts.go", Old: "		if waiting == 0 {\n			c.settle()\n		}\n", New: "",
		Dir: "internal/sim", Run: "TestGamesThatWereLost",
	},
	{
		Name: "a lost grant is looked at after its process has queued again", Rule: "7 order",
		File: "redisstore/scripts/join.lua", Old: "  if waiting == 0 then settle() end", New: "",
		Dir: "redisstore", Run: "TestWhoComesBack",
	},
	{
		Name: "games: readers are not counted", Rule: "6.1",
		File: "lease/queue.go", Old: "		used += e.Weight()\n		if used > e.Capacity() {\n			return", New: "		used += e.Weight()\n		if e.Mode == Exclusive && used > e.Capacity() {\n			return",
		Dir: "internal/sim", Run: "TestSeeds",
	},
	{
		Name: "games: the queue has no end", Rule: "7 keys",
		File: "internal/redismodel/scripts.go", Old: "	if len(c.n.Queue) > 0 && c.n.queueEnd < end {", New: "	if false {",
		Dir: "internal/sim", Run: "TestSeeds",
	},
	{
		Name: "a gap is told to one process", Rule: "7 nets",
		File: "redisstore/scripts/prelude.lua", Old: "local POINTED = 3 ", New: "local POINTED = 1 ",
		Dir: "redisstore", Run: "TestAGapEnds",
	},
	{
		Name: "duel: a script and its model differ", Rule: "7 scripts",
		File: "redisstore/scripts/leave.lua", Old: "  set_stone('held')\n", New: "",
		Dir: "redisstore", Run: "TestTheScriptsAreTheModel",
	},
}
