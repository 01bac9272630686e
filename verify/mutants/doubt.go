package mutants

// doubtMutants break the rules about calls whose answer is lost, and about what is said
// to the caller.
var doubtMutants = []Mutant{
	{
		Name: "a release that failed is forgotten", Rule: "6.4",
		File: "held.go", Old: "		h.l.leavings.addSealed(h.name, h.token.ID, seal, end)\n", New: "",
		Dir: ".", Run: "TestRule4",
	},
	{
		Name: "a release runs on the cancelled context", Rule: "6.4",
		File: "held.go", Old: "context.WithTimeout(context.Background(), patience)", New: "context.WithTimeout(h.ctx, patience)",
		Dir: ".", Run: "TestRule4",
	},
	{
		Name: "a failed acquire leaves its claim behind", Rule: "6.5",
		File: "acquire.go", Old: "; err != nil && owes {", New: "; false && owes {",
		Dir: ".", Run: "TestRule5",
	},
	{
		Name: "a failed acquire gives up after one leave", Rule: "6.5",
		File: "leave.go", Old: "return err == nil || !errors.Is(storeError(err), ErrUnavailable) || now >= e.until", New: "_, _ = errors.Is, err\n	return true",
		Dir: ".", Run: "TestRule5|TestRule4",
	},
	{
		Name: "a release that was carried out and asked again is a loss", Rule: "6.5",
		File: "held.go", Old: "case h.trusted && !(first && (st.Once || st.Holder != nil)):", New: "case false:",
		Dir: ".", Run: "TestRule5",
	},
	{
		Name: "a release that finds somebody else is success", Rule: "6.5",
		File: "held.go", Old: "case h.trusted && !(first && (st.Once || st.Holder != nil)):", New: "case true:",
		Dir: ".", Run: "TestRule5",
	},
	{
		Name: "a release that finds nothing at first sight is success", Rule: "6.5",
		File: "held.go", Old: "(st.Once || st.Holder != nil)", New: "st.Holder != nil",
		Dir: ".", Run: "TestRule5",
	},
	{
		Name: "a lost hold is released for as long as a held one", Rule: "6.4",
		File: "held.go", Old: "		patience = lostPatience\n", New: "",
		Dir: ".", Run: "TestRule4",
	},
	{
		Name: "no answer is held", Rule: "6.6",
		File: "acquire.go", Old: "return &kinded{ErrUnavailable, fmt.Errorf(\"no answer within", New: "return &kinded{ErrHeld, fmt.Errorf(\"no answer within",
		Dir: ".", Run: "TestRule6",
	},
	{
		Name: "denied is unavailable", Rule: "6.6",
		File: "errors.go", Old: "		kind = ErrDenied\n", New: "",
		Dir: ".", Run: "TestRule6",
	},
	{
		Name: "a call to a server that hangs hangs", Rule: "6.6",
		File: "redisstore/bound.go", Old: "case <-ctx.Done():", New: "case <-make(chan struct{}):",
		Dir: "redisstore", Run: "TestACallToAStoppedServer",
	},
	{
		Name: "a notice is taken for proof", Rule: "6.10",
		File: "keep.go", Old: "lost := out.Err == nil && out.State != lease.Held && k.settle(", New: "lost := k.settle(",
		Dir: ".", Run: "TestANotice",
	},
	{
		Name: "a notice renews", Rule: "6.8",
		File: "keep.go", Old: "ttl := k.l.features.MinTTL", New: "ttl := k.ttl(e)",
		Dir: ".", Run: "TestANotice",
	},
	{
		Name: "a broken holder is not told why", Rule: "6.10",
		File: "keep.go", Old: "if loss.Why != lease.Broken && e.notice != nil {", New: "if false {",
		Dir: ".", Run: "TestABrokenHold",
	},
	{
		Name: "a loss has no reason", Rule: "6.10",
		File: "held.go", Old: "	case victim == id:\n", New: "	case victim == \"\":\n",
		Dir: ".", Run: "TestRule10",
	},
	{
		Name: "a claim that left too early joins nevertheless", Rule: "6.5",
		File: "lease/queue.go", Old: "		q.left[id] = q.Now.Add(Tombstone)\n", New: "",
		Dir: "memstore", Run: "TestConformance",
	},
	{
		Name: "a renewal revives", Rule: "6.8",
		File: "redisstore/scripts/renew.lua", Old: "if value == token then", New: "if value == token or not value then\n  redis.call('SET', lock, token, 'PX', ttl)",
		Dir: "redisstore", Run: "TestARenewalNever",
	},
	{
		Name: "no poke when the holder's lease runs out", Rule: "6.9",
		File: "internal/lines/line.go", Old: "		l.due = now.Add(d + b.jitter(2*time.Millisecond, 5*time.Millisecond))\n", New: "		l.due = lease.Never\n		_ = d\n",
		Dir: "redisstore", Run: "TestALostMessage|TestAHolderThatDies",
	},
}
