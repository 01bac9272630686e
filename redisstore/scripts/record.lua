-- record keeps the list of what one process holds and waits for, and the list of the
-- processes that keep one. It answers whether the process's list was there: if not,
-- the process sends all of it.
local index, record = KEYS[1], KEYS[2]
local process, life = ARGV[1], tonumber(ARGV[2])
local added = tonumber(ARGV[3]) -- the first so many names behind it are added, the others removed

local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)

local there = redis.call('EXISTS', record)

-- Where the end cannot be set, nothing is: there may be nothing yet that could have one.
redis.call('PEXPIRE', record, life)
for i = 4, 3 + added do redis.call('SADD', record, ARGV[i]) end
redis.call('PEXPIRE', record, life)
for i = 4 + added, #ARGV do redis.call('SREM', record, ARGV[i]) end
redis.call('ZADD', index, string.format('%.0f', now + life), process)
redis.call('PEXPIRE', index, life)
redis.call('ZREMRANGEBYSCORE', index, '-inf', string.format('%.0f', now))
return { there }
