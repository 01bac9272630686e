-- What the moves have in common. This text stands in front of each script; its own
-- arguments are read there.
--
-- All keys of a call share one slot. They are always passed in this order:
local lock = KEYS[1]    -- string: the holder's token; absent: free
local queue = KEYS[2]   -- sorted set: waiting claim IDs by ticket
local about = KEYS[3]   -- hash: claim ID -> entry (below); fields that begin with "!" are not claims
local last = KEYS[4]    -- string: the highest ticket so far
local sealed = KEYS[5]  -- string: the seal; its first 22 bytes are the victim's ID or dashes
local stone = KEYS[6]   -- string: the claim of this call has left

local HOUR = 3600000 -- milliseconds
local GRANT = 5000   -- a lock that is given without being asked for is a short lease
local SKIPS = 64     -- dead waiters skipped in one call; more of them: the caller calls again
local POLLS = 3000   -- a process that polls and has not for that long is dead
local TURNS = 16     -- hand-overs in a row before foreign clients get a gap,
local TURNS_MS = 1000 -- or that much time
local GAP = 100      -- how long the gap is
local POINTED = 3    -- processes that are told to look after a free name

local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]   -- microseconds: exact in a double for 250 years
local now_ms = math.floor(now / 1000)

-- What is found out on the way and goes into the answer.
local value = false -- the lock's value
local seal = false  -- the seal
local more = 0      -- 1: call again, there are more dead waiters than one call may skip
local push = 1      -- 0: no right to publish, nobody can be told anything

-- counter reads the highest ticket. A counter that somebody has written over counts as
-- one that was lost: the next ticket is drawn from the clock alone, and overwrites it. So
-- does one so near to 2^53 that the next ticket and its room would not be below it: from
-- there on, numbers are not counted in steps of one, and two holders would get the same.
-- Such a ticket is nobody's but a quorum's that proposed it, until the year 2255.
local function counter(text)
  local n = text and string.match(text, '^%d+$') and tonumber(text)
  return n and n < 9007199254740992 - 66 and n or 0
end

-- Tickets are numbers below 2^53. Lua would print them as 1.7645513361235e+15.
local function digits(n) return string.format('%.0f', n) end

-- IDs have one length, so none is the beginning of another.
local function mine(v, id) return v and string.sub(v, 1, #id + 1) == id .. '.' end

local function ticket_of(v) return string.match(v, '^[^.]*%.%d+%.(%d+)%.') or '0' end

-- An entry is what a hand-over must know about a waiter.
local function pack(e)
  return table.concat({ e.mode, e.ttl, e.room, e.joined, e.head, e.channel, e.tail }, '\n')
end

local function entry(id)
  local text = redis.call('HGET', about, id)
  if not text then return nil end
  local mode, ttl, room, joined, head, channel, tail =
    string.match(text, '^(%a)\n(%d+)\n(%d+)\n(%d+)\n([^\n]*)\n([^\n]*)\n(.*)$')
  if not mode then return nil end
  return { mode = mode, ttl = tonumber(ttl), room = room, joined = joined, head = head, channel = channel, tail = tail }
end

local function remove(id)
  redis.call('ZREM', queue, id)
  redis.call('HDEL', about, id, '!turn ' .. id)
end

-- keep sees to it that what belongs to the name lives for ms at least, and no key
-- without an end: one that was made just now goes again, where this user may not give it
-- an end. Missing keys are left missing.
local function keep(ms)
  for i = 2, 4 do
    local left = redis.call('PTTL', KEYS[i])
    if left ~= -2 and left < ms then
      local set = redis.pcall('PEXPIRE', KEYS[i], ms)
      if type(set) == 'table' then
        if left == -1 then redis.pcall('DEL', KEYS[i]) end
        redis.call('PEXPIRE', KEYS[i], ms) -- says why
      end
    end
  end
end

local function restore(id, ticket, e)
  redis.pcall('ZADD', queue, ticket, id)
  redis.pcall('HSET', about, id, pack(e))
  keep(e.ttl + HOUR)
end

-- lacks returns the error of a user who may not use one of those commands, to be answered
-- before anything is written. Up to Redis 6.2 it cannot be asked.
local function lacks(...)
  if not redis.acl_check_cmd then return nil end
  for _, command in ipairs({ ... }) do
    if not redis.acl_check_cmd(command, lock) then
      return redis.error_reply("NOPERM this user has no permissions to run the '" .. string.lower(command) .. "' command")
    end
  end
end

-- raise pushes the lock's end to ms from now and never pulls it back. It writes also
-- where that changes nothing: WAIT after a call that wrote nothing answers for an
-- older write, and says yes to one that no replica has.
local function raise(ms)
  local left = redis.call('PTTL', lock)
  if left < ms then left = ms end
  redis.call('PEXPIRE', lock, left)
  return left
end

-- subscribers counts those who listen to the channel itself. PUBLISH's own answer
-- counts pattern subscribers too: one monitor with PSUBSCRIBE * makes every dead
-- process look alive. nil: no right to ask.
local function subscribers(channel)
  local n = redis.pcall('PUBSUB', 'NUMSUB', channel)
  if type(n) ~= 'table' or n.err then return nil end
  return tonumber(n[2])
end

-- tells reports whether this user may tell that process something, by a message that
-- nobody listens for.
local function tells(channel)
  if type(redis.pcall('PUBLISH', channel .. '.', '')) == 'table' then push = 0 end
  return push == 1
end

-- settle looks at the last hand-over. If its short lease ran out before the process
-- said anything, that process hangs, though it looks subscribed. Then all that it has
-- in this queue goes: a frozen process costs the name one grant, not one for each of
-- its waiters. If it comes back, its waiters join again with new tickets.
--
-- Nobody is queued without this having been called before, so whoever is dropped was
-- queued when the grant ran out.
local function settle()
  local grant = redis.call('HGET', about, '!grant')
  if not grant then return end
  local id, channel = string.match(grant, '^(%S+) (.*)$')
  if mine(value, id) then return end
  redis.call('HDEL', about, '!grant')
  local all = redis.call('HKEYS', about)
  for _, other in ipairs(all) do
    if string.sub(other, 1, 1) ~= '!' then
      local e = entry(other)
      if not e or e.channel == channel then remove(other) end
    end
  end
end

-- give hands the free lock to a waiter that is not in the queue any more. The order
-- binds. Something that is allowed under full memory has been written before (ZREM,
-- DEL): from then on the server lets the script write. Then SET, for a message about
-- a key that could not be written would be a lie. Then PUBLISH, and if nobody can be
-- told, the SET is taken back.
local function give(id, ticket, e)
  local ms = math.min(e.ttl, GRANT)
  local token = e.head .. ticket .. e.tail
  local set = redis.pcall('SET', lock, token, 'PX', ms)
  if set.err then
    restore(id, ticket, e)
    return 'refused'
  end
  local heard = redis.pcall('PUBLISH', e.channel, 'g\n' .. id .. '\n' .. ticket .. '\n' .. ms .. '\n' .. lock)
  if type(heard) == 'table' then -- an error: no right to this channel
    redis.call('DEL', lock)
    restore(id, ticket, e)
    push = 0
    return 'refused'
  end
  if heard == 0 then
    redis.call('DEL', lock)
    return 'dead'
  end
  value = token
  redis.call('HSET', about, '!grant', id .. ' ' .. e.channel, '!since', ticket .. ' ' .. digits(now_ms))
  keep(ms + HOUR)
  return 'given'
end

-- ahead reports whether the time in that field is to come. One further ahead than it
-- was ever set means that the server's clock was put back, and does not count: else the
-- name would be closed for that long.
local function ahead(field, most)
  local left = tonumber(redis.call('HGET', about, field) or '0') - now_ms
  return left > 0 and left <= most
end

-- point tells the first waiter that can be told to look in ms: the lock is free now, and
-- by then it may be its turn. The first may be frozen, and looks subscribed all the same;
-- so a few processes are told. Whoever looks, the lock goes to the first that lives.
local function point(ms)
  local told, processes = {}, 0
  for _, id in ipairs(redis.call('ZRANGE', queue, 0, SKIPS - 1)) do
    local e = entry(id)
    if e and e.mode == 'c' and not told[e.channel] and subscribers(e.channel) ~= 0 then
      redis.pcall('PUBLISH', e.channel, 'p\n' .. id .. '\n' .. digits(ms) .. '\n' .. lock)
      told[e.channel], processes = true, processes + 1
      if processes == POINTED then return end
    end
  end
end

-- reserved reports whether the free lock is kept for the first in line, which polls and
-- will come: as long as its process polls, but for no longer than its lease would last,
-- for the process may poll for others and have forgotten this one. When that is over,
-- the process's other claims are not waited for either, until it polls again: like a
-- process that does not answer a grant, it costs the name one turn.
local function reserved(id, e)
  local poll, field = '!poll ' .. e.channel, '!turn ' .. id
  if not ahead(poll, POLLS) then return false end
  local turn = math.min(e.ttl, POLLS)
  if not redis.call('HGET', about, field) then
    redis.pcall('HSET', about, field, digits(now_ms + turn)) -- under full memory the poll alone counts
    point(turn)
    return true
  end
  if ahead(field, turn) then return true end
  redis.call('HDEL', about, poll)
  return false
end

-- promote gives the free lock to the first waiter that lives. The caller has seen
-- that it is free. It returns why it ended: 'none' is queued any more; it is the
-- turn of the caller itself ('mine', with ticket and entry, taken out of the queue);
-- 'given'; or the name must stay free for now: 'sealed', 'gap' (for foreign clients),
-- 'reserved' (the first one polls and will come), 'refused', 'more'.
local function promote(me)
  if seal then return 'sealed' end
  if ahead('!gap', GAP) then return 'gap' end
  for _ = 1, SKIPS do
    local first = redis.call('ZRANGE', queue, 0, 0, 'WITHSCORES')
    local id, ticket = first[1], first[2]
    if not id then return 'none' end
    ticket = digits(tonumber(ticket))
    local e = entry(id)
    if e and id == me then
      remove(id)
      return 'mine', ticket, e
    end
    if e and e.mode == 'p' and ((subscribers(e.channel) or 0) == 0 or not tells(e.channel)) then
      if reserved(id, e) then return 'reserved' end
      remove(id)
    elseif not e or subscribers(e.channel) == 0 then
      remove(id)
    else
      remove(id)
      local how = give(id, ticket, e)
      if how ~= 'dead' then return how end
    end
  end
  more = 1
  return 'more'
end

-- tell sends every process that waits here the same message.
local function tell(message)
  local told = {}
  for _, id in ipairs(redis.call('HKEYS', about)) do
    local e = string.sub(id, 1, 1) ~= '!' and entry(id)
    if e and e.mode == 'c' and not told[e.channel] then
      told[e.channel] = true
      redis.pcall('PUBLISH', e.channel, message)
    end
  end
end

-- next_in_line is the token of the first waiter, where nothing but its coming is missing.
local function next_in_line()
  local first = redis.call('ZRANGE', queue, 0, 0, 'WITHSCORES')
  local e = first[1] and not seal and entry(first[1])
  return e and e.head .. digits(tonumber(first[2])) .. e.tail or nil
end

-- answer is what every move answers; a field that does not apply is empty. f.lease is
-- how long the claim's own lease lasts, f.left what is left of the lock if that is known,
-- f.holder who is in the way if the lock is free.
-- If nobody is, that field is false, for another program's value may be empty.
local function answer(state, f)
  f = f or {}
  local left, seal_ms = 0, 0
  if value then left = f.left or redis.call('PTTL', lock) end
  if seal then seal_ms = redis.call('PTTL', sealed) end
  return {
    state, f.ticket or '0', f.room or '0', f.prev or '0', f.ahead or 0, f.lease or 0,
    value or f.holder or false, left, seal or '', seal_ms, f.here or 0, more, push, digits(now),
  }
end
