//go:build unix

package main

import (
	"strings"
	"testing"

	"github.com/redlatch/redlatch/internal/servertest"
)

// TestThePasswordIsNeverPrinted runs everything with a password that is right, that is
// wrong, and that breaks the URL, and looks for it in all that is said.
func TestThePasswordIsNeverPrinted(t *testing.T) {
	t.Parallel()
	const good = "Sw0rdfish-77"
	server := servertest.Redis(t, servertest.RedisConfig{Password: good})
	for password, code := range map[string]int{
		good: 0, "Wr0ng-Zq9x": codeDenied, "Wr0ng%41Zq9x": codeDenied, "Wr0ng/Zq9x": codeUsage, "Wr0ng?Zq9x": codeUsage,
		"Wr0ng#Zq9x": codeUsage, "Wr0ng%zzZq9x": codeUsage, "Wr0ng@Zq9x": codeUsage,
	} {
		url := "redis://:" + password + "@" + server.Addr()
		for _, args := range [][]string{{"who", "x"}, {"who", "--json", "x"}, {"ls", "-v"}, {"run", "-v", "x", "--", "true"}, {"run", "--json", "x", "--", "true"}} {
			secret := func(p *proc) {
				said := p.want(code).out.String() + p.err.String()
				for _, piece := range []string{good, "Wr0ng", "Zq9x"} {
					if strings.Contains(said, piece) {
						t.Errorf("%q with %q prints %q", args, password, said)
					}
				}
			}
			secret(start(t, url, args...))
			secret(start(t, "", append([]string{"--store", url}, args...)...))
		}
	}
	p := start(t, "", "--store", "redis://:"+good+"@"+server.Addr(), "who", "x").want(0)
	has(t, p.err.String(), "can be seen by everybody on this host")
	start(t, "redis://"+server.Addr(), "who", "x").want(codeDenied)
}
