module github.com/redlatch/redlatch/cmd/redlatch

go 1.26.0

replace github.com/redlatch/redlatch => ../..

replace github.com/redlatch/redlatch/redisstore => ../../redisstore

require golang.org/x/sys v0.50.0
