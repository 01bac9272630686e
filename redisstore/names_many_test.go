package redisstore

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redlatch/redlatch/internal/servertest"
	"github.com/redlatch/redlatch/lease"
)

// What a list costs does not grow with what else the server keeps: the keyspace is never
// looked through. With two million keys of others this list took the server as many commands
// as without them; the time that it logs is a measurement, and nothing fails by it.
func TestListsCostTheSameBesideMillionsOfOtherKeys(t *testing.T) {
	server := servertest.Redis(t, servertest.RedisConfig{Lines: []string{"enable-debug-command yes"}})
	s := newStore(t, server.Addr(), Options{})
	const locks = 200
	for i := range locks {
		join(t, s, fmt.Sprint("job/", i), claim(time.Minute), lease.Held)
	}
	other := newStore(t, server.Addr(), Options{})
	list := func() (commands map[string]int, took time.Duration) {
		t.Helper()
		names := 0
		servertest.Eventually(t, 5*time.Second, "all names", func() bool {
			names = 0
			mustDo(t, server, "CONFIG", "RESETSTAT")
			for name, err := range other.Names(t.Context(), "job/") {
				if err != nil {
					t.Fatal(err)
				}
				if q, err := other.Inspect(t.Context(), name); err != nil || len(q.Holders()) != 1 {
					t.Fatalf("%q: %v, error %v", name, q.Holders(), err)
				}
				names++
			}
			return names == locks
		})
		commands = server.CommandStats()
		for command, fields := range server.Info("commandstats") {
			if name := strings.TrimPrefix(command, "cmdstat_"); name == "evalsha" || name == "sscan" || name == "zrangebyscore" || name == "exists" {
				var calls, usec int
				if _, err := fmt.Sscanf(fields, "calls=%d,usec=%d", &calls, &usec); err == nil {
					took += time.Duration(usec) * time.Microsecond
				}
			}
		}
		return commands, took
	}
	list() // the scripts are there
	before, alone := list()
	mustDo(t, server, "DEBUG", "POPULATE", "2000000", "other", "16")
	after, beside := list()
	for _, forbidden := range []string{"scan", "keys", "randomkey"} {
		if after[forbidden] > 0 {
			t.Errorf("%s was called %d times", forbidden, after[forbidden])
		}
	}
	for command, n := range after {
		if n > before[command]+20 { // renewals and the process's own record go on meanwhile
			t.Errorf("%s was called %d times, without the other keys %d times", command, n, before[command])
		}
	}
	t.Logf("%d locks, server time %v alone, %v beside 2,000,000 other keys", locks, alone, beside)
}
