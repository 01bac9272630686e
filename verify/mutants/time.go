package mutants

// timeMutants break the rules of time: when trust begins, ends, and is renewed.
var timeMutants = []Mutant{
	{
		Name: "trust counts from the reply", Rule: "6.1",
		File: "keep.go", Old: "return e.keeper.Renewed(now, sent, ref.TTL)", New: "return e.keeper.Renewed(now, now, ref.TTL)",
		Dir: ".", Run: "TestRule1",
	},
	{
		Name: "a renewal without an answer buys trust", Rule: "6.1",
		File: "keep.go", Old: "return e.keeper.Failed(now, sent, out.Err)", New: "return e.keeper.Renewed(now, sent, ref.TTL)",
		Dir: ".", Run: "TestRule1",
	},
	{
		Name: "no drift", Rule: "6.1",
		File: "lease/keeper.go", Old: "{ return ttl/100 + 2*time.Millisecond }", New: "{ return 0 }",
		Dir: "lease", Run: "TestDrift|TestKeeper",
	},
	{
		Name: "an answer that comes too late is a lock", Rule: "6.1",
		File: "lease/ask.go", Old: "case a.joined && !enough:", New: "case false && !enough:",
		Dir: ".", Run: "TestRule1",
	},
	{
		Name: "observers are told before the contexts end", Rule: "6.1",
		File: "keep.go", Old: "	for _, e := range lost {\n		e.hold.lose(*e.keeper.Lost())\n	}\n	for _, e := range lost {\n",
		New: "	for _, e := range lost {\n		defer e.hold.lose(*e.keeper.Lost())\n",
		Dir: ".", Run: "TestRule1",
	},
	{
		Name: "the clock stands still while the machine sleeps", Rule: "6.2",
		File: "internal/elapsed/elapsed.go", Old: " + asleep() - before + time.Duration(extra.Load()))", New: ")",
		Dir: ".", Run: "TestRule2",
	},
	{
		Name: "timers are trusted for longer than a second", Rule: "6.2",
		File: "keep.go", Old: "nap = min(k.due[0].next.Sub(now), longNap)", New: "nap = k.due[0].next.Sub(now)",
		Dir: ".", Run: "TestRule2",
	},
	{
		Name: "the acquire's context is the hold's", Rule: "6.3",
		File: "held.go", Old: "context.WithCancelCause(context.WithoutCancel(caller))", New: "context.WithCancelCause(caller)",
		Dir: ".", Run: "TestRule3",
	},
	{
		Name: "Do does not end with its caller", Rule: "6.3",
		File: "redlatch.go", Old: "inner, cancel := joinContext(held.Context(), ctx)", New: "inner, cancel := joinContext(held.Context(), context.Background())",
		Dir: ".", Run: "TestRule3",
	},
	{
		Name: "the stop margin is forgotten", Rule: "5",
		File: "lease/keeper.go", Old: "{ return k.until.Add(-k.terms.StopMargin) }", New: "{ return k.until }",
		Dir: ".", Run: "TestStopMargin",
	},
	{
		Name: "MaxHold is forgotten", Rule: "5",
		File: "lease/keeper.go", Old: "if k.terms.MaxHold == 0 {", New: "if true {",
		Dir: ".", Run: "TestRule10",
	},
	{
		Name: "a lease of no time is sent", Rule: "6.7",
		File: "options.go", Old: "case o.TTL < f.MinTTL:", New: "case o.TTL < 0:",
		Dir: ".", Run: "TestRule7",
	},
	{
		Name: "parts of a millisecond are cut off", Rule: "6.7",
		File: "options.go", Old: "	o.TTL = ceilMillisecond(o.TTL)\n", New: "",
		Dir: ".", Run: "TestRule7",
	},
	{
		Name: "a failed renewal is not tried again", Rule: "6.8",
		File: "lease/keeper.go", Old: "	k.next = now.Add(min(max(k.terms.TTL/12, 5*time.Millisecond), time.Second))", New: "	k.next = Never",
		Dir: ".", Run: "TestRule8",
	},
	{
		Name: "a renewal is sent after Unlock", Rule: "6.8",
		File: "keep.go", Old: "	if landed != nil {\n		<-landed\n	}", New: "	_ = landed",
		Dir: ".", Run: "TestRule8|TestUnlockWaits",
	},
	{
		Name: "one lock's trouble ends the renewal of its batch", Rule: "6.8",
		File: "keep.go", Old: "outcomes := k.l.store.Renew(ctx, refs)\n	k.land(batch, refs, outcomes, sent)",
		New: "outcomes := k.l.store.Renew(ctx, refs)\n	for i := range outcomes {\n		if outcomes[i].Err != nil {\n			for j := range outcomes {\n				outcomes[j] = outcomes[i]\n			}\n		}\n	}\n	k.land(batch, refs, outcomes, sent)",
		Dir: ".", Run: "TestRule8",
	},
}
