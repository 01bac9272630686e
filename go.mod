module github.com/redlatch/redlatch

go 1.26
