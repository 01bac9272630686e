-- renew pushes the end of a claim's lease, and never brings back one that is gone.
local id, token, ticket = ARGV[1], ARGV[2], ARGV[3]
local ttl = tonumber(ARGV[4])
local fence = tonumber(ARGV[5]) -- the highest ticket becomes at least that, if the claim is held

value = redis.call('GET', lock)

-- The whole token: a hold that was lost must not live on the next ticket of its ID.
if value == token then
  local left = raise(ttl)
  redis.call('HDEL', about, '!grant') -- the process lives
  if fence > 0 and fence > counter(redis.call('MGET', last)[1]) then
    redis.call('SET', last, digits(fence), 'PX', left + HOUR)
  end
  keep(left + HOUR)
  return answer('held', { ticket = ticket, lease = left })
end

seal = redis.call('GET', sealed)
local place = redis.call('ZSCORE', queue, id)
if place and digits(tonumber(place)) == ticket then
  keep(ttl + HOUR)
  return answer('waiting', { ticket = ticket, ahead = redis.call('ZRANK', queue, id) + (value and 1 or 0) })
end
return answer('gone')
