//go:build linux

package verify

import (
	"os"
	"testing"
	"time"
)

func TestMain(m *testing.M) {
	BeWorker()
	os.Exit(m.Run())
}

func short(t *testing.T, broken string) Verdict {
	t.Helper()
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	v, err := Soak{
		Duration: 12 * time.Second, Processes: 4, Goroutines: 10, Names: 5, TTL: time.Second,
		Seed: seed, Broken: broken, Log: func(s string) { t.Log(s) },
	}.Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Log(v)
	return v
}

func TestNothingOverlapsWhileProcessesDieAndSleep(t *testing.T) {
	if v := short(t, ""); !v.OK() || v.Holds < 20 {
		t.Errorf("%v", v)
	}
}

func TestTheJudgeSeesAReleaseByPlainDel(t *testing.T) {
	if v := short(t, "plain-del"); len(v.Overlaps) == 0 {
		t.Errorf("a build that releases without comparing was not found out: %v", v)
	}
}
