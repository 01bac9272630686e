-- inspect shows everything about the name. It only reads.
value = redis.call('GET', lock)
seal = redis.call('GET', sealed)
return {
  answer('gone'),
  redis.call('ZRANGE', queue, 0, -1, 'WITHSCORES'),
  redis.call('HGETALL', about),
  digits(counter(redis.call('MGET', last)[1])),
}
