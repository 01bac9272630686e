//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package filestore

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redlatch/redlatch/driver"
	"github.com/redlatch/redlatch/lease"
)

// The test binary is also the other processes of these tests: with this in its
// environment it plays a part instead of running tests.
const partEnv = "FILESTORE_TEST_PART"

func TestMain(m *testing.M) {
	if part := os.Getenv(partEnv); part != "" {
		if err := play(part, os.Args[1:]); err != nil {
			fmt.Println("error:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// parts are those that need not have a Store.
var parts = map[string]func(dir string) error{}

// play is one of the other processes. It ends with its standard input at the latest, so
// that none outlives the test.
func play(part string, args []string) error {
	if alone := parts[part]; alone != nil {
		return alone(args[0])
	}
	s, err := New(args[0], Options{})
	if err != nil {
		return err
	}
	switch part {
	case "hold": // takes the name, says so, and holds until it is told to leave
		ttl, err := time.ParseDuration(args[2])
		if err != nil {
			return err
		}
		c := claim(ttl)
		st, err := obtain(context.Background(), s, args[1], c)
		if err != nil {
			return err
		}
		fmt.Println("held", st.Ticket)
		if line, _ := bufio.NewReader(os.Stdin).ReadString('\n'); line != "leave\n" {
			return errors.New("nobody is there any more")
		}
		if _, err := s.Leave(context.Background(), args[1], c.ID, 0, lease.Seal{}); err != nil {
			return err
		}
		fmt.Println("left", time.Now().UnixNano())
		return s.Close()

	case "work": // takes names over and over, and writes down when it had them
		go func() {
			_, _ = io.Copy(io.Discard, os.Stdin)
			os.Exit(0)
		}()
		return work(s, args)
	}
	return fmt.Errorf("unknown part %q", part)
}

// obtain waits until the claim is held.
func obtain(ctx context.Context, s driver.Store, name string, c lease.Claim) (lease.Standing, error) {
	st, err := s.Join(ctx, name, c)
	for err == nil && st.State == lease.Waiting {
		st, err = s.Wait(ctx, name, c.ID, st.Rev)
	}
	if err == nil && st.State != lease.Held {
		err = fmt.Errorf("the claim is %v", st.State)
	}
	return st, err
}

// A visit to the critical section as its line in the log. Lines are appended by one write
// each, inside: their order is the order of the visits.
type visit struct {
	Name  string
	Fence uint64
	Enter bool
}

// work: directory, log, names, goroutines, rounds (0: until killed).
func work(s *Store, args []string) error {
	log, err := os.OpenFile(args[1], os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return err
	}
	names := strings.Split(args[2], ",")
	goroutines, _ := strconv.Atoi(args[3])
	rounds, _ := strconv.Atoi(args[4])
	write := func(v visit) {
		line, _ := json.Marshal(v)
		if _, err := log.Write(append(line, '\n')); err != nil {
			panic(err)
		}
	}
	var all sync.WaitGroup
	failed := make(chan error, goroutines)
	for g := range goroutines {
		all.Go(func() {
			for i := 0; rounds == 0 || i < rounds; i++ {
				name := names[(g+i)%len(names)]
				c := claim(time.Minute)
				st, err := obtain(context.Background(), s, name, c)
				if err == nil {
					write(visit{name, st.Ticket, true})
					write(visit{name, st.Ticket, false})
					_, err = s.Leave(context.Background(), name, c.ID, 0, lease.Seal{})
				}
				if err != nil {
					failed <- err
					return
				}
			}
		})
	}
	all.Wait()
	close(failed)
	return <-failed
}

// other is another process.
type other struct {
	*exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

func start(t *testing.T, part string, args ...string) *other {
	t.Helper()
	return startWith(t, nil, part, args...)
}

// startWith gives it files besides.
func startWith(t *testing.T, files []*os.File, part string, args ...string) *other {
	t.Helper()
	cmd := exec.Command(os.Args[0], args...)
	cmd.ExtraFiles = files
	cmd.Env = append(os.Environ(), partEnv+"="+part, "GOMAXPROCS=1", "GORACE=atexit_sleep_ms=0")
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p := &other{Cmd: cmd, in: in, out: bufio.NewReader(out)}
	t.Cleanup(p.kill)
	return p
}

func (p *other) kill() {
	_ = p.Process.Kill()
	_ = p.Wait()
}

func (p *other) signal(t *testing.T, sig syscall.Signal) {
	t.Helper()
	if err := p.Process.Signal(sig); err != nil {
		t.Fatal(err)
	}
}

// says returns the number after the word that the process must say next.
func (p *other) says(t *testing.T, word string) int64 {
	t.Helper()
	line, err := p.out.ReadString('\n')
	rest, ok := strings.CutPrefix(strings.TrimSpace(line), word+" ")
	n, numErr := strconv.ParseInt(rest, 10, 64)
	if err != nil || !ok || numErr != nil {
		t.Fatalf("the other process said %q (%v), want %q", line, err, word)
	}
	return n
}

func TestKilledHolderFreesTheLock(t *testing.T) {
	dir := t.TempDir()
	s := newStore(t, dir)
	var took []time.Duration
	last := int64(0)
	for range 10 {
		p := start(t, "hold", dir, "n", "1h")
		if fence := p.says(t, "held"); fence <= last {
			t.Fatalf("fence %d after %d", fence, last)
		}
		c := claim(time.Minute)
		queued := join(t, s, "n", c)
		if queued.State != lease.Waiting || queued.Left < 59*time.Minute {
			t.Fatalf("beside a holder: %+v", queued)
		}
		answer := waitInBackground(t, s, "n", c.ID, queued)
		killed := time.Now()
		p.kill()
		got := <-answer
		took = append(took, time.Since(killed))
		if got.State != lease.Held || got.Lease != c.TTL {
			t.Fatalf("got %+v", got)
		}
		last = int64(got.Ticket)
		leave(t, s, "n", c.ID, lease.Seal{})
	}
	slices.Sort(took)
	t.Logf("after kill -9 of the holder: median %v, longest %v", took[len(took)/2], took[len(took)-1])
	if median := took[len(took)/2]; median > time.Second {
		t.Errorf("half of the time it took %v: nobody looks at the holder", median)
	}
}

// waitInBackground returns when the wait sleeps and all is known of what it waits for.
func waitInBackground(t *testing.T, s *Store, name, id string, st lease.Standing) <-chan lease.Standing {
	t.Helper()
	answer := make(chan lease.Standing, 1)
	ctx := patient(t)
	go func() {
		st, err := s.Wait(ctx, name, id, st.Rev)
		if err != nil {
			t.Errorf("wait %q: %v", name, err)
		}
		answer <- st
	}()
	for !s.waiting.looked(name) && ctx.Err() == nil {
		sleep(ctx, time.Millisecond)
	}
	return answer
}

// looked reports whether the round of looks has been at the name.
func (q *waiters) looked(name string) bool {
	q.mu.Lock()
	defer q.mu.Unlock()

	l := q.lines[name]
	return l != nil && l.info != nil
}

// Without a waiter nobody looks; who comes finds it free at once.
func TestKilledHolderIsNotInTheWayOfATry(t *testing.T) {
	dir := t.TempDir()
	s := newStore(t, dir)
	p := start(t, "hold", dir, "n", "1h")
	p.says(t, "held")
	c := claim(time.Minute)
	c.NoWait = true
	if st := join(t, s, "n", c); st.State != lease.Busy {
		t.Fatalf("beside a living holder: %+v", st)
	}
	p.kill()
	for name, err := range s.Names(t.Context(), "") {
		t.Errorf("in use: %q, %v", name, err)
	}
	if st := join(t, s, "n", c); st.State != lease.Held {
		t.Errorf("after its death: %+v", st)
	}
}

func TestReleaseWakesAnotherProcess(t *testing.T) {
	dir := t.TempDir()
	s := newStore(t, dir)
	var took []time.Duration
	for range 15 {
		p := start(t, "hold", dir, "n", "1h")
		p.says(t, "held")
		c := claim(time.Minute)
		queued := join(t, s, "n", c)
		answer := waitInBackground(t, s, "n", c.ID, queued)
		fmt.Fprintln(p.in, "leave")
		if st := <-answer; st.State != lease.Held {
			t.Errorf("got %+v", st)
		}
		woke := time.Now()
		took = append(took, woke.Sub(time.Unix(0, p.says(t, "left"))))
		leave(t, s, "n", c.ID, lease.Seal{})
		p.kill()
	}
	slices.Sort(took)
	t.Logf("from the end of the release to the end of the wait: median %v, longest %v", took[len(took)/2], took[len(took)-1])
	if median := took[len(took)/2]; median > 150*time.Millisecond {
		t.Errorf("half of the wake-ups took %v: they come from the look-round, not from the pipe", median)
	}
}

func TestStoppedHolderLosesItsLeaseAndNoMore(t *testing.T) {
	dir := t.TempDir()
	s := newStore(t, dir)
	p := start(t, "hold", dir, "n", "400ms")
	p.signal(t, syscall.SIGSTOP) // it stops when it pleases: holding, or before
	p.signal(t, syscall.SIGCONT)
	fence := p.says(t, "held")
	p.signal(t, syscall.SIGSTOP)
	c := claim(time.Minute)
	got, err := obtain(patient(t), s, "n", c)
	if err != nil {
		t.Fatal(err)
	}
	if got.Ticket <= uint64(fence) {
		t.Errorf("fence %d after %d", got.Ticket, fence)
	}
	p.signal(t, syscall.SIGCONT)
	fmt.Fprintln(p.in, "leave")
	p.says(t, "left")
	if st, err := s.Wait(t.Context(), "n", c.ID, 0); err != nil || st.State != lease.Held {
		t.Errorf("the late release of the stopped one took the lock: %v, %v", st.State, err)
	}
}

func TestStoppedWaiterDelaysTheQueueByItsLeaseAtMost(t *testing.T) {
	dir := t.TempDir()
	s := newStore(t, dir)
	first, last := claim(time.Minute), claim(time.Minute)
	join(t, s, "n", first)
	p := start(t, "hold", dir, "n", "500ms")
	for {
		q, err := s.Inspect(patient(t), "n")
		if err != nil {
			t.Fatal(err)
		}
		if len(q.Waiters()) == 1 {
			break
		}
	}
	p.signal(t, syscall.SIGSTOP)
	queued := join(t, s, "n", last)
	leave(t, s, "n", first.ID, lease.Seal{})
	if got, err := obtain(patient(t), s, "n", last); err != nil || got.Ticket != queued.Ticket {
		t.Fatalf("got %+v, %v; queued with ticket %d", got, err, queued.Ticket)
	}
}

// What a holder starts does not hold its locks.
func TestChildrenDoNotInheritTheLock(t *testing.T) {
	dir := t.TempDir()
	s, holder := newStore(t, dir), newStore(t, dir)
	join(t, holder, "n", claim(time.Hour))
	child := exec.Command("sleep", "60")
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = child.Process.Kill(); _ = child.Wait() }()
	for _, f := range holder.self.open {
		f.Close() // as the holder's end would
	}
	if _, err := obtain(patient(t), s, "n", claim(time.Minute)); err != nil {
		t.Error(err)
	}
}

// Two processes with many goroutines, over names that share lock files and do not.
func TestProcessesDoNotOverlap(t *testing.T) {
	dir := t.TempDir()
	log := newLog(t)
	procs := []*other{
		start(t, "work", dir, log, "a,b,c", "8", "25"),
		start(t, "work", dir, log, "a,b,c", "8", "25"),
	}
	for _, p := range procs {
		defer time.AfterFunc(time.Minute, p.kill).Stop() // a hang is a failure
		out, _ := io.ReadAll(p.out)
		if err := p.Wait(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	if n := readLog(t, log, false); n != 2*8*25 {
		t.Errorf("%d visits, want %d", n, 2*8*25)
	}
	if files, err := os.ReadDir(filepath.Join(dir, namesDir)); err != nil || len(files) > 0 {
		t.Errorf("left in the directory: %v, %v", files, err)
	}
}

// Processes are killed at any instruction while others work. Afterwards the locks are
// still locks: nobody overlapped, every fence was higher than the one before, and who
// comes gets each of them.
func TestProcessesKilledAnywhereBreakNothing(t *testing.T) {
	rounds := 200
	if testing.Short() {
		rounds = 40
	}
	seed := rand.Uint64()
	rng := rand.New(rand.NewPCG(seed, 2))
	t.Logf("seed %d", seed)
	dir, log := t.TempDir(), newLog(t)
	names := []string{"a", "b"}
	run := func() *other { return start(t, "work", dir, log, strings.Join(names, ","), "3", "0") }
	procs := []*other{run(), run(), run()}
	size := int64(0)
	for range rounds {
		i := rng.IntN(len(procs))
		// It has done something since the last one died, and then some more.
		for deadline := time.Now().Add(20 * time.Second); ; {
			info, err := os.Stat(log)
			if err != nil {
				t.Fatal(err)
			}
			if info.Size() > size+200 {
				size = info.Size()
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("seed %d: nobody gets on", seed)
			}
			sleep(t.Context(), time.Millisecond)
		}
		sleep(t.Context(), time.Duration(rng.IntN(6000))*time.Microsecond) // the random moment
		procs[i].kill()
		procs[i] = run()
	}
	for _, p := range procs {
		p.kill()
	}
	t.Logf("%d visits", readLog(t, log, true))
	s := newStore(t, dir)
	for _, name := range names {
		c := claim(time.Minute)
		if st := join(t, s, name, c); st.State != lease.Held {
			t.Errorf("seed %d: all are dead and %q is %v", seed, name, st.State)
		}
		leave(t, s, name, c.ID, lease.Seal{})
	}
}

func newLog(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "log")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// readLog checks the visits and counts them. With killed, a visit may have no end.
func readLog(t *testing.T, path string, killed bool) int {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	inside, last, n := make(map[string]uint64), make(map[string]uint64), 0
	for line := range strings.Lines(string(text)) {
		var v visit
		if err := json.Unmarshal([]byte(line), &v); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		if !v.Enter {
			if inside[v.Name] != v.Fence {
				t.Errorf("%q: %d leaves while %d is inside", v.Name, v.Fence, inside[v.Name])
			}
			inside[v.Name] = 0
			continue
		}
		n++
		if inside[v.Name] != 0 && !killed {
			t.Errorf("%q: %d enters while %d is inside", v.Name, v.Fence, inside[v.Name])
		}
		if v.Fence <= last[v.Name] {
			t.Errorf("%q: fence %d after %d", v.Name, v.Fence, last[v.Name])
		}
		inside[v.Name], last[v.Name] = v.Fence, v.Fence
	}
	return n
}
