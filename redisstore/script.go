package redisstore

import (
	"context"
	"crypto/sha1"
	_ "embed"
	"encoding/hex"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redlatch/redlatch/lease"
)

// scripts are the moves as Lua, one round trip each.
type scripts struct {
	client redis.UniversalClient
}

func (scripts) over(client redis.UniversalClient) moves { return scripts{client} }

func (s scripts) join(ctx context.Context, keys []string, j joining) (reply, error) {
	args := []any{
		j.ID, lease.TokenHead(j.ID), lease.TokenTail(j.Owner), j.TTL.Milliseconds(),
		flag(!j.NoWait), flag(j.OnSeal == lease.SealFail), j.MaxWaiters, strconv.FormatUint(j.Fence, 10), j.Room,
		j.channel, j.marker,
	}
	if !j.Vote {
		return answered(joinScript.run(ctx, s.client, keys, args...))
	}
	got, err := joinScript.runVoting(ctx, s.client, keys, args...)
	r, err := answered(got.fields, err)
	r.info = got.info
	return r, err
}

func (s scripts) leave(ctx context.Context, keys []string, l leaving) (reply, error) {
	return answered(leaveScript.run(ctx, s.client, keys,
		l.id, l.only, l.remember, lease.Tombstone.Milliseconds(), l.seal.For.Milliseconds(), l.sealText(), l.seal.Victim, flag(l.foreign),
		l.news, flag(l.broken())))
}

func (s scripts) renew(ctx context.Context, all []renewal) ([]reply, []error) {
	calls := make([]call, len(all))
	for i, r := range all {
		calls[i] = call{keys: r.keys, args: []any{
			r.token.ID, r.token.String(), strconv.FormatUint(r.token.Ticket, 10), r.ttl.Milliseconds(), strconv.FormatUint(r.fence, 10),
		}}
	}
	fields, errs := renewScript.runAll(ctx, s.client, calls)
	replies := make([]reply, len(all))
	for i := range all {
		replies[i], errs[i] = answered(fields[i], errs[i])
	}
	return replies, errs
}

func (s scripts) inspect(ctx context.Context, keys []string) (lease.Queue, error) {
	fields, err := inspectScript.run(ctx, s.client, keys)
	if err != nil {
		return lease.Queue{}, err
	}
	return parseQueue(fields)
}

func (s scripts) record(ctx context.Context, index, record string, e entries) (there bool, err error) {
	args := []any{e.process, e.life.Milliseconds(), len(e.add)}
	for _, names := range [][]string{e.add, e.remove} {
		for _, name := range names {
			args = append(args, name)
		}
	}
	fields, err := recordScript.run(ctx, s.client, []string{index, record}, args...)
	return len(fields) == 1 && fields[0] == int64(1), err
}

func (s scripts) noteSeal(ctx context.Context, key, name string, life time.Duration) error {
	_, err := sealsScript.run(ctx, s.client, []string{key}, name, life.Milliseconds())
	return err
}

func flag(on bool) string {
	if on {
		return "1"
	}
	return "0"
}

// A script is sent by its hash. A server that does not know it (it was restarted, or
// its script cache was flushed) says so before it does anything, and gets the text.
//
// There is no shebang line: with one, Redis 7 refuses the whole script when its memory
// is full, where a release must work.
type script struct {
	text, sha string
}

//go:embed scripts/prelude.lua
var prelude string

var (
	//go:embed scripts/join.lua
	joinText string
	//go:embed scripts/leave.lua
	leaveText string
	//go:embed scripts/renew.lua
	renewText string
	//go:embed scripts/inspect.lua
	inspectText string
	//go:embed scripts/record.lua
	recordText string
	//go:embed scripts/seals.lua
	sealsText string

	joinScript    = newScript(prelude + joinText)
	leaveScript   = newScript(prelude + leaveText)
	renewScript   = newScript(prelude + renewText)
	inspectScript = newScript(prelude + inspectText)
	recordScript  = newScript(recordText)
	sealsScript   = newScript(sealsText)
)

func newScript(text string) script {
	sum := sha1.Sum([]byte(text))
	return script{text: text, sha: hex.EncodeToString(sum[:])}
}

func unknownScript(err error) bool { return serverCode(err) == "NOSCRIPT" }

func (s script) run(ctx context.Context, c redis.Scripter, keys []string, args ...any) ([]any, error) {
	reply, err := c.EvalSha(ctx, s.sha, keys, args...).Slice()
	if unknownScript(err) {
		reply, err = c.Eval(ctx, s.text, keys, args...).Slice()
	}
	return reply, err
}

// answer is that of one command in a pipeline. Each has its own error, but for one thing:
// if the connection could not be set up, as with a wrong password, only the pipeline has.
func answer(cmd *redis.Cmd, pipeline error) ([]any, error) {
	if cmd.Err() == nil && cmd.Val() == nil && pipeline != nil {
		return nil, pipeline
	}
	return cmd.Slice()
}

// vote is the answer of a script and of INFO server behind it.
type vote struct {
	fields []any
	info   string
}

// runVoting runs the script and asks the server who it is, in one pipeline on one
// connection: between two calls the client could connect to a server that was started
// anew, and lost what it had.
func (s script) runVoting(ctx context.Context, c redis.UniversalClient, keys []string, args ...any) (vote, error) {
	pipe := c.Pipeline()
	cmd, info := pipe.EvalSha(ctx, s.sha, keys, args...), pipe.Info(ctx, "server")
	_, failed := pipe.Exec(ctx)
	fields, err := answer(cmd, failed)
	if unknownScript(err) {
		cmd, info = pipe.Eval(ctx, s.text, keys, args...), pipe.Info(ctx, "server")
		_, failed = pipe.Exec(ctx)
		fields, err = answer(cmd, failed)
	}
	if err == nil {
		err = info.Err()
	}
	return vote{fields, info.Val()}, err
}

// call is one run of a script in a batch.
type call struct {
	keys []string
	args []any
}

// runAll runs the script for each call in one pipeline. Each call has an answer or an
// error of its own. The text goes along once, with the first call that needs it: a
// pipeline is carried out in order on one connection, so the others find it there.
func (s script) runAll(ctx context.Context, c redis.UniversalClient, calls []call) ([][]any, []error) {
	replies, errs := make([][]any, len(calls)), make([]error, len(calls))
	pipe := c.Pipeline()
	cmds := make([]*redis.Cmd, len(calls))
	for i, call := range calls {
		cmds[i] = pipe.EvalSha(ctx, s.sha, call.keys, call.args...)
	}
	_, failed := pipe.Exec(ctx)
	var again []int
	for i, cmd := range cmds {
		if replies[i], errs[i] = answer(cmd, failed); unknownScript(errs[i]) {
			again = append(again, i)
		}
		if errs[i] != nil && strings.HasPrefix(serverCode(errs[0]), protocolError) {
			errs[i] = errs[0] // with that the server has closed the connection
		}
	}
	if len(again) == 0 {
		return replies, errs
	}
	for n, i := range again {
		if n == 0 {
			cmds[i] = pipe.Eval(ctx, s.text, calls[i].keys, calls[i].args...)
			continue
		}
		cmds[i] = pipe.EvalSha(ctx, s.sha, calls[i].keys, calls[i].args...)
	}
	_, failed = pipe.Exec(ctx)
	for _, i := range again {
		replies[i], errs[i] = answer(cmds[i], failed)
	}
	return replies, errs
}
