module github.com/redlatch/redlatch/cmd/redlatch

go 1.26.0

replace github.com/redlatch/redlatch => ../..

replace github.com/redlatch/redlatch/redisstore => ../../redisstore

require (
	github.com/BurntSushi/toml v1.6.0
	github.com/redis/go-redis/v9 v9.23.0
	github.com/redlatch/redlatch v0.0.0
	github.com/redlatch/redlatch/redisstore v0.0.0
	github.com/spf13/cobra v1.10.2
	github.com/spf13/pflag v1.0.9
	golang.org/x/sys v0.50.0
)

require (
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	github.com/inconshreveable/mousetrap v1.1.0 // indirect
	go.uber.org/atomic v1.12.0 // indirect
)
