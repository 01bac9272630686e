-- join asks for the name. It is one call for a first ask, the same ask again after a
-- lost reply, a look at where the claim stands, and the confirmation of a grant.
local id, head, tail = ARGV[1], ARGV[2], ARGV[3] -- the token is head .. ticket .. tail
local ttl = tonumber(ARGV[4])
local wait = ARGV[5] == '1'       -- may be queued
local seal_fail = ARGV[6] == '1'  -- is not queued behind a seal
local most = tonumber(ARGV[7])    -- waiters; 0: any number
local proposed = tonumber(ARGV[8])
local room = tonumber(ARGV[9])
local channel, marker = ARGV[10], ARGV[11]

local AHEAD = 100000 -- microseconds; tickets further than this before the clock leave no room

redis.call('PTTL', lock) -- what is asked for at the end must not be denied then
value = redis.call('GET', lock) -- not in the MGET: that takes another format's key for a free one
local strings = redis.call('MGET', last, sealed, stone)
local highest = counter(strings[1])
seal = strings[2]

if strings[3] then return answer('left') end -- this call was overtaken by its own leave

if mine(value, id) then
  local left = raise(ttl)
  redis.call('HDEL', about, '!grant') -- the process lives
  keep(left + HOUR)
  return answer('held', { ticket = ticket_of(value), lease = left, left = left })
end

-- The ticket is a hybrid clock: it grows by one and the room, and follows the
-- server's time where that is ahead. If the counter is lost the time alone puts the
-- next ticket above all earlier ones.
local function draw()
  if highest - now > AHEAD then room = 0 end
  local floor = proposed
  if floor == 0 then floor = now end
  return math.max(highest + 1 + room, floor)
end

local function take(ticket, spare, prev)
  local token = head .. ticket .. tail
  redis.call('SET', lock, token, 'PX', ttl)
  value = token
  if prev then redis.call('SET', last, ticket, 'PX', ttl + HOUR) end
  return answer('held', { ticket = ticket, room = spare, prev = prev, lease = ttl, left = ttl })
end

local waiting = redis.call('ZCARD', queue)
if waiting > 0 then
  settle()
  if not value then
    local how, ticket, e = promote(id)
    if how == 'mine' then
      local got = take(ticket, e.room)
      keep(ttl + HOUR)
      return got
    end
  end
  waiting = redis.call('ZCARD', queue)
end

if not value and not seal and waiting == 0 then
  local denied = lacks('DEL', 'PEXPIRE') -- it could not be released, or not be kept
  if denied then return denied end
  return take(digits(draw()), digits(room), digits(highest))
end

local longest = ttl
if value then longest = math.max(ttl, redis.call('PTTL', lock)) end

local held = value and 1 or 0
local ticket = redis.call('ZSCORE', queue, id)
local joined, prev = digits(now_ms), nil
if ticket then
  ticket = digits(tonumber(ticket))
  local e = entry(id)
  if e then room, joined = e.room, e.joined end
else
  if more == 1 then return answer('again') end -- the dead are still being skipped
  if not wait or seal_fail and seal then
    return answer('busy', { ahead = waiting + held, holder = next_in_line() })
  end
  if most > 0 and waiting >= most then return answer('full', { ahead = waiting + held }) end
  if waiting == 0 then settle() end -- with anybody there it was called above
  ticket, prev = digits(draw()), digits(highest)
  -- What has its end from the beginning comes first. Where nothing can be given an end
  -- later, nothing else is written.
  redis.call('SET', last, ticket, 'PX', longest + HOUR)
  redis.call('PEXPIRE', last, longest + HOUR)
  redis.call('ZADD', queue, ticket, id)
  keep(longest + HOUR)
end

-- The marker is a channel that only this very subscription of the process listens to.
-- If this server knows it, the process will hear this server, and it knows that both
-- are one and the same. Else it polls, and its place lasts as long as it does so.
--
-- Where this user may not publish, those who release as the same user cannot tell it
-- either, and it polls too.
local here = marker ~= '' and (subscribers(marker) or 0) or 0
local mode = here > 0 and tells(channel) and 'c' or 'p'
redis.call('HSET', about, id, pack({
  mode = mode, ttl = digits(ttl), room = digits(room), joined = joined, head = head, channel = channel, tail = tail,
}))
keep(longest + HOUR)
redis.call('HDEL', about, '!turn ' .. id) -- it came: its turn begins anew
if mode == 'p' then redis.call('HSET', about, '!poll ' .. channel, digits(now_ms + POLLS)) end

local ahead = redis.call('ZRANK', queue, id) + held
return answer('waiting', { ticket = ticket, room = digits(room), prev = prev, ahead = ahead, here = here })
