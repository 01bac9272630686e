-- seals notes a name that is closed though nobody may hold or wait for it, so that it can
-- be listed until then. The list is for people: what is on it is looked at again.
local seals = KEYS[1]
local name, life = ARGV[1], tonumber(ARGV[2])

local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)

-- What is set can only have its end behind it. Without the rights to that, nothing is set.
local left = redis.call('PTTL', seals)
redis.call('ZREMRANGEBYSCORE', seals, '-inf', string.format('%.0f', now))
redis.call('PEXPIRE', seals, math.max(left, life)) -- there may be nothing to expire yet
redis.call('ZADD', seals, string.format('%.0f', now + life), name)
redis.call('PEXPIRE', seals, math.max(left, life))
return { 1 }
