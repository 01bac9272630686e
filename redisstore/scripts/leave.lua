-- leave takes a claim out: it releases, withdraws, breaks, or gives a grant back that
-- nobody waits for. Then the lock goes to the next one in line, in this same step.
local id = ARGV[1]
local only = ARGV[2]              -- not empty: only the claim that holds with this ticket
local remember = ARGV[3]          -- write the stone: 'no', 'absent' (if the claim is not here), 'always'
local stone_ms = tonumber(ARGV[4])
local seal_ms = tonumber(ARGV[5]) -- > 0: close the name for that long
local seal_text, victim = ARGV[6], ARGV[7]
local foreign = ARGV[8] == '1'    -- leave gaps for clients that know no queue
local news = ARGV[9]              -- the channel on which holders learn that they were broken
local broken = ARGV[10] == '1'    -- by somebody else than the claim's own process

value = redis.call('GET', lock)
seal = redis.call('GET', sealed)

local function set_stone(when)
  if remember == 'always' or remember == when then
    redis.call('DEL', stone) -- allowed under full memory, and lets the next line be
    redis.call('SET', stone, '1', 'PX', stone_ms)
  end
end

-- Other processes hold and wait; which of them this claim is one's, stands nowhere.
local function tell_victim()
  if broken then redis.pcall('PUBLISH', news, 'b\n' .. id .. '\n' .. lock .. '\n' .. seal_text) end
end

-- With foreign clients about, a lock that goes from hand to hand is never free for
-- them. Every so often it is: for as long as the gap lasts nobody is promoted, and
-- the first waiter is told to look after it.
local function leave_gap()
  local turns, since = string.match(redis.call('HGET', about, '!turns') or '', '^(%d+) (%d+)$')
  turns, since = tonumber(turns or '0') + 1, tonumber(since or digits(now_ms))
  if turns < TURNS and now_ms - since < TURNS_MS then
    redis.call('HSET', about, '!turns', turns .. ' ' .. digits(since))
    return
  end
  redis.call('HSET', about, '!gap', digits(now_ms + GAP))
  redis.call('HDEL', about, '!turns')
  point(GAP)
end

if mine(value, id) and (only == '' or ticket_of(value) == only) then
  local ticket, lease = ticket_of(value), redis.call('PTTL', lock)
  redis.call('DEL', lock) -- first: it is allowed under full memory, and lets the rest be
  value = false
  set_stone('held')
  tell_victim()
  if victim == id and seal_ms > 0 then
    seal_ms = lease
    if seal_ms < 0 then seal_ms = HOUR end -- somebody took the lock's end away: no end to wait for
  end
  if seal_ms > 0 then
    redis.call('SET', sealed, seal_text, 'PX', seal_ms)
    tell('s\n' .. digits(seal_ms) .. '\n' .. lock .. '\n' .. seal_text)
    seal = seal_text
  end
  if redis.call('ZCARD', queue) == 0 then
    tell('l\n' .. lock) -- who is known to wait and has no place any more
    redis.call('DEL', about)
  else
    redis.call('HDEL', about, '!grant')
    if foreign then leave_gap() end
    promote()
    keep(HOUR)
  end
  seal = false -- the answer is how it was before
  return answer('held', { ticket = ticket, lease = lease })
end

if only ~= '' then return answer('gone') end

local ticket = redis.call('ZSCORE', queue, id)
local state = 'gone'
if ticket then
  state, ticket = 'waiting', digits(tonumber(ticket))
  local ahead = redis.call('ZRANK', queue, id) + (value and 1 or 0)
  remove(id)
  set_stone('waiting')
  tell_victim()
  settle()
  local before = answer(state, { ticket = ticket, ahead = ahead })
  if not value then promote() end
  before[12], before[13] = more, push
  return before
end

set_stone('absent')
local before = answer('gone')
if seal and victim == '' and string.sub(seal, 1, #id) == id then
  -- The broken holder has answered: nobody can overlap with it any more.
  redis.call('DEL', sealed)
  seal = false
  before = answer('gone')
end
if redis.call('ZCARD', queue) > 0 then
  settle()
  if not value then promote() end
  before[12], before[13] = more, push
end
return before
