package quorum

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redlatch/redlatch/driver"
)

// NoQuorumError says that too few servers gave an answer that counts.
type NoQuorumError struct {
	Of    int         // servers
	Nodes []NodeError // those that gave none
}

// NodeError is what one server said, or why it said nothing that counts.
type NodeError struct {
	Node string
	Err  error
}

func (e *NoQuorumError) Error() string {
	var each []string
	for _, n := range e.Nodes {
		each = append(each, n.Node+": "+n.Err.Error())
	}
	return fmt.Sprintf("no quorum, %d of %d servers gave no answer that counts: %s", len(e.Nodes), e.Of, strings.Join(each, "; "))
}

// Unwrap returns what the servers said.
func (e *NoQuorumError) Unwrap() []error {
	var errs []error
	for _, n := range e.Nodes {
		errs = append(errs, n.Err)
	}
	return errs
}

// noQuorum makes one error of what the members said.
func (s *Store) noQuorum(errs []error) error {
	e := &NoQuorumError{Of: len(s.members)}
	kinds := make(map[driver.Kind]int)
	for i, err := range errs {
		if err == nil {
			continue
		}
		e.Nodes = append(e.Nodes, NodeError{s.members[i].Name, err})
		kinds[kindOf(err)]++
	}
	kind := driver.Unavailable
	for k, n := range kinds {
		// Trouble that lasts is named before trouble that may pass only where it is all there is.
		if n == len(e.Nodes) {
			kind = k
		}
	}
	return &driver.Fault{Kind: kind, Err: e}
}

func kindOf(err error) driver.Kind {
	var f *driver.Fault
	if errors.As(err, &f) {
		return f.Kind
	}
	return driver.Unavailable
}

func sameServer(a, b string) error {
	return &driver.Fault{Kind: driver.Refused, Err: fmt.Errorf(
		"%s and %s are the same server, which has one vote; give each server once", a, b)}
}

// timedOut says how long a server had, where its error only says that it is over.
func timedOut(err error, patience time.Duration) error {
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("no answer within %v: %w", patience, err)
	}
	return err
}

// tooYoung is why a server does not vote.
type tooYoung struct{ uptime, longest time.Duration }

func (e *tooYoung) Error() string {
	return fmt.Sprintf("started %v ago and may have forgotten locks; it votes when it has been up for %v, the longest TTL", e.uptime.Round(time.Second), e.longest)
}
