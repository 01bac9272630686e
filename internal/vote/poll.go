package vote

// Poll counts the answers of n servers to one question about a claim that is held, as
// far as they know: a renewal, or a release.
type Poll struct {
	n, yes, no, failed int
}

// NewPoll begins with no answer of n.
func NewPoll(n int) Poll { return Poll{n: n} }

// Yes: the claim is, or was until this call, held there.
func (p *Poll) Yes() { p.yes++ }

// No: it is not.
func (p *Poll) No() { p.no++ }

// Failed: it is not known.
func (p *Poll) Failed() { p.failed++ }

// State is Won when a majority has it, Lost when so many have not that those who did not
// answer cannot make a majority, and Open else: also when all have answered or failed, for
// then it is not known.
func (p *Poll) State() State {
	switch {
	case p.yes >= Majority(p.n):
		return Won
	case p.no > p.n-Majority(p.n):
		return Lost
	}
	return Open
}

// Complete reports that no more answers come.
func (p *Poll) Complete() bool { return p.yes+p.no+p.failed == p.n }

// Answered reports that a majority did.
func (p *Poll) Answered() bool { return p.yes+p.no >= Majority(p.n) }
