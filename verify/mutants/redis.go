package mutants

// redisMutants break the scripts' compares, the order of a hand-over, and what a process
// believes of the messages it gets.
var redisMutants = []Mutant{
	{
		Name: "a release does not compare", Rule: "7 release",
		File: "redisstore/scripts/leave.lua", Old: "if mine(value, id) and (only", New: "if value and (only",
		Dir: "redisstore", Run: "TestConformance",
	},
	{
		Name: "a give-back does not compare the ticket", Rule: "7 grant",
		File: "redisstore/scripts/leave.lua", Old: "and (only == '' or ticket_of(value) == only) then", New: "then",
		Dir: "redisstore", Run: "TestOnlyTheGrant",
	},
	{
		Name: "an ID that begins another is the same", Rule: "7 keys",
		File: "redisstore/scripts/renew.lua", Old: "if value == token then", New: "if mine(value, id) then",
		Dir: "redisstore", Run: "TestARenewalNever|TestConformance",
	},
	{
		Name: "a release hands nothing over", Rule: "7 release",
		File: "redisstore/scripts/leave.lua", Old: "    if foreign then leave_gap() end\n    promote()\n", New: "    if foreign then leave_gap() end\n",
		Dir: "redisstore", Run: "TestHandOversCost|TestAReleaseHands",
	},
	{
		Name: "a join does not know its own claim", Rule: "7 join",
		File: "redisstore/scripts/join.lua", Old: "if mine(value, id) then", New: "if false then",
		Dir: "redisstore", Run: "TestTheSameJoin|TestConformance",
	},
	{
		Name: "a join passes those who wait", Rule: "7 join",
		File: "redisstore/scripts/join.lua", Old: "if not value and not seal and waiting == 0 then", New: "if not value and not seal then",
		Dir: "redisstore", Run: "TestWhoIsInTheWay",
	},
	{
		Name: "a join that comes after its leave takes the lock", Rule: "6.5",
		File: "redisstore/scripts/join.lua", Old: "if strings[3] then return answer('left') end", New: "",
		Dir: "redisstore", Run: "TestAJoinThatComesAfter|TestConformance",
	},
	{
		Name: "a claim in doubt leaves no stone", Rule: "6.5",
		File: "internal/lines/book.go", Old: "if k != nil && !k.Doubt {", New: "if k != nil {",
		Dir: "redisstore", Run: "TestACopyOfAJoin",
	},
	{
		Name: "SET comes before anything that is allowed under full memory", Rule: "7 order",
		File: "redisstore/scripts/leave.lua", Old: "  redis.call('DEL', lock) -- first: it is allowed under full memory, and lets the rest be\n  value = false\n  set_stone('held')",
		New: "  redis.call('SET', stone, '1', 'PX', 1)\n  redis.call('DEL', lock)\n  value = false\n  set_stone('held')",
		Dir: "redisstore", Run: "TestALockIsHandedOverUnderFullMemory",
	},
	{
		Name: "a grant that cannot be told stands", Rule: "7 order",
		File: "redisstore/scripts/prelude.lua", Old: "  if heard == 0 then\n    redis.call('DEL', lock)\n    return 'dead'\n  end\n", New: "",
		Dir: "redisstore", Run: "TestWithoutTheRightToAsk",
	},
	{
		Name: "a grant without the right to publish stands", Rule: "7 order",
		File: "redisstore/scripts/prelude.lua", Old: "    redis.call('DEL', lock)\n    restore(id, ticket, e)\n    push = 0", New: "    push = 0",
		Dir: "redisstore", Run: "TestWithoutTheRightToPublish",
	},
	{
		Name: "a monitor's pattern is a subscriber", Rule: "7 order",
		File: "redisstore/scripts/prelude.lua", Old: "    elseif not e or subscribers(e.channel) == 0 then", New: "    elseif not e then",
		Dir: "redisstore", Run: "TestAWaiterOfADeadProcess",
	},
	{
		Name: "a frozen process is granted once for each of its waiters", Rule: "7 order",
		File: "redisstore/scripts/prelude.lua", Old: "      if not e or e.channel == channel then remove(other) end", New: "",
		Dir: "redisstore", Run: "TestAFrozenProcess",
	},
	{
		Name: "a process that answered loses its places all the same", Rule: "7 order",
		File: "redisstore/scripts/renew.lua", Old: "  redis.call('HDEL', about, '!grant') -- the process lives\n", New: "",
		Dir: "redisstore", Run: "TestAProcessThatAnswered|TestTheGrantsOfALiving",
	},
	{
		Name: "the dead are skipped once and no further", Rule: "7 order",
		File: "redisstore/join.go", Old: "		if r.more && r.state != \"held\" {\n			continue // more dead waiters than one call may skip\n		}\n", New: "",
		Dir: "redisstore", Run: "TestAJoinSkips",
	},
	{
		Name: "a claim is queued before the subscription is there", Rule: "7 subscription",
		File: "redisstore/join.go", Old: "		sub = s.inbox.open(ctx)\n", New: "		s.inbox.start()\n",
		Dir: "redisstore", Run: "TestAReleaseHands|TestHandOversCost",
	},
	{
		Name: "a silent subscription is believed", Rule: "7 subscription",
		File: "redisstore/inbox.go", Old: "			if now.Sub(heard) >= silent {\n				return errSilent\n			}\n", New: "",
		Dir: "redisstore", Run: "TestASubscriptionThatDiesSilently",
	},
	{
		Name: "nobody looks after a new subscription", Rule: "7 subscription",
		File: "redisstore/inbox.go", Old: "	in.settle()\n	in.mu.Unlock()\n\n	in.s.lookEverywhere()\n", New: "	in.settle()\n	in.mu.Unlock()\n",
		Dir: "redisstore", Run: "TestASubscriptionThatDies|TestWaitersAfterARestart",
	},
	{
		Name: "a connection that the client replaced is the same", Rule: "7 subscription",
		File: "redisstore/inbox.go", Old: "			if acks++; acks > channels {\n				return errReplaced\n			}", New: "			acks++",
		Dir: "redisstore", Run: "TestAConnectionThatTheClientReplaced",
	},
	{
		Name: "a grant counts from any server", Rule: "7 subscription",
		File: "internal/lines/book.go", Old: "case w.Grant.Ticket == k.Ticket && w.Grant.Subscription == w.Dated:", New: "case w.Grant.Ticket == k.Ticket:",
		Dir: "redisstore", Run: "TestAGrantByAnotherServer",
	},
	{
		Name: "a grant counts with any ticket", Rule: "7 grant",
		File: "internal/lines/book.go", Old: "case w.Grant.Ticket < k.Ticket || w.Grant.Ticket == 0:\n	case w.Grant.Ticket == k.Ticket &&", New: "case w.Grant.Ticket == 0:\n	case",
		Dir: "redisstore", Run: "TestAGrantThatWasStuck",
	},
	{
		Name: "a grant is dated from its receipt", Rule: "7 grant",
		File: "internal/lines/book.go", Old: "		st.State, st.Lease, st.Ahead,", New: "		st.Asked = w.Grant.At\n		st.State, st.Lease, st.Ahead,",
		Dir: "redisstore", Run: "TestAReleaseHands|TestConformance|TestAGrantThatComesBefore|TestHandOvers",
	},
	{
		Name: "an old grant is not confirmed", Rule: "7 grant",
		File: "lease/ask.go", Old: "case !a.joined && (!enough || a.Confirm):", New: "case false:",
		Dir: ".", Run: "TestAGrantThatIsOld",
	},
	{
		Name: "a grant that nobody waits for is kept", Rule: "7 grant",
		File: "redisstore/inbox.go", Old: "			s.giveBack(ctx, name, id, parts[1])\n", New: "			_ = ctx\n",
		Dir: "redisstore", Run: "TestAGrantThatNobody",
	},
	{
		Name: "tickets are counted without the clock", Rule: "7 ticket",
		File: "redisstore/scripts/join.lua", Old: "if floor == 0 then floor = now end", New: "",
		Dir: "redisstore", Run: "TestFencesGrow",
	},
	{
		Name: "tickets are the clock", Rule: "7 ticket",
		File: "redisstore/scripts/join.lua", Old: "return math.max(highest + 1 + room, floor)", New: "return floor",
		Dir: "redisstore", Run: "TestFencesGrow|TestConformance",
	},
	{
		Name: "tickets run ahead of the clock", Rule: "7 ticket",
		File: "redisstore/scripts/join.lua", Old: "if highest - now > AHEAD then room = 0 end", New: "",
		Dir: "redisstore", Run: "TestNoRoom",
	},
	{
		Name: "a counter that somebody wrote over is a number", Rule: "7 ticket",
		File: "redisstore/scripts/prelude.lua", Old: "string.match(text, '^%d+$') and tonumber(text)", New: "tonumber(text)",
		Dir: "redisstore", Run: "TestFencesGrow",
	},
	{
		Name: "tickets are counted where numbers have gaps", Rule: "7 ticket",
		File: "redisstore/scripts/prelude.lua", Old: "return n and n < 9007199254740992 - 66 and n or 0", New: "return n or 0",
		Dir: "redisstore", Run: "TestFencesGrow",
	},
	{
		Name: "tickets lose digits", Rule: "7 ticket",
		File: "redisstore/scripts/prelude.lua", Old: "return string.format('%.0f', n) end", New: "return tostring(n) end",
		Dir: "redisstore", Run: "TestTheTokenIs|TestConformance",
	},
	{
		Name: "a renewal shortens", Rule: "4",
		File: "redisstore/scripts/prelude.lua", Old: "  if left < ms then left = ms end\n", New: "  left = ms\n",
		Dir: "redisstore", Run: "TestARenewalNever",
	},
	{
		Name: "the queue has no end", Rule: "7 keys",
		File: "redisstore/scripts/prelude.lua", Old: "    if left ~= -2 and left < ms then\n", New: "    if false then\n",
		Dir: "redisstore", Run: "TestNothingOverlaps|TestConformance",
	},
	{
		Name: "a key lands in another slot", Rule: "7 keys",
		File: "redisstore/keys.go", Old: "	case !strings.Contains(key, \"}\"):", New: "	case true:",
		Dir: "redisstore", Run: "TestAllKeysOfAName|FuzzKeys",
	},
	{
		Name: "nobody looks after a foreign holder", Rule: "7 nets",
		File: "internal/lines/line.go", Old: "	case a.Foreign:", New: "	case false:",
		Dir: "redisstore", Run: "TestForeignHolders|TestAForeignHolder",
	},
	{
		Name: "who cannot be told waits for the end of the lease", Rule: "7 nets",
		File: "redisstore/scripts/join.lua", Old: "here > 0 and tells(channel) and 'c'", New: "here > 0 and 'c'",
		Dir: "redisstore", Run: "TestWhereNobodyMayPublish",
	},
	{
		Name: "who finds the lock free with its place lost wakes nobody", Rule: "7 nets",
		File: "internal/lines/book.go", Old: "if l := b.lines[k.Name]; again && l != nil {", New: "if l := b.lines[k.Name]; false && l != nil {",
		Dir: "redisstore", Run: "TestAQueueThatWasLost",
	},
	{
		Name: "a release that finds waiters without places tells nobody", Rule: "7 nets",
		File: "redisstore/scripts/leave.lua", Old: "    tell('l\\n' .. lock)", New: "",
		Dir: "redisstore", Run: "TestAReleaseTellsThose",
	},
	{
		Name: "foreign clients starve", Rule: "7 nets",
		File: "redisstore/scripts/leave.lua", Old: "  if turns < TURNS and now_ms - since < TURNS_MS then", New: "  if true then",
		Dir: "redisstore", Run: "TestForeignClientsGetAGap",
	},
	{
		Name: "a break does not close the name", Rule: "7 break",
		File: "redisstore/scripts/leave.lua", Old: "  if victim == id and seal_ms > 0 then\n    seal_ms = lease", New: "  if victim == id and seal_ms > 0 then\n    seal_ms = 0",
		Dir: "redisstore", Run: "TestABreakKeeps",
	},
	{
		Name: "a break tells nobody", Rule: "7 break",
		File: "redisstore/scripts/leave.lua", Old: "  if broken then redis.pcall('PUBLISH', news,", New: "  if false then redis.pcall('PUBLISH', news,",
		Dir: "redisstore", Run: "TestAHolderListens|TestAWaiterThatIsBroken",
	},
	{
		Name: "a seal closes nothing", Rule: "7 scripts",
		File: "redisstore/scripts/prelude.lua", Old: "  if seal then return 'sealed' end\n", New: "",
		Dir: "redisstore", Run: "TestASealTells",
	},
	{
		Name: "a server that lost the scripts is an error", Rule: "7 scripts",
		File: "redisstore/script.go", Old: "return serverCode(err) == \"NOSCRIPT\"", New: "return false",
		Dir: "redisstore", Run: "TestScriptsAreSentAgain",
	},
	{
		Name: "another format's key is free", Rule: "7 scripts",
		File: "redisstore/scripts/join.lua", Old: "value = redis.call('GET', lock) -- not", New: "value = redis.pcall('GET', lock)\nif type(value) == 'table' then value = false end -- not",
		Dir: "redisstore", Run: "TestKindsOfTrouble",
	},
	{
		Name: "a script calls what no user was told to grant", Rule: "7 scripts",
		File: "redisstore/scripts/prelude.lua", Old: "if not redis.call('HGET', about, field) then", New: "if redis.call('HEXISTS', about, field) == 0 then",
		Dir: "redisstore", Run: "TestEveryCommand|TestTheDocumented",
	},
	{
		Name: "an empty value is nobody's", Rule: "7 keys",
		File: "redisstore/reply.go", Old: "p.fields[0] != nil }", New: "p.fields[0] != nil && p.fields[0] != \"\" }",
		Dir: "redisstore", Run: "TestAnEmptyValue",
	},
	{
		Name: "a hold that a newer release took is out of reach", Rule: "7 scripts",
		File: "redisstore/reply.go", Old: "			h = lease.Holder{Foreign: r.value,", New: "			return lease.Standing{}, err\n			h = lease.Holder{Foreign: r.value,",
		Dir: "redisstore", Run: "TestAHoldThatANewer",
	},
	{
		Name: "who asks for what a newer release holds waits for it", Rule: "7 scripts",
		File: "redisstore/join.go", Old: "firstError(err, r.newer())", New: "firstError(err)",
		Dir: "redisstore", Run: "TestAHoldThatANewer|TestKindsOfTrouble",
	},
	{
		Name: "in plain mode a connection that is refused is a lock that is held", Rule: "6.6",
		File: "redisstore/transaction.go", Old: "failed != nil && multi.Err() == nil && multi.Val() == nil {", New: "false && failed != nil {",
		Dir: "redisstore", Run: "TestKindsOfTroubleOfAConnection",
	},
	{
		Name: "a sealed name is not listed", Rule: "7 keys",
		File: "redisstore/leave.go", Old: "		s.noteSeal(ctx, name, st, leaving{id: id, seal: seal})\n", New: "",
		Dir: "redisstore", Run: "TestConformance",
	},
	{
		Name: "a lock is taken that could not be released", Rule: "6.7",
		File: "redisstore/scripts/join.lua", Old: "  if denied then return denied end\n", New: "",
		Dir: "redisstore", Run: "TestLessOneRight",
	},
	{
		Name: "what could not be given an end stays", Rule: "6.7",
		File: "redisstore/scripts/record.lua", Old: "-- Where the end cannot be set, nothing is: there may be nothing yet that could have one.\nredis.call('PEXPIRE', record, life)\n", New: "",
		Dir: "redisstore", Run: "TestLessOneRight",
	},
	{
		Name: "a Ring is accepted", Rule: "7 scripts",
		File: "redisstore/store.go", Old: "	case *redis.Ring:\n", New: "	case interface{ never() }:\n",
		Dir: "redisstore", Run: "TestClientsThatAreRefused",
	},
}
