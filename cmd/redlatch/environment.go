package main

import (
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/cmd/redlatch/internal/storeurl"
	"github.com/redlatch/redlatch/lease"
)

// environment is what the command sees: ours, less what opens the store, and what it
// may want to know about its lock, if it has one.
func (r *running) environment(held *redlatch.Held) []string {
	set := map[string]string{}
	if !r.o.noEnv && held != nil {
		set = map[string]string{
			"REDLATCH_HELD":   "1",
			"REDLATCH_LOCK":   r.name,
			"REDLATCH_FENCE":  strconv.FormatUint(held.Fence(), 10),
			"REDLATCH_LEASE":  held.Token(),
			"REDLATCH_OWNER":  ownerOf(held.Token()),
			"REDLATCH_TTL_MS": strconv.FormatInt(r.o.ttl.Milliseconds(), 10),
		}
	}
	// A redlatch that the command runs must not lock in another place than we do because the
	// password was kept from it: then it is refused, and says so.
	if !r.o.noEnv && !r.store.local {
		set[urlVariable] = storeurl.Bare(r.store.raw)
	}
	env := slices.DeleteFunc(os.Environ(), func(entry string) bool {
		key, _, _ := strings.Cut(entry, "=")
		_, replaced := set[key]
		return replaced || slices.Contains(r.store.hidden, key)
	})
	for key, value := range set {
		env = append(env, key+"="+value)
	}
	return env
}

func ownerOf(token string) string {
	t, err := lease.ParseToken(token)
	if err != nil {
		return ""
	}
	return t.Owner.Name
}
