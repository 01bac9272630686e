module github.com/redlatch/redlatch/verify

go 1.26.0

require (
	github.com/redis/go-redis/v9 v9.23.0
	github.com/redlatch/redlatch v0.0.0
	github.com/redlatch/redlatch/redisstore v0.0.0-00010101000000-000000000000
	golang.org/x/sys v0.50.0
)

require (
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	go.uber.org/atomic v1.12.0 // indirect
)

replace github.com/redlatch/redlatch => ../

replace github.com/redlatch/redlatch/redisstore => ../redisstore
