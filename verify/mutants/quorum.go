package mutants

// quorumMutants break what a quorum promises.
var quorumMutants = []Mutant{
	{
		Name: "half of the servers are a majority", Rule: "8 quorum",
		File: "internal/vote/acquire.go", Old: "return n/2 + 1", New: "return (n + 1) / 2",
		Dir: "internal/quorum", Run: "TestFour",
	},
	{
		Name: "a quorum of one less than a majority", Rule: "8 quorum",
		File: "internal/vote/acquire.go", Old: "return n/2 + 1", New: "return n / 2",
		Dir: "internal/vote", Run: "TestFences|TestPoll",
	},
	{
		Name: "the proposed fence is taken as it is", Rule: "8 fence",
		File: "internal/vote/acquire.go", Old: "(s.ticket == fence || s.written >= fence)", New: "true",
		Dir: "internal/vote", Run: "TestFencesOfAQuorum",
	},
	{
		Name: "a server counts that was asked to raise its fence and had lost the lock", Rule: "8 fence",
		File: "internal/vote/acquire.go", Old: "	if !held {\n", New: "	if false {\n",
		Dir: "internal/vote", Run: "TestFencesOfAQuorum",
	},
	{
		Name: "a server votes that has just started", Rule: "8 quorum",
		File: "internal/quorum/round.go", Old: "st.Node.Durable || st.Node.Uptime >= longest", New: "true",
		Dir: "internal/quorum", Run: "TestAServerThatJustStarted",
	},
	{
		Name: "one server votes twice", Rule: "8 quorum",
		File: "internal/quorum/round.go", Old: "id != \"\" && id == st.Node.ID", New: "id == \"\"",
		Dir: "internal/quorum", Run: "TestOneServerHasOneVote",
	},
	{
		Name: "what a lost round got is kept", Rule: "8 quorum",
		File: "internal/quorum/round.go", Old: "	keeps := r.won && !r.k.gone\n", New: "	keeps := true\n",
		Dir: "internal/quorum", Run: "TestALostRound|TestAServerThatJust",
	},
	{
		Name: "answers that come late are not looked at", Rule: "8 quorum",
		File: "internal/quorum/round.go", Old: "		r.late(i)\n		return\n", New: "		return\n",
		Dir: "internal/quorum", Run: "TestALostRound",
	},
	{
		Name: "a round asks where the one before is still being undone", Rule: "8 quorum",
		File: "internal/quorum/round.go", Old: "		if busy == nil {\n", New: "		if true {\n",
		Dir: "internal/quorum", Run: "TestMany|TestALostClaim",
	},
	{
		Name: "a release that a server did not hear is forgotten", Rule: "8 quorum",
		File: "internal/quorum/leave.go", Old: "				m.undo(job)\n", New: "",
		Dir: "internal/quorum", Run: "TestAReleaseIsFinished|TestAJoinThatComes",
	},
	{
		Name: "a server that fails is waited for", Rule: "8 quorum",
		File: "internal/quorum/leave.go", Old: "	return l.poll.Answered() && l.poll.State() != vote.Open\n", New: "	return false\n",
		Dir: "internal/quorum", Run: "TestServersThatFail",
	},
	{
		Name: "a renewal by few is one", Rule: "8 quorum",
		File: "internal/vote/poll.go", Old: "	case p.yes >= Majority(p.n):", New: "	case p.yes > 0:",
		Dir: "internal/quorum", Run: "TestARenewalThatMisses|TestServersThatForget",
	},
	{
		Name: "silence is a loss", Rule: "8 quorum",
		File: "internal/vote/poll.go", Old: "	case p.no > p.n-Majority(p.n):", New: "	case p.no+p.failed > p.n-Majority(p.n):",
		Dir: "internal/quorum", Run: "TestARenewalThatMisses",
	},
	{
		Name: "a server that hangs is always asked", Rule: "8 quorum",
		File: "internal/vote/breaker.go", Old: "	if !b.Open() {\n", New: "	if true {\n",
		Dir: "internal/quorum", Run: "TestAServerThatHangsIsLeftAlone",
	},
	{
		Name: "a held lock is called no quorum", Rule: "8 quorum",
		File: "internal/vote/acquire.go", Old: "most < Majority(len(a.seats)) && a.known():", New: "most < Majority(len(a.seats)):",
		Dir: "internal/quorum", Run: "TestHeldIsNotNoQuorum",
	},
	{
		Name: "a lease may be longer than servers are watched for", Rule: "8 quorum",
		File: "internal/quorum/join.go", Old: "	case ttl > s.o.LongestTTL:\n", New: "	case false:\n",
		Dir: "internal/quorum", Run: "TestALeaseLonger",
	},
}
